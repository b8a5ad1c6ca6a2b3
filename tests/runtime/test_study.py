"""The study file: what its hash covers, and one clear sentence for everything that can be wrong in it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pandas as pd
import pytest

from comity.data import clinic_schema, public_cohort
from comity.errors import BadInput, StudyError
from comity.runtime.study import Study

TEXT = """
[study]
name = "triage"
protocol = "softlabel"
schema = "schema.toml"

[privacy]
epsilon = 1.0
delta = 1e-6

[softlabel]
variant = "published"
auxiliary = "public.csv"
l2 = 0.01

[parties]
count = 12

[simulation]
data = "records.csv"
"""


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study")
    (folder / "schema.toml").write_text(clinic_schema().to_toml())
    public_cohort(30).to_csv(folder / "public.csv", index=False)
    (folder / "study.toml").write_text(TEXT)
    return folder


@pytest.fixture
def folder(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "study"))


def load(folder: Path, old: str = "", new: str = "", **overrides: object) -> Study:
    text = TEXT.replace(old, new, 1) if old else TEXT
    assert text != TEXT or not old
    (folder / "study.toml").write_text(text)
    return Study.load(folder / "study.toml", overrides=overrides or None)


def test_a_study_without_its_private_data_has_a_plan(folder):
    study = load(folder)
    text = study.plan().as_text()
    assert "12 parties" in text and "a whole party, replaced" in text and "rho" in text
    assert study.defaults()["softlabel.method"] == "soft"
    assert "softlabel.l2" not in study.defaults()


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ('data = "records.csv"', 'data = "other.csv"\nholdout = 0.3', True),
        ("epsilon = 1.0", "epsilon = 1.5", False),
        ("l2 = 0.01", "l2 = 0.02", False),
        ("count = 12", "count = 13", False),
        ('name = "triage"', 'name = "triage 2"', False),
        ("l2 = 0.01", 'l2 = 0.01\nmethod = "vote"', False),
    ],
)
def test_the_hash_covers_everything_but_the_simulation(folder, old, new, same):
    assert (load(folder, old, new).hash == load(folder).hash) is same


def test_the_hash_covers_the_content_of_what_the_study_refers_to(folder):
    before = load(folder).hash
    frame = pd.read_csv(folder / "public.csv")
    frame.iloc[::-1].to_csv(folder / "public.csv", index=False)
    assert load(folder).hash != before
    between = load(folder).hash
    schema = (folder / "schema.toml").read_text()
    changed = re.sub(r"^high = .*$", "high = 1e6", schema, count=1, flags=re.M)
    assert changed != schema
    (folder / "schema.toml").write_text(changed)
    assert load(folder).hash != between


def test_overrides_change_a_simulation(folder):
    assert load(folder, **{"privacy.epsilon": 0.5}).privacy.epsilon == 0.5
    assert load(folder, **{"softlabel.method": "avg"}).protocol.method == "avg"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("epsilon = 1.0", "epsilon = -1", ["privacy.epsilon", "-1", "greater than 0"]),
        ("epsilon = 1.0", 'epsilon = "one"', ["privacy.epsilon", "one"]),
        ("epsilon = 1.0", "epsilom = 1", ["privacy.epsilom", "did you mean epsilon"]),
        ("epsilon = 1.0", "", ["privacy.epsilon is missing"]),
        ("delta = 1e-6", "delta = 1.0", ["privacy.delta"]),
        ("l2 = 0.01", "l2 = 0", ["softlabel.l2"]),
        ("l2 = 0.01", "lambda = 1", ["softlabel.lambda", "known here"]),
        ('protocol = "softlabel"', 'protocol = "softlable"', ["softlable", "did you mean softlabel"]),
        ('auxiliary = "public.csv"', 'auxiliary = "gone.csv"', ["gone.csv"]),
        ('schema = "schema.toml"', 'schema = "gone.toml"', ["gone.toml"]),
        ("count = 12", "count = 0", ["parties.count", "at least 1"]),
        ("[parties]\ncount = 12", "", ["parties is missing"]),
        ("[simulation]", "[simulatoin]", ["simulatoin", "did you mean simulation"]),
        ("[study]", "[study", ["not valid TOML"]),
        ("[privacy]", '[privacy]\nunit = "patient"', ["privacy.unit", "patient"]),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence_with_file_and_key(folder, old, new, words):
    with pytest.raises(BadInput) as caught:
        load(folder, old, new)
    sentence = str(caught.value)
    assert "study.toml" in sentence or "gone" in sentence
    assert "\n" not in sentence
    for word in words:
        assert word in sentence, sentence


def test_softlabel_refuses_to_protect_single_records(folder):
    with pytest.raises(StudyError, match="whole party"):
        load(folder, "[privacy]", '[privacy]\nunit = "record"').plan()


def test_a_missing_file_names_the_remedy(tmp_path):
    with pytest.raises(StudyError, match="comity new"):
        Study.load(tmp_path / "nothing.toml")


def test_colluders_that_the_file_asks_for_are_never_lowered_in_silence(folder):
    with pytest.raises(StudyError, match=r"privacy\.colluders = 12"):
        load(folder, "epsilon = 1.0", "epsilon = 1.0\ncolluders = 12").plan()
    # What the file leaves out may be less than one: a party alone has nobody to collude with.
    assert load(folder, "count = 12", "count = 1").consortium.colluders == 0
