"""Samplers for the distributions that mechanisms need; only `comity.privacy.randomness` draws with them."""
