"""What a study's epsilon buys: its error on made records, for several epsilons, beside a constant, own records and no
privacy.

The study itself runs on the made records (`population`), with its own noise, so a forecast needs no formula for a
method. Where a study declares very many records, fewer are made, and epsilon is raised in proportion: noise against
signal stays as it is. Nothing private is read, and nothing is spent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, pstdev
from typing import TYPE_CHECKING, Any

import numpy as np

from comity.entropy import Stream
from comity.errors import StudyError
from comity.federation.agreement import Agreement
from comity.federation.declare.consortium import Consortium
from comity.federation.evaluation.assessment import OWN_DATA, little_to_gain
from comity.privacy.accounting import gdp_epsilon, gdp_square
from comity.privacy.loss import loss_of
from comity.privacy.unit import Unit
from comity.representation import html_table
from comity.study.forecast import has_forecast
from comity.study.forecast.population import Population, from_sample, from_schema
from comity.study.local.stacks import NumberedParties
from comity.study.records.encoding import EncodesByParty
from comity.study.records.party_data import PartyData, encode_party_data
from comity.study.simulation.repeats import can_stack, repeat_simulation
from comity.study.simulation.simulate import RunOptions, run_simulation
from comity.study.study import Study

if TYPE_CHECKING:
    import pandas as pd

FACTORS = (0.1, 1 / 3, 1.0, 3.0)
"""The epsilons of a forecast, as multiples of the study's."""
MAX_RECORDS = 20_000
"""At most so many records are made. Not tuned: a run over them takes seconds."""
REPEATS = 4
TESTED = 5_000


@dataclass(frozen=True)
class Point:
    """The forecast error at one epsilon: the mean of repeats with their standard error, and a range of single runs that
    noise and the sample explain."""

    epsilon: float
    error: float
    low: float
    high: float
    standard_error: float = 0.0


@dataclass(frozen=True)
class Forecast:
    """What a study is likely to give.

        forecast = comity.forecast(study, sample=public)
        forecast.at_epsilon.error, forecast.constant, forecast.smallest_epsilon(0.2)

    `points` are by rising epsilon. `constant`, `own` and `pooled` are errors of a constant, of a party's own records
    (the mean over parties; `best` is that of the best one) and of all records without privacy, on the same made
    records; `basis` says what these were made from. `measure` names the error: a share of wrong classes, or a mean
    squared error.
    """

    epsilon: float
    records: int
    points: tuple[Point, ...]
    constant: float
    own: float | None
    pooled: float | None
    basis: str
    measure: str
    best: float | None = None

    @property
    def at_epsilon(self) -> Point:
        """The point of the study's own epsilon."""
        return min(self.points, key=lambda point: abs(point.epsilon - self.epsilon))

    @property
    def learns_nothing(self) -> bool:
        """Whether the study gains next to nothing over a constant: less than repeats can tell from nothing, or less
        than a tenth of what all records would gain without privacy. Both errors are of the same made records."""
        return self._gains_little(self.constant)

    @property
    def own_does_as_well(self) -> bool:
        """Whether a party's own records would give about the same without the study: the study gains as little over
        them as it would over a constant if it learned nothing."""
        return self.own is not None and self._gains_little(self.own)

    @property
    def best_does_as_well(self) -> bool:
        """Whether the own records of the best party would."""
        return self.best is not None and self._gains_little(self.best)

    def _gains_little(self, over: float) -> bool:
        here, attainable = self.at_epsilon, self.constant - (self.pooled or 0.0)
        return over - here.error <= 2 * here.standard_error or little_to_gain(over, here.error, attainable)

    def smallest_epsilon(self, error: float) -> float | None:
        """The smallest epsilon whose forecast is at most this error, by a line between neighbouring points over
        log(epsilon); None if no epsilon of the forecast reaches it."""
        if self.points[0].error <= error:
            return self.points[0].epsilon
        for before, after in zip(self.points, self.points[1:]):
            if after.error <= error < before.error:
                part = (before.error - error) / (before.error - after.error)
                return float(np.exp(np.log(before.epsilon) + part * np.log(after.epsilon / before.epsilon)))
        return None

    @property
    def sentences(self) -> tuple[str, ...]:
        """What to expect, for people."""
        here, figure = self.at_epsilon, _figures(self.measure)
        compared = [f"a constant has {figure(self.constant)}"]
        if self.own is not None:
            several = f" on average, {figure(self.best)} at best" if self.best is not None else ""
            compared.append(f"a party's own records alone {figure(self.own)}{several}")
        compared += [] if self.pooled is None else [f"all records without privacy {figure(self.pooled)}"]
        said = [
            f"{self.measure} about {figure(here.low)} to {figure(here.high)} at epsilon {self.epsilon:g} "
            f"({', '.join(compared)}), forecast from {self.basis} for {self.records:,} records"
        ]
        if self.learns_nothing:
            said.append(
                "this study would learn little or nothing: its result is hardly better than a constant. Raise "
                "privacy.epsilon, add records, or use fewer columns"
            )
        elif self.own_does_as_well:
            said.append(
                "a party's own records would do as well as the study: for the model alone, joining does not pay"
            )
        elif self.best_does_as_well:
            said.append(
                "the best party's own records would do as well as the study: for the model alone, joining does not pay "
                "for that party"
            )
        return tuple(said)

    def as_json(self) -> dict[str, Any]:
        return {
            "epsilon": self.epsilon,
            "records": self.records,
            "measure": self.measure,
            "basis": self.basis,
            "points": [vars(point) for point in self.points],
            "constant": self.constant,
            "own": self.own,
            "pooled": self.pooled,
            "learns_nothing": self.learns_nothing,
            "best": self.best,
            "own_does_as_well": self.own_does_as_well,
            "best_does_as_well": self.best_does_as_well,
        }

    def __repr__(self) -> str:
        return "\n".join(self.sentences)

    def _repr_html_(self) -> str:
        rows = [(f"{point.epsilon:g}", f"{point.low:.3f} to {point.high:.3f}") for point in self.points]
        return html_table("; ".join(self.sentences), ("epsilon", self.measure), rows)


