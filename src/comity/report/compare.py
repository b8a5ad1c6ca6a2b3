"""Runs side by side: what differs between their settings, their errors with intervals, their costs.

Errors can be compared where the runs were tested on the same records. A simulation's data, split and `split_seed`
decide these (`comity.study.records.splitting`). Where they, the error of the constant and the number of test records
are equal, the test records are taken to be the same; a note says where they are not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from markupsafe import Markup

from comity._version import __version__
from comity.errors import BadInput
from comity.report.overview import describe_loss
from comity.report.page import format_setting, render
from comity.report.plots import Mark, draw_marks
from comity.study.results.result import Result

# What decides which records a simulation tests on; the rest of [simulation] does not.
_TESTED_BY = ("data", "test", "split", "column", "holdout", "split_seed")
BASELINES = ("constant", "own data", "pooled")


@dataclass(frozen=True)
class ComparedRun:
    """One run. `settings` are those that differ between the runs; `low` and `high` bound the error with 95 % confidence
    as far as the chance of the test records goes."""

    name: str
    settings: Mapping[str, str]
    error: float | None
    low: float | None
    high: float | None
    baselines: Mapping[str, float]
    cost: str
    epsilon: float
    private: bool

    @property
    def label(self) -> str:
        return ", ".join(f"{key.rpartition('.')[2]} {value}" for key, value in self.settings.items()) or self.name

    @property
    def interval(self) -> str:
        """The error, its interval first."""
        if self.error is None:
            return "not measured"
        if self.low is None or self.high is None:
            return f"{self.error:.3f}"
        return f"{self.low:.3f} to {self.high:.3f} ({self.error:.3f})"


@dataclass(frozen=True)
class Comparison:
    runs: tuple[ComparedRun, ...]
    same_records: bool
    measure: str
    notes: tuple[str, ...]

    @property
    def heads(self) -> tuple[str, ...]:
        varied = tuple(self.runs[0].settings)
        return ("run", *varied, "error", *self._baselines, "cost a party")

    @property
    def rows(self) -> list[tuple[str, ...]]:
        return [
            (
                one.name,
                *one.settings.values(),
                one.interval,
                *(f"{one.baselines[name]:.3f}" if name in one.baselines else "-" for name in self._baselines),
                one.cost,
            )
            for one in self.runs
        ]

    @property
    def _baselines(self) -> tuple[str, ...]:
        return tuple(name for name in BASELINES if any(name in one.baselines for one in self.runs))

    def as_json(self) -> dict[str, Any]:
        return {
            "runs": [asdict(one) for one in self.runs],
            "same_records": self.same_records,
            "measure": self.measure,
            "notes": list(self.notes),
        }

    def draw(self) -> Markup:
        """The error of each run, with its interval, among the baselines."""
        marks = [Mark(one.label, one.error, one.low, one.high) for one in self.runs if one.error is not None]
        if not marks:
            return Markup("")
        first = self.runs[0].baselines if self.same_records else {}
        return Markup(draw_marks("Error of each run", self.measure or "error", marks, first))


def compare_results(results: Mapping[str, Result], *, folders: Mapping[str, str] | None = None) -> Comparison:
    """The results by the names to show. `folders` are those of their studies, where relative paths start."""
    if len(results) < 2:
        raise BadInput("a comparison needs two runs or more; see: comity runs", key="run")
    everything = {name: _settings(one) for name, one in results.items()}
    varied = _varied(list(everything.values()))
    same = _same_records(results, folders or {})
    measures = {one.assessment.measure for one in results.values() if one.error is not None}
    runs = tuple(_compared(name, result, varied) for name, result in results.items())
    return Comparison(runs, same, measures.pop() if len(measures) == 1 else "", tuple(_notes(results, runs, same)))


def _settings(result: Result) -> dict[str, str]:
    own = {key: format_setting(value) for key, value in result.settings.items() if not key.startswith("simulation.")}
    return {"method": result.plan.protocol, "parties": f"{result.parties}", **own}


def _varied(settings: Sequence[Mapping[str, str]]) -> list[str]:
    """The keys that differ. A title that repeats what a setting says is left out."""
    keys = list(dict.fromkeys(key for one in settings for key in one))
    varied = [key for key in keys if len({one.get(key, "-") for one in settings}) > 1]
    return [key for key in varied if key != "method"] or varied


def _same_records(results: Mapping[str, Result], folders: Mapping[str, str]) -> bool:
    found = {
        (folders.get(name, ""), *(format_setting(one.settings.get(f"simulation.{key}")) for key in _TESTED_BY))
        for name, one in results.items()
    }
    constants = {round(b.error, 12) for one in results.values() for b in one.baselines if b.name == "constant"}
    tested = {one.assessment.tested for one in results.values() if one.error is not None}
    return len(found) == 1 and len(constants) <= 1 and len(tested) <= 1


def _compared(name: str, result: Result, varied: Sequence[str]) -> ComparedRun:
    settings, interval = _settings(result), result.assessment.interval
    return ComparedRun(
        name=name,
        settings={key: settings.get(key, "-") for key in varied},
        error=result.error,
        low=None if interval is None else interval[0],
        high=None if interval is None else interval[1],
        baselines={one.name: one.error for one in result.baselines},
        cost=describe_loss(result.plan),
        epsilon=result.guarantee.epsilon,
        private=result.guarantee.private,
    )


def _notes(results: Mapping[str, Result], runs: Sequence[ComparedRun], same: bool) -> list[str]:
    notes = []
    if any(one.error is None for one in runs):
        notes.append("A run without test records, or of a deployment, has no error: a score is a release.")
    if not same and sum(one.error is not None for one in runs) > 1:
        notes.append("The runs were tested on different records, so their errors can't be compared.")
    elif sum(one.error is not None for one in runs) > 1:
        notes.append("All errors are of the same test records.")
    if any(one.low is not None for one in runs):
        notes.append("Intervals count the chance of the test records (95 %), and not that of the noise: see --repeats.")
    if any(result.guarantee.seeded for result in results.values()):
        notes.append("Runs with a seed are simulations, and no private results.")
    return notes


def render_comparison(comparison: Comparison) -> str:
    """The page: the plot, then the table. One file that loads nothing."""
    return render(
        "compare.html.jinja",
        comparison=comparison,
        plot=comparison.draw(),
        table=comparison.rows,
        version=__version__,
    )
