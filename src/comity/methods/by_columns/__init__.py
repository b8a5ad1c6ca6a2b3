"""What methods share whose parties hold different columns of the same records, and the types of their options."""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_types import Interval

ProductMethod = Literal["rlwe", "dealer"]
"""How products across parties are computed."""

AlignmentMethod = Literal["none", "keyed", "ecdh"]
"""How rows of the same person are matched."""

MaxRows = Annotated[int, Interval(ge=2, le=1 << 24)]
"""The largest number of common rows that the ring of the products has room for."""
