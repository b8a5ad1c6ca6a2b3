"""The study file: what its hash covers, and one clear sentence for everything that can be wrong in it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest

from comity.data import Records, clinic_schema, public_cohort
from comity.errors import BadInput, StudyError
from comity.methods.averaging import Averaging
from comity.study.records.party_data import load_party_data
from comity.study.simulation import simulate as simulation
from comity.study.simulation.simulate import RunOptions, Terms, simulate
from comity.study.study import Study

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


def test_a_study_without_its_private_data_has_a_plan(folder: Path) -> None:
    study = load(folder)
    text = study.plan().as_text()
    assert "12 parties" in text and "a whole party, replaced" in text and "delta 1e-6" in text
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
def test_the_hash_covers_everything_but_the_simulation(folder: Path, old: str, new: str, same: bool) -> None:
    assert (load(folder, old, new).hash == load(folder).hash) is same


def test_the_hash_covers_the_content_of_what_the_study_refers_to(folder: Path) -> None:
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


def test_overrides_change_a_simulation(folder: Path) -> None:
    changed: dict[str, Any] = {"privacy.epsilon": 0.5}
    assert load(folder, **changed).privacy.epsilon == 0.5
    assert cast(Any, load(folder, **{"softlabel.method": "avg"}).protocol).method == "avg"


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
        ('auxiliary = "public.csv"', 'auxiliary = "gone.csv"', ["softlabel.auxiliary", "gone.csv", "no file"]),
        ('auxiliary = "public.csv"', 'auxiliary = "study.toml"', ["softlabel.auxiliary", "study.toml"]),
        ('schema = "schema.toml"', 'schema = "gone.toml"', ["study.schema", "gone.toml", "no file"]),
        ('schema = "schema.toml"', 'schema = "public.csv"', ["study.schema", "public.csv"]),
        ("count = 12", "count = 0", ["parties.count", "at least 1"]),
        ("[parties]\ncount = 12", "", ["parties is missing"]),
        ("[simulation]", "[simulatoin]", ["simulatoin", "did you mean simulation"]),
        ("[study]", "[study", ["not valid TOML"]),
        ("[privacy]", '[privacy]\nunit = "patient"', ["privacy.unit", "patient"]),
        ("l2 = 0.01", 'l2 = 0.01\nstatistic = "votes"', ["softlabel.statistic belongs to", "published"]),
        ("l2 = 0.01", 'auxiliary_privacy = "private"', ["softlabel.auxiliary_records is missing"]),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence_with_file_and_key(folder: Path, old: str, new: str, words: Any) -> None:
    with pytest.raises(BadInput) as caught:
        load(folder, old, new)
    sentence = str(caught.value)
    assert sentence.startswith(str(folder / "study.toml"))
    assert caught.value.key or "TOML" in sentence
    assert "\n" not in sentence
    for word in words:
        assert word in sentence, sentence


def test_softlabel_refuses_to_protect_single_records(folder: Path) -> None:
    with pytest.raises(StudyError, match="whole party"):
        load(folder, "[privacy]", '[privacy]\nunit = "record"').plan()


def test_a_missing_file_names_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="comity new"):
        Study.load(tmp_path / "nothing.toml")


def test_colluders_that_the_file_asks_for_are_never_lowered_in_silence(folder: Path) -> None:
    with pytest.raises(StudyError, match=r"privacy\.colluders = 12"):
        load(folder, "epsilon = 1.0", "epsilon = 1.0\ncolluders = 12").plan()
    # What the file leaves out may be less than one: a party alone has nobody to collude with.
    assert load(folder, "count = 12", "count = 1").consortium.colluders == 0


def refusal(folder: Path, old: str, new: str) -> BadInput:
    with pytest.raises(BadInput) as caught:
        load(folder, old, new).plan()
    return caught.value


def test_errors_that_a_plan_finds_name_the_file_and_the_key(folder: Path) -> None:
    unit = refusal(folder, "[privacy]", '[privacy]\nunit = "record"')
    assert str(unit).startswith(str(folder / "study.toml")) and unit.key == "privacy.unit"
    nobody = refusal(folder, "epsilon = 1.0", "epsilon = 1.0\ndropouts = 12")
    assert str(nobody).startswith(str(folder / "study.toml")) and nobody.key == "privacy.dropouts"
    rows = refusal(folder, "[parties]\ncount = 12", "[parties.coordinator]\n[parties.other]")
    assert str(rows).startswith(str(folder / "study.toml")) and rows.key == "parties"


def test_errors_of_a_protocol_name_the_file_and_the_key(folder: Path) -> None:
    text = TEXT.replace('protocol = "softlabel"', 'protocol = "averaging"').replace(
        "[privacy]", '[privacy]\nunit = "record"'
    )
    text = text.replace(
        '[softlabel]\nvariant = "published"\nauxiliary = "public.csv"\nl2 = 0.01', "[averaging]\nsizes = 5\nrounds = 0"
    )
    (folder / "study.toml").write_text(text)
    with pytest.raises(StudyError, match=r"averaging\.rounds must lie between 1 and 1000, found 0") as caught:
        Study.load(folder / "study.toml")
    assert str(caught.value).startswith(str(folder / "study.toml")) and caught.value.key == "averaging.rounds"


@pytest.mark.parametrize(
    ("old", "name", "key"),
    [
        ('schema = "schema.toml"', "schema.toml", "study.schema"),
        ('auxiliary = "public.csv"', "public.csv", "softlabel.auxiliary"),
    ],
)
@pytest.mark.parametrize("way", ["above", "absolute", "absolute inside", "link", "linked folder", "gone above"])
def test_a_study_reads_nothing_outside_its_folder(folder: Path, old: str, name: str, key: str, way: str) -> None:
    """Neither by a relative nor by an absolute path nor behind a link; what is there makes no difference."""
    word = old.partition(" ")[0]
    outside = folder.parent / "elsewhere"
    outside.mkdir()
    shutil.copy(folder / name, outside / name)
    (folder / "link").symlink_to(outside / name)
    (folder / "folder").symlink_to(outside, target_is_directory=True)
    (folder / "link.csv").symlink_to(outside / name)
    named = {
        "above": f"../elsewhere/{name}",
        "absolute": str(outside / name),
        "absolute inside": str(folder / name),
        "link": "link.csv",
        "linked folder": f"folder/{name}",
        "gone above": f"../elsewhere/gone-{name}",
    }[way]
    error = refusal(folder, old, f'{word} = "{named}"')
    assert error.key == key and "leads out of the study's folder" in str(error) and "copy the file" in str(error)


def test_links_and_folders_inside_the_study_are_fine_and_the_folder_may_be_a_link_itself(folder: Path) -> None:
    (folder / "public").mkdir()
    shutil.move(folder / "public.csv", folder / "public" / "cohort.csv")
    (folder / "again.csv").symlink_to(folder / "public" / "cohort.csv")
    for name in ("public/cohort.csv", "again.csv", "public/../again.csv"):
        assert load(folder, 'auxiliary = "public.csv"', f'auxiliary = "{name}"').plan().parties == 12
    (folder.parent / "alias").symlink_to(folder, target_is_directory=True)
    assert Study.load(folder.parent / "alias" / "study.toml").plan().parties == 12


def test_private_records_of_the_coordinator_are_looked_for_beside_the_study_alone(folder: Path) -> None:
    outside = folder.parent / "elsewhere.csv"
    shutil.copy(folder / "public.csv", outside)
    hidden = 'auxiliary = "../elsewhere.csv"\nauxiliary_privacy = "private"\nauxiliary_records = 30'
    assert refusal(folder, 'auxiliary = "public.csv"', hidden).key == "softlabel.auxiliary"


def test_a_plan_does_not_look_at_the_data_of_a_simulation(folder: Path) -> None:
    """They are whoever simulates' own and may lie anywhere."""
    plan = load(folder, 'data = "records.csv"', 'data = "/nowhere/at/all.csv"\ntest = "../test.csv"').plan()
    assert plan.parties == 12


