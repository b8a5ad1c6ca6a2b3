"""What share of the records a method's bounds clip: told in a simulation, by exact records, and nowhere else."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

import comity
from comity.data import Records
from comity.federation.agreement import Agreement
from comity.federation.coordinator.lifecycle import run
from comity.federation.evaluation.assessment import Assessment
from comity.methods.averaging import Averaging
from comity.methods.softlabel import SoftLabel
from comity.methods.vertical import GradientRegression, VerticalRegression
from comity.privacy.loss import Approx
from comity.study.results.result import Result
from comity.study.simulation.simulate import simulate
from tests.support import vertical as columns
from tests.support.noise import NoNoise


def figures(outcome: Result) -> dict[str, float]:
    return {figure.name: figure.value for figure in outcome.assessment.figures}


def rounds() -> VerticalRegression:
    return columns.build_regression(2, products="dealer", solver="auto", rounds=2)


def simulated(tried: Any, **terms: Any) -> Result:
    return simulate(tried, **{"epsilon": 5.0, "delta": 1e-5, "unit": "record", "seed": 1, **terms})


def test_rounds_over_columns_tell_it_on_the_page_and_in_the_file(tmp_path: Path) -> None:
    tried, frame = rounds(), columns.make_people(200)
    held = columns.encode_parts(tried, frame)
    outcome = simulated(tried, parties=held, test=columns.make_people(50, seed=1))
    found = figures(outcome)
    assert 0 < found["instruments clipped"] < 1 and found["scores clipped"] == 0
    outcome.save(tmp_path)
    saved = json.loads((tmp_path / "result.json").read_text())
    assert {"instruments clipped", "scores clipped"} <= {figure["name"] for figure in saved["figures"]}
    assert "outside the guarantee" in saved["not_covered"]
    assert "instruments clipped" in (tmp_path / "report.html").read_text()
    # Scores that are nowhere near their intervals are clipped in every row.
    opened = {**outcome.released, "weights": [1e4 * np.asarray(outcome.released["weights"][-1])]}
    far = tried.clipped_fractions(opened, list(held.values()), outcome.consortium)
    assert far[1].name == "scores clipped" and far[1].value > 0.9
    low = simulated(tried, parties=held, test=columns.make_people(50, seed=1), epsilon=0.1)
    assert not set(figures(low)) & {"instruments clipped", "scores clipped"}, "without rounds nothing is clipped"


def test_averaging_tells_of_residuals_rows_and_targets() -> None:
    generator = np.random.default_rng(0)
    x = generator.uniform(-0.5, 0.5, (400, 3))
    x[:100] *= 10 / np.linalg.norm(x[:100], axis=1, keepdims=True)
    y = (x[:, 0] > 0).astype(np.int64)
    y[200:260] = 1 - y[200:260]
    parties = {name: Records(x[at::2], y[at::2]) for at, name in enumerate("ab")}
    outcome = simulated(
        Averaging.over_rows(features=3, classes=("no", "yes"), sizes=200, clip=0.3), parties=parties, test=parties["a"]
    )
    found, weights = figures(outcome), np.asarray(outcome.released["model"])
    inside = x / np.maximum(1, np.linalg.norm(x, axis=1, keepdims=True))
    assert found["rows clipped"] == 0.25
    assert found["residuals clipped"] == np.mean(np.abs(expit(inside @ weights[0]) - y) > 0.3) > 0.05
    numbers = {name: Records(own.features, np.linspace(0, 10, 200)) for name, own in parties.items()}
    linear = Averaging.over_rows(features=3, model="linear", classes=(), low=0.0, high=5.0, sizes=200)
    assert figures(simulated(linear, parties=numbers, test=numbers["a"]))["targets clipped"] == 0.5


def test_soft_labels_tell_of_parties() -> None:
    generator = np.random.default_rng(1)
    public = generator.uniform(-1, 1, (60, 3)) / 2
    tried = SoftLabel.over_rows(auxiliary=public, classes=("no", "yes"), statistic="class-sums", sizes=20)
    parties = {}
    for at in range(8):
        rows = generator.uniform(-1, 1, (20 if at % 2 else 2, 3)) / 2
        parties[f"p{at}"] = Records(rows, (rows[:, 0] > 0).astype(np.int64))
    outcome = simulated(tried, parties=parties, test=parties["p1"], unit="party")
    statistic: Any = tried.choice(outcome.consortium).statistic
    lengths = [
        np.linalg.norm(statistic.contribution(own.features, np.asarray(own.labels), np.ones(len(own.features), bool)))
        for own in parties.values()
    ]
    assert figures(outcome)["parties clipped"] == np.mean(np.array(lengths) > statistic.bound.radius) > 0


def test_nobody_but_a_simulation_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*_: Any) -> Any:
        raise AssertionError("exact records outside a simulation")

    monkeypatch.setattr(GradientRegression, "clipped_fractions", asked)
    tried, frame = rounds(), columns.make_people(60)
    consortium = columns.make_consortium(tried, Approx(1, 1e-5))
    parties, _ = columns.host_parties(tried, columns.encode_parts(tried, frame), consortium, NoNoise())
    outcome = Result.of(Agreement("0" * 64, tried, consortium), run(parties), parties.transcript, run="run-1")
    assert outcome.assessment == Assessment() and not outcome.as_json()["figures"]
    root = Path(comity.__file__).parent
    asking = [
        path
        for path in root.rglob("*.py")
        if re.search(r"protocol\.clipped_fractions\(", path.read_text(encoding="utf-8"))
    ]
    assert sorted(path.relative_to(root).as_posix() for path in asking) == [
        "estimators/simulated_estimator.py",
        "study/simulation/simulate.py",
    ]
