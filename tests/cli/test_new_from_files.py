"""A newcomer with two messy files: three commands to a first result, and no line of TOML written by hand.

The averaged model is also made in `test_your_own_files.py`, by the commands of the page.
"""

from __future__ import annotations

import io
import shutil
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from comity.data import Categorical
from comity.study.study import Study

from .conftest import Ended

Comity = Callable[..., Ended]


def patients(count: int, seed: int) -> pd.DataFrame:
    chance = np.random.default_rng(seed)
    age, smoker = chance.integers(25, 90, count), chance.choice(["yes", "no"], count)
    seen = pd.Timestamp("2021-01-01") + pd.to_timedelta(chance.integers(0, 900, count), "D")
    ill = chance.random(count) < 1 / (1 + np.exp(-(age - 57) / 5 - 2 * (smoker == "yes") + 1))
    return pd.DataFrame(
        {
            "age": age,
            "sex": chance.choice(["male", "female"], count),
            "height_cm": chance.integers(150, 200, count),
            "smoker": smoker,
            "admitted": seen,
            "disease": np.where(ill, "yes", "no"),
        }
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two hospitals that write everything differently: separators, decimals, dates, names, codes, missing values."""
    made = tmp_path_factory.mktemp("files")
    north, south = patients(300, 1), patients(200, 2)
    north.assign(admitted=north["admitted"].dt.strftime("%Y-%m-%d")).to_csv(made / "north.csv", index=False)
    other = pd.DataFrame(
        {
            "PatNr": range(1, 201),
            "Alter": south["age"].map(str).where(south.index % 40 != 0, "-9"),
            "Geschlecht": south["sex"].map({"male": "m", "female": "w"}).where(south.index % 50 != 0, "?"),
            "height_m": (south["height_cm"] / 100).map(lambda height: f"{height:.2f}".replace(".", ",")),
            "Raucher": south["smoker"].map({"yes": "ja", "no": "nein"}),
            "Aufnahme": south["admitted"].dt.strftime("%d.%m.%Y"),
            "disease": south["disease"].map({"yes": "1", "no": "0"}).where(south.index % 100 != 0, None),
        }
    )
    other.to_csv(made / "south.csv", index=False, sep=";", encoding="latin-1")
    return made


@pytest.fixture
def folder(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for file in files.iterdir():
        shutil.copyfile(file, tmp_path / file.name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    return tmp_path


def path_to_a_result(comity: Comity, *options: str) -> tuple[Ended, Ended]:
    """The three commands. No file is touched between them."""
    made = comity("new", "trial", *options, "--json")
    assert made.code == 0, made.err
    planned = comity("plan", "trial/study.toml", "--json")
    assert planned.code == 0 and "draft" in planned.document["notices"][0]
    run = comity("run", "trial/study.toml", "--seed", "7", "--json")
    assert run.code == 0, run.err
    return made, run


def constant_error(result: dict[str, Any]) -> float:
    return next(float(one["error"]) for one in result["baselines"] if one["name"] == "constant")


@pytest.mark.long
def test_two_messy_files_become_an_averaged_model_in_three_commands(folder: Path, comity: Comity) -> None:
    made, run = path_to_a_result(comity, "--data", "north.csv", "south.csv", "--target", "disease")
    assert made.document["protocol"] == "averaging" and made.document["parties"] == {"north": 300, "south": 198}
    assert made.document["drafts"] == ["age", "sex", "height_cm", "smoker", "admitted", "disease"]
    assert made.document["unmatched"] == ["south: PatNr has no counterpart in north and is left out"]
    result = run.document
    assert result["error"] < min(0.3, constant_error(result) - 0.1)
    data = tomllib.loads(Path("trial/study.toml").read_text())["simulation"]["data"]
    assert data["north"] == {"path": "north.csv"}
    assert data["south"]["recode"]["disease"] == {"1": "yes", "0": "no"} and data["south"]["unit"] == {"height_cm": 100}
    assert data["south"]["complete"] == ["disease"] and data["south"]["decimal"] == ","


@pytest.mark.long
def test_two_messy_files_become_a_dataset_in_three_commands(folder: Path, comity: Comity) -> None:
    files = ("--data", "north.csv", "south.csv", "--target", "disease")
    made, run = path_to_a_result(comity, *files, "--protocol", "synthetic")
    assert made.document["protocol"] == "synthetic"
    assert run.document["error"] < constant_error(run.document)


def write_columns() -> None:
    people = patients(300, 3)
    people["pid"] = [f"P{place:04d}" for place in range(len(people))]
    people.iloc[:280][["pid", "age", "sex", "disease"]].to_csv("hospital.csv", index=False)
    lab = people.iloc[10:][["pid", "smoker", "height_cm", "admitted"]].iloc[::-1].rename(columns={"pid": "Patient"})
    lab = lab.assign(
        admitted=lab["admitted"].dt.strftime("%d/%m/%Y"), smoker=lab["smoker"].map({"yes": "ja", "no": "?"})
    )
    lab.to_csv("lab.csv", index=False, sep="\t")


@pytest.mark.long
def test_two_files_of_the_same_people_become_a_vertical_model_in_three_commands(folder: Path, comity: Comity) -> None:
    write_columns()
    made, run = path_to_a_result(comity, "--data", "hospital.csv", "lab.csv", "--target", "disease")
    assert made.document["protocol"] == "vertical" and run.document["error"] is not None


def test_one_file_is_split_by_a_column(folder: Path, comity: Comity) -> None:
    together = pd.concat([patients(60, seed).assign(site=f"Site {seed}") for seed in range(3)])
    together.assign(admitted=together["admitted"].dt.strftime("%Y-%m-%d")).to_csv("all.csv", index=False)
    made = comity("new", "trial", "--data", "all.csv", "--by", "site", "--target", "disease")
    assert made.code == 0, made.err
    assert "site-0 (60 records), site-1 (60 records), site-2 (60 records)" in made.out
    assert "DRAFT      the bounds of 6 columns" in made.out and "cd trial && comity plan" in made.out


# Questions.


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_is_asked_for_method_target_and_every_proposal(
    folder: Path, comity: Comity, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = ["9", "1", "disease", "y", "y", "y", "n", *["y"] * 20]
    monkeypatch.setattr(sys, "stdin", Terminal("\n".join(answers) + "\n"))
    made = comity("new", "trial", "--data", "north.csv", "south.csv")
    assert made.code == 0, made.err
    assert "We hold different columns of the same people" in made.out
    assert "south: Alter: '-9' stands for a missing value. Right?" in made.out
    assert made.out.count("not taken  ") == 1


@pytest.mark.long
def test_a_terminal_is_asked_for_what_a_method_needs(
    folder: Path, comity: Comity, monkeypatch: pytest.MonkeyPatch
) -> None:
    patients(50, 9).drop(columns="disease").to_csv("public.csv", index=False)
    monkeypatch.setattr(sys, "stdin", Terminal("4\ndisease\npublic.csv\n" + "\n" * 30))
    made = comity("new", "labels", "--data", "north.csv", "south.csv")
    assert made.code == 0 and "public.parquet" in made.out, made.err
    monkeypatch.setattr(sys, "stdin", Terminal("5\ndisease\nnorth\n" + "\n" * 30))
    made = comity("new", "bought", "--data", "north.csv", "south.csv")
    assert made.code == 0, made.err
    assert Study.load("bought/study.toml").consortium.roles == {"consumer": ("north",), "owner": ("south",)}
    before = comity("new", "bought", "--data", "north.csv", "south.csv")
    assert before.code == 3 and "never overwritten" in before.err and "Which of these" not in before.out


def test_without_a_terminal_nothing_is_asked_and_guesses_are_not_taken(folder: Path, comity: Comity) -> None:
    pd.read_csv("north.csv").assign(ward=["surgery", "medicine"] * 150).to_csv("north.csv", index=False)
    south = pd.read_csv("south.csv", sep=";", dtype=str, keep_default_na=False)
    south.assign(abt=["surgery", "medicine"] * 100).to_csv("south.csv", sep=";", index=False)
    arguments = ("--data", "north.csv", "south.csv", "--target", "disease")
    made = comity("new", "cautious", *arguments)
    assert "not taken  south: abt is ward (a guess by its values)" in made.out
    assert "ward has no counterpart in south and is left out" in made.out
    assert "taken      south: abt is ward" in comity("new", "bold", *arguments, "--yes").out
    named = comity("new", "named", *arguments, "--rename", "south.abt=ward")
    assert "ward" in Study.load("named/study.toml").schema.names and named.code == 0


def test_a_column_in_another_unit_is_asked_about_and_its_factor_is_written(folder: Path, comity: Comity) -> None:
    disease, chol = ["yes", "no"] * 20, [150 + 3 * place for place in range(40)]
    pd.DataFrame({"disease": disease, "chol": chol}).to_csv("one.csv", index=False)
    pd.DataFrame({"disease": disease, "chol": [value / 38.67 for value in chol]}).to_csv("two.csv", index=False)
    arguments = ("--data", "one.csv", "two.csv", "--target", "disease")
    asked = comity("new", "asked", *arguments)
    assert "CHECK      chol: half of the values of two" in asked.out and "--unit two.chol=FACTOR" in asked.out
    settled = comity("new", "settled", *arguments, "--unit", "two.chol=38.67")
    assert settled.code == 0 and "CHECK" not in settled.out
    data = tomllib.loads(Path("settled/study.toml").read_text())["simulation"]["data"]
    assert data["two"]["unit"] == {"chol": 38.67}
    first = comity("new", "first", *arguments, "--unit", "one.chol=0.02586")
    assert first.code == 0 and "CHECK" not in first.out


def test_a_column_that_gives_the_target_away_is_asked_about_and_left_out(folder: Path, comity: Comity) -> None:
    disease, grade = ["yes", "no"] * 40, [3, 0, 2, 0] * 20
    for name in ("one.csv", "two.csv"):
        pd.DataFrame({"disease": disease, "grade": grade, "side": [1, 2, 3, 4, 5] * 16}).to_csv(name, index=False)
    arguments = ("--data", "one.csv", "two.csv", "--target", "disease")
    asked = comity("new", "asked", *arguments)
    assert "CHECK      grade alone tells disease" in asked.out and "--codes side" in asked.out
    settled = comity("new", "settled", *arguments, "--leave-out", "grade", "--codes", "side")
    assert settled.code == 0 and "CHECK" not in settled.out
    (side,) = Study.load("settled/study.toml").schema.columns
    assert side.name == "side" and isinstance(side, Categorical)
    assert comity("run", "settled/study.toml", "--seed", "1").code == 0


def test_columns_of_one_party_alone_are_left_out_too(folder: Path, comity: Comity) -> None:
    ids = [f"p{place}" for place in range(80)]
    ages = [20 + place // 2 for place in range(80)]
    one = {"id": ids, "ill": ["yes", "no"] * 40, "grade": [3, 0, 2, 0] * 20, "age": ages}
    pd.DataFrame(one).to_csv("one.csv", index=False)
    pd.DataFrame({"id": ids, "side": [1, 2, 3, 4, 5] * 16, "crp": ages}).to_csv("two.csv", index=False)
    arguments = ("--data", "one.csv", "two.csv", "--target", "ill", "--protocol", "vertical")
    asked = comity("new", "asked", *arguments)
    assert "CHECK      grade alone tells ill" in asked.out and "--codes side" in asked.out
    settled = comity("new", "settled", *arguments, "--leave-out", "grade", "--codes", "side")
    assert settled.code == 0 and "CHECK" not in settled.out
    assert "grade" not in Path("settled/study.toml").read_text() + Path("settled/schema.toml").read_text()


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (("trial", "--data", "north.csv", "south.csv"), 2, "averaging predicts a column; name it: --target COLUMN"),
        (("trial", "north.csv"), 2, "needs --data"),
        (("trial", "--target", "disease"), 2, "--target needs --data"),
        (("north.csv", "--data", "south.csv"), 2, "the study's name comes first"),
        (("trial", "--data", "north.csv", "--variant", "published"), 2, "generated records"),
        (("trial", "--data", "north.csv", "--target", "disease"), 3, "two or more parties"),
        (("trial", "--data", "north.csv", "absent.csv", "--target", "disease"), 3, "there is no such file"),
        (("trial", "--data", "north.csv", "south.csv", "--target", "diseas"), 3, "did you mean 'disease'"),
        (("trial", "--data", "north.csv", "south.csv", "--rename", "age"), 2, "expects PARTY.COLUMN=NAME"),
        (("trial", "--data", "north.csv", "south.csv", "--recode", "a.b=c"), 2, "expects PARTY.COLUMN.CODE=VALUE"),
        (("trial", "--data", "north.csv", "south.csv", "--unit", "south.age"), 2, "expects PARTY.COLUMN=FACTOR"),
        (("trial", "--data", "north.csv", "south.csv", "--unit", "south.age=inf"), 2, "expects PARTY.COLUMN=FACTOR"),
        (("trial", "--data", "north.csv", "south.csv", "--target", "disease", "--unit", "sout.age=2"), 3, "no party"),
        (("trial", "--data", "north.csv", "south.csv", "--target", "disease", "--unit", "south.ag=2"), 3, "no column"),
        (("trial", "--unit", "south.age=2"), 2, "--unit needs --data"),
        (("trial", "--leave-out", "age"), 2, "--leave-out needs --data"),
        (
            ("trial", "--data", "north.csv", "south.csv", "--target", "disease", "--codes", "ag"),
            3,
            "did you mean 'age'",
        ),
        (("trial", "--data", "north.csv", "south.csv", "--target", "sex", "--leave-out", "sex"), 3, "is the target"),
        (
            ("trial", "--data", "north.csv", "south.csv", "--recode", "south.sex.w=f", "south.sex.m=m"),
            2,
            "write the option again",
        ),
        (
            ("trial", "--data", "north.csv", "north.csv", "--target", "disease"),
            3,
            "north.csv and north.csv would both be",
        ),
        (
            ("trial", "--data", "north.csv", "south.csv", "--target", "sex", "--protocol", "softlabel"),
            2,
            "--public FILE",
        ),
        (("trial", "--protocol", "none"), 2, "--protocol must be one of"),
    ],
)
def test_what_can_not_be_drafted_is_refused_and_leaves_no_folder(
    folder: Path, comity: Comity, arguments: tuple[str, ...], code: int, sentence: str
) -> None:
    ended = comity("new", *arguments)
    assert ended.code == code and sentence in ended.err, ended.err
    assert not Path("trial").exists()


def test_the_next_command_can_be_pasted_for_a_folder_with_a_space(folder: Path, comity: Comity) -> None:
    ended = comity("new", "two hospitals", "--data", "north.csv", "south.csv", "--target", "disease", "--yes")
    assert "next: cd 'two hospitals' && comity plan" in ended.out
    assert "next: cd 'a starter' && comity plan" in comity("new", "a starter").out


def test_a_draft_that_can_not_be_planned_leaves_no_folder(folder: Path, comity: Comity) -> None:
    write_columns()
    pd.read_csv("hospital.csv").assign(disease=["a", "b", "c", "d"] * 70).to_csv("hospital.csv", index=False)
    ended = comity("new", "trial", "--data", "hospital.csv", "lab.csv", "--target", "disease")
    assert ended.code == 3 and not Path("trial").exists()


def test_the_files_stay_as_they_are_and_nobody_else_reads_the_copies(folder: Path, comity: Comity) -> None:
    before = Path("south.csv").read_bytes()
    assert comity("new", "trial", "--data", "north.csv", "south.csv", "--target", "disease").code == 0
    assert Path("south.csv").read_bytes() == before == Path("trial/south.csv").read_bytes()
    assert Path("trial/south.csv").stat().st_mode & 0o077 == 0


# Checking one party's file.


def test_schema_check_reads_a_party_s_file_in_its_own_terms(folder: Path, comity: Comity) -> None:
    assert comity("new", "trial", "--data", "north.csv", "south.csv", "--target", "disease").code == 0
    checked = comity("schema", "check", "trial/study.toml", "--party", "south", "--json")
    assert checked.code == 0 and checked.document["records"] == 198
    text = Path("trial/south.csv").read_text(encoding="latin-1").replace("1,55", "tall", 1).replace("nein", "selten", 1)
    Path("trial/south.csv").write_text(text, encoding="latin-1")
    checked = comity("schema", "check", "trial/study.toml", "--party", "south")
    assert checked.code == 3 and "'tall'" in checked.out and "unit" in checked.out and "trial/south.csv" in checked.out
    assert "'selten'" in checked.out or "selten" in checked.out
    assert comity("schema", "check", "trial/study.toml", "--party", "north").code == 0
    run = comity("run", "trial/study.toml", "--seed", "1")
    assert run.code == 3 and "tall" not in run.err and "height_cm" in run.err


def test_schema_check_looks_at_the_party_s_columns_only(folder: Path, comity: Comity) -> None:
    write_columns()
    made = comity("new", "trial", "--data", "hospital.csv", "lab.csv", "--target", "disease", "--json")
    assert made.code == 0 and made.document["protocol"] == "vertical"
    study = "trial/study.toml"
    assert Study.load(study).schema.identifier == "pid"
    assert comity("schema", "check", study, "--party", "lab").code == 0
    whole = comity("schema", "check", "trial/schema.toml", "hospital.csv")
    assert whole.code == 3 and "'smoker' is missing" in whole.out
    assert comity("schema", "check", study, "hospital.csv", "--party", "hospital").code == 0
    wrong = comity("schema", "check", study, "--party", "labb")
    assert wrong.code == 3 and "did you mean 'lab'" in wrong.err
    assert comity("schema", "check", "trial/schema.toml").code == 2
    assert comity("schema", "check", "trial/schema.toml", "lab.csv", "--site", "site.toml").code == 2
