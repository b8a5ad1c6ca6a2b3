"""Exact draws from the distributions that the mechanisms need; only `comity.privacy.randomness` may ask for them."""
