"""Keys, signatures and what is sealed to a key."""
