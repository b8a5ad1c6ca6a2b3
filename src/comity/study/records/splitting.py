"""Which rows of one file each party of a simulation gets, and which are held out for its test.

A record's place in its file, or its person's identifier, and `simulation.split_seed` decide, by public randomness: the
same on every machine. The study does not: two settings are compared on the same records. A larger share holds out the
same records and more.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from comity.data import Encoding, Records, split_by_anchors, split_by_column, split_by_sizes, split_evenly
from comity.entropy import Stream
from comity.errors import BadInput, StudyError
from comity.methods.tables import hint
from comity.study.records.sources import name_source, require_parties
from comity.study.study import Study

Rows = NDArray[np.int64]


def split_stream(purpose: str, split_seed: int, group: str = "") -> Stream:
    """Public randomness for one purpose of a simulation's split."""
    return Stream.public("simulation", purpose, split_seed, group)


# Holding out.


def holdout_rows(count: int, *, share: float, split_seed: int, group: str = "") -> Rows:
    """The rows to hold out of `count`, in ascending order. A fraction of a row is decided by chance. `group` names the
    owner of the rows."""
    stream = split_stream("holdout", split_seed, group)
    chosen = int(count * share + stream.uniform(1)[0])
    return np.sort(stream.permutation(count)[:chosen])


def holdout_people(people: Iterable[str], *, share: float, split_seed: int) -> set[str]:
    """The people to hold out, ranked by a keyed hash of the identifier: the order of files does not matter."""
    stream = split_stream("holdout", split_seed, "people")
    chance, key = stream.uniform(1)[0], stream.bytes(32)
    ranked = sorted(people, key=lambda one: hmac.digest(key, one.encode("utf-8", "surrogatepass"), "sha256"))
    return set(ranked[: int(len(ranked) * share + chance)])


def exclude_rows(rows: Rows, held_out: Rows) -> Rows:
    """The rows that stay, in their order."""
    return rows[~np.isin(rows, held_out)]


def select_rows(records: Records, rows: Rows) -> Records:
    return Records(
        records.features[rows],
        None if records.labels is None else records.labels[rows],
        None if records.ids is None else records.ids[rows],
    )


def concatenate_records(parts: Sequence[Records]) -> Records | None:
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


# Dealing the rows of one file.


def deal_rows(study: Study, frame: pd.DataFrame) -> tuple[dict[str, Rows], Rows]:
    """All rows by party, as `simulation.split` says, and those among them that are held out.

    Where a column names the parties, each party holds out the share. Otherwise the share is one of all records, the
    same ones however many parties there are; where parties differ in size alone, each is dealt its part of it.
    """
    table, names = study.simulation, study.consortium.parties
    stream = split_stream("split", table.split_seed)
    where = name_source(study, table.data)
    if table.split == "by-features":
        raise StudyError(
            f'{study.where}: simulation.split = "by-features" gives parties different columns, and '
            f'{study.protocol_name} needs whole records; choose "even", "by-sizes", "by-anchors" or "by-column"',
            key="simulation.split",
        )
    if table.split == "by-column":
        parts = split_by_column(frame, _column(study, "names each record's party", list(frame.columns)), where)
        require_parties(study, list(parts), f"column {table.column!r} of {where} holds")
        return parts, np.sort(
            np.concatenate([rows[_held_out(study, len(rows), party)] for party, rows in parts.items()])
        )
    held_out = _held_out(study, len(frame))
    try:
        if table.split == "by-anchors":
            column = _column(study, "is what the parties differ in", list(frame.columns))
            dealt = split_by_anchors(_scaled(study, frame, column, where), len(names), stream, low=0.0, high=1.0)
        elif table.split == "even":
            dealt = _deal_evenly(split_evenly(len(frame), len(names), stream), held_out, stream)
        else:
            dealt = _deal_evenly(split_by_sizes(len(frame), _sizes(study, len(names)), stream), held_out, stream)
    except BadInput as error:
        raise StudyError(f"{study.where}: simulation.{error}", key=f"simulation.{error.key}") from error
    return dict(zip(names, dealt)), held_out


def _held_out(study: Study, count: int, party: str = "") -> Rows:
    """None where there are test records."""
    table = study.simulation
    share = table.holdout if table.test is None else 0.0
    return holdout_rows(count, share=share, split_seed=table.split_seed, group=party)


def _deal_evenly(parts: list[Rows], held_out: Rows, stream: Stream) -> list[Rows]:
    """Parts of these sizes, in random order, each with the same share of what is held out."""
    kept = exclude_rows(np.arange(sum(map(len, parts))), held_out)
    order = spread_out(kept[stream.permutation(len(kept))], held_out[stream.permutation(len(held_out))])
    return [np.sort(part) for part in np.split(order, np.cumsum([len(part) for part in parts])[:-1])]


def spread_out(kept: Rows, held_out: Rows) -> Rows:
    """One order of all rows with held-out rows at even distances: every stretch of it, and so every party that is dealt
    one, has its share of them."""
    count = len(kept) + len(held_out)
    order = np.empty(count, np.int64)
    places = ((2 * np.arange(len(held_out)) + 1) * count // (2 * len(held_out))) if len(held_out) else held_out
    taken = np.zeros(count, bool)
    taken[places] = True
    order[taken], order[~taken] = held_out, kept
    return order


def _column(study: Study, purpose: str, present: Sequence[str]) -> str:
    if study.simulation.column is None:
        raise StudyError(
            f'{study.where}: simulation.split = "{study.simulation.split}" needs simulation.column, which {purpose}; '
            "add it",
            key="simulation.column",
        )
    if study.simulation.column not in present:
        file = name_source(study, study.simulation.data)
        raise StudyError(
            f"{study.where}: simulation.column = {study.simulation.column!r}: {file} has no such column"
            f"{hint(study.simulation.column, present)}; name one that it has",
            key="simulation.column",
        )
    return study.simulation.column


def _sizes(study: Study, parties: int) -> list[int] | list[float]:
    sizes = study.simulation.sizes or []
    if len(sizes) != parties:
        raise StudyError(
            f"sizes needs a size for each of {parties} parties, found {len(sizes)}; give counts, or shares that "
            "add up to 1",
            key="sizes",
        )
    # A file's 1 is as good as 1.0 to the reader of the study; whole numbers above 1 are counts of records.
    return [int(size) for size in sizes] if all(size.is_integer() for size in sizes) and sum(sizes) != 1 else sizes


def _scaled(study: Study, frame: pd.DataFrame, column: str, where: str) -> NDArray[np.float64]:
    """The attribute on [0, 1] by its public bounds, whatever the protocol's encoding does to rows."""
    plain = Encoding(study.schema, scaling="unit")
    if column not in plain.names:
        raise StudyError(
            f"column = {column!r} is no numeric or ordinal column of the schema; choose one of those", key="column"
        )
    return plain.encode_features(frame, where=where)[:, plain.names.index(column)]
