"""Which records a simulation holds out for its test.

A record's place in its file, or its person's identifier, and `simulation.split_seed` decide, by public randomness. The
study does not: two settings are compared on the same records. A larger share holds out the same records and more.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.data import Records
from comity.entropy import Stream

Rows = NDArray[np.int64]


def split_stream(purpose: str, split_seed: int, group: str = "") -> Stream:
    """Public randomness for one purpose of a simulation's split."""
    return Stream.public("simulation", purpose, split_seed, group)


def holdout_rows(count: int, *, share: float, split_seed: int, group: str = "") -> Rows:
    """The rows to hold out of `count`, in ascending order. A fraction of a row is decided by chance. `group` names the
    owner whose own rows these are."""
    stream = split_stream("holdout", split_seed, group)
    chosen = int(count * share + stream.uniform(1)[0])
    return np.sort(stream.permutation(count)[:chosen])


def holdout_people(people: Iterable[str], *, share: float, split_seed: int) -> set[str]:
    """The people to hold out, ranked by a keyed hash of the identifier, so that the order of files does not matter."""
    stream = split_stream("holdout", split_seed, "people")
    chance, key = stream.uniform(1)[0], stream.bytes(32)
    ranked = sorted(people, key=lambda one: hmac.digest(key, one.encode("utf-8", "surrogatepass"), "sha256"))
    return set(ranked[: int(len(ranked) * share + chance)])


def without(rows: Rows, held_out: Rows) -> Rows:
    """The rows that stay, in their order."""
    return rows[~np.isin(rows, held_out)]


def spread_out(kept: Rows, held_out: Rows) -> Rows:
    """One order of all rows in which rows that are held out lie at even distances: every stretch of it, and so every
    party that is dealt one, has its share of them."""
    count = len(kept) + len(held_out)
    order = np.empty(count, np.int64)
    places = ((2 * np.arange(len(held_out)) + 1) * count // (2 * len(held_out))) if len(held_out) else held_out
    taken = np.zeros(count, bool)
    taken[places] = True
    order[taken], order[~taken] = held_out, kept
    return order


def rows_of(records: Records, rows: Rows) -> Records:
    return Records(
        records.features[rows],
        None if records.labels is None else records.labels[rows],
        None if records.ids is None else records.ids[rows],
    )


def concatenated(parts: Sequence[Records]) -> Records | None:
    """All records in one; None where there are none. Labels and ids where every part has them."""
    parts = [part for part in parts if len(part)]
    if not parts:
        return None
    labels: list[NDArray[Any]] = [part.labels for part in parts if part.labels is not None]
    ids = [part.ids for part in parts if part.ids is not None]
    return Records(
        np.concatenate([part.features for part in parts]),
        np.concatenate(labels) if len(labels) == len(parts) else None,
        np.concatenate(ids) if len(ids) == len(parts) else None,
    )
