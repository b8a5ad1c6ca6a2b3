"""A study whose parties declare columns: chosen, planned, run, reported, and refused with the key that is wrong."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from comity.cli import main
from comity.data import clinic_schema
from comity.errors import ComityError, StudyError
from comity.methods.synthetic import SyntheticColumnsProtocol, SyntheticProtocol
from comity.privacy.unit import Neighbours, Unit
from comity.report.result import load_result
from comity.study.records.party_data import load_party_data
from comity.study.simulation.simulate import run_study
from comity.study.study import Study

from .by_columns import make_people
from .consortia import make_schema

STUDY = """
[study]
name = "trial"
protocol = "synthetic"
schema = "schema.toml"

[privacy]
epsilon = 4.0
delta = 1e-6

[synthetic]
rows = 1000
max_rows = 4096
products = "dealer"

[parties.clinic]
columns = ["age", "stage", "ill"]
[parties.registry]
columns = ["income", "town", "region"]
[parties.lab]
columns = ["seen"]

[simulation]
data = "people.parquet"
split = "by-features"
grant = 100.0
"""
FILES = STUDY.replace('data = "people.parquet"\nsplit = "by-features"', 'test = "people.parquet"').replace(
    "grant = 100.0",
    'grant = 100.0\n[simulation.data]\nclinic = "clinic.csv"\nregistry = "registry.parquet"\nlab = "lab.csv"\n',
)


def study(folder: Any, text: Any = STUDY, *, identifier: bool = False, **overrides: Any) -> Any:
    given = make_schema().to_toml() + ('\n[identifier]\nname = "person"\n' if identifier else "")
    (folder / "schema.toml").write_text(given)
    make_people(1500).to_parquet(folder / "people.parquet")
    (folder / "study.toml").write_text(text)
    return Study.load(folder / "study.toml", overrides={key.replace("__", "."): v for key, v in overrides.items()})


def test_declared_columns_choose_the_method_and_its_neighbours(tmp_path: Path) -> None:
    made = study(tmp_path)
    assert isinstance(made.protocol, SyntheticColumnsProtocol) and made.protocol.max_rows == 4096
    assert made.privacy.unit is Unit.RECORD and made.privacy.neighbours is Neighbours.REPLACE
    assert made.defaults()["privacy.neighbours"] is Neighbours.REPLACE
    text = made.plan().as_text()
    assert "columns of different parties by dealer" in text and "1.73 times as wide" in text
    assert "secure sum + shared noise" in text and "of 1,000 records on average" in text


def test_whole_records_are_counted_by_rows_as_before(tmp_path: Path) -> None:
    rows = STUDY.replace('max_rows = 4096\nproducts = "dealer"\n', "")
    for columns in (
        'columns = ["age", "stage", "ill"]',
        'columns = ["income", "town", "region"]',
        'columns = ["seen"]',
    ):
        rows = rows.replace(columns + "\n", "")
    made = study(tmp_path, rows)
    assert isinstance(made.protocol, SyntheticProtocol) and made.privacy.neighbours is Neighbours.ADD_REMOVE


@pytest.mark.parametrize(
    ("change", "key", "said"),
    [
        ({"privacy__neighbours": "add-remove"}, "privacy.neighbours", "Set privacy.neighbours"),
        ({"privacy__dropouts": 1}, "privacy.dropouts", "set it to 0"),
        ({"privacy__unit": "party"}, "privacy.unit", "protects a record"),
        ({"synthetic__pooling": "none"}, "synthetic.pooling", "belongs to parties that hold whole records"),
        ({"synthetic__variant": "published"}, "synthetic.rows", "remove synthetic.rows"),
        ({"synthetic__alignment": "keyed"}, "synthetic.alignment", "identifier"),
        ({"synthetic__max_rows": 1}, "synthetic.max_rows", "greater than or equal to 2"),
        ({"parties__lab__columns": ["seen", "age"]}, "parties.lab.columns", "already"),
        ({"parties__lab__columns": []}, "parties", "no party has 'seen'"),
        ({"parties__registry__columns": ["income", "town"]}, "parties", "'region'"),
    ],
)
def test_what_is_wrong_with_a_study_is_named_and_refused_by_the_plan(
    tmp_path: Path, change: Any, key: str, said: str
) -> None:
    with pytest.raises(StudyError, match=said) as refused:
        study(tmp_path, **change).plan()
    assert refused.value.key == key and "study.toml" in str(refused.value)


def test_keys_of_columns_are_refused_where_parties_hold_whole_records(tmp_path: Path) -> None:
    lines = {"products": 'products = "rlwe"', "alignment": 'alignment = "none"', "max_rows": "max_rows = 9"}
    for key, line in lines.items():
        text = STUDY.split("[parties.clinic]")[0].split("max_rows")[0] + f"{line}\n[parties.clinic]\n"
        with pytest.raises(StudyError, match=r"belongs to parties that hold different columns") as refused:
            study(tmp_path, text)
        assert refused.value.key == f"synthetic.{key}"


def test_the_published_variant_is_for_whole_records(tmp_path: Path) -> None:
    text = STUDY.replace('rows = 1000\nmax_rows = 4096\nproducts = "dealer"', 'variant = "published"')
    with pytest.raises(StudyError, match="hold whole records") as refused:
        study(tmp_path, text)
    assert refused.value.key == "synthetic.variant"


def test_a_study_runs_and_is_saved_with_its_products(tmp_path: Path) -> None:
    """From the file to the page: the dataset, its fidelity and baselines, and further products at no further cost."""
    found = run_study(study(tmp_path, synthetic__model="naive-bayes"), seed=1)
    assert found.presented.counts.total == 1200 and found.assessment.measured
    figures = {one.name: one.value for one in found.assessment.figures}
    assert figures["size error"] == 0 and 0 < figures["two-way total variation"] < 0.5
    names = {one.name: one for one in found.assessment.baselines}
    assert set(names) == {"constant", "own data", "pooled"} and "holder" in names["own data"].note
    folder = found.save(tmp_path / "run")
    again = load_result(folder)
    assert (again.presented.counts.values == found.presented.counts.values).all()
    assert again.presented.table_one().rows == found.presented.table_one().rows
    assert set(again.received_by("coordinator")) == {"counts", "tables"}
    for party in ("clinic", "registry", "lab"):
        (received,) = again.received_by(party).values()
        assert received["rows"] == 1200 and (received["counts"] == found.released["tables"]["counts"]).all()
    assert main(["synth", str(folder), "--rows", "50", "--to", str(tmp_path / "rows.csv")]) == 0
    assert len((tmp_path / "rows.csv").read_text().splitlines()) == 51


def test_own_data_are_the_columns_of_the_targets_holder(tmp_path: Path) -> None:
    """Income, which the label hardly depends on beside age, at its holder; the pooled fit knows age too."""
    text = STUDY.replace('"age", "stage", "ill"', '"age", "stage"').replace('["seen"]', '["seen", "ill"]')
    found = run_study(study(tmp_path, text, synthetic__model="naive-bayes"), seed=1)
    names = {one.name: one.error for one in found.assessment.baselines}
    assert names["own data"] > names["pooled"] + 0.03


def test_files_of_their_own_are_matched_by_identifier(tmp_path: Path) -> None:
    whole = make_people(800)
    whole[["person", "age", "stage", "ill"]].iloc[100:].to_csv(tmp_path / "clinic.csv", index=False)
    whole[["person", "income", "town", "region"]].sample(frac=1, random_state=1).to_parquet(
        tmp_path / "registry.parquet"
    )
    whole[["person", "seen"]].iloc[:700].to_csv(tmp_path / "lab.csv", index=False)
    made = study(tmp_path, FILES, identifier=True, synthetic__model="naive-bayes")
    assert made.protocol.alignment == "keyed"
    assert any("leave exactly" in one for one in made.plan().warnings)
    found = run_study(made, seed=2)
    assert found.presented.counts.total == 600 and len(found.presented) == 600


def test_files_of_different_lengths_without_an_identifier_are_refused_while_they_are_read(tmp_path: Path) -> None:
    whole = make_people(80)
    whole[["age", "stage", "ill"]].to_csv(tmp_path / "clinic.csv", index=False)
    whole[["income", "town", "region"]].to_parquet(tmp_path / "registry.parquet")
    whole[["seen"]].iloc[:70].to_csv(tmp_path / "lab.csv", index=False)
    with pytest.raises(ComityError, match="same rows in the same order"):
        load_party_data(study(tmp_path, FILES))
    whole[["seen"]].to_csv(tmp_path / "lab.csv", index=False)
    with pytest.raises(StudyError) as refused:
        load_party_data(study(tmp_path, FILES, synthetic__max_rows=40))
    assert refused.value.key == "synthetic.max_rows"


def test_the_split_of_one_file_is_by_features(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="by-features"):
        load_party_data(study(tmp_path, simulation__split="even"))
    party_data = load_party_data(study(tmp_path))
    assert {len(records) for records in party_data.parties.values()} == {1200} and len(
        cast(Any, party_data.test)
    ) == 300
    joined = study(tmp_path).protocol.partition.join_records(list(party_data.parties.values()))
    assert joined.features.shape == (1200, 7) and np.array_equal(joined.features[:, -1], joined.labels)


def test_the_study_of_the_documents_is_planned_as_it_stands(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "synthetic.md").read_text("utf-8")
    (example,) = re.findall(r"^```toml\n(.*?)^```", text, re.S | re.M)
    (tmp_path / "schema.toml").write_text(clinic_schema("readmitted").to_toml())
    (tmp_path / "study.toml").write_text(example)
    made = Study.load(tmp_path / "study.toml")
    assert isinstance(made.protocol, SyntheticColumnsProtocol) and made.protocol.alignment == "keyed"
    assert "1.73 times as wide" in made.plan().as_text()
