"""What a notebook shows of a result and of what is in it: a few lines that say what it holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import comity
from comity.data import Classes, Numeric, Schema
from comity.report.result import load_result
from comity.representation import NamedValues, in_brief, short_repr
from comity.study.records.party_data import load_party_data
from comity.study.simulation.simulate import run_study

from .small_studies import small_study

LONGEST = 1200
CASES = [
    "softlabel default statistic=histograms",
    "averaging published delta=0",
    "summary default delta=1e-6",
    "synthetic default delta=1e-6",
    "vertical default model=linear",
]


def within(value: Any, path: str, depth: int = 0) -> Iterator[tuple[str, Any]]:
    """A value and the values of this package that it holds."""
    ours = type(value).__module__.startswith("comity")
    if ours:
        yield path, value
    if depth == 5:
        return
    parts: dict[str, Any] = {}
    if ours and is_dataclass(value):
        parts = {field.name: getattr(value, field.name) for field in fields(value)}
    elif ours and hasattr(value, "get_params"):
        parts = value.get_params()
    elif isinstance(value, dict):
        parts = value
    elif isinstance(value, tuple | list):
        parts = {str(at): one for at, one in enumerate(value)}
    for name, part in parts.items():
        yield from within(part, f"{path}.{name}", depth + 1)


@pytest.mark.parametrize("case", CASES)
def test_whatever_a_run_gives_back_is_shown_in_a_few_lines(case: str, tmp_path: Path) -> None:
    study = small_study(case, tmp_path, **{"simulation.baselines": False})
    result = run_study(study, seed=1)
    result.save(tmp_path / "run")
    told = {
        "study": study,
        "party_data": load_party_data(study),
        "result": result,
        "loaded": load_result(tmp_path / "run"),
    }
    for path, value in [one for name, whole in told.items() for one in within(whole, name)]:
        assert len(repr(value)) <= LONGEST, f"repr({path}) has {len(repr(value))} characters"
        assert repr(value).count("\n") <= 8
    for values in (result.released, result.received_by("coordinator")):
        assert len(repr(values)) <= LONGEST and dict(values) == values


def test_a_result_says_what_it_is(tmp_path: Path) -> None:
    result = run_study(small_study("averaging default delta=1e-6", tmp_path), seed=1)
    shown = repr(result)
    assert "Result of 'small', run" in shown and "averaging, 3 parties" in shown
    assert f"error      {result.error:.3f} (constant" in shown
    assert result.guarantee.loss in shown and "no private release" in shown
    assert "model (LinearClassifier)" in shown and "released   " in shown
    assert 4 <= shown.count("\n") <= 8


@dataclass(frozen=True)
class Example:
    __repr__ = short_repr

    name: str
    numbers: Any = None
    parts: Any = ()


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (Example("a" * 100), f"Example(name='{'a' * 59}…')"),
        (Example("a", np.zeros((3, 4))), "Example(name='a', numbers=<float64 array of shape (3, 4)>)"),
        (Example("a", pd.DataFrame({"x": [1, 2]})), "Example(name='a', numbers=<table of shape (2, 1)>)"),
        (Example("a", 1.5, {"x": 1, "y": 2}), "Example(name='a', numbers=1.5, parts=<2: x, y>)"),
        (Example("a", None, (1, 2)), "Example(name='a', parts=(1, 2))"),
        (Example("a", None, (Example("b"),) * 9), "Example(name='a', parts=<9 Example>)"),
        (Example("a", b"secret"), "Example(name='a', numbers=<6 bytes>)"),
        (NamedValues(x=np.ones(3), y="text"), "{'x': <float64 array of shape (3,)>, 'y': 'text'}"),
    ],
)
def test_values_are_shown_by_what_they_are(value: Any, shown: str) -> None:
    assert repr(value) == shown


def test_a_number_of_numpy_is_shown() -> None:
    assert "2.5" in in_brief(np.float64(2.5)) and in_brief(np.array(3)) == "array(3)"


def small_result() -> comity.Result:
    schema = Schema((Numeric("x", 0, 1),), Classes("y", ("no", "yes")))
    frame = pd.DataFrame({"x": np.linspace(0, 1, 20), "y": ["no", "yes"] * 10})
    return comity.Synthetic(schema).simulate({"ash": frame, "birch": frame}, epsilon=1, delta=1e-6, seed=3)


def test_results_plans_and_transcripts_are_shown_in_a_notebook_and_are_tables() -> None:
    result = small_result()
    shown = result._repr_html_()
    assert "guarantee" in shown and "<table>" in shown and "synthetic" in shown
    assert "counts" in set(result.plan.frame["release"]) and len(result.plan.frame) == len(result.plan.rows)
    assert len(result.transcript.frame) == len(result.transcript) and "bytes" in result.transcript.frame
    assert "<table>" in result.transcript._repr_html_()


def test_names_of_a_result_act_in_no_notebook() -> None:
    shown = replace(small_result(), study="<script>alert(1)</script>")._repr_html_()
    assert "<script>" not in shown and "&lt;script&gt;" in shown
