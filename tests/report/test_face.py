from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

import comity
from comity.data import clinic_schema, clinics, public_cohort
from comity.errors import StudyError
from comity.study.results.result import Result
from tests.report.small_run import left

STUDY = """
[study]
name = "triage"
protocol = "softlabel"
schema = "schema.toml"
[privacy]
epsilon = 1.0
delta = 1e-6
[softlabel]
variant = "published"
method = "avg"
auxiliary = "public.csv"
[parties.clinic-01]
[parties.clinic-02]
[simulation]
data = {clinic-01 = "clinic-01.csv", clinic-02 = "clinic-02.csv"}
grant = 4.0
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    (tmp_path / "schema.toml").write_text(clinic_schema("readmitted").to_toml())
    for name, frame in clinics(2, 30).items():
        frame.drop(columns="disposition").to_csv(tmp_path / f"{name}.csv", index=False)
    public_cohort(40).to_csv(tmp_path / "public.csv", index=False)
    (tmp_path / "study.toml").write_text(STUDY)
    return tmp_path / "study.toml"


def test_every_public_name_is_there_and_no_other() -> None:
    for name in comity.__all__:
        assert getattr(comity, name) is not None, name
    assert sorted(comity.__all__) == dir(comity)
    assert set(comity.__all__) == {*comity._HOMES, "simulate", "__version__"}
    with pytest.raises(AttributeError, match="no attribute 'anonymise'"):
        _ = comity.anonymise


def test_importing_it_imports_nothing_heavy() -> None:
    heavy = {"numpy", "pandas", "sklearn", "matplotlib", "opendp", "pydantic"}
    code = f"import sys, comity; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_study_file_is_simulated_by_its_path_or_as_a_study(study: Any) -> None:
    one = comity.simulate(str(study), seed=7)
    two = comity.simulate(comity.Study.load(study), seed=7)
    assert isinstance(one, Result) and one.study == "triage" and one.parties == 2
    assert one.error == two.error and (one.model.coef_ == two.model.coef_).all()
    assert {account.left for account in one.accounts} == {left(4, 1)}
    half = comity.simulate(comity.Study.load(study, overrides={"privacy.epsilon": 0.5}), seed=7)
    assert half.guarantee.epsilon == pytest.approx(0.5, abs=1e-3) and half.study_hash != one.study_hash


def test_a_study_is_simulated_over_frames_in_place_of_its_files(study: Any) -> None:
    frames = dict(zip(comity.Study.load(study).consortium.parties, clinics(2, 30).values()))
    result = comity.simulate(study, frames=frames, test=clinics(1, 50, "test")["clinic-01"])
    assert result.guarantee.private and result.seed is None and result.error is not None
    with pytest.raises(StudyError, match="one table for each of 2 parties, found north"):
        comity.simulate(study, frames={"north": frames.popitem()[1]})
    with pytest.raises(StudyError, match="give frames too"):
        comity.simulate(study, test=clinics(1, 50)["clinic-01"])


def test_what_is_no_study_is_named(study: Any) -> None:
    with pytest.raises(StudyError, match="found int"):
        cast(Any, comity.simulate)(3)
    with pytest.raises(StudyError, match="no such study file"):
        comity.simulate(study.with_name("none.toml"))
