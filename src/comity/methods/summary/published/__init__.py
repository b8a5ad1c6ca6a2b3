"""The method as published: weights instead of sums, greedy rounds, and an auction that is not private as claimed.

The whole method runs by `variant = "published"`. Figures that show one part of it import that part from here.
"""

from __future__ import annotations

from comity.methods.summary.published.method import Bid, PublishedBudget

__all__ = [
    "Bid",
    "PublishedBudget",
]
