"""A local model as a table of predictions: made by any program, checked in full before anything is spent.

The table has one row for each public auxiliary record, in their order, and either one column of labels or one column
of probabilities per class. It is read once: what is voted is what was checked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from comity.data import open_source
from comity.data.schemas.reading import MISSING, kind_shown, read_codes, read_numbers
from comity.errors import DataError
from comity.learn.fitting.newton import Floats
from comity.learn.voters.voting import one_hot

if TYPE_CHECKING:
    import pandas as pd

# Written decimals leave a row's sum this far from one; anything further off is another kind of number.
SLACK = 1e-6
# The name under which a column of labels is found beside others.
LABEL = "label"


@dataclass(frozen=True, eq=False)
class Predictions:
    """Votes (N, C) that were read from a table. The party's records are not looked at."""

    votes: Floats = field(repr=False)
    where: str

    def __call__(self, features: Floats, labels: NDArray[Any], auxiliary: Floats, classes: int) -> Floats:
        if self.votes.shape != (len(auxiliary), classes):
            raise DataError(
                f"{self.where}: predictions of shape {self.votes.shape} do not fit {len(auxiliary)} auxiliary records "
                f"and {classes} classes; predict the study's own auxiliary records"
            )
        return self.votes


def from_predictions(
    source: str | Path | pd.DataFrame | Mapping[str, Any],
    *,
    classes: Sequence[Any],
    rows: int,
    where: str = "predictions",
    base: Path | None = None,
) -> Predictions:
    """Votes from a CSV or Parquet file or a frame; `rows` is the number of auxiliary records, `classes` their labels.

    Every row ends up in the simplex: probabilities are not negative and sum to one within 1e-6, and are then divided
    by their sum. Whatever is wrong is a `DataError` now, at the owner's terminal.
    """
    frame = open_source(source, where=where, base=base).read()
    name = where if not isinstance(source, str | Path) else f"{where}: {source}"
    if len(frame) != rows:
        raise DataError(
            f"{name}: expected a prediction for each of the {rows} auxiliary records, in their order, found "
            f"{len(frame)}; predict all of them and nothing else"
        )
    known = tuple(str(label) for label in classes)
    frame = frame.set_axis([str(column) for column in frame.columns], axis=1)
    columns = list(frame.columns)
    if len(set(columns)) != len(columns):
        raise DataError(f"{name}: a column name occurs twice among {', '.join(columns)}; keep one of each")
    if set(columns) == set(known):
        return Predictions(_probabilities(frame[list(known)], name), name)
    if LABEL in columns or len(columns) == 1:
        return Predictions(_labels(frame[LABEL if LABEL in columns else columns[0]], known, name), name)
    missing, surplus = [c for c in known if c not in columns], [c for c in columns if c not in known]
    wrong = f"no column for {missing[0]!r}" if missing else f"also a column {surplus[0]!r}"
    raise DataError(
        f"{name}: expected one column {LABEL!r}, or exactly one column of probabilities per class "
        f"({', '.join(known[:12])}{', ...' if len(known) > 12 else ''}), found {wrong}; rename or remove columns"
    )


def _labels(column: pd.Series, known: tuple[str, ...], where: str) -> Floats:
    read = read_codes(column, known)
    bad = read.codes < 0
    if bad.any():
        row = int(np.argmax(bad))
        if read.codes[row] == MISSING:
            raise DataError(f"{where}: row {row + 1}: the label is missing; every auxiliary record needs a prediction")
        raise DataError(
            f"{where}: row {row + 1}, column {LABEL!r}: found {kind_shown(column, bad)} that is no class of the study; "
            f"correct the label to one of {', '.join(known[:12])}{', ...' if len(known) > 12 else ''}"
        )
    return one_hot(read.codes, len(known))


def _probabilities(frame: pd.DataFrame, where: str) -> Floats:
    values = np.empty(frame.shape)
    for place, name in enumerate(frame.columns):
        read = read_numbers(frame[name])
        # Written so that NaN fails.
        bad = ~((read.values >= 0) & (read.values <= 1 + SLACK))
        if bad.any():
            row = int(np.argmax(bad))
            found = "nothing" if read.missing[row] else kind_shown(frame[name], bad)
            raise DataError(
                f"{where}: row {row + 1}, column {name!r}: expected a probability between 0 and 1, found {found} "
                "that is none; write probabilities, not scores"
            )
        values[:, place] = read.values
    totals = values.sum(axis=1)
    off = ~(np.abs(totals - 1) <= SLACK)
    if off.any():
        row = int(np.argmax(off))
        raise DataError(
            f"{where}: row {row + 1}: the probabilities of the {values.shape[1]} classes must sum to 1, and do "
            "not; normalise the rows, and keep seven decimals or more"
        )
    return np.asarray(values / totals[:, None], np.float64)
