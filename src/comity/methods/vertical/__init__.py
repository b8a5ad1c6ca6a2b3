"""Regression over features held by different owners (after Xu, Yuan and Wu 2019)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from comity.lazy_exports import export_lazily

if TYPE_CHECKING:
    from comity.methods.vertical.method import GradientRegression as GradientRegression
    from comity.methods.vertical.method import Vertical as Vertical
    from comity.methods.vertical.method import VerticalRegression as VerticalRegression

__all__ = ["GradientRegression", "Vertical", "VerticalRegression"]

_HOMES = {
    "GradientRegression": "comity.methods.vertical.method",
    "Vertical": "comity.methods.vertical.method",
    "VerticalRegression": "comity.methods.vertical.method",
}
__getattr__, __dir__ = export_lazily(globals(), _HOMES)
