"""Intervals of linear models beside an oracle's: how wide, and how often each coefficient is in its own.

Rows are drawn anew from a table, with fresh noise each time; what is to be covered are the coefficients of the whole
table, those of categories counted from the average record of the run. Noise is drawn from a normal distribution of the
opened noise's deviation and added to the moments: the fit of a run follows, without the run. The oracle knows noise,
ridge and residuals: its interval reaches 1.96 times the root mean square of how far an estimate is off, over the draws.
A coefficient that a run can't tell counts as untold, and not among the intervals of that run. Columns go to two owners
in turn, one of which may collude.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from comity.data import Bounded, Categorical, Numeric, Schema, dataset
from comity.entropy import Stream
from comity.learn.quadratic import DECIDED
from comity.methods.vertical import Vertical, fit_regression
from comity.privacy import Approx, Neighbours, Unit
from comity.protocol import Consortium
from comity.special import ndtr
from experiments.accuracy.other_tables import other_table
from experiments.accuracy.tables import Table, table

DELTA = 1e-5
EPSILONS = (1.0, 10.0, 100.0)
ROWS, DRAWS = 40_000, 600
_LEAST, _MOST = 0.93, 0.98
_REACH = 1.959964
_GRID = 1e-8
"""Eigenvalues over the largest that rounding to the grid of the secure products makes."""
_SEEN = 0.5
"""A coefficient's share of runs that tell it from which on its coverage is shown."""


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


def limits() -> Table:
    """Limits of credit, by all other columns."""
    whole = table("credit")
    columns = tuple(column for column in whole.schema.columns if column.name != "limit_bal")
    return Table("limits", Schema(columns, Bounded("limit_bal", 0, 1_000_000)), whole.train, whole.test)


def shares() -> Table:
    """How often an article is shared, as a power of ten."""
    held = other_table("news")
    frame = pd.concat([held.train, held.test], ignore_index=True)
    frame = frame.assign(power=np.log10(frame["shares"].clip(1, 1_000_000)))
    return Table("shares", Schema(held.schema.columns, Bounded("power", 0, 6)), frame, frame.iloc[:0])


def generated() -> Table:
    """Ten numbers that depend on each other and six levels, the rarest with 3 % of the rows."""
    stream, rows, width = Stream.public("intervals", "generated"), 60_000, 10
    mixed = 0.4 * np.eye(width) + 0.08 * stream.normal((width, width))
    numbers = np.clip(stream.normal((rows, width)) @ mixed, -1, 1)
    level = np.searchsorted(np.cumsum((0.4, 0.25, 0.15, 0.1, 0.07)), stream.uniform(rows))
    means = np.array([0.0, 0.1, -0.1, 0.2, -0.2, 0.1])[level]
    target = 0.25 * numbers @ stream.normal(width) + means + 0.2 * stream.normal(rows)
    frame = pd.DataFrame(numbers, columns=[f"x{place}" for place in range(width)])
    frame = frame.assign(level=level.astype(str), y=np.clip(target, -1, 1))
    columns: list[Any] = [Numeric(f"x{place}", -1, 1) for place in range(width)]
    columns.append(Categorical("level", tuple(map(str, range(6)))))
    return Table("generated", Schema(tuple(columns), Bounded("y", -1, 1)), frame, frame.iloc[:0])


def skewed() -> Table:
    """Six numbers with long tails that depend on each other and on two choices, whose rarest levels have 0.3 %."""
    stream, rows, width = Stream.public("intervals", "skewed"), 60_000, 6
    shared = stream.normal(rows)
    columns: list[Any] = []
    frame, score = pd.DataFrame(), np.zeros(rows)
    for name, levels in (("trade", 14), ("town", 9)):
        shares = 1 / np.arange(1, levels + 1) ** 1.8
        order = np.argsort(np.argsort(0.5 * shared + stream.normal(rows))) / rows
        level = np.searchsorted(np.cumsum(shares / shares.sum())[:-1], order)
        frame[name] = level.astype(str)
        columns.append(Categorical(name, tuple(map(str, range(levels)))))
        score += 0.15 * stream.normal(levels)[level]
    for place in range(width):
        number = np.clip(np.exp(0.5 * shared + 0.7 * stream.normal(rows)) / 8, 0, 1)
        frame[f"x{place}"] = number
        columns.append(Numeric(f"x{place}", 0, 1))
        score += 0.4 * float(stream.normal(())) * (number - number.mean())
    target = np.clip(score - 0.2 + 0.15 * stream.normal(rows), -1, 1)
    return Table("skewed", Schema(tuple(columns), Bounded("y", -1, 1)), frame.assign(y=target), frame.iloc[:0])


