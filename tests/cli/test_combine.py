"""`comity combine`: published shares become a model that predicts; shares that do not belong together do not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from comity.data import Encoding, clinic_schema, clinics
from comity.learn import load_model
from comity.methods.averaging import Averaging
from comity.study.results.result import Result
from comity.study.simulation.simulate import Terms, simulate
from tests.support.study_folder import write_study

ENCODING = Encoding(clinic_schema("readmitted"), rows="normalised", intercept=True)


@pytest.fixture(scope="module")
def outcome() -> Result:
    protocol = Averaging.published_over_rows(width=ENCODING.width, classes=("no", "yes"), l2=0.1, encoding=ENCODING)
    # Two runs would cost two pairs of keys: everything below is made from this one.
    return simulate(protocol, parties=clinics(3, 12), epsilon=1.0, unit="record", seed=3, terms=Terms(colluders=0))


@pytest.fixture
def folder(outcome: Result, tmp_path: Path) -> Path:
    outcome.save(tmp_path / "run")
    return tmp_path / "run"


def test_the_shares_of_a_run_add_up_to_its_model(comity: Any, outcome: Result, folder: Path, tmp_path: Path) -> None:
    shares = sorted((folder / "shares").glob("*.share.json"))
    assert len(shares) == 4
    ended = comity("combine", *shares, "--to", tmp_path / "combined")
    assert ended.code == 0 and "from 4 shares" in ended.out
    np.testing.assert_array_equal(cast(Any, load_model(tmp_path / "combined")).coef_, cast(Any, outcome.model).coef_)


def test_a_test_user_predicts_with_the_combined_model(
    comity: Any, outcome: Result, folder: Path, tmp_path: Path
) -> None:
    assert comity("combine", folder / "shares", "--to", tmp_path / "combined", "--json").document["shares"] == 4
    visits = next(iter(clinics(1, 20, "test user").values()))
    visits.to_csv(tmp_path / "visits.csv", index=False)
    ended = comity("predict", tmp_path / "combined", tmp_path / "visits.csv", "--json")
    predicted = [row["predicted"] for row in ended.document]
    assert predicted == list(outcome.model.predict(visits))


def _edited(path: Path, **changes: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"run": "another"}, "different runs"),
        ({"grid": 0.5}, "different runs"),
        ({"format": "comity-model"}, "expected format"),
        ({"words": ["xyz"]}, "words"),
        ({"words": ["00" * 8]}, "not of one model"),
        ({"grid": -1.0}, "a grid above 0"),
        ({"parties": True}, "parties"),
        ({"classes": ["yes", "yes"]}, "not of one model"),
        ({"encoding": {"schema": "nonsense"}}, "share again"),
    ],
)
def test_a_share_that_is_not_one_of_this_run_is_refused(
    comity: Any, folder: Path, tmp_path: Path, changes: Any, said: str
) -> None:
    _edited(folder / "shares" / "curator.share.json", **changes)
    ended = comity("combine", folder / "shares", "--to", tmp_path / "combined")
    assert ended.code == 3 and said in ended.err
    assert not (tmp_path / "combined").exists()


def test_all_shares_are_needed_each_once(comity: Any, folder: Path, tmp_path: Path) -> None:
    shares = sorted((folder / "shares").glob("*.share.json"))
    missing = comity("combine", *shares[1:], "--to", tmp_path / "combined")
    assert missing.code == 3 and "missing" in missing.err
    twice = comity("combine", *shares, shares[0], "--to", tmp_path / "combined")
    assert twice.code == 3 and "twice" in twice.err


def test_a_folder_without_shares_or_a_file_that_is_none_is_named(comity: Any, tmp_path: Path) -> None:
    assert "no file" in comity("combine", tmp_path).err
    (tmp_path / "broken.share.json").write_text("{")
    assert "broken.share.json" in comity("combine", tmp_path / "broken.share.json").err
    assert comity("combine", tmp_path / "nowhere").code == 3


STUDY = """\
[study]
name = "published"
protocol = "averaging"
schema = "schema.toml"

[privacy]
unit = "record"
neighbours = "replace"
epsilon = 1.0
colluders = 0

[averaging]
variant = "published"
l2 = 0.1

[parties]
count = 3

[simulation]
data = "records.csv"
split = "by-column"
column = "clinic"
test = "test.csv"
"""


def test_a_study_is_planned_run_combined_and_used(comity: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_study(tmp_path / "published", text=STUDY, parties=3)
    monkeypatch.chdir(path.parent)
    planned = comity("plan", path, "--all")
    assert planned.code == 0 and "in additive shares, with the noise of one party" in planned.out
    ended = comity("run", path, "--json")
    assert ended.code == 0, ended.err
    folder = Path(ended.document["folder"])
    assert comity("combine", folder / "shares", "--to", "combined").code == 0
    np.testing.assert_array_equal(
        cast(Any, load_model("combined")).coef_, cast(Any, load_model(folder / "model")).coef_
    )
    predicted = comity("predict", "combined", "test.csv", "--json")
    assert len(predicted.document) == 100


def test_a_study_with_literal_noise_says_what_it_loses(comity: Any, tmp_path: Path) -> None:
    text = STUDY.replace("l2 = 0.1", 'l2 = 0.1\nnoise = "literal"')
    planned = comity("plan", write_study(tmp_path / "literal", text=text, parties=3), "--all")
    assert planned.code == 0 and "WARNING        not private as claimed" in planned.out
