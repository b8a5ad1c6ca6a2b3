"""Which rows of one file each party of a simulation gets, and which are held out for its test.

The file and `simulation.split_seed` decide, by public randomness: the same on every machine, and for every setting of
the study.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from comity.data import Encoding, split_by_anchors, split_by_column, split_by_sizes, split_evenly
from comity.entropy import Stream
from comity.errors import BadInput, StudyError
from comity.study.records.holding_out import holdout_rows, split_stream, spread_out, without
from comity.study.records.naming_parties import matching
from comity.study.records.sources import named
from comity.study.study import Study

Rows = NDArray[np.int64]


def deal_rows(study: Study, frame: pd.DataFrame) -> tuple[dict[str, Rows], Rows]:
    """All rows by party, as `simulation.split` says, and those among them that are held out.

    Where a column names the parties, each gives its share. Otherwise the share is one of all records, the same ones
    however many parties there are; where parties differ in size alone, each is dealt its part of it.
    """
    table, names = study.simulation, study.consortium.parties
    stream = split_stream("split", table.split_seed)
    where = named(study, table.data)
    if table.split == "by-features":
        raise StudyError(
            f'{study.where}: simulation.split = "by-features" gives parties different columns, and '
            f'{study.protocol_name} needs whole records; choose "even", "by-sizes", "by-anchors" or "by-column"',
            key="simulation.split",
        )
    if table.split == "by-column":
        parts = split_by_column(frame, _column(study, "names each record's party"), where)
        matching(study, list(parts), f"column {table.column!r} of {where} holds")
        return parts, np.sort(
            np.concatenate([rows[_held_out(study, len(rows), party)] for party, rows in parts.items()])
        )
    held_out = _held_out(study, len(frame))
    try:
        if table.split == "by-anchors":
            column = _column(study, "is what the parties differ in")
            dealt = split_by_anchors(_scaled(study, frame, column, where), len(names), stream, low=0.0, high=1.0)
        elif table.split == "even":
            dealt = _alike(split_evenly(len(frame), len(names), stream), held_out, stream)
        else:
            dealt = _alike(split_by_sizes(len(frame), _sizes(study, len(names)), stream), held_out, stream)
    except BadInput as error:
        raise StudyError(f"{study.where}: simulation.{error}", key=f"simulation.{error.key}") from error
    return dict(zip(names, dealt)), held_out


def _held_out(study: Study, count: int, party: str = "") -> Rows:
    """None where there are test records."""
    table = study.simulation
    share = table.holdout if table.test is None else 0.0
    return holdout_rows(count, share=share, split_seed=table.split_seed, group=party)


def _alike(parts: list[Rows], held_out: Rows, stream: Stream) -> list[Rows]:
    """Parts of these sizes, in random order, with as large a share of what is held out in each."""
    kept = without(np.arange(sum(map(len, parts))), held_out)
    order = spread_out(kept[stream.permutation(len(kept))], held_out[stream.permutation(len(held_out))])
    return [np.sort(part) for part in np.split(order, np.cumsum([len(part) for part in parts])[:-1])]


def _column(study: Study, purpose: str) -> str:
    if study.simulation.column is None:
        raise StudyError(
            f'{study.where}: simulation.split = "{study.simulation.split}" needs simulation.column, which {purpose}; '
            "add it",
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
    """The attribute on [0, 1] by its public bounds, whatever the protocol's own encoding does to rows."""
    plain = Encoding(study.schema, scaling="unit")
    if column not in plain.names:
        raise StudyError(
            f"column = {column!r} is no numeric or ordinal column of the schema; choose one of those", key="column"
        )
    return plain.encode_features(frame, where=where)[:, plain.names.index(column)]
