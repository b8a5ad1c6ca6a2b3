"""Averaged classifiers as Pathak, Rane and Raj published them."""
