"""Vertical regression as Xu, Yuan and Wu published it.

The whole method runs by `variant = "published"`. Figures that show one part of it import that part from here.
"""

from __future__ import annotations

from comity.methods.vertical.published.protocol import coefficients, minimise_polynomial, printed_sensitivity

__all__ = [
    "coefficients",
    "minimise_polynomial",
    "printed_sensitivity",
]
