"""The method as published: weights instead of sums, greedy rounds, and an auction that is not private as claimed.

The whole method runs by `variant = "published"`. Figures that show one part of it import that part from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from comity.lazy_exports import export_lazily

if TYPE_CHECKING:
    from comity.methods.summary.published.method import Bid as Bid

__all__ = [
    "Bid",
]

_HOMES = {
    "Bid": "comity.methods.summary.published.method",
}
__getattr__, __dir__ = export_lazily(globals(), _HOMES)
