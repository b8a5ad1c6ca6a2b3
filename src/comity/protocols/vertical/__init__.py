"""Regression over features held by different owners (after Xu, Yuan and Wu 2019)."""

from comity.protocols.vertical.gradients import GradientRegression
from comity.protocols.vertical.protocol import VerticalRegression

__all__ = ["GradientRegression", "VerticalRegression"]
