"""Products of what different parties hold, left shared between them."""