def test_the_hash_covers_the_order_of_the_parties(folder: Path) -> None:
    named = "[parties.a]\n[parties.b]\n[parties.c]"
    turned = "[parties.b]\n[parties.a]\n[parties.c]"
    first = load(folder, "[parties]\ncount = 12", named)
    second = load(folder, "[parties]\ncount = 12", turned)
    assert first.consortium.parties != second.consortium.parties and first.hash != second.hash


def test_a_suggestion_is_near_or_is_not_made(folder: Path) -> None:
    assert "did you mean" not in str(refusal(folder, 'data = "records.csv"', 'delta = "records.csv"'))
    assert "did you mean data?" in str(refusal(folder, 'data = "records.csv"', 'dta = "records.csv"'))
    assert "did you mean epsilon?" in str(refusal(folder, "epsilon = 1.0", "eps = 1.0"))


def test_a_simulation_never_lowers_colluders_that_were_asked_for() -> None:
    records = {name: Records(np.eye(3), np.array([0, 1, 0])) for name in ("a", "b")}
    with pytest.raises(StudyError) as caught:
        simulate(
            Averaging.over_rows(features=3, sizes=3),
            parties=records,
            epsilon=1.0,
            delta=1e-5,
            unit="record",
            terms=Terms(colluders=5),
        )
    assert caught.value.key == "privacy.colluders"


