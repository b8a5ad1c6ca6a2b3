"""A run between organisations, from its coordinator's side."""
