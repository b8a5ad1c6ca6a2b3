"""Public bounds on rows and targets: required, and what they did to the caller's records told to the caller alone.

A bound is part of the sensitivity, so it is chosen without looking at the records. One that does not fit them costs no
privacy and all of the accuracy: rows beyond it lose their length, rows far within it drown in noise. So a fit says how
many were changed, as a Python warning on the machine that holds the records; it is no part of what is released.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from comity.errors import StudyError

Floats = NDArray[np.float64]

# Few values beyond a bound are what it is for; a largest value so far within it wastes most of the signal.
_MANY = 0.1
_FAR_WITHIN = 0.1

_OWN_EYES = (
    "This tells about the records: it is for whoever holds them and is no part of what is released. Choose bounds by "
    "public knowledge, not by this figure"
)


def row_bound(bound: float | None, columns: int) -> float:
    if bound is None:
        raise StudyError(
            "bound is missing: give a bound on the norm of a row that is public knowledge, not measured on the "
            "records. Bring each column to [-1, 1] by its public range, by a FunctionTransformer for example; then "
            f"bound={_above(math.sqrt(columns))} holds for {columns} columns",
            key="bound",
        )
    if not 0 < bound < np.inf:
        raise StudyError(f"bound must be a public, positive bound on the norm of a row, found {bound}", key="bound")
    return bound


def target_range(low: float | None, high: float | None) -> tuple[float, float]:
    if low is None or high is None:
        missing = " and ".join(name for name, end in (("low", low), ("high", high)) if end is None)
        verb = "are" if low is None and high is None else "is"
        raise StudyError(
            f"{missing} {verb} missing: give the range of the target that is public knowledge, not measured on the "
            "records; targets outside it are clipped to it",
            key=missing.partition(" ")[0],
        )
    if not -np.inf < low < high < np.inf:
        raise StudyError(f"low must lie below high, and both be finite, found low={low} and high={high}", key="low")
    return low, high


def rows_clipped(X: Floats, bound: float) -> float:
    """The share of rows that are longer than the bound."""
    return float((np.linalg.norm(X, axis=1) > bound).mean())


def targets_clipped(y: Floats, low: float, high: float) -> float:
    """The share of targets outside their range."""
    return float(((y < low) | (y > high)).mean())


def rows_told(X: Floats, bound: float) -> str:
    """What the caller should know of a bound on rows; empty where it fits."""
    share, longest = rows_clipped(X, bound), float(np.linalg.norm(X, axis=1).max())
    if share > _MANY:
        return f"{share:.0%} of the rows are longer than bound={bound:g} and were scaled down to it. {_OWN_EYES}"
    if longest < _FAR_WITHIN * bound:
        return (
            f"the longest row has {longest / bound:.2g} of the length that bound={bound:g} allows, and noise is laid "
            f"out for rows of that length. {_OWN_EYES}"
        )
    return ""


def columns_told(X: Floats, ranges: Floats) -> str:
    """What the caller should know of bounds on single columns; empty where they fit."""
    outside = ((ranges[:, 0] > X) | (ranges[:, 1] < X)).mean(axis=0)
    used = np.ptp(X, axis=0) / (ranges[:, 1] - ranges[:, 0])
    if outside.max() > _MANY:
        at = int(outside.argmax())
        return (
            f"{outside[at]:.0%} of column {at} lie outside bounds={ranges[at].tolist()} and were clipped. {_OWN_EYES}"
        )
    if used.max() < _FAR_WITHIN:
        return f"no column takes up more than {used.max():.2g} of its bounds. {_OWN_EYES}"
    return ""


def targets_told(y: Floats, low: float, high: float) -> str:
    share, spread = targets_clipped(y, low, high), float(np.ptp(y))
    if share > _MANY:
        return f"{share:.0%} of the targets lie outside low={low:g}, high={high:g} and were clipped. {_OWN_EYES}"
    if spread < _FAR_WITHIN * (high - low):
        return f"targets take up {spread / (high - low):.2g} of the range low={low:g}, high={high:g}. {_OWN_EYES}"
    return ""


def _above(value: float) -> float:
    return math.ceil(value * 100) / 100
