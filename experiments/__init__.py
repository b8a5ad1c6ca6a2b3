"""Experiments with Comity: the papers' tables and figures, measurements, accuracy on public tables, chosen constants.

They use `comity` and are no part of it: the wheel has none of this. README.md says how to run them.
"""
