"""A table as a simulated consortium: rows in the unit ball, labels as indices, parties, a seed. Public means only."""

from __future__ import annotations

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


def rows_in_ball(X: Floats, bound: float, *, intercept: bool) -> Floats:
    """By the public bound alone: scaled, long rows projected, the constant feature included."""
    rows = X / bound
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    rows = rows / (np.maximum(norms, 1.0) * _ROUND_UP)
    if intercept:
        rows = np.column_stack([rows, np.ones(len(rows))]) / (np.sqrt(2.0) * _ROUND_UP)
    return np.asarray(rows, np.float64)


def scale_in_ball(bound: float, *, intercept: bool) -> tuple[float, float | None]:
    """What `rows_in_ball` multiplies a row within the bound by, and its constant feature where there is one."""
    inside = 1 / (bound * _ROUND_UP)
    if not intercept:
        return inside, None
    root = np.sqrt(2.0) * _ROUND_UP
    return inside / root, float(1 / root)


def indexed(y: NDArray[Any], classes: Sequence[Any] | None) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The labels in order, and each row's place among them; a number that varies is no label."""
    check_classification_targets(y)
    known = np.unique(y if classes is None else np.asarray(classes))
    if len(known) < 2:
        raise DataError(f"y must hold at least two classes, found {_found(known)}; give classes where one is rare")
    places = np.searchsorted(known, y)
    if not np.array_equal(known[np.minimum(places, len(known) - 1)], y):
        raise DataError("y holds a label that is not among classes; add it to classes, or leave its rows out")
    return known, places.astype(np.int64)


def _found(known: NDArray[Any]) -> str:
    return f"one class, {known.tolist()[0]!r}" if len(known) else "none"


def dealt(count: int, parties: int, groups: ArrayLike | None, purpose: str) -> dict[str, NDArray[np.int64]]:
    """Which rows each party has: as `groups` says, or evenly by public chance."""
    if groups is None:
        stream = Stream.public(f"{purpose} estimator", "split", count)
        return {f"p{place}": rows for place, rows in enumerate(split_evenly(count, parties, stream))}
    names = np.asarray(groups)
    if names.shape != (count,):
        raise DataError(f"groups must name a party for each of {count} rows, found shape {names.shape}")
    known, party = np.unique(names, return_inverse=True)
    called = party_names([str(name) for name in known])
    return {name: np.flatnonzero(party == place) for place, name in enumerate(called)}


def party_names(groups: Sequence[str]) -> list[str]:
    """What to call the parties of these groups: by the groups' own names where parties may have such names, otherwise
    all by their numbers. Groups may be numbers or any texts, and their parties live in this process alone."""
    if all(map(is_party_name, groups)) and len(set(map(fold, groups))) == len(groups):
        return list(groups)
    return [f"p{place}" for place in range(len(groups))]


def seed_of(random_state: Any) -> int | None:
    if random_state is None:
        return None
    if isinstance(random_state, bool) or not isinstance(random_state, int | np.integer):
        raise StudyError(f"random_state must be None or a whole number, found {random_state!r}")
    return int(random_state)
