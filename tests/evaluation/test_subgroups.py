"""The error by subgroup and by party in simulations: right means, honest intervals, refusals, and nothing agreed on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import comity
from comity.data import Bounded, Categorical, Classes, Date, Numeric, Ordinal, Schema, clinic_schema, clinics
from comity.errors import ComityError, DataError, StudyError
from comity.federation.evaluation.assessment import Assessment, wilson_interval
from comity.federation.evaluation.subgroups import MIN_RECORDS, error_interval, measure_subgroups
from comity.report.page import render_result
from comity.report.result import load_result
from comity.study.records.groups import label_groups
from comity.study.records.party_data import load_party_data
from comity.study.simulation.simulate import run_study
from comity.study.study import Study
from tests.report.small_studies import small_study
from tests.support.study_folder import STUDY, write_study


def test_an_interval_of_a_share_is_wilsons_and_of_squared_errors_students() -> None:
    wrong = np.array([1.0] * 7 + [0.0] * 33)
    assert error_interval(wrong, 0.05, is_share=True) == pytest.approx(wilson_interval(7 / 40, 40), abs=1e-6)
    squared = np.random.default_rng(1).gamma(1.0, 1.0, 50)
    expected = stats.t.interval(0.95, 49, loc=squared.mean(), scale=stats.sem(squared))
    assert error_interval(squared, 0.05, is_share=False) == pytest.approx(expected)


@pytest.mark.parametrize("share", [0.05, 0.2, 0.5])
def test_the_interval_of_a_share_covers_in_about_95_percent_of_samples(share: float) -> None:
    """Computed exactly, over all counts of wrong predictions that 60 records can have."""
    counts = np.arange(61)
    inside = [
        (low <= share <= high)
        for low, high in (
            error_interval((np.arange(60) < count).astype(float), 0.05, is_share=True) for count in counts
        )
    ]
    assert 0.93 <= stats.binom.pmf(counts, 60, share) @ np.array(inside) <= 0.99


def test_groups_that_do_not_differ_are_seldom_called_different_however_many_there_are() -> None:
    """Twenty equal groups: chance flags one in at most about 5 % of samples. Separate 95 % intervals would do so in
    about two thirds of them."""
    chance, labels = np.random.default_rng(3), np.repeat([f"g{k:02d}" for k in range(20)], 50).astype(object)
    names = {"g": tuple(dict.fromkeys(labels))}
    flagged = 0
    for _ in range(200):
        errors = (chance.random(1000) < 0.3).astype(float)
        found = measure_subgroups(errors, {"g": labels}, is_share=True, order=names)
        flagged += any(one.verdict in ("worse", "better") for one in found)
    assert flagged <= 20


def test_a_group_that_differs_is_found_and_a_small_one_has_no_interval() -> None:
    labels = np.array(["few"] * (MIN_RECORDS - 1) + ["bad"] * 200 + ["good"] * 200, object)
    errors = np.where(labels == "bad", 1.0, 0.0)
    few, bad, good = measure_subgroups(errors, {"g": labels}, is_share=True, order={"g": ("few", "bad", "good")})
    assert (few.verdict, few.low, few.words) == ("too few records to tell", None, "too few records to tell")
    assert (bad.verdict, good.verdict) == ("worse", "better") and bad.low is not None and bad.low > 0.9


METHODS = [
    pytest.param("averaging default delta=1e-6", marks=pytest.mark.long),
    "averaging default model=linear",
    pytest.param("averaging published delta=0", marks=pytest.mark.long),
    pytest.param("softlabel default statistic=histograms", marks=pytest.mark.long),
    "softlabel published delta=0",
    "synthetic default delta=1e-6",
    "synthetic published delta=0",
    "vertical default model=linear",
    pytest.param("vertical published delta=0", marks=pytest.mark.long),
]


@pytest.mark.parametrize("case", METHODS)
def test_errors_of_single_records_have_the_error_as_their_mean(case: str, tmp_path: Path) -> None:
    study = small_study(case, tmp_path, **{"simulation.baselines": False, "simulation.evaluate_by": ["sex", "ward"]})
    data = load_party_data(study)
    result = run_study(study, seed=1, data=data)
    assert data.test is not None and result.error is not None
    errors = study.protocol.record_errors(result.presented, result.kept, data.test)
    assert errors is not None and errors.mean() == pytest.approx(result.error)
    for _, part in result.subgroups.groupby("by"):
        assert part["records"].sum() == len(data.test)
        assert (part["records"] * part["error"]).sum() / len(data.test) == pytest.approx(result.error)


def whole_study(folder: Path) -> Study:
    text = STUDY.replace('test = "test.csv"\n', 'evaluate_by = ["party", "sex", "readmitted"]\nholdout = 0.5\n')
    return Study.load(write_study(folder, text=text, records=60))


def test_groups_are_those_of_the_held_out_records_by_hand(tmp_path: Path) -> None:
    study = whole_study(tmp_path)
    data = load_party_data(study)
    result = run_study(study, seed=1, data=data)
    assert data.test is not None and data.test.labels is not None
    wrong = result.model.predict(data.test.features) != result.model.classes_[data.test.labels.astype(int)]
    shown = result.subgroups.set_index(["by", "group"])
    yes = data.test.labels == 1
    assert shown.loc[("readmitted", "yes"), "records"] == yes.sum()
    assert shown.loc[("readmitted", "yes"), "error"] == pytest.approx(wrong[yes].mean())
    records = pd.read_csv(tmp_path / "records.csv")
    for party in records["clinic"].unique():
        assert shown.loc[("party", party), "records"] == 30
    # The held-out rows of a party are those that its training part lacks.
    kept = {len(one) for one in data.parties.values()}
    assert kept == {30} and len(data.test) == 150


def test_they_are_saved_shown_and_no_part_of_what_is_agreed_on(tmp_path: Path) -> None:
    study = whole_study(tmp_path)
    result = run_study(study, seed=1)
    plain = Study.load(tmp_path / "study.toml", overrides={"simulation.evaluate_by": []})
    assert plain.hash == study.hash and "sex" not in json.dumps(run_study(plain, seed=1).as_json()["subgroups"])
    result.save(tmp_path / "run")
    loaded = load_result(tmp_path / "run")
    pd.testing.assert_frame_equal(loaded.subgroups, result.subgroups)
    page = render_result(result)
    assert "Error by party" in page and "Error by sex" in page and "too few records to tell" in page
    assert "no guarantee covers" in page and "subgroups" not in repr(result)
    assert all("subgroup" not in one.name for one in result.releases)


def test_a_folder_with_impossible_subgroups_is_refused(tmp_path: Path) -> None:
    result = run_study(whole_study(tmp_path), seed=1)
    for change in ({"error": 1e999}, {"low": None}, {"verdict": "excellent"}, {"records": -1}, {"group": 3}):
        page = json.loads(json.dumps(result.assessment.as_json()))
        page["subgroups"][0] |= change
        with pytest.raises((ValueError, TypeError, DataError)):
            Assessment.from_json(page)


@pytest.mark.parametrize(
    ("case", "by", "sentence"),
    [
        ("averaging default delta=1e-6", ["sexx"], "did you mean 'sex'"),
        ("averaging default delta=1e-6", ["sex", "sex"], "named twice"),
        ("vertical default model=linear", ["party"], "every party holds columns of all of them"),
        ("summary default delta=1e-6", ["sex"], "summary predicts no target"),
    ],
)
def test_what_cant_be_had_is_refused_in_a_sentence(case: str, by: list[str], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"simulation\.evaluate_by") as refused:
        load_party_data(small_study(case, tmp_path, **{"simulation.evaluate_by": by}))
    assert sentence in str(refused.value) and refused.value.key == "simulation.evaluate_by"


def test_a_test_file_that_names_no_party_is_refused(tmp_path: Path) -> None:
    path = write_study(tmp_path)
    with pytest.raises(ComityError, match="names none; leave it out"):
        load_party_data(Study.load(path, overrides={"simulation.evaluate_by": ["party"]}))
    test = pd.read_csv(tmp_path / "test.csv")
    test.assign(clinic=["clinic-01"] * 60 + ["clinic-02"] * 40).to_csv(tmp_path / "test.csv", index=False)
    found = load_party_data(Study.load(path, overrides={"simulation.evaluate_by": ["party"]}))
    assert pd.Series(found.groups.labels["party"]).value_counts().to_dict() == {"clinic-01": 60, "clinic-02": 40}


def test_python_takes_the_same_key() -> None:
    schema, frames = clinic_schema("readmitted"), clinics(3, 40)
    test = pd.concat([frame.assign(party=name) for name, frame in clinics(3, 30, "test").items()])
    method = comity.Averaging(schema, sizes=40, rounds=1)
    result = method.simulate(frames, epsilon=5, delta=1e-6, seed=1, test=test, evaluate_by=["party", "sex"])
    assert list(result.subgroups["by"].unique()) == ["party", "sex"] and result.subgroups["records"][:3].sum() == 90
    with pytest.raises(StudyError, match="belong to a party each"):
        bare = test.drop(columns="party")
        method.simulate(frames, epsilon=5, delta=1e-6, seed=1, test=bare, evaluate_by=["party"])


def test_cells_are_those_of_the_schema() -> None:
    schema = Schema(
        (
            Numeric("age", 0, 100, missing="cell"),
            Numeric("dose", 0, 10, edges=(5,)),
            Categorical("sex", ("f", "m"), other=True),
            Ordinal("triage", ("low", "high"), missing="cell"),
            Date("day", pd.Timestamp("2020-01-01").date(), pd.Timestamp("2020-12-31").date()),
        ),
        Bounded("cost", 0, 100),
    )
    frame = pd.DataFrame(
        {
            "age": [10, 99, None],
            "dose": [1, 5, 9],
            "sex": ["f", "x", "m"],
            "triage": ["high", None, "low"],
            "day": ["2020-01-01", "2020-12-31", "2020-07-01"],
            "cost": [0, 50, 100],
        }
    )
    found = label_groups(schema, [*schema.names, "cost"], frame, "the test").labels
    assert list(found["age"]) == ["age<25", "75<=age", "(missing)"]
    assert list(found["dose"]) == ["dose<5", "5<=dose", "5<=dose"]
    assert list(found["sex"]) == ["f", "(other)", "m"]
    assert list(found["triage"]) == ["high", "(missing)", "low"]
    # 366 days in four parts: the third begins after 183 of them, on July 2.
    assert list(found["day"]) == ["from 2020-01-01", "from 2020-10-02", "from 2020-04-02"]
    assert list(found["cost"]) == ["cost<25", "50<=cost<75", "75<=cost"]
    classes = Schema((Numeric("age", 0, 1),), Classes("y", ("no", "yes")))
    named = label_groups(classes, ["y"], pd.DataFrame({"age": [0, 1], "y": ["yes", "no"]}), "the test")
    assert list(named.labels["y"]) == ["yes", "no"]
