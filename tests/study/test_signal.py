"""A plan says by itself, from public figures alone, that a study would learn nothing; and never of one that learns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import comity
from comity.data import Classes, Numeric, Schema, clinic_schema, clinics
from comity.entropy import Stream
from comity.errors import ComityError
from comity.methods import PROTOCOLS, entry_of, load_object
from comity.report.plan_page import render_plan
from comity.study.forecast import _METHODS
from comity.study.forecast.signal import (
    LARGEST_RATIO,
    LITTLE_NOISE,
    count_declared,
    count_units,
    describe_expectation,
    describe_signal,
    noise_ratio,
)
from comity.study.study import Study
from tests.report.small_studies import CASES, small_study

SCHEMA = Schema((Numeric("x", -1, 1), Numeric("z", -1, 1)), Classes("y", ("no", "yes")))


def starter(name: str, folder: Path, **overrides: Any) -> Study:
    load_object(entry_of(name).starter)(folder)
    return Study.load(folder / "study.toml", overrides=overrides)


TINY: dict[str, dict[str, Any]] = {
    "averaging": {"privacy.epsilon": 1e-3},
    # A vertical study declares no number of rows, only the most that there may be.
    "vertical": {"privacy.epsilon": 0.1, "vertical.max_rows": 256},
    "synthetic": {"privacy.epsilon": 1e-3},
    "softlabel": {"privacy.epsilon": 1e-3},
    "summary": {"privacy.epsilon": 1e-4},
}


@pytest.mark.parametrize("name", TINY)
def test_it_is_silent_about_the_starters_and_speaks_where_their_epsilon_is_tiny(name: str, tmp_path: Path) -> None:
    study = starter(name, tmp_path)
    assert describe_signal(study) == ()
    tiny = Study.load(tmp_path / "study.toml", overrides=TINY[name])
    (sentence,) = describe_signal(tiny)
    assert "would learn nothing" in sentence and "Raise privacy.epsilon" in sentence
    assert sentence[1:] in render_plan(tiny) and "would learn nothing" not in render_plan(study)


def test_it_speaks_where_records_are_few() -> None:
    def study(sizes: int) -> Study:
        return comity.Averaging(SCHEMA, sizes=sizes).study(["ash", "birch", "cedar"], epsilon=0.1, delta=1e-6)

    assert describe_signal(study(3)) and not describe_signal(study(3000))
    few, many = noise_ratio(study(100)), noise_ratio(study(1000))
    # Noise is public and the same: ten times the records are a tenth of the ratio.
    assert few is not None and many is not None and few == pytest.approx(10 * many, rel=0.2)


def test_a_study_that_it_calls_useless_is_no_better_than_a_constant() -> None:
    method = comity.Averaging(clinic_schema("readmitted"), sizes=40, rounds=4)
    names = ["clinic-01", "clinic-02", "clinic-03"]
    study = method.study(names, epsilon=0.1, delta=1e-6)
    ratio = noise_ratio(study)
    assert ratio is not None and ratio >= LARGEST_RATIO
    test = clinics(1, 1000, "test")["clinic-01"]
    errors = [method.simulate(clinics(3, 40), epsilon=0.1, delta=1e-6, seed=seed, test=test).error for seed in range(3)]
    constant = min((test["readmitted"] == answer).mean() for answer in ("no", "yes"))
    assert sum(error for error in errors if error is not None) / 3 > constant - 0.02


@pytest.mark.parametrize("case", CASES)
def test_no_study_makes_it_fail(case: str, tmp_path: Path) -> None:
    try:
        study = small_study(case, tmp_path)
        study.plan()
    except ComityError:
        return
    ratio = noise_ratio(study)
    assert ratio is None or 0 < ratio < 1e6


def test_labels_of_parties_are_read_one_by_one_in_noise_that_is_longer_than_all_of_them() -> None:
    """Thirty parties that agree about six clusters: the noise in all 24 numbers together is half as long as the sum,
    and the labels are right."""
    stream = Stream.public("clusters")
    centres = 4.0 * stream.normal((6, 3))
    schema = Schema(tuple(Numeric(name, -15, 15) for name in "abc"), Classes("y", tuple("012345")))

    def drawn(count: int) -> pd.DataFrame:
        label = stream.integers(6, (count,))
        points = np.clip(centres[label] + 0.3 * stream.normal((count, 3)), -15, 15)
        return pd.DataFrame(points, columns=list("abc")).assign(y=label.astype(str))

    method = comity.SoftLabel(schema, auxiliary=drawn(600).drop(columns="y"), sizes=60)
    frames = {f"p{place:02d}": drawn(60) for place in range(30)}
    study = method.study(list(frames), epsilon=2, delta=1e-6)
    found = method.simulate(frames, epsilon=2, delta=1e-6, seed=1, test=drawn(500))
    constant = next(one.error for one in found.baselines if one.name == "constant")
    assert found.error is not None and found.error < constant - 0.3
    assert describe_signal(study) == ()


def test_every_plan_says_roughly_what_the_noise_costs(tmp_path: Path) -> None:
    def say(epsilon: float, delta: float = 1e-6) -> str:
        study = comity.Averaging(SCHEMA, sizes=1000).study(["ash", "birch", "cedar"], epsilon=epsilon, delta=delta)
        (sentence,) = describe_expectation(study)
        assert sentence[-50:] in render_plan(study)
        return sentence

    assert (
        "the noise costs little" in say(1.0)
        and "may cost little, or nearly all" in say(0.1)
        and "learn nothing" in say(0.001)
    )
    # The limits were compared with results under Gaussian noise alone.
    assert "may cost little, or nearly all" in say(50.0, delta=0)
    undeclared = comity.Synthetic(SCHEMA).study(["ash", "birch"], epsilon=10, delta=1e-6)
    assert not any("costs little" in one for one in describe_expectation(undeclared))


def test_rows_of_divided_columns_are_the_declared_ones() -> None:
    def ratio(sizes: int) -> float:
        columns = {"ash": ["x"], "birch": ["z", "y"]}
        method = comity.Vertical(SCHEMA, columns=columns, products="dealer", alignment="none", sizes=sizes)
        study = method.study(list(columns), epsilon=3, delta=1e-6)
        found = noise_ratio(study, count_declared(study))
        assert found is not None and count_declared(study) == sizes
        # What is said to learn nothing is found by the most rows that the study allows.
        assert count_units(study) == method.max_rows
        return found

    assert ratio(1000) > 3 * ratio(10_000)


def test_every_method_with_a_forecast_has_a_limit() -> None:
    assert set(LITTLE_NOISE) == set(_METHODS) <= set(PROTOCOLS)
