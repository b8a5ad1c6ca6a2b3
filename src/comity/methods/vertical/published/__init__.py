"""Vertical regression as Xu, Yuan and Wu published it.

The whole method runs by `variant = "published"`. Figures that show one part of it import that part from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from comity.lazy_exports import export_lazily

if TYPE_CHECKING:
    from comity.methods.vertical.published.protocol import coefficients as coefficients
    from comity.methods.vertical.published.protocol import minimise_polynomial as minimise_polynomial
    from comity.methods.vertical.published.protocol import printed_sensitivity as printed_sensitivity

__all__ = [
    "coefficients",
    "minimise_polynomial",
    "printed_sensitivity",
]

_HOMES = {
    "coefficients": "comity.methods.vertical.published.protocol",
    "minimise_polynomial": "comity.methods.vertical.published.protocol",
    "printed_sensitivity": "comity.methods.vertical.published.protocol",
}
__getattr__, __dir__ = export_lazily(globals(), _HOMES)
