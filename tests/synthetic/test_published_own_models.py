"""An owner's own model: learned from what was shared and its own records, an artefact in its own folder, nowhere else.
And who shares: any owners, one or all of them."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from comity.artefacts.artefact import load_artefact
from comity.data import Bounded, Categorical, Classes, Date, Numeric, Schema
from comity.learn import LinearClassifier, LinearRegressor, load_model
from comity.methods.synthetic.published.method import PublishedSynthetic
from comity.methods.synthetic.published.predictor import measure_error
from comity.study.results.released import load_received
from tests.support.protocols import simulate_with

from .consortia import build_published

COLUMNS = (
    Numeric("age", 0, 100, integer=True),
    Categorical("sex", ("f", "m"), missing="cell"),
    Date("seen", date(2020, 1, 1), date(2023, 12, 31), missing="cell"),
)
TARGETS: dict[str, Any] = {
    "logistic": Classes("y", ("no", "yes")),
    "svm": Classes("y", ("no", "yes")),
    "softmax": Classes("y", ("a", "b", "c")),
    "linear": Bounded("y", 0, 1000),
}
NAMES = ("ash", "birch", "cedar")


def frame(kind: Any, seed: Any, count: int = 120) -> pd.DataFrame:
    chance = np.random.default_rng(seed)
    age = chance.integers(0, 101, count)
    y = {
        "softmax": np.array(["a", "b", "c"])[np.minimum(age // 34, 2)],
        "linear": 10.0 * age,
    }.get(kind, np.where(age > 50, "yes", "no"))
    days = pd.Series(np.datetime64("2020-01-01", "s") + chance.integers(0, 1461, count) * np.timedelta64(86_400, "s"))
    sex = pd.Series(chance.choice(["f", "m"], count)).where(chance.random(count) > 0.1, None)
    return pd.DataFrame({"age": age, "sex": sex, "seen": days.where(chance.random(count) > 0.1, pd.NaT), "y": y})


def protocol(kind: Any = "logistic", **more: Any) -> PublishedSynthetic:
    learner = None if kind == "softmax" else kind
    schema = Schema(COLUMNS, TARGETS[kind])
    return build_published(schema, learner=learner, **{"depth": 4, "levels": 3, "leaves": 40, **more})


def run_simulation(kind: str = "logistic", **more: Any) -> Any:
    method = protocol(kind)
    parties = {name: frame(kind, place) for place, name in enumerate(NAMES)}
    options = {"epsilon": 1.0, "unit": "record", "neighbours": "add-remove", "seed": 1, **more}
    return method, simulate_with(method, parties=parties, schema=method.schema, **options)


@pytest.mark.parametrize("kind", TARGETS)
def test_the_own_model_is_an_artefact_in_its_owners_folder_and_predicts_its_records(kind: Any, tmp_path: Path) -> None:
    method, found = run_simulation(kind)
    found.save(tmp_path)
    test = frame(kind, 99)
    records = method.encoding.encode(test).records
    for name in NAMES:
        folder = tmp_path / "parties" / name / "own" / "model"
        model = load_artefact(folder)
        assert isinstance(model, LinearRegressor if kind == "linear" else LinearClassifier)
        weights = found.received[name].own["model"]
        told = load_model(folder).predict(test)
        if kind == "linear":
            np.testing.assert_allclose(told, 500 * (1 + records.features @ weights[0]), rtol=1e-12)
        else:
            assert np.mean(told != test["y"]) == measure_error(method.target, weights, records.features, records.labels)
        received, _ = load_received(tmp_path / "parties" / name)
        np.testing.assert_array_equal(received.own["model"], weights)


def test_no_other_folder_has_the_own_model_and_saving_again_changes_nothing(tmp_path: Path) -> None:
    _, found = run_simulation()
    found.save(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("own/**/*") if path.is_file()}
    found.save(tmp_path)
    assert before and all(path.read_bytes() == content for path, content in before.items())
    for name in NAMES:
        weights = found.received[name].own["model"].tobytes()
        holding = [path for path in tmp_path.rglob("*") if path.is_file() and weights in path.read_bytes()]
        assert holding and all(path.is_relative_to(tmp_path / "parties" / name / "own") for path in holding)


SUBSETS = list(chain.from_iterable(combinations(NAMES, size) for size in (1, 2, 3)))


@pytest.mark.parametrize("sharers", SUBSETS, ids="+".join)
def test_trees_go_to_the_sharers_and_datasets_to_all_for_any_sharers(sharers: Any) -> None:
    _, found = run_simulation(roles={"sharer": list(sharers)})
    assert set(found.released["datasets"]) == set(sharers)
    for name, got in found.received.items():
        assert set(got.releases) == ({"trees", "datasets"} if name in sharers else {"datasets"})
        assert got.own["model"].any()
    spent = {account.party: account.spent for account in found.accounts}
    assert {name for name in NAMES if spent[name] != "eps 0.00"} == set(sharers)


# Dates.


def test_dates_are_shared_as_days_of_their_range_and_load_as_the_owners_do() -> None:
    method, found = run_simulation()
    seen = pd.to_datetime(found.presented.frame["seen"])
    known = seen.dropna()
    assert known.between("2020-01-01", "2023-12-31").all() and known.nunique() > 50 and seen.isna().any()
    again = method.encoding.encode(found.presented.frame).records
    shared = np.concatenate([np.asarray(one) for one in found.released["datasets"].values()])
    rows = method.attributes.rows(shared[:, :-1])
    # A day is a whole step: half of one is what is rounded off.
    assert np.abs(again.features - rows).max() <= 0.5 / 100 + 1e-12


@pytest.mark.parametrize(("step", "format"), [("day", None), ("week", None), ("month", "%Y-%m"), ("year", "%Y")])
def test_dates_of_every_step_and_format_come_back(step: Any, format: Any) -> None:
    column = Date("seen", date(2020, 3, 5), date(2023, 10, 31), step=step, format=format)
    method = replace(protocol(), schema=Schema((COLUMNS[0], column), TARGETS["logistic"]))
    steps = np.arange(column.steps + 1) / column.steps
    values = np.column_stack([np.full(len(steps), 0.5), steps])
    from comity.methods.synthetic.published.synthesis import build_table

    table = build_table(method.attributes, values, np.zeros(len(steps)))
    np.testing.assert_allclose(method.encoding.encode(table).records.features[:, 1], steps, atol=1e-12)
