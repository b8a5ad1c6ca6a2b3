"""Vertical regressions on the tables of the comparison that have two classes or a number as target.

Columns go to the parties in turn, the first one has the target, and all that declare cells are cut into them. Classes
are learnt by the default of a study (`vertical`) and by the quadratic alone (`vertical-quadratic`), numbers by least
squares; `pooled` is a logistic regression, or least squares, on all columns without noise. Models are computed in one
place, from the numbers that a secure run opens (`rounds_in_one_place`, whose test compares the two).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from comity.data import Bounded, Encoding, Records
from comity.entropy import Stream
from comity.methods.vertical import (
    GradientRegression,
    Vertical,
    VerticalRegression,
    add_noise,
    fit_alone_and_pooled,
    run_rounds,
    scale_target,
)
from comity.privacy import Approx, Neighbours, SeededNoise, Unit
from comity.protocol import Consortium
from experiments.accuracy.rows import (
    Beside,
    Case,
    Fitted,
    Scores,
    row,
    scores,
    scores_of_numbers,
)
from experiments.accuracy.tables import Table, constant_log_loss, table

Floats = NDArray[np.float64]

DELTA = 1e-6
DEFAULT, QUADRATIC, ROUNDS = "vertical", "vertical-quadratic", "vertical-rounds"


@dataclass(frozen=True)
class Size:
    tables: tuple[str, ...]
    parties: tuple[int, ...]
    colluders: tuple[int, ...]
    epsilons: tuple[float, ...]
    repeats: int


FULL = Size(("adult-20", "adult", "credit", "kdd", "har-2", "cps"), (2, 4), (0, 1), (0.1, 1.0, 10.0), 10)
QUICK = Size(("adult-20",), (2,), (1,), (1.0,), 3)


def rows(*, quick: bool) -> Iterator[dict[str, Any]]:
    size = QUICK if quick else FULL
    for name in size.tables:
        for parties in size.parties:
            held = Dealt(table(name), parties)
            for colluders in size.colluders:
                for epsilon in size.epsilons:
                    yield from of_case(held, colluders, epsilon, size.repeats, quick=quick)


def of_case(held: Dealt, colluders: int, epsilon: float, repeats: int, *, quick: bool) -> Iterator[dict[str, Any]]:
    """The rows of one table over K parties, of which t may collude, at ε."""
    consortium = Consortium(
        parties=tuple(held.columns),
        loss=Approx(epsilon, DELTA),
        unit=Unit.RECORD,
        neighbours=Neighbours.REPLACE,
        colluders=colluders,
    )
    beside = held.beside(epsilon)
    for method in (DEFAULT,) if held.numbers else (DEFAULT, QUADRATIC):
        case = Case(method, held.table.name, len(held.columns), colluders, epsilon)
        found, cuts = [], []
        for number in range(repeats):
            source = SeededNoise(int(Stream.public("generalisation", str(case), number).words(1)[0]))
            coef, cut = held.learnt(method, consortium, source)
            found.append(held.scored(coef))
            cuts.append(cut)
        shares = {name: float(np.mean([cut[name] for cut in cuts])) for name in cuts[0]}
        more = {"features": held.quadratic.design.encoding.width, "constant_log_loss": constant_log_loss(held.table)}
        yield row(case, found, beside, note=_note(quick), **more, **shares)


@dataclass(frozen=True, eq=False)
class Dealt:
    """A table whose columns are dealt to so many parties."""

    table: Table
    parties: int

    @property
    def numbers(self) -> bool:
        return isinstance(self.table.schema.target, Bounded)

    @cached_property
    def columns(self) -> dict[str, tuple[str, ...]]:
        schema, names = self.table.schema, [column.name for column in self.table.schema.columns]
        assert schema.target is not None
        found = {f"p{place}": names[place :: self.parties] for place in range(self.parties)}
        found["p0"].append(schema.target.name)
        return {party: tuple(own) for party, own in found.items()}

    @cached_property
    def quadratic(self) -> VerticalRegression:
        return self.protocol("quadratic")

    def protocol(self, solver: str, sizes: int | None = None) -> VerticalRegression:
        return Vertical.over_columns(
            schema=self.table.schema,
            columns=self.columns,
            products="dealer",
            bins=True,
            max_rows=1 << 17,
            solver=solver,
            sizes=sizes,
        )

    @cached_property
    def train(self) -> dict[str, Floats]:
        """Each party's columns of z."""
        design = self.quadratic.design
        return {
            party: design.matrix(design.encoding_of(party).encode(self.table.train[list(own)]).records, party)
            for party, own in self.columns.items()
        }

    @cached_property
    def exact(self) -> Floats:
        return self.quadratic.entries.exact(np.hstack(list(self.train.values())))

    @cached_property
    def test(self) -> Records:
        return self.quadratic.encoding.encode(self.table.test).records

    def learnt(self, method: str, consortium: Consortium, source: SeededNoise) -> tuple[Floats, dict[str, float]]:
        """Coefficients of encoded rows of one run, and of rounds what share of the rows they cut."""
        if method != QUADRATIC:
            protocol = self.protocol("gradient" if method == ROUNDS else "auto")
            if isinstance(protocol, GradientRegression) and protocol.makes_rounds(consortium):
                return run_rounds(protocol, self.train, consortium, source)
        count = len(next(iter(self.train.values())))
        return self.quadratic.fit(add_noise(self.quadratic, self.exact, consortium, source), count, consortium).coef, {}

    def scored(self, coef: Floats) -> Scores:
        found, labels = self.test.features @ coef, np.asarray(self.test.labels)
        if self.numbers:
            return scores_of_numbers(found, scale_target(self.table.schema, labels))
        chance = expit(found)
        return scores(np.column_stack([1 - chance, chance]), labels)

    @cached_property
    def _known(self) -> tuple[Scores, float, float]:
        """Pooled, constant, and the target's holder alone."""
        design = self.quadratic.design
        alone, together = fit_alone_and_pooled(design, np.hstack(list(self.train.values())))
        labels = np.asarray(self.test.labels)
        if self.numbers:
            return self.scored(together), 0.0, self.scored(alone).accuracy
        most = float(np.mean(labels > 0))
        return self.scored(together), max(most, 1 - most), self.scored(alone).accuracy

    def beside(self, epsilon: float) -> Beside:
        pooled, constant, own = self._known
        encoding = Encoding(self.table.schema, scaling="symmetric", rows="scaled", intercept=True, bins=True)
        train, test = (encoding.encode(part).records for part in (self.table.train, self.table.test))
        target = self.table.schema.target
        fitted = Fitted(train, test, (target.low, target.high) if isinstance(target, Bounded) else None)
        private, why = fitted.private(epsilon)
        return Beside(pooled, constant, own, fitted.plain, private, why)


def _note(quick: bool) -> str:
    said = (
        "vertical: the method's defaults, which for a small epsilon make no rounds, like `vertical-quadratic`. Columns "
        f"go to the parties in turn, delta {DELTA:g}. In rounds the noise of K - 1 parties suffices even at t = 0, "
        "because parties read the weights. har-2 has two classes, moving and still"
    )
    return said + ("; quick: fewer repeats and tables than the full comparison" if quick else "")
