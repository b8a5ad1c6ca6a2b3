"""Xu, Yuan and Wu (2019), done again."""
