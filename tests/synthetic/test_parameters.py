"""The [synthetic] table of a study: built, planned, run, and refused with the key that is wrong."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from comity.errors import StudyError
from comity.privacy.unit import Neighbours, Unit
from comity.study.simulation.simulate import run_study
from comity.study.study import Study

from .consortia import make_frame, make_schema

STUDY = """
[study]
name = "trial"
protocol = "synthetic"
schema = "schema.toml"

[privacy]
epsilon = 2.0
{privacy}

[synthetic]
{own}

[parties.north]
[parties.south]
[parties.west]

[simulation]
data = "records.parquet"
memory = {memory}
"""


def study(folder: Any, own: str = "rows = 600", privacy: str = "delta = 1e-6", memory: float = 1.0) -> Study:
    make_frame(600).to_parquet(folder / "records.parquet")
    (folder / "schema.toml").write_text(make_schema().to_toml())
    (folder / "study.toml").write_text(STUDY.format(own=own, privacy=privacy, memory=memory))
    return Study.load(folder / "study.toml")


def test_a_record_that_is_added_or_removed_is_protected_unless_the_study_says_otherwise(tmp_path: Path) -> None:
    made = study(tmp_path)
    assert made.privacy.unit is Unit.RECORD and made.privacy.neighbours is Neighbours.ADD_REMOVE
    assert made.defaults()["privacy.neighbours"] is Neighbours.ADD_REMOVE
    assert "privacy.epsilon" not in made.defaults()
    other = study(tmp_path, privacy='delta = 1e-6\nneighbours = "replace"')
    assert other.privacy.neighbours is Neighbours.REPLACE and other.privacy.unit is Unit.RECORD
    assert other.hash != made.hash


def test_a_plan_says_the_model_the_counts_and_the_expected_error(tmp_path: Path) -> None:
    text = study(tmp_path).plan().as_text()
    assert "synthetic (mixture, Gaussian)" in text and "unit: a record, added or removed" in text
    assert "secure sum + shared noise" in text and "of 600 records on average" in text
    assert "counts of 7 columns" in text and "model: mixture, because" in text


def test_a_plan_of_two_rounds_shows_what_both_release_and_cost(tmp_path: Path) -> None:
    text = study(tmp_path, "rows = 600\nrounds = 2").plan().as_text()
    assert (
        "synthetic (mixture, Gaussian, two rounds)" in text
        and "two rounds: the first counts all tables with 40% of the loss" in text
    )
    for name in ("counts", "again"):
        assert re.search(rf"  {name} +every party +coordinator +secure sum \+ shared noise +mu 0\.", text)
    for name in ("opened", "pairs"):
        assert re.search(rf"  {name} +coordinator +every party +made from counts +-", text)
    assert "eps 2.00, delta 1e-6 for each party" in text and "= (eps 2.00, delta 1e-6)" in text


@pytest.mark.parametrize(
    ("own", "key"),
    [
        ('model = "tree"', "synthetic.model"),
        ("rows = 0", "synthetic.rows"),
        ("bins = 1", "synthetic.bins"),
        ('pooling = "all"', "synthetic.pooling"),
        ("rounds = 3", "synthetic.rounds"),
        ('rounds = 2\npooling = "none"', "synthetic.rounds"),
        ('rounds = 2\nmodel = "naive-bayes"', "synthetic.rounds"),
        ('rounds = 2\nvariant = "published"', "synthetic.rounds"),
        ("rowz = 5", "synthetic.rowz"),
    ],
)
def test_a_wrong_value_names_its_key(tmp_path: Path, own: str, key: str) -> None:
    with pytest.raises(StudyError, match=r"study\.toml") as refused:
        study(tmp_path, own)
    assert refused.value.key == key


def test_an_evaluation_is_refused_because_no_model_predicts(tmp_path: Path) -> None:
    made = study(tmp_path, own="rows = 600\n[evaluation]\nshare = 0.2")
    with pytest.raises(StudyError, match="predicts") as refused:
        made.plan()
    assert refused.value.key == "evaluation"


def test_records_that_stream_are_counted_like_those_in_memory(tmp_path: Path) -> None:
    inside = outside = study(tmp_path)
    files = {name: make_frame(200, k) for k, name in enumerate(["north", "south", "west"])}
    for name, own in files.items():
        own.to_parquet(tmp_path / f"{name}.parquet")
    named = "{" + ", ".join(f'{name} = "{name}.parquet"' for name in files) + "}"
    text = (tmp_path / "study.toml").read_text()
    found = []
    for memory in ("1.0", "1e-7"):
        changed = text.replace('"records.parquet"', f'{named}\ntest = "records.parquet"')
        (tmp_path / "study.toml").write_text(changed.replace("memory = 1.0", f"memory = {memory}"))
        outside = Study.load(tmp_path / "study.toml")
        found.append(run_study(outside, seed=4))
    assert inside.hash == outside.hash
    assert (found[0].presented.counts.values == found[1].presented.counts.values).all()