def forecast(
    study: Study,
    sample: pd.DataFrame | None = None,
    *,
    records: int | None = None,
    factors: Sequence[float] = FACTORS,
    repeats: int = REPEATS,
) -> Forecast:
    """Forecast the error of a study's result, from a public sample or, without one, from generated records.

        comity.forecast(comity.Averaging(schema, sizes=400).study(["north", "south"], epsilon=1, delta=1e-6))

    `records` is how many records there are in all, where the study does not declare it. `factors` are the epsilons to
    forecast, as multiples of the study's own.
    """
    if not has_forecast(study):
        published = " as published" if getattr(study.method, "variant", "") == "published" else ""
        raise StudyError(
            f"{study.where}: there is no forecast for {study.protocol_name}{published}; simulate the study on public "
            "records instead: comity run",
            key="study.protocol",
        )
    population = from_schema(study.schema) if sample is None else from_sample(study.schema, sample, "the sample")
    total = _declared(study) if records is None else records
    if total is None:
        raise StudyError(
            f"{study.where}: the study does not say how many records there are; say it with --records, or declare "
            f"{study.protocol_name}.sizes",
            key=f"{study.protocol_name}.sizes",
        )
    layout = _Layout.of(study, total)
    stream = Stream.public("forecast", study.hash)
    agreement = layout.agreement(study, 1.0)
    data = layout.deal(agreement, population, stream)
    options = RunOptions(hosts=not can_stack(agreement, {}), results=False)
    baselines = {one.name: one for one in run_simulation(agreement, data, seed=1, options=options).assessment.baselines}
    points = []
    for factor in sorted({*factors, 1.0}):
        found = repeat_simulation(layout.agreement(study, factor), data, count=repeats, seed=1).values["error"]
        mean, spread = fmean(found), pstdev(found)
        slack = 2 * (spread**2 + _sampling_variance(population, mean)) ** 0.5
        points.append(
            Point(
                epsilon=study.privacy.epsilon * factor,
                error=mean,
                low=max(0.0, mean - slack),
                high=mean + slack,
                standard_error=spread / len(found) ** 0.5,
            )
        )
    return Forecast(
        epsilon=study.privacy.epsilon,
        records=total,
        points=tuple(points),
        constant=baselines["constant"].error,
        own=baselines[OWN_DATA].error if OWN_DATA in baselines else None,
        best=baselines[OWN_DATA].best if OWN_DATA in baselines else None,
        pooled=baselines["pooled"].error if "pooled" in baselines else None,
        basis=population.basis,
        measure="error" if population.chances is not None else "mean squared error",
    )