def unequal() -> Table:
    """Five numbers and seven levels, with residuals that are four times as large in some rows as in others."""
    stream, rows, width = Stream.public("intervals", "unequal"), 60_000, 5
    numbers = np.clip(0.5 * stream.normal((rows, width)), -1, 1)
    level = np.searchsorted(np.cumsum((0.3, 0.25, 0.2, 0.12, 0.08, 0.04)), stream.uniform(rows))
    size = 0.1 + 0.25 * np.abs(numbers[:, 0]) + 0.1 * (level == 4)
    target = 0.2 * numbers @ stream.normal(width) + 0.2 * stream.normal(7)[level] + size * stream.normal(rows)
    frame = pd.DataFrame(numbers, columns=[f"x{place}" for place in range(width)])
    frame = frame.assign(level=level.astype(str), y=np.clip(target, -1, 1))
    columns: list[Any] = [Numeric(f"x{place}", -1, 1) for place in range(width)]
    columns.append(Categorical("level", tuple(map(str, range(7)))))
    return Table("unequal", Schema(tuple(columns), Bounded("y", -1, 1)), frame, frame.iloc[:0])


TABLES: Mapping[str, Callable[[], Table]] = {
    "cps": lambda: table("cps"),
    "hours": hours,
    "rentals": rentals,
    "limits": limits,
    "shares": shares,
    "generated": generated,
    "skewed": skewed,
    "unequal": unequal,
}
"""No constant of intervals was chosen on the last two; the correction of means was made after a look at `skewed`."""


def run(*, quick: bool, out: Path | None = None) -> list[dict[str, Any]]:
    """`ours` is the median over told coefficients of an interval's width over the oracle's."""
    return list(rows(quick=quick))


def rows(*, quick: bool, names: Sequence[str] = tuple(TABLES)) -> Iterator[dict[str, Any]]:
    draws = 20 if quick else DRAWS
    for name in names:
        measured = _Measured(TABLES[name]())
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
        gram, moment, _ = self._moments(self.protocol.entries.exact(self.rows), len(self.rows))
        self.weights = np.linalg.lstsq(gram, moment, rcond=_GRID)[0] / float(np.abs(design.label.table).max())

    def _moments(self, opened: Any, rows: int) -> tuple[Any, Any, float]:
        entries = self.protocol.entries
        return entries.split(entries.assemble(opened, rows))

    def _truth(self, opened: Any) -> Any:
        """The coefficients of the whole table, from the average record of a run."""
        design = self.protocol.design
        means = self._moments(opened, ROWS)[0][:-1, -1] / (design.constant * ROWS)
        return design.about_average(means) @ self.weights

    @lru_cache(maxsize=1)  # noqa: B019
    def _drawn(self, draws: int) -> Any:
        """Exact moments of rows drawn anew, the same for every epsilon."""
        entries, found = self.protocol.entries, []
        for number in range(draws):
            stream = Stream.public("intervals", self.name, number)
            found.append(entries.exact(self.rows[stream.integers(len(self.rows), ROWS)]))
        return found

    def compare(self, epsilon: float, draws: int) -> dict[str, Any]:
        consortium = Consortium(
            parties=tuple(self.protocol.columns),
            loss=Approx(epsilon, DELTA),
            unit=Unit.RECORD,
            neighbours=Neighbours.REPLACE,
            colluders=1,
        )
        deviation, found, truths = self.protocol.deviation(consortium), [], []
        for number, exact in enumerate(self._drawn(draws)):
            stream = Stream.public("noise of intervals", self.name, str(epsilon), number)
            opened = exact + deviation * stream.normal(exact.shape)
            found.append(fit_regression(self.protocol.entries, opened, ROWS, deviation))
            truths.append(self._truth(opened))
        off = np.array([one.unshrunk for one in found]) - np.array(truths)
        errors = np.array([one.errors for one in found])
        told = np.array([one.shrunk for one in found]) <= DECIDED
        inside = np.abs(off) <= _REACH * errors
        often = told.mean(axis=0) >= _SEEN
        covered, ratio, width, chance = [], [], [], 0.0
        for place in np.flatnonzero(often):
            own = told[:, place]
            covered.append(float(inside[own, place].mean()))
            width.append(float(np.median(errors[own, place])))
            ratio.append(width[-1] / float(np.sqrt((off[own, place] ** 2).mean())))
            deviation_of_share = sqrt(0.95 * 0.05 / own.sum())
            chance += float(ndtr((_LEAST - 0.95) / deviation_of_share) + ndtr((0.95 - _MOST) / deviation_of_share))
        return {
            "ours": _median(ratio),
            "error": _median(width),
            "least covered": min(covered, default=float("nan")),
            "covered": float(np.mean(covered)) if covered else float("nan"),
            "most covered": max(covered, default=float("nan")),
            "below 93": sum(one < _LEAST for one in covered),
            "above 98": sum(one > _MOST for one in covered),
            "outside by chance": chance,
            "shown": len(covered),
            "told": float(told.mean()),
            "coefficients": told.shape[1],
            "covered untold": float(inside[~told].mean()) if not told.all() else float("nan"),
        }


def _median(values: Sequence[float]) -> float:
    return float(np.median(values)) if values else float("nan")
