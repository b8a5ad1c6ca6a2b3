"""Small pictures of digits for demonstrations: those bundled with scikit-learn, with noise.

They are public: 1,797 pictures of 8 x 8 numbers (UCI, optical recognition of handwritten digits). Test pictures and
owners' pictures are drawn from different ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from comity.data.schemas.columns import Classes, Numeric
from comity.data.schemas.schema import Schema
from comity.entropy import Stream

SIDE, INK = 8, 16
_NOISE = 1.5
_TEST_PICTURES = 500


def digit_schema() -> Schema:
    """64 numbers from 0 (white) to 16 (black), and the digit."""
    columns = tuple(Numeric(f"p{row}{column}", 0, INK, integer=True) for row in range(SIDE) for column in range(SIDE))
    return Schema(columns, Classes("digit", tuple(map(str, range(10)))))


def digit_pictures(
    count: int, label: str, *, digits: Sequence[int] = tuple(range(10)), tested: bool = False
) -> pd.DataFrame:
    """`count` pictures of these digits, the same for the same label. `tested` chooses the test pictures."""
    images, known = _bundled()
    part = slice(None, _TEST_PICTURES) if tested else slice(_TEST_PICTURES, None)
    places = np.flatnonzero(np.isin(known[part], list(digits))) + (0 if tested else _TEST_PICTURES)
    stream = Stream.public("comity digits", label)
    drawn = places[stream.integers(len(places), count)]
    noisy = images[drawn] + _NOISE * stream.normal((count, SIDE, SIDE))
    flat = np.clip(np.rint(noisy), 0, INK).astype(np.int64).reshape(count, SIDE * SIDE)
    frame = pd.DataFrame(flat, columns=list(digit_schema().names))
    return frame.assign(digit=known[drawn].astype(str))


@cache
def _bundled() -> tuple[NDArray[np.float64], NDArray[Any]]:
    from sklearn.datasets import load_digits

    digits = load_digits()
    order = Stream.public("comity digits", "order").permutation(len(digits.target))
    return digits.images[order], digits.target[order]
