"""Vertical regression as Xu, Yuan and Wu published it.

The whole method runs by `variant = "published"`. Figures that show one part of it import that part from here.
"""

from __future__ import annotations

from comity.methods.vertical.published.polynomial import Repair, coefficients, minimise_polynomial
from comity.methods.vertical.published.sensitivities import printed_sensitivity

__all__ = [
    "Repair",
    "coefficients",
    "minimise_polynomial",
    "printed_sensitivity",
]
