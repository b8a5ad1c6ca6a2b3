"""What a simulation compares with does not depend on the bounds of a schema, and is what scikit-learn would give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import comity
from comity.data import Classes, Numeric, Schema
from comity.learn.standardised import Standardised

NAMES = list("abcd")
HALVES = {"one": ["a", "b", "ill"], "two": ["c", "d"]}


def make_table(count: int, seed: int) -> pd.DataFrame:
    chance = np.random.default_rng(seed)
    columns = chance.lognormal(0, 1, (count, 4))
    risk = np.log(columns) @ np.array([1.5, -1.0, 0.8, 0.0])
    table = pd.DataFrame(columns, columns=NAMES)
    return table.assign(ill=np.where(risk + chance.logistic(size=count) > 0, "yes", "no"))


TRAIN, TEST = make_table(600, 1), make_table(1500, 2)
PARTIES = {f"p{place}": TRAIN.iloc[place::3].reset_index(drop=True) for place in range(3)}


def baselines(method: str, high: float) -> dict[str, float]:
    schema = Schema(tuple(Numeric(name, 0, high) for name in NAMES), Classes("ill", ("no", "yes")))
    made: Any
    frames = PARTIES
    if method == "averaging":
        made = comity.Averaging(schema, sizes=200)
    elif method == "softlabel":
        made = comity.SoftLabel(schema, auxiliary=make_table(100, 3)[NAMES], sizes=200)
    else:
        made = comity.Vertical(schema, columns=HALVES, products="dealer", solver="quadratic")
        frames = {party: TRAIN[columns] for party, columns in HALVES.items()}
    found = made.simulate(frames, epsilon=5, delta=1e-6, seed=1, test=TEST)
    return {one.name: one.error for one in found.baselines}


def error_of_sklearn(train: pd.DataFrame, names: list[str]) -> float:
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(train[names], train["ill"])
    return float(1 - model.score(TEST[names], TEST["ill"]))


@pytest.mark.parametrize("method", ["averaging", "softlabel", "vertical"])
def test_wide_bounds_make_no_baseline_worse(method: str) -> None:
    narrow, wide = baselines(method, 40.0), baselines(method, 40_000.0)
    for name in ("own data", "pooled"):
        assert wide[name] == pytest.approx(narrow[name], abs=0.01), name
    assert wide["pooled"] == pytest.approx(error_of_sklearn(TRAIN, NAMES), abs=0.01)
    alone = (
        error_of_sklearn(TRAIN, ["a", "b"])
        if method == "vertical"
        else np.mean([error_of_sklearn(frame, NAMES) for frame in PARTIES.values()])
    )
    assert wide["own data"] == pytest.approx(alone, abs=0.015)


def test_numbers_are_standardised_and_entries_of_two_values_are_0_and_1() -> None:
    rows = np.column_stack([np.linspace(2, 6, 9), np.repeat([0.0, 0.3], [8, 1]), np.full(9, 0.1 + 0.2)])
    found = Standardised.of(rows).with_constant(rows)
    assert found[:, 0].mean() == pytest.approx(0) and found[:, 0].std() == pytest.approx(1)
    assert found[:, 1].tolist() == [0.0] * 8 + [1.0] and not found[:, 2].any() and (found[:, 3] == 10).all()
