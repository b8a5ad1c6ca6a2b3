"""`[evaluation]` in a study file: its keys, its plan, its hash, its result; what it is refused with."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from comity.cli.app import app
from comity.errors import StudyError
from comity.methods.averaging import Averaging, AveragingProtocol
from comity.report.result import load_result
from comity.report.sentences import describe_evaluation
from comity.study.simulation.simulate import Terms, run_study, simulate
from comity.study.study import Study
from tests.evaluation.consortia import drawn, of_averaging

STUDY = """
[study]
name = "wards"
protocol = "averaging"
schema = "schema.toml"

[privacy]
unit = "record"
epsilon = 2.0
delta = 1e-6

[averaging]
rounds = 2
sizes = 200

[parties]
count = 4

[simulation]
data = "records.csv"
"""
SCHEMA = """
[columns.age]
kind = "numeric"
low = 0
high = 100
[columns.dose]
kind = "numeric"
low = -1
high = 1
[target]
name = "sick"
classes = ["no", "yes"]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("wards")
    (place / "schema.toml").write_text(SCHEMA)
    generator = np.random.default_rng(0)
    age, dose = generator.integers(0, 100, 1000), generator.uniform(-1, 1, 1000)
    sick = np.where(age / 50 - 1 + dose + generator.normal(size=1000) / 3 > 0, "yes", "no")
    lines = [f"{a},{d:.3f},{s}" for a, d, s in zip(age, dose, sick)]
    (place / "records.csv").write_text("\n".join(["age,dose,sick", *lines]) + "\n")
    return place


def parsed(folder: Path, more: str = "[evaluation]\n", text: str = STUDY) -> Study:
    return Study.parse(text + more, folder=folder)


def test_the_hash_covers_the_evaluation_and_is_as_before_without_it(folder: Path) -> None:
    hashes = [parsed(folder, more).hash for more in ("", "[evaluation]\n", "[evaluation]\nshare = 0.3\n")]
    assert len(set(hashes)) == 3
    plain = parsed(folder, "")
    assert plain.consortium.evaluation is None and plain.evaluation is None
    assert "evaluation" not in json.dumps(plain.plan().as_json())


def test_the_plan_says_what_it_costs_and_the_method_is_laid_out_for_the_rest(folder: Path) -> None:
    study = parsed(folder, "[evaluation]\nshare = 0.25\n")
    plan = study.plan()
    assert {row.release: row.loss for row in plan.rows}["evaluation"].startswith("mu")
    assert plan.guarantee == parsed(folder, "").plan().guarantee
    assert any("costs nothing beyond the study's epsilon" in note for note in plan.notes)
    assert isinstance(study.protocol, AveragingProtocol) and study.protocol.sizes == 150
    assert study.settings()["evaluation.share"] == 0.25


def test_a_run_measures_and_its_result_says_so_apart_from_exact_figures(folder: Path, tmp_path: Path) -> None:
    outcome = run_study(parsed(folder), seed=1, folder=tmp_path)
    result = outcome
    result.save(tmp_path / "out")
    again = load_result(tmp_path / "out")
    assert again.evaluation == outcome.evaluation is not None
    page = json.loads((tmp_path / "out" / "result.json").read_text())
    assert set(page["evaluation"]["figures"]) == {"accuracy", "log loss", "squared error", "AUC"}
    assert "measured under privacy on records set aside" in describe_evaluation(result)[0]
    for name in ("report.html", "model/MODEL_CARD.md"):
        text = (tmp_path / "out" / name).read_text()
        assert "easured under privacy on records set aside" in text and "accuracy" in text
    assert all(account.left == "eps 0.00" for account in outcome.accounts)
    assert outcome.error is not None


def test_the_terminal_shows_it(folder: Path, tmp_path: Path) -> None:
    for file in ("schema.toml", "records.csv"):
        (tmp_path / file).write_text((folder / file).read_text())
    (tmp_path / "study.toml").write_text(STUDY + "[evaluation]\n")
    shown = CliRunner().invoke(app, ["run", str(tmp_path / "study.toml"), "--seed", "1", "--out", str(tmp_path / "r")])
    assert shown.exit_code == 0, shown.output
    assert "measured under privacy on records set aside" in shown.output and "accuracy 0." in shown.output


def test_a_seeded_simulation_is_repeatable() -> None:
    assert of_averaging(3)[0].evaluation == of_averaging(3)[0].evaluation


@pytest.mark.parametrize(
    ("more", "key"),
    [
        ("[evaluation]\nshare = 0.7\n", "evaluation.share"),
        ("[evaluation]\nbudget = 0.1\n", "evaluation.budget"),
        ("[evaluation]\nsahre = 0.1\n", "evaluation.sahre"),
    ],
)
def test_wrong_keys_are_refused_by_name(folder: Path, more: str, key: str) -> None:
    with pytest.raises(StudyError) as refusal:
        parsed(folder, more)
    assert refusal.value.key == key


def test_a_method_without_a_predictor_of_its_own_is_refused(folder: Path) -> None:
    published = STUDY.replace("rounds = 2\nsizes = 200", 'variant = "published"')
    published = published.replace("delta = 1e-6", "colluders = 0")
    with pytest.raises(StudyError, match="releases none"):
        parsed(folder, text=published).plan()


def test_stacks_of_parties_are_refused() -> None:
    generator = np.random.default_rng(0)
    with pytest.raises(StudyError, match="at most 1000 parties"):
        simulate(
            Averaging.over_rows(features=4, sizes=2, rounds=1),
            parties={f"p{number}": drawn(2, generator) for number in range(1001)},
            epsilon=1.0,
            delta=1e-6,
            unit="record",
            terms=Terms(evaluation={}),
        )
