"""Soft-label transfer as Hamm, Cao and Belkin published it.

The whole method runs by `variant = "published"`. Figures that show one part of it import that part from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from comity.lazy_exports import export_lazily

if TYPE_CHECKING:
    from comity.methods.softlabel.published.method import TOLERANCE as TOLERANCE
    from comity.methods.softlabel.published.method import Constants as Constants
    from comity.methods.softlabel.published.method import LearnsFrom as LearnsFrom
    from comity.methods.softlabel.published.method import measure_error as measure_error

__all__ = [
    "TOLERANCE",
    "Constants",
    "LearnsFrom",
    "measure_error",
]

_HOMES = {
    "TOLERANCE": "comity.methods.softlabel.published.method",
    "Constants": "comity.methods.softlabel.published.method",
    "LearnsFrom": "comity.methods.softlabel.published.method",
    "measure_error": "comity.methods.softlabel.published.method",
}
__getattr__, __dir__ = export_lazily(globals(), _HOMES)
