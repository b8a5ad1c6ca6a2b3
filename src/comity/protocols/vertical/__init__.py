"""Regression over features held by different owners (after Xu, Yuan and Wu 2019)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from comity.lazily import lazily

if TYPE_CHECKING:
    from comity.protocols.vertical.gradients import GradientRegression as GradientRegression
    from comity.protocols.vertical.protocol import VerticalRegression as VerticalRegression

__all__ = ["GradientRegression", "VerticalRegression"]

_HOMES = {
    "GradientRegression": "comity.protocols.vertical.gradients",
    "VerticalRegression": "comity.protocols.vertical.protocol",
}
__getattr__, __dir__ = lazily(globals(), _HOMES)