@dataclass(frozen=True)
class _Layout:
    """How many records each party of a forecast has, and by how much fewer these are than the study's."""

    parties: Sequence[str]
    sizes: Mapping[str, int]
    fewer: float

    @classmethod
    def of(cls, study: Study, total: int) -> _Layout:
        names: Sequence[str] = study.consortium.parties
        fewer = max(1.0, total / MAX_RECORDS)
        if isinstance(study.protocol, EncodesByParty):
            return cls(names, dict.fromkeys(names, round(total / fewer)), fewer)
        if study.privacy.unit is Unit.PARTY and isinstance(study.parties, int):
            names = NumberedParties(max(2, round(len(names) / fewer)))
            return cls(names, dict.fromkeys(names, max(1, round(total / fewer / len(names)))), fewer)
        sizes = {
            party: max(1, round((study.method.declared_records(party) or total / len(names)) / fewer))
            for party in names
        }
        return cls(names, sizes, fewer)

    def agreement(self, study: Study, factor: float) -> Agreement:
        """The study between these parties, at a multiple of its epsilon."""
        changes: dict[str, Any] = {}
        sizes, rows = getattr(study.method, "sizes", None), getattr(study.method, "rows", None)
        if self.fewer > 1 and study.privacy.unit is not Unit.PARTY:
            if sizes is not None:
                changes["sizes"] = dict(self.sizes) if isinstance(sizes, Mapping) else max(self.sizes.values())
            if isinstance(rows, int):
                changes["rows"] = max(1, round(rows / self.fewer))
        protocol = study.method.model_copy(update=changes).build(study.setting) if changes else study.protocol
        epsilon, delta = float(study.privacy.epsilon) * factor, float(study.privacy.delta)
        if self.fewer > 1:
            epsilon = _raised(epsilon, delta, self.fewer)
        consortium: Consortium = replace(
            study.consortium, parties=self.parties, roster={}, loss=loss_of(epsilon, delta), evaluation=None
        )
        return Agreement(study.hash, protocol, consortium, study.name)

    def deal(self, agreement: Agreement, population: Population, stream: Stream) -> PartyData:
        test = population.draw(TESTED, stream)
        if not isinstance(agreement.protocol, EncodesByParty):
            frames = {party: population.draw(size, stream) for party, size in self.sizes.items()}
            return encode_party_data(agreement, frames, test, None)
        whole = population.draw(max(self.sizes.values()), stream)
        return encode_party_data(agreement, dict.fromkeys(self.sizes, whole), test, None)


def _raised(epsilon: float, delta: float, fewer: float) -> float:
    """The epsilon whose noise is smaller by this factor: pure noise by epsilon itself, Gaussian noise by its mu."""
    return gdp_epsilon(gdp_square(epsilon, delta) * fewer**2, delta) if delta else epsilon * fewer


def _declared(study: Study) -> int | None:
    """How many records a study declares in all."""
    rows = getattr(study.method, "rows", None)
    if isinstance(rows, int):
        return rows
    if isinstance(study.protocol, EncodesByParty):
        return None
    sizes = [study.method.declared_records(party) for party in study.consortium.parties]
    return sum(size for size in sizes if size is not None) if all(size is not None for size in sizes) else None


def _sampling_variance(population: Population, error: float) -> float:
    """The variance of an error that is known from a sample of this size."""
    if population.chances is None:
        return (2.0 * error) ** 2 / (2 * len(population.rows))
    return error * (1 - error) / len(population.rows)


def _figures(measure: str) -> Any:
    return (lambda value: f"{value:.2f}") if measure == "error" else (lambda value: f"{value:.4g}")
