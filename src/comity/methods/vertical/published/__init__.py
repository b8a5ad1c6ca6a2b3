"""Vertical regression as Xu, Yuan and Wu published it."""