def test_a_simulation_refuses_a_setting_that_it_does_not_know() -> None:
    records = {"a": Records(np.eye(3), np.array([0, 1, 0]))}
    unknown: dict[str, Any] = {"coluders": 1}
    with pytest.raises(TypeError, match="coluders"):
        simulate(Averaging.over_rows(features=3, sizes=3), parties=records, epsilon=1.0, **unknown)
    for settings in (Terms, RunOptions):
        with pytest.raises(TypeError, match="coluders"):
            settings(**unknown)


def test_more_parties_than_hosts_are_refused_before_a_ledger_hears_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("comity.study.local.stacks.REAL_HOSTS", 2)
    reserved = []
    monkeypatch.setattr(simulation, "Cohort", lambda *_, **__: reserved.append(1))
    records = {name: Records(np.eye(3), np.array([0, 1, 0])) for name in ("a", "b", "c")}
    with pytest.raises(StudyError, match="models is made at one site at a time") as caught:
        simulate(Averaging.over_rows(features=3, sizes=3), parties=records, epsilon=1.0, unit="record")
    assert caught.value.key == "parties" and not reserved


def test_the_plan_of_published_soft_labels_says_which_constants_scale_the_noise(folder: Path) -> None:
    tight = load(folder, "l2 = 0.01", 'l2 = 0.01\nsensitivity = "tight"').plan()
    paper = load(folder).plan()
    assert any(one.startswith('sensitivity: "tight"') and "proof.md" in one for one in tight.notes)
    assert any(one.startswith('sensitivity: "paper"') and "as printed" in one for one in paper.notes)
    figures = [next(one for one in plan.notes if "sensitivity of" in one).split()[-4] for plan in (tight, paper)]
    assert float(figures[1]) == pytest.approx(2 * float(figures[0]), rel=0.01)
    unused = load(folder, "l2 = 0.01", 'l2 = 0.01\nmethod = "avg"').plan().notes
    assert any("nobody votes on them" in one for one in unused)


def test_a_count_of_parties_that_no_simulation_can_have_is_refused_by_the_plan(folder: Path) -> None:
    many = "[parties]\ncount = 1001"
    assert load(folder, "[parties]\ncount = 12", many).plan().parties == 1001
    text = TEXT.replace('protocol = "softlabel"', 'protocol = "averaging"').replace("delta = 1e-6", 'unit = "record"')
    text = text.replace(
        '[softlabel]\nvariant = "published"\nauxiliary = "public.csv"\nl2 = 0.01', "[averaging]\nsizes = 5"
    )
    (folder / "study.toml").write_text(text.replace("[parties]\ncount = 12", many))
    with pytest.raises(StudyError, match=r"study\.toml: averaging: .* models is made at one site at a time") as caught:
        Study.load(folder / "study.toml").plan()
    assert caught.value.key == "parties"


def test_a_simulation_has_its_parties_in_the_order_of_the_study(folder: Path) -> None:
    """Not in that of the data, in which they would be other parties than those that the hash is about."""
    names = ("south", "east", "north")
    cohort = public_cohort(30).assign(at=["north", "south", "east"] * 10, patient=[f"id{k}" for k in range(30)])
    target: Any = clinic_schema().target
    cohort[target.name] = target.values[0]
    cohort.to_csv(folder / "records.csv", index=False)
    split = 'data = "records.csv"\nsplit = "by-column"\ncolumn = "at"'
    text = TEXT.replace("[parties]\ncount = 12", "\n".join(f"[parties.{name}]" for name in names))
    (folder / "study.toml").write_text(text.replace('data = "records.csv"', split))
    assert tuple(load_party_data(Study.load(folder / "study.toml")).parties) == names


def test_columns_of_a_party_are_refused_where_every_party_holds_whole_records(folder: Path) -> None:
    parties = '[parties.ash]\ncolumns = ["age"]\n[parties.birch]\n[parties.cedar]'
    with pytest.raises(StudyError, match="in softlabel every party holds whole records; leave it out") as found:
        load(folder, "[parties]\ncount = 12", parties)
    assert found.value.key == "parties.ash.columns"
