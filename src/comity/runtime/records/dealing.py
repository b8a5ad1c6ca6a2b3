"""Which rows of one file each party of a simulation gets.

Public randomness named by the study's hash decides, so that the same study deals the same records on every machine.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from comity.data import Encoding, by_anchors, by_column, by_sizes, even
from comity.entropy import Stream
from comity.errors import BadInput, StudyError
from comity.runtime.records.naming_parties import matching
from comity.runtime.records.sources import named
from comity.runtime.study.study import Study

Rows = NDArray[np.int64]


def rows_of_parties(study: Study, frame: pd.DataFrame) -> dict[str, Rows]:
    """By party, as `simulation.split` says."""
    table, names = study.simulation, study.consortium.parties
    stream = Stream.public(study.hash, "split")
    where = named(study, table.data)
    if table.split == "by-features":
        raise StudyError(
            f'{study.where}: simulation.split = "by-features" gives parties different columns, and '
            f'{study.protocol_name} needs whole records; choose "even", "by-sizes", "by-anchors" or "by-column"',
            key="simulation.split",
        )
    if table.split == "by-column":
        parts = by_column(frame, _column(study, "names each record's party"), where)
        matching(study, list(parts), f"column {table.column!r} of {where} holds")
        return parts
    try:
        if table.split == "even":
            dealt = even(len(frame), len(names), stream)
        elif table.split == "by-sizes":
            dealt = by_sizes(len(frame), _sizes(study, len(names)), stream)
        else:
            column = _column(study, "is what the parties differ in")
            dealt = by_anchors(_scaled(study, frame, column, where), len(names), stream, low=0.0, high=1.0)
    except BadInput as error:
        raise StudyError(f"{study.where}: simulation.{error}", key=f"simulation.{error.key}") from error
    return dict(zip(names, dealt))


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
