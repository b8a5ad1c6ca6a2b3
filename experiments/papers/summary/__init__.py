"""Sarpatwar et al. (2019), done again."""
