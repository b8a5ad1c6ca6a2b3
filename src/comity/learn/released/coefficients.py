"""Weights over encoded rows as scikit-learn has them: coefficients of the features, and an intercept beside them.

An encoding may append a constant feature, so that weights count in the norm that a study bounds. To a reader its weight
times its value is the intercept.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from comity.errors import DataError

Floats = NDArray[np.float64]


def constant_of(constant: float | None, encoding: Any) -> float | None:
    """The value of the last entry of every row, where it is a constant feature: as it was said, or by the encoding."""
    return getattr(encoding, "constant", None) if constant is None else float(constant)


def split_constant(weights: Floats, constant: float | None) -> tuple[Floats, Floats]:
    """Weights (..., D) as coefficients (..., d) and intercepts (...), of rows that end in `constant`."""
    if constant is None:
        return weights, np.zeros(weights.shape[:-1])
    return weights[..., :-1], weights[..., -1] * constant


def encoded_rows(X: Any, width: int, constant: float | None, encoding: Any) -> Floats:
    """Rows of `width` entries from a frame of raw columns, from encoded rows, or from encoded rows without their
    constant."""
    if encoding is not None and isinstance(X, pd.DataFrame):
        rows = np.asarray(encoding.encode_features(X), np.float64)
    else:
        try:
            rows = np.asarray(X, np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(
                f"the model expects rows of {width} numbers, found something else ({error}); "
                "encode the records first, or give the model its encoding"
            ) from error
    if constant is not None and rows.ndim == 2 and rows.shape[1] == width - 1:
        rows = np.column_stack([rows, np.full(len(rows), constant)])
    if rows.ndim != 2 or rows.shape[1] != width:
        also = "" if constant is None else f", or of {width - 1} without the constant one"
        raise DataError(f"the model expects rows of {width} features, shape (n, {width}){also}; found {rows.shape}")
    if not np.isfinite(rows).all():
        raise DataError("the rows hold NaN or infinity; fill missing values by the schema's policy first")
    return rows
