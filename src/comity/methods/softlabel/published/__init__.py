"""Soft-label transfer as Hamm, Cao and Belkin published it.

The whole method runs by `variant = "published"`. Figures that show one part of it import that part from here.
"""

from __future__ import annotations

from comity.methods.softlabel.published.method import TOLERANCE, LearnsFrom, SensitivityBound, measure_error

__all__ = [
    "TOLERANCE",
    "LearnsFrom",
    "SensitivityBound",
    "measure_error",
]
