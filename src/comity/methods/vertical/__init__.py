"""Regression over features held by different owners (after Xu, Yuan and Wu 2019)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from comity.lazily import lazily

if TYPE_CHECKING:
    from comity.methods.vertical.gradients import GradientRegression as GradientRegression
    from comity.methods.vertical.protocol import VerticalRegression as VerticalRegression

__all__ = ["GradientRegression", "VerticalRegression"]

_HOMES = {
    "GradientRegression": "comity.methods.vertical.gradients",
    "VerticalRegression": "comity.methods.vertical.protocol",
}
__getattr__, __dir__ = lazily(globals(), _HOMES)
