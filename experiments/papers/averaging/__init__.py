"""Pathak, Rane and Raj (2010), done again."""
