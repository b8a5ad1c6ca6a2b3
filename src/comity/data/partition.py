"""Splits of one table among simulated parties: each record, or each column, goes to one party.

Splits use public randomness only. They exist for simulation, where one machine has all records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isclose
from numbers import Integral
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from comity.data.schemas.reading import category_text, read_ids
from comity.data.schemas.schema import Schema
from comity.data.tables.table import column_of
from comity.entropy import Stream
from comity.errors import DataError, SchemaError, StudyError

if TYPE_CHECKING:
    import pandas as pd

Rows = NDArray[np.int64]

_BLOCK_ENTRIES = 1 << 22
_OFFSET = 1e-3


def split_evenly(n: int, parties: int, stream: Stream) -> list[Rows]:
    """A random split into parts whose sizes differ by one at most."""
    if not 1 <= parties <= n:
        raise StudyError(
            f"split: {n} records can't be dealt evenly to {parties} parties; ask for between 1 and {n} parties.",
            key="split",
        )
    return _deal(n, np.full(parties, n // parties) + (np.arange(parties) < n % parties), stream)


def split_by_sizes(n: int, sizes: Sequence[int] | Sequence[float], stream: Stream) -> list[Rows]:
    """A random split into parts of given sizes: counts that add up to n, or shares that add up to 1.

    Shares are rounded to counts by largest remainders: every record has a party.
    """
    counts = all(isinstance(size, Integral) for size in sizes)
    numbers = np.asarray(sizes, np.float64)
    if numbers.size == 0 or not np.isfinite(numbers).all() or (numbers < 0).any():
        raise StudyError(f"split: expected sizes >= 0, found {list(sizes)}; give a size per party.", key="split")
    if counts and numbers.sum() != n:
        raise StudyError(
            f"split: the sizes add up to {int(numbers.sum())}, there are {n} records; every record goes to "
            "one party, so correct the sizes or give shares such as 0.5.",
            key="split",
        )
    if counts:
        return _deal(n, numbers.astype(np.int64), stream)
    if not isclose(numbers.sum(), 1, abs_tol=1e-9):
        raise StudyError(f"split: the shares add up to {numbers.sum():g}, expected 1; correct them.", key="split")
    exact = numbers / numbers.sum() * n
    whole = np.floor(exact).astype(np.int64)
    whole[np.argsort(whole - exact, kind="stable")[: n - int(whole.sum())]] += 1
    return _deal(n, whole, stream)


def split_by_anchors(
    features: NDArray[np.float64],
    parties: int,
    stream: Stream,
    *,
    column: int = 0,
    low: float | None = None,
    high: float | None = None,
) -> list[Rows]:
    """Parties that differ in one attribute, as in Fioretto and Van Hentenryck (2019).

    Party i has an anchor a_i, uniform on [low, high] (by default the range of the values); a record with
    value x goes to party i with probability proportional to 1/(|x − a_i| + 0.001). A party may get no records.
    """
    values = np.asarray(features, np.float64)
    if values.ndim == 2:
        if not 0 <= column < values.shape[1]:
            raise StudyError(
                f"split: there is no column {column} among {values.shape[1]}; name the attribute that "
                "parties differ in.",
                key="split",
            )
        values = values[:, column]
    if parties < 1:
        raise StudyError(f"split: expected at least one party, found {parties}; correct it.", key="split")
    if not np.isfinite(values).all():
        raise DataError(
            f"split: the attribute for anchors has {int((~np.isfinite(values)).sum())} missing or infinite "
            "values; encode the records first, or choose another attribute.",
            key="split",
        )
    low = float(values.min(initial=np.inf)) if low is None else low
    high = float(values.max(initial=-np.inf)) if high is None else high
    if len(values) and not low <= high:
        raise StudyError(f"split: expected low <= high, found {low:g} and {high:g}; correct them.", key="split")
    anchors = stream.uniform(parties) * (high - low) + low if len(values) else np.zeros(parties)
    chance = stream.uniform(len(values))
    chosen = np.empty(len(values), np.int64)
    step = max(1, _BLOCK_ENTRIES // parties)
    for start in range(0, len(values), step):
        weights = 1 / (np.abs(values[start : start + step, None] - anchors) + _OFFSET)
        edges = np.cumsum(weights, axis=1)
        chosen[start : start + step] = (edges[:, :-1] < chance[start : start + step, None] * edges[:, -1:]).sum(axis=1)
    order = np.argsort(chosen, kind="stable").astype(np.int64)
    return np.split(order, np.cumsum(np.bincount(chosen, minlength=parties))[:-1])


def split_by_column(frame: pd.DataFrame, column: str, where: str = "the data") -> dict[str, Rows]:
    """One party for each value of a column (a hospital, a state), in the order of their names."""
    names, missing = read_ids(column_of(frame, column, where))
    if missing.any():
        raise DataError(
            f"{where}: column {column!r} names each record's party and is missing in record "
            f"{int(np.argmax(missing)) + 1} and {int(missing.sum()) - 1} more (the first is 1); complete "
            "it, or remove these records.",
            key=column,
        )
    import pandas as pd

    codes, parties = pd.factorize(names, sort=True)
    order = np.argsort(codes, kind="stable").astype(np.int64)
    parts = np.split(order, np.cumsum(np.bincount(codes, minlength=len(parties)))[:-1])
    return {category_text(party): part for party, part in zip(parties, parts)}


def split_columns(schema: Schema, parties: Mapping[str, str | Iterable[str]]) -> dict[str, tuple[str, ...]]:
    """The columns of each party by its globs. Every feature and the target must be at exactly one party.

    All parties have the identifier, which is not listed.
    """
    holder: dict[str, str] = {}
    split: dict[str, tuple[str, ...]] = {}
    for party, patterns in parties.items():
        try:
            split[party] = schema.columns_matching(patterns)
        except SchemaError as error:
            raise StudyError(f"parties.{party}.{error}", key=f"parties.{party}.columns") from error
        for name in split[party]:
            if name in holder:
                raise StudyError(
                    f"parties.{party}.columns: {name!r} is at {holder[name]!r} already; every column is at "
                    "one party, so narrow one of the patterns.",
                    key=f"parties.{party}.columns",
                )
            holder[name] = party
    everything = (*schema.names, *(() if schema.target is None else (schema.target.name,)))
    unassigned = [name for name in everything if name not in holder]
    if unassigned:
        raise StudyError(
            f"parties: no party has {', '.join(map(repr, unassigned))}; add them to a party's columns, or "
            "remove them from the schema.",
            key="parties",
        )
    return split


def _deal(n: int, counts: NDArray[np.int64], stream: Stream) -> list[Rows]:
    return [np.sort(part) for part in np.split(stream.permutation(n), np.cumsum(counts)[:-1])]
