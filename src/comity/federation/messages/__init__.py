"""What crosses: asks, replies and letters as bytes, signed and sealed, and the channel that carries them."""
