"""The caller's table as a simulated consortium, by public means alone: rows in the unit ball, labels, parties.

A bound is part of the sensitivity, so the caller chooses it without looking at the records. A bound that does not fit
them costs no privacy, but accuracy: rows beyond it lose their length, and rows far within it drown in noise. `fit`
therefore warns its caller, on the machine that holds the records. The warning is no part of what is released.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.multiclass import check_classification_targets

from comity.data import split_evenly
from comity.entropy import Stream
from comity.errors import DataError, StudyError
from comity.federation.declare.consortium import fold, is_party_name

Floats = NDArray[np.float64]

# Divisors of rows are rounded up by more than the error of computing a norm, so that no row leaves the unit ball.
_ROUND_UP = 1 + 2.0**-40
# `fit` warns above this share of clipped values, and where the largest value is below this share of its bound.
_MANY = 0.1
_FAR_WITHIN = 0.1
_NOT_RELEASED = (
    "This figure is exact: it is for the holder of the records and is not released. Choose bounds by public knowledge, "
    "not by this figure"
)


def check_row_bound(bound: float | None, columns: int) -> float:
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


def check_target_range(low: float | None, high: float | None) -> tuple[float, float]:
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


def scale_into_ball(X: Floats, bound: float, *, intercept: bool) -> Floats:
    """Divide rows by the public bound, project longer ones on the unit ball, and add the constant feature."""
    rows = X / bound
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    rows = rows / (np.maximum(norms, 1.0) * _ROUND_UP)
    if intercept:
        rows = np.column_stack([rows, np.ones(len(rows))]) / (np.sqrt(2.0) * _ROUND_UP)
    return np.asarray(rows, np.float64)


def ball_scale(bound: float, *, intercept: bool) -> tuple[float, float | None]:
    """The factor by which `scale_into_ball` multiplies a row within the bound, and the constant feature's value."""
    inside = 1 / (bound * _ROUND_UP)
    if not intercept:
        return inside, None
    root = np.sqrt(2.0) * _ROUND_UP
    return inside / root, float(1 / root)


def index_labels(y: NDArray[Any], classes: Sequence[Any] | None) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The labels in order, and each row's index among them. Refuses a continuous target."""
    check_classification_targets(y)
    known = np.unique(y if classes is None else np.asarray(classes))
    if len(known) < 2:
        raise DataError(f"y must hold at least two classes, found {_describe(known)}; give classes where one is rare")
    places = np.searchsorted(known, y)
    if not np.array_equal(known[np.minimum(places, len(known) - 1)], y):
        raise DataError("y holds a label that is not among classes; add it to classes, or leave its rows out")
    return known, places.astype(np.int64)


def _describe(known: NDArray[Any]) -> str:
    return f"one class, {known.tolist()[0]!r}" if len(known) else "none"


def split_rows(count: int, parties: int, groups: ArrayLike | None, purpose: str) -> dict[str, NDArray[np.int64]]:
    """Each party's rows: as `groups` says, or evenly by public randomness."""
    if groups is None:
        stream = Stream.public(f"{purpose} estimator", "split", count)
        return {f"p{place}": rows for place, rows in enumerate(split_evenly(count, parties, stream))}
    names = np.asarray(groups)
    if names.shape != (count,):
        raise DataError(f"groups must name a party for each of {count} rows, found shape {names.shape}")
    known, party = np.unique(names, return_inverse=True)
    parties_by_group = enumerate(name_parties([str(name) for name in known]))
    return {name: np.flatnonzero(party == place) for place, name in parties_by_group}


def name_parties(groups: Sequence[str]) -> list[str]:
    """A party name for each group: the group's name, where all are valid and distinct names of parties, or p0, p1, …

    Groups may be numbers or any texts; the parties exist in this process alone."""
    if all(map(is_party_name, groups)) and len(set(map(fold, groups))) == len(groups):
        return list(groups)
    return [f"p{place}" for place in range(len(groups))]


def check_seed(random_state: Any) -> int | None:
    if random_state is None:
        return None
    if isinstance(random_state, bool) or not isinstance(random_state, int | np.integer):
        raise StudyError(f"random_state must be None or a whole number, found {random_state!r}")
    return int(random_state)


def clipped_rows(X: Floats, bound: float) -> float:
    """The share of rows that are longer than the bound."""
    return float((np.linalg.norm(X, axis=1) > bound).mean())


def clipped_targets(y: Floats, low: float, high: float) -> float:
    """The share of targets outside their range."""
    return float(((y < low) | (y > high)).mean())


def describe_row_bound(X: Floats, bound: float) -> str:
    """A warning about a bound on rows; empty where it fits."""
    share, longest = clipped_rows(X, bound), float(np.linalg.norm(X, axis=1).max())
    if share > _MANY:
        return f"{share:.0%} of the rows are longer than bound={bound:g} and were scaled down to it. {_NOT_RELEASED}"
    if longest < _FAR_WITHIN * bound:
        return (
            f"the longest row has {longest / bound:.2g} of the length that bound={bound:g} allows, and noise is "
            f"scaled to rows of that length. {_NOT_RELEASED}"
        )
    return ""


def describe_column_bounds(X: Floats, ranges: Floats) -> str:
    """A warning about bounds on columns; empty where they fit."""
    outside = ((ranges[:, 0] > X) | (ranges[:, 1] < X)).mean(axis=0)
    used = np.ptp(X, axis=0) / (ranges[:, 1] - ranges[:, 0])
    if outside.max() > _MANY:
        at = int(outside.argmax())
        bounds = ranges[at].tolist()
        return f"{outside[at]:.0%} of column {at} lie outside bounds={bounds} and were clipped. {_NOT_RELEASED}"
    if used.max() < _FAR_WITHIN:
        return f"no column takes up more than {used.max():.2g} of its bounds. {_NOT_RELEASED}"
    return ""


def describe_target_range(y: Floats, low: float, high: float) -> str:
    """A warning about the range of the target; empty where it fits."""
    share, spread = clipped_targets(y, low, high), float(np.ptp(y))
    if share > _MANY:
        return f"{share:.0%} of the targets lie outside low={low:g}, high={high:g} and were clipped. {_NOT_RELEASED}"
    if spread < _FAR_WITHIN * (high - low):
        return f"targets take up {spread / (high - low):.2g} of the range low={low:g}, high={high:g}. {_NOT_RELEASED}"
    return ""


def _above(value: float) -> float:
    return math.ceil(value * 100) / 100
