"""Measurements of what methods are made of: masks, products, comparisons, encryption."""
