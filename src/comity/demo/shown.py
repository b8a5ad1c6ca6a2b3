"""What the demonstration shows of a method: a table of error against ε, a plot of it, and one run without a seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev

from comity.artefacts.section import Curve, Curves, Dot
from comity.federation.baseline import Baseline
from comity.report.result import Result

EPSILONS = (0.3, 1.0, 3.0, 10.0)
DELTA = 1e-6


@dataclass(frozen=True)
class Row:
    """Mean test error of a method at an ε over seeded repeats, beside what it is compared with."""

    protocol: str
    dataset: str
    method: str
    epsilon: float
    error: float
    spread: float
    repeats: int
    constant: float
    own_data: float
    pooled: float
    without_noise: float | None


@dataclass(frozen=True)
class Case:
    """One consortium with its rows."""

    name: str
    about: str
    rows: tuple[Row, ...]

    def of(self, method: str) -> list[Row]:
        return [row for row in self.rows if row.method == method]

    def curves(self, methods: Sequence[str]) -> Curves:
        """Error against ε; what does not depend on ε as levels."""
        first, most = self.rows[0], max(row.repeats for row in self.rows)
        return Curves(
            self.name,
            "epsilon spent by each party (more is less private)",
            f"test error, mean of {most} ± spread",
            tuple(
                Curve(
                    method,
                    tuple(row.epsilon for row in self.of(method)),
                    tuple(row.error for row in self.of(method)),
                    tuple(row.spread for row in self.of(method)),
                )
                for method in methods
            ),
            (Dot("constant", first.constant), Dot("own data", first.own_data), Dot("pooled", first.pooled)),
            logarithmic=True,
        )


@dataclass(frozen=True, eq=False)
class Shown:
    """A method as its page has it; `result` is the run without a seed."""

    name: str
    title: str
    about: str
    unit: str
    methods: tuple[str, ...]
    cases: tuple[Case, ...]
    notes: tuple[str, ...]
    repeats: str
    result: Result
    # What the run's one figure of quality counts.
    figure: str = "error"

    @property
    def rows(self) -> list[Row]:
        return [row for case in self.cases for row in case.rows]


def row_of(
    protocol: str, dataset: str, method: str, epsilon: float, errors: Sequence[float], compared: Sequence[Baseline]
) -> Row:
    known = {baseline.name: baseline.error for baseline in compared}
    return Row(
        protocol,
        dataset,
        method,
        epsilon,
        fmean(errors),
        pstdev(errors),
        len(errors),
        known["constant"],
        known["own data"],
        known["pooled"],
        known.get("without noise"),
    )
