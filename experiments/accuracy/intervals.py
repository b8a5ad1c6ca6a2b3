"""Intervals of linear models beside an oracle's: how wide, and how often each coefficient is in its own.

Rows are drawn anew from a table, with fresh noise each time; what is to be covered are the coefficients of the whole
table. The oracle knows noise, ridge and residuals: its interval reaches 1.96 times the root mean square of how far a
coefficient is off, over the draws. Columns go to two owners in turn, one of which may collude.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from comity.data import Bounded, Categorical, Numeric, Schema, dataset
from comity.entropy import Stream
from comity.methods.vertical import Vertical, add_noise, fit_regression
from comity.privacy import Approx, Neighbours, SeededNoise, Unit
from comity.protocol import Consortium
from experiments.accuracy.tables import Table, table

DELTA = 1e-5
EPSILONS = (1.0, 10.0, 100.0)
ROWS, DRAWS = 40_000, 200
_REACH = 1.959964
_DECIDED = 0.25


def hours() -> Table:
    """Hours a week on Adult, by all other columns."""
    whole = table("adult")
    columns = tuple(column for column in whole.schema.columns if column.name != "hours_per_week")
    return Table("hours", Schema(columns, Bounded("hours_per_week", 1, 99)), whole.train, whole.test)


def rentals() -> Table:
    """Bicycles rented an hour."""
    frame = dataset("bike_hour")
    names = ("season", "hr", "weekday", "workingday", "weathersit", "mnth")
    frame = frame.assign(**{name: frame[name].astype(str) for name in names})
    columns: list[Any] = [Categorical(name, tuple(sorted(set(frame[name])))) for name in names]
    columns += [Numeric(name, 0, 1) for name in ("temp", "hum", "windspeed")]
    return Table("rentals", Schema(tuple(columns), Bounded("cnt", 0, 1000)), frame, frame.iloc[:0])


TABLES: Mapping[str, Callable[[], Table]] = {"cps": lambda: table("cps"), "hours": hours, "rentals": rentals}


def run(*, quick: bool, out: Path | None = None) -> list[dict[str, Any]]:
    """`ours` is the median over coefficients of an interval's width over the oracle's."""
    return list(rows(quick=quick))


def rows(*, quick: bool) -> Iterator[dict[str, Any]]:
    draws = 20 if quick else DRAWS
    for name, make in TABLES.items():
        measured = _Measured(make())
        for epsilon in EPSILONS:
            yield {"case": f"{name} eps={epsilon:g}", **measured.compare(epsilon, draws), "draws": draws}


class _Measured:
    def __init__(self, held: Table) -> None:
        schema, names = held.schema, [column.name for column in held.schema.columns]
        assert schema.target is not None
        columns = {"p0": (*names[::2], schema.target.name), "p1": tuple(names[1::2])}
        self.protocol = Vertical.over_columns(
            schema=schema, columns=columns, products="dealer", solver="quadratic", bins=True, max_rows=1 << 19
        )
        design = self.protocol.design
        parts = [
            design.matrix(design.encoding_of(party).encode(held.train[list(own)]).records, party)
            for party, own in columns.items()
        ]
        self.rows, self.name = np.hstack(parts), held.name

    def compare(self, epsilon: float, draws: int) -> dict[str, Any]:
        protocol, entries = self.protocol, self.protocol.entries
        truth = fit_regression(entries, entries.exact(self.rows), len(self.rows), 0.0).coef
        consortium = Consortium(
            parties=tuple(protocol.columns),
            loss=Approx(epsilon, DELTA),
            unit=Unit.RECORD,
            neighbours=Neighbours.REPLACE,
            colluders=1,
        )
        found = []
        for number in range(draws):
            words = Stream.public("intervals", self.name, str(epsilon), number).words(ROWS + 1)
            chosen = (words[1:] % np.uint64(len(self.rows))).astype(np.int64)
            noisy = add_noise(protocol, entries.exact(self.rows[chosen]), consortium, SeededNoise(int(words[0])))
            found.append(protocol.fit(noisy, ROWS, consortium))
        off = np.abs(np.array([one.coef for one in found]) - truth)
        errors = np.array([one.errors for one in found])
        oracle = np.sqrt((off**2).mean(axis=0))
        covered = (off <= _REACH * errors).mean(axis=0)
        decided = np.mean([one.shrunk for one in found], axis=0) > _DECIDED
        ratio = np.median(errors, axis=0) / oracle
        return {
            "ours": float(np.median(ratio)),
            "seen": float(np.median(ratio[~decided])) if not decided.all() else float("nan"),
            "error": float(np.median(errors)),
            "least covered": float(covered.min()),
            "covered": float(covered.mean()),
            "decided by the ridge": float(decided.mean()),
        }
