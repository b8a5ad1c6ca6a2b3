"""Forecasts beside what studies then give: forty studies on public tables.

A forecast is made from 2,000 rows (of retinas, 250) that stand for a public sample; the study runs on other rows of the
same table, and is measured on test rows. How made records get their targets was settled in a sketch on Adult, credit
defaults and HAR, and the rule of `learns_nothing` after a first run of `SETTLED`, which called three studies useless
that were not. Figures of `SETTLED` are therefore no independent evidence. `OTHERS` were written before any of them was
run, on tables that played no part in this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

import comity
from comity.data import Classes
from comity.entropy import Stream
from comity.study.forecast.signal import count_declared, describe_expectation, noise_ratio
from experiments.accuracy.other_tables import TABLES as OTHER_TABLES
from experiments.accuracy.other_tables import other_table
from experiments.accuracy.several import TABLES as SEVERAL
from experiments.accuracy.tables import Table, table
from experiments.accuracy.training_rows import split_training_rows

TESTED, DELTA = 5000, 1e-6
NEAR, PART = 0.02, 0.25
"""A forecast is right within this error, or within this part of the study's distance to a constant."""


@dataclass(frozen=True)
class Case:
    """A study: a method over so many records of a table, between so many parties."""

    method: str
    table: str
    records: int
    parties: int
    epsilon: float
    sample: int = 2000

    @property
    def name(self) -> str:
        return f"{self.method} {self.table} n={self.records} K={self.parties} eps={self.epsilon:g}"


SETTLED = (
    *(Case("averaging", "adult-20", records, 5, epsilon) for records in (1000, 8000) for epsilon in (0.1, 1.0)),
    *(Case("averaging", "adult", 8000, 5, epsilon) for epsilon in (0.3, 3.0)),
    *(Case("averaging", "credit", 8000, 5, epsilon) for epsilon in (0.1, 1.0)),
    Case("averaging", "kdd", 8000, 5, 0.3),
    *(Case("averaging", "cps", 8000, 5, epsilon) for epsilon in (0.1, 1.0)),
    *(Case("vertical", "adult-20", 4000, 2, epsilon) for epsilon in (0.3, 1.0)),
    Case("vertical", "credit", 4000, 2, 1.0),
    *(Case("softlabel", "adult-20", 8000, 400, epsilon) for epsilon in (0.3, 1.0)),
    Case("softlabel", "credit", 8000, 400, 1.0),
    *(Case("synthetic", "adult", 8000, 5, epsilon) for epsilon in (0.1, 1.0)),
    Case("synthetic", "credit", 8000, 5, 1.0),
)
_RETINAS = 250
OTHERS = (
    *(Case("averaging", "news", 8000, 5, epsilon) for epsilon in (0.3, 1.0)),
    Case("averaging", "rentals", 6000, 5, 1.0),
    *(Case("averaging", "attacks", 8000, 5, epsilon) for epsilon in (0.3, 1.0)),
    *(Case("averaging", "bicycles", 6000, 5, epsilon) for epsilon in (0.3, 1.0)),
    *(Case("averaging", "retinas", 500, 2, epsilon, _RETINAS) for epsilon in (1.0, 10.0)),
    *(Case("vertical", name, 4000, 2, 1.0) for name in ("news", "kdd", "bicycles")),
    Case("vertical", "retinas", 500, 2, 3.0, _RETINAS),
    Case("softlabel", "kdd", 8000, 400, 0.3),
    Case("softlabel", "attacks", 2000, 100, 1.0),
    *(Case("softlabel", name, 8000, 400, 1.0) for name in ("marriage", "news")),
    Case("synthetic", "rentals", 6000, 5, 1.0),
    Case("synthetic", "marriage", 8000, 5, 0.3),
    Case("synthetic", "kdd", 8000, 5, 1.0),
)
CASES = (*SETTLED, *OTHERS)
QUICK = (SETTLED[2], SETTLED[3], SETTLED[9], SETTLED[14])


def load_table(name: str) -> Table:
    """A table of the comparison, of several classes or of the others. COMITY_DATA names the folder of the data."""
    if name in OTHER_TABLES:
        return other_table(name)
    return split_training_rows(name) if name in SEVERAL else table(name)


def run(*, quick: bool, out: Path | None) -> list[dict[str, Any]]:
    """The rows of the table. COMITY_DATA names the folder of the data."""
    with threadpool_limits(1, user_api="blas"):
        return [compare(case, load_table(case.table)) for case in (QUICK if quick else CASES)]


def compare(case: Case, known: Table) -> dict[str, Any]:
    order = Stream.public("forecasts", case.table).permutation(len(known.train))
    sample = known.train.iloc[order[: case.sample]].reset_index(drop=True)
    rows = known.train.iloc[order[case.sample : case.sample + case.records]].reset_index(drop=True)
    tested = Stream.public("forecasts, test", case.table).permutation(len(known.test))[:TESTED]
    method, frames = _dealt(case, known, rows, sample)
    study = method.study(list(frames), epsilon=case.epsilon, delta=DELTA)
    told = comity.forecast(study, sample, records=len(rows), factors=(1.0,))
    test = known.test.iloc[tested].reset_index(drop=True)
    result = method.simulate(frames, epsilon=case.epsilon, delta=DELTA, seed=1, test=test, repeats=4)
    assert result.assessment.repeats is not None
    found = fmean(result.assessment.repeats.values["error"])
    constant = next(one.error for one in result.baselines if one.name == "constant")
    allowed = max(NEAR if isinstance(known.schema.target, Classes) else 0.0, PART * abs(constant - found))
    return {
        "case": case.name,
        "ours": found,
        "forecast": told.at_epsilon.error,
        "low": told.at_epsilon.low,
        "high": told.at_epsilon.high,
        "constant": constant,
        "off": abs(told.at_epsilon.error - found) / allowed,
        "right": int(abs(told.at_epsilon.error - found) <= allowed),
        "learns nothing, forecast": int(told.learns_nothing),
        "learns nothing, found": int(found >= constant),
        "noise": noise_ratio(study, count_declared(study)),
        "plan": "".join(describe_expectation(study)).split(":")[0],
        "note": "off: in units of what is allowed, the larger of 0.02 and a quarter of the distance to the constant",
    }


def _dealt(case: Case, known: Table, rows: pd.DataFrame, sample: pd.DataFrame) -> tuple[Any, dict[str, pd.DataFrame]]:
    names = [f"owner-{place:03d}" for place in range(case.parties)]
    if case.method == "vertical":
        features = [column.name for column in known.schema.columns]
        assert known.schema.target is not None
        halves = [features[: len(features) // 2], [*features[len(features) // 2 :], known.schema.target.name]]
        columns = dict(zip(names, halves))
        return comity.Vertical(known.schema, columns=columns, products="dealer", alignment="none"), {
            name: rows[columns[name]] for name in names
        }
    parts: Sequence[Any] = np.array_split(np.arange(len(rows)), case.parties)
    frames = {name: rows.iloc[part].reset_index(drop=True) for name, part in zip(names, parts)}
    each = len(rows) // case.parties
    if case.method == "softlabel":
        assert known.schema.target is not None
        return comity.SoftLabel(
            known.schema, auxiliary=sample.drop(columns=known.schema.target.name), sizes=each
        ), frames
    kind = comity.Averaging if case.method == "averaging" else comity.Synthetic
    return kind(known.schema, sizes=each), frames
