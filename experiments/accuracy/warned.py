"""What the plan of a case of the comparison warns of, from public figures: no table is read.

A plan depends on a table by its schema and its number of records. Those of averaging and soft labels read of the schema
how many columns and classes there are; for soft labels public rows are made by chance, because the rule reads only how
many there are and how many directions they could have. That of a vertical study reads the schema itself, and the number
of records as its declared `sizes`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from comity import Averaging, SoftLabel
from comity.entropy import Stream
from comity.privacy import Neighbours, Unit, loss_of
from comity.protocol import Consortium
from experiments.accuracy.averaging import DELTA
from experiments.accuracy.softlabel import RECORDS
from experiments.accuracy.tables import Table, table
from experiments.accuracy.vertical import DELTA as VERTICAL_DELTA
from experiments.accuracy.vertical import Dealt
from experiments.papers.softlabel.release import make_consortium

_CASE = re.compile(r"(\S+) (\S+) K=(\d+) t=(\d+) eps=(\S+)")
_WIDE = 40
"""So many directions stand for more: where noise allows as many, nothing is warned of."""


@dataclass(frozen=True)
class Shape:
    """Features of averaging's encoding, classes, training records, and public rows of soft labels."""

    features: int
    classes: int
    records: int
    public: int = 2000


SHAPES: Mapping[str, Shape] = {
    "adult-20": Shape(22, 2, 32561),
    "adult-200": Shape(223, 2, 32561),
    "adult-600": Shape(603, 2, 32561),
    "credit": Shape(192, 2, 20000),
    "kdd": Shape(281, 2, 40000),
    "har": Shape(562, 6, 3796, 1796),
}


def plan_warnings(case: str) -> tuple[str, ...]:
    """Of a row of averaging or of soft labels, by its first cell."""
    found = _CASE.fullmatch(case)
    assert found is not None, case
    parties, colluders, epsilon = int(found[3]), int(found[4]), float(found[5])
    if found[1].startswith("vertical"):
        return warn_of_columns(table(found[2]), parties, colluders, epsilon, quadratic=found[1] != "vertical")
    method, shape = found[1], SHAPES[found[2]]
    if method == "softlabel":
        return _soft_labels(shape, parties, epsilon)
    assert method in ("averaging", "averaging-pure"), f"{case}: add its method, to see what its plan warns of"
    protocol = Averaging.over_rows(
        features=shape.features,
        model="logistic" if shape.classes == 2 else "softmax",
        classes=tuple(map(str, range(shape.classes))),
        sizes=shape.records // parties,
    )
    loss = loss_of(epsilon, 0.0 if method == "averaging-pure" else DELTA)
    names = tuple(f"p{place}" for place in range(parties))
    return protocol.warnings(Consortium(parties=names, loss=loss, unit=Unit.RECORD))


def warn_of_columns(
    held: Table, parties: int, colluders: int, epsilon: float, *, quadratic: bool = False, rows: int | None = None
) -> tuple[str, ...]:
    """Of a vertical study that declares as many records as the table has to train on, or `rows`."""
    dealt = Dealt(held, parties)
    protocol = dealt.protocol("quadratic" if quadratic else "auto", sizes=rows or len(held.train))
    return protocol.warnings(
        Consortium(
            parties=tuple(dealt.columns),
            loss=loss_of(epsilon, VERTICAL_DELTA),
            unit=Unit.RECORD,
            neighbours=Neighbours.REPLACE,
            colluders=colluders,
        )
    )


def _soft_labels(shape: Shape, parties: int, epsilon: float) -> tuple[str, ...]:
    protocol = SoftLabel.over_rows(
        auxiliary=_public_rows(shape.public, min(shape.features, _WIDE)),
        classes=tuple(map(str, range(shape.classes))),
        sizes=RECORDS,
    )
    return protocol.warnings(make_consortium(parties, epsilon, DELTA))


@lru_cache
def _public_rows(count: int, features: int) -> NDArray[np.float64]:
    return Stream.public("warned").normal((count, features))
