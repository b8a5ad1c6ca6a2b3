"""What a notebook shows of a result and of what is in it: a few lines that say what it holds."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.text import Text

import comity
from comity.data import Classes, Numeric, Schema
from comity.errors import BadInput, DataError
from comity.learn import LinearClassifier
from comity.privacy.unit import Neighbours, Unit
from comity.report.first_picture import find_first_plot
from comity.report.result import load_result
from comity.representation import NamedValues, in_brief, short_repr
from comity.study.records.party_data import load_party_data
from comity.study.simulation.simulate import run_study

from .small_studies import small_study

LONGEST = 1200
# Tables for notebooks have up to 40 rows.
LONGEST_HTML = 20_000
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
    shown = (
        study,
        study.schema,
        study.method,
        study.plan(),
        result,
        result.presented,
        result.guarantee,
        *result.releases,
    )
    for value in (*shown, result.assessment, result.transcript):
        html = value._repr_html_()
        assert html.startswith("<div>") and "<table>" in html and len(html) <= LONGEST_HTML, type(value)
    figure: Any = result.plot()
    assert type(figure.axes[0]).__name__ == "Axes" and figure._repr_png_().startswith(b"\x89PNG")
    plot = find_first_plot(result)
    assert plot is not None and plot.about in str([text.get_text() for text in figure.findobj(Text)])
    for values in (result.released, result.received_by("coordinator")):
        assert len(repr(values)) <= LONGEST and dict(values) == values


def test_a_result_says_what_it_is(tmp_path: Path) -> None:
    result = run_study(small_study("averaging default delta=1e-6", tmp_path), seed=1)
    shown = repr(result)
    assert "Result of 'small', run" in shown and "averaging, 3 parties" in shown
    assert f"error      {result.error:.3f} (constant" in shown
    assert "eps 20.00, delta 1e-6 for each party" in shown and "mu " not in shown and "no private release" in shown
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


PUBLIC = {name: getattr(comity, name) for name in comity.__all__ if isinstance(getattr(comity, name), type)}


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_class_has_a_short_repr_and_a_table_for_notebooks(name: str) -> None:
    """Those of values are measured above; here none is left out."""
    assert PUBLIC[name].__repr__ is not object.__repr__
    assert hasattr(PUBLIC[name], "_repr_html_"), name


def test_public_objects_of_many_parts_have_a_short_repr() -> None:
    schema = Schema(tuple(Numeric(f"x{place}", 0, 1) for place in range(500)), Classes("y", ("no", "yes")))
    method = comity.Averaging(schema, sizes={f"party-{place}": 100 for place in range(300)})
    study = method.study([f"party-{place}" for place in range(300)], epsilon=1, delta=1e-6)
    encoding = comity.Encoding(schema)
    model = LinearClassifier(np.ones((1, 500)), ("no", "yes"), encoding)
    ledger = comity.Ledger.in_memory(unit=Unit.RECORD, neighbours=Neighbours.REPLACE)
    table = comity.Table(("a", "b"), tuple((str(place), 1.0) for place in range(2000)))
    data = comity.Dataset(pd.DataFrame({"x0": [0.5] * 3000}), Schema((Numeric("x0", 0, 1),)))
    estimators = (comity.AveragedClassifier(), comity.SoftLabelClassifier(), comity.VerticalRegressor())
    for value in (schema, method, study, encoding, model, ledger, table, data, study.consortium, *estimators):
        assert len(repr(value)) <= 2000, type(value).__name__
    assert len(repr(study.plan())) <= 2000


def test_predictions_keep_index_and_identifier() -> None:
    schema = Schema((Numeric("x", 0, 1),), Classes("y", ("no", "yes")), "patient")
    model = LinearClassifier([[1.0]], ("no", "yes"), comity.Encoding(schema))
    frame = pd.DataFrame({"patient": ["b", "a"], "x": [0.1, 0.9]}, index=[7, 3])
    found = model.predict_frame(frame)
    assert list(found.index) == [7, 3] and list(found["patient"]) == ["b", "a"]
    assert list(found.columns) == ["patient", "predicted", "p(no)", "p(yes)"]
    assert list(model.predict_frame(frame[["x"]]).columns) == ["predicted", "p(no)", "p(yes)"]


def test_a_plot_without_matplotlib_or_without_a_picture_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    result = small_result()
    monkeypatch.setitem(sys.modules, "comity.report.matplotlib_plots", None)
    with pytest.raises(BadInput, match="plots"):
        result.plot()
    with pytest.raises(DataError, match="presents nothing that has a picture"):
        replace(result, presented={}).plot()


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
