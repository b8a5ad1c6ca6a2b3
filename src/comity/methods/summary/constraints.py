"""What numbers of the `[summary]` table may be, for all forms of the method."""

from __future__ import annotations

from math import inf
from typing import Annotated

from annotated_types import Interval, MultipleOf

AtLeastOne = Annotated[int, Interval(ge=1)]
Features = Annotated[int, Interval(ge=2, le=2000), MultipleOf(2)]
"""Cosines and sines come in pairs."""
Payment = Annotated[float, Interval(ge=0, lt=inf)]
