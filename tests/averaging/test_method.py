"""`comity.Averaging` made in Python: the same study as from a file, planned and simulated over frames."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import comity
from comity.data import clinic_schema, clinics
from comity.errors import StudyError

SCHEMA = clinic_schema("readmitted")
TERMS: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
PARTIES = ["clinic-01", "clinic-02", "clinic-03"]

FILE = """
[study]
name = "study"
protocol = "averaging"
schema = "schema.toml"
[privacy]
epsilon = 1.0
delta = 1e-6
[parties.clinic-01]
[parties.clinic-02]
[parties.clinic-03]
[averaging]
sizes = 40
"""


def written(folder: Path, more: str = "") -> comity.Study:
    (folder / "schema.toml").write_text(SCHEMA.to_toml())
    (folder / "study.toml").write_text(FILE + more)
    return comity.Study.load(folder / "study.toml")


def test_a_file_and_python_agree_on_the_same_study(tmp_path: Path) -> None:
    method = comity.Averaging(SCHEMA, sizes=40, scaling="clipped")
    read = written(tmp_path, 'scaling = "clipped"')
    assert method.study(PARTIES, **TERMS).hash == read.hash
    assert str(method.plan(PARTIES, **TERMS)) == read.plan().as_text()
    assert method.study(PARTIES, **TERMS, dropouts=1).hash != read.hash


def test_the_earlier_name_of_an_option_is_read_with_a_notice_and_the_same_hash(tmp_path: Path) -> None:
    earlier, now = written(tmp_path, 'rows = "clipped"'), written(tmp_path, 'scaling = "clipped"')
    assert earlier.hash == now.hash and earlier.method == now.method
    assert earlier.notices == ("averaging.rows is now called averaging.scaling; the study means the same",)
    assert now.notices == ()
    with pytest.raises(StudyError, match="earlier name") as caught:
        written(tmp_path, 'rows = "clipped"\nscaling = "clipped"')
    assert caught.value.key == "averaging.rows"


def test_sizes_are_counted_in_a_simulation_alone_and_the_result_says_so() -> None:
    frames = clinics(3, 40)
    method = comity.Averaging(SCHEMA)
    with pytest.raises(StudyError, match=r"averaging\.sizes is missing"):
        method.plan(PARTIES, **TERMS)
    result = method.simulate(frames, **TERMS, seed=1)
    assert "counted from the frames" in result.findings[0]
    declared = comity.Averaging(SCHEMA, sizes=40).simulate(frames, **TERMS, seed=1)
    assert not [one for one in declared.findings if "counted" in one]
    assert result.model.predict_proba(frames["clinic-01"]).shape == (40, 2)


@pytest.mark.parametrize(("neighbours", "private"), [("replace", True), ("add-remove", False)])
def test_counted_sizes_are_claimed_private_where_no_neighbour_has_others(neighbours: str, private: bool) -> None:
    result = comity.Averaging(SCHEMA, rounds=1).simulate(clinics(3, 40), **TERMS, neighbours=neighbours)
    assert result.guarantee.private is private
    declared = comity.Averaging(SCHEMA, rounds=1, sizes=40)
    assert declared.simulate(clinics(3, 40), **TERMS, neighbours=neighbours).guarantee.private


def test_the_published_variant_needs_nothing_but_its_name() -> None:
    study = comity.Averaging(SCHEMA, variant="published").study(PARTIES, epsilon=1.0)
    assert study.privacy.colluders == study.privacy.dropouts == 0 == study.consortium.colluders
    assert study.privacy.unit.value == "record"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"solvr": "auto"}, "unknown key averaging.solvr .did you mean solver"),
        ({"solver": "newton"}, "averaging.solver must be .*, found 'newton'"),
        ({"variant": "published", "solver": "gradient"}, "averaging.solver belongs to"),
    ],
)
def test_bad_options_are_one_sentence(options: Any, said: str) -> None:
    with pytest.raises(StudyError, match=said):
        comity.Averaging(SCHEMA, **options).study(PARTIES, epsilon=1.0)


def test_what_a_study_says_elsewhere_is_no_option_of_its_table(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"unknown key averaging\.columns"):
        written(tmp_path, "columns = { a = ['age'] }")
    with pytest.raises(StudyError, match="every party holds whole records"):
        comity.Averaging(SCHEMA, columns={"clinic-01": ["age"]}).study(PARTIES, **TERMS)
    with pytest.raises(StudyError, match="made without a schema"):
        comity.Averaging(sizes=3).study(PARTIES, **TERMS)


def test_a_method_and_its_plan_are_shown_in_a_few_lines() -> None:
    method = comity.Averaging(SCHEMA, sizes=40)
    assert repr(method) == str(method) == "Averaging(schema, sizes=40)"
    plan = replace(method.plan(PARTIES, **TERMS), study="<b>")
    shown = plan._repr_html_()
    assert shown.startswith("<div>") and "<td>gradient x20</td>" in shown and "<b>" not in shown
