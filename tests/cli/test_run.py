"""Runs from the command line: the run folder, overrides, prediction, and what bad input costs (nothing)."""

from __future__ import annotations

import html
import json
import os
import pty
import re
import subprocess
import sys
import tomllib
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from comity.cli.simulate import text_as_run
from comity.learn import LinearClassifier, load_model
from comity.privacy.ledger import Ledger
from comity.study.study import Study
from tests.support.study_folder import PARTIES, STUDY


def test_a_run_leaves_a_whole_run_folder(comity: Any, study: Path) -> None:
    ended = comity("run", "study.toml", "--seed", "7", "--json")
    assert ended.code == 0, ended.err
    folder = Path(ended.document["folder"])
    assert folder.parent == Path("runs")
    for name in ("result.json", "model/model.json", "report.html", "transcript.json", "run.json", "journal.sqlite"):
        assert (folder / name).is_file(), name
    assert (folder / "study.toml").read_text() == STUDY
    begun = json.loads((folder / "run.json").read_text())
    assert begun["seed"] == 7 and begun["study_hash"] == Study.load(study).hash
    ledgers = sorted((folder / "ledgers").glob("*.ledger"))
    assert len(ledgers) == PARTIES
    for path in ledgers:
        ledger = Ledger(path)
        assert [entry.kind for entry in ledger.entries()].count("draw") == 1
        assert ledger.verify().entries
        assert ledger.summary()[0].left < 1e-9  # type: ignore[operator]
    second = comity("run", "study.toml", "--seed", "7")
    assert second.code == 0 and "made with a seed" in second.out
    assert len(list(Path("runs").iterdir())) == 2
    again = load_model(sorted(Path("runs").iterdir())[1] / "model")
    first = load_model(folder / "model")
    assert isinstance(first, LinearClassifier) and isinstance(again, LinearClassifier)
    assert np.array_equal(first.coef_, again.coef_)


def test_without_a_seed_the_noise_differs_and_nothing_warns(comity: Any, study: Path) -> None:
    for _ in range(2):
        ended = comity("run", "study.toml", "--quiet")
        assert ended.code == 0 and "made with a seed" not in ended.out
    one, other = (load_model(folder / "model") for folder in sorted(Path("runs").iterdir()))
    assert isinstance(one, LinearClassifier) and isinstance(other, LinearClassifier)
    assert not np.array_equal(one.coef_, other.coef_)


def test_overrides_are_in_the_study_as_run(comity: Any, study: Path) -> None:
    ended = comity("run", "study.toml", "--set", "privacy.epsilon=0.5", "--set", "softlabel.method=soft", "--json")
    assert ended.code == 0, ended.err
    copied = Path(ended.document["folder"]) / "study.toml"
    as_run = Study.parse(copied.read_text(), folder=study.parent)
    assert as_run.privacy.epsilon == 0.5
    assert as_run.hash == Study.load(study, overrides={"privacy.epsilon": 0.5, "softlabel.method": "soft"}).hash


def test_a_run_is_exported_for_other_programs(comity: Any, study: Path) -> None:
    pytest.importorskip("onnx", reason="comity[export] is not installed: no onnx")
    folder = comity("run", str(study), "--seed", "3", "--json").document["folder"]
    done = comity("export", folder, "--to", "model.onnx", "--json").document
    assert done["format"] == "onnx" and Path("model.onnx").stat().st_size > 1000
    assert "made with a seed" in done["guarantee"]
    assert comity("export", folder, "--to", "model.txt").code == 3
    assert comity("export", folder, "--to", "model.bin", "--format", "skops").code == 0
    assert comity("export", folder, "--to", "model.bin", "--format", "pickle").code == 2


def test_overridden_text_means_what_it_meant() -> None:
    awkward = STUDY + '\n["odd name"]\na = ["x\\"y", "tab\\t"]\nb = {c = true, d = [1, 2.5e-7]}\n'
    text = text_as_run(awkward, {"privacy.epsilon": 1e-7, "parties.count": 3, "new.key": 'say "hi"\\'})
    expected = tomllib.loads(awkward)
    expected["privacy"]["epsilon"], expected["parties"]["count"] = 1e-7, 3
    expected["new"] = {"key": 'say "hi"\\'}
    assert tomllib.loads(text) == expected


def test_report_and_predict_use_the_run_folder(comity: Any, study: Path) -> None:
    folder = Path(comity("run", "study.toml", "--seed", "1", "--json").document["folder"])
    (folder / "report.html").unlink()
    ended = comity("report", folder, "--no-open")
    assert ended.code == 0 and (folder / "report.html").is_file() and ended.out.strip() == str(folder / "report.html")
    assert comity("predict", folder / "model", "test.csv", "--to", "p.csv").code == 0
    rows = comity("predict", folder, "test.csv", "--json").document
    written = pd.read_csv("p.csv")
    assert [row["predicted"] for row in rows] == list(written["predicted"]) and len(written) == 100
    assert list(written["patient"]) == list(pd.read_csv("test.csv")["patient"])
    assert set(written["predicted"]) <= {"no", "yes"}
    assert list(written[["p(no)", "p(yes)"]].sum(axis=1)) == pytest.approx([1] * 100)
    pd.read_csv("test.csv").drop(columns="age").to_csv("noage.csv", index=False)
    missing = comity("predict", folder, "noage.csv")
    assert missing.code == 3 and "noage.csv" in missing.err and "'age'" in missing.err
    assert comity("predict", study.parent, "test.csv").code == 3
    assert comity("report", study.parent).code == 3


# What a person can get wrong: words that the one sentence must hold.
WRONG_STUDIES = {
    "unknown key": ("epsilon = 2.0", "epsilom = 2.0", ("study.toml", "privacy.epsilom", "epsilon")),
    "negative epsilon": (
        "epsilon = 2.0",
        "epsilon = -2.0",
        ("study.toml", "privacy.epsilon", "-2.0", "greater than 0"),
    ),
    "delta of one": ("delta = 1e-6", "delta = 1", ("study.toml", "privacy.delta", "less than 1")),
    "no data file": ("records.csv", "recods.csv", ("study.toml", "simulation.data", "recods.csv", "records.csv")),
    "wrong count": ("count = 5", "count = 6", ("study.toml", "parties.count", "set parties.count to 5")),
    "no column named": ('column = "clinic"', "", ("study.toml", "simulation.column", "add it")),
    "no such column": (
        'column = "clinic"',
        'column = "clinik"',
        ("study.toml: simulation.column = 'clinik'", "records.csv", "did you mean clinic?"),
    ),
    "a switch for a number": ("epsilon = 2.0", "epsilon = true", ("privacy.epsilon must be a number, found true",)),
    "a text for a number": ("epsilon = 2.0", 'epsilon = "2"', ("privacy.epsilon must be a number, found '2'",)),
    "words for a number": ("epsilon = 2.0", 'epsilon = "two"', ("privacy.epsilon must be a number, found 'two'",)),
    "infinite": ("epsilon = 2.0", "epsilon = inf", ("privacy.epsilon must be a finite number, found inf",)),
    "a number for a switch": (
        "[simulation]",
        "[simulation]\nbaselines = 1",
        ("simulation.baselines must be true or false, found 1",),
    ),
    "a text in a list": (
        "[simulation]",
        '[simulation]\nsizes = [10, "10", 10, 10, 10]',
        ("simulation.sizes.1 must be a number, found '10'",),
    ),
    "a misspelt choice": ('"by-column"', '"by-colum"', ("simulation.split must be", "(did you mean by-column?)")),
    "a name with a slash": (
        'name = "small"',
        'name = "a/b"',
        ("study.name must have no characters but A-Za-z0-9._ -",),
    ),
    "a purpose of two lines": (
        'name = "small"',
        'name = "small"\npurpose = "a\\nb"',
        ("study.purpose must be one line of text",),
    ),
    "wrong unit": ("[privacy]", '[privacy]\nunit = "record"', ("privacy.unit", "party")),
    "not TOML": ("[privacy]", "[privacy", ("study.toml", "TOML")),
    "no schema": ("schema.toml", "shema.toml", ("shema.toml",)),
    "vertical split": ('"by-column"', '"by-features"', ("study.toml", "simulation.split", "by-column")),
}


@pytest.mark.parametrize("wrong", WRONG_STUDIES)
def test_a_wrong_study_ends_in_one_sentence_and_leaves_nothing(comity: Any, study: Path, wrong: str) -> None:
    old, new, words = WRONG_STUDIES[wrong]
    assert old in STUDY
    study.write_text(STUDY.replace(old, new, 1))
    ended = comity("run", "study.toml", "--json")
    assert (ended.code, ended.out) == (3, "")
    sentence = ended.failure["sentence"]
    assert all(word in sentence for word in words), sentence
    assert "\n" not in sentence
    assert not Path("runs").exists()


def test_a_folder_in_the_place_of_its_study_names_the_study(comity: Any, study: Path) -> None:
    for command in ("plan", "run"):
        ended = comity(command, study.parent)
        assert ended.code == 3 and f"is a folder; give the study file in it: {study}" in ended.err


def test_a_folder_that_is_not_there_is_said_in_words(comity: Any, study: Path) -> None:
    ended = comity("predict", "runs/nope", "test.csv")
    assert ended.code == 3 and "runs/nope: there is no model here" in ended.err and "Errno" not in ended.err
    (study.parent / "absent.csv").unlink(missing_ok=True)
    missing = comity("plan", "study.toml", "--sample", "absent.csv")
    assert missing.code == 3 and missing.err.count("absent.csv") == 1


def _without_age(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.drop(columns="age")


def _wordy_age(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(age=["old", *frame["age"].astype(str)[1:]])


def _unlabelled(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(readmitted=["perhaps", *frame["readmitted"][1:]])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_without_age, ("records.csv", "'age'", "missing")),
        (_wordy_age, ("records.csv", "'age'", "found a text", "record 1", "correct the value")),
        (_unlabelled, ("records.csv", "'readmitted'", "found a text that is none of them")),
    ],
)
def test_wrong_records_end_in_one_sentence_and_leave_nothing(comity: Any, study: Path, change: Any, words: Any) -> None:
    change(pd.read_csv("records.csv")).to_csv("records.csv", index=False)
    ended = comity("run", "study.toml")
    assert (ended.code, ended.out) == (3, "")
    assert all(word in ended.err for word in words), ended.err
    assert ended.err.count("\n") == 1
    assert not Path("runs").exists()


@pytest.mark.parametrize("content", [b"", b"PAR1 but not really"])
def test_a_source_that_cant_be_opened(comity: Any, study: Path, content: bytes) -> None:
    Path("records.parquet").write_bytes(content)
    ended = comity("run", "study.toml", "--set", "simulation.data=records.parquet")
    assert ended.code == 3 and "records.parquet" in ended.err and "check" in ended.err
    assert not Path("runs").exists()


def test_a_party_without_records_takes_part_neutrally(comity: Any, study: Path) -> None:
    records = pd.read_csv("records.csv")
    records[records["clinic"] == "clinic-01"].to_csv("north.csv", index=False)
    records[records["clinic"] == "clinic-02"].to_csv("south.csv", index=False)
    records.iloc[:0].to_csv("west.csv", index=False)
    named = STUDY.replace("[parties]\ncount = 5", "[parties.north]\n[parties.south]\n[parties.west]")
    files = 'data = {north = "north.csv", south = "south.csv", west = "west.csv"}'
    named = named.replace('data = "records.csv"', files).replace('split = "by-column"\ncolumn = "clinic"\n', "")
    study.write_text(named)
    for method in ("avg", "soft"):
        ended = comity("run", "study.toml", "--json", "--set", f"softlabel.method={method}")
        assert ended.code == 0, ended.err
        west = Ledger(Path(ended.document["folder"]) / "ledgers" / "west.ledger")
        assert [entry.kind for entry in west.entries()].count("draw") == 1
    study.write_text(named.replace("[parties.west]", "[parties.east]"))
    ended = comity("run", "study.toml")
    assert ended.code == 3 and "east" in ended.err


def test_a_refusal_is_one_line_whatever_the_sites_log(study: Path) -> None:
    command = "import sys; from comity.cli import main; sys.exit(main())"
    arguments = [sys.executable, "-c", command, "run", "study.toml", "--set", "simulation.grant=1.5"]
    ended = subprocess.run(arguments, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (4, "", 1), ended.stderr
    (folder,) = Path("runs").iterdir()
    assert "clinic-01" in (folder / "sites.log").read_text()
    assert folder.stat().st_mode & 0o077 == 0


def test_an_exhausted_ledger_refuses_and_stays_as_it_was(comity: Any, study: Path) -> None:
    ended = comity("run", "study.toml", "--set", "simulation.grant=1.5", "--json")
    assert (ended.code, ended.out) == (4, "")
    failure = ended.failure
    assert (failure["code"], failure["key"]) == ("budget", "simulation.grant")
    assert all(word in failure["sentence"] for word in ("study.toml", "eps 2.00", "1.50", "short", "simulation.grant"))
    (folder,) = Path("runs").iterdir()
    assert not (folder / "result.json").exists()
    for path in (folder / "ledgers").glob("*.ledger"):
        assert {entry.kind for entry in Ledger(path).entries()} <= {"create", "grant"}
        account = Ledger(path).summary()[0]
        assert (account.spent_epsilon, account.reserved_epsilon) == (Decimal(0), Decimal(0))


@pytest.mark.parametrize(
    "split",
    ['split = "even"', 'split = "by-sizes"\nsizes = [0.5, 0.2, 0.1, 0.1, 0.1]', 'split = "by-anchors"\ncolumn = "age"'],
)
def test_every_split_deals_each_record_once(comity: Any, study: Path, split: str) -> None:
    from comity.study.records.party_data import load_party_data

    text = STUDY.replace('split = "by-column"\ncolumn = "clinic"', split)
    loaded = Study.parse(text, folder=study.parent)
    party_data = load_party_data(loaded)
    ids = [identifier for records in party_data.parties.values() for identifier in records.ids]  # type: ignore[union-attr]
    assert sorted(ids) == sorted(pd.read_csv("records.csv")["patient"])
    assert len(party_data.parties) == PARTIES
    again = load_party_data(loaded).parties
    assert all(list(records.ids) == list(again[name].ids) for name, records in party_data.parties.items())  # type: ignore[arg-type]


def test_a_holdout_is_of_records_that_no_party_keeps(study: Path) -> None:
    from comity.study.records.party_data import load_party_data

    party_data = load_party_data(Study.parse(STUDY.replace('test = "test.csv"', "holdout = 0.25"), folder=study.parent))
    assert party_data.test is not None
    assert len(party_data.test) + sum(map(len, party_data.parties.values())) == 60
    assert {len(records) for records in party_data.parties.values()} == {9}


def test_a_refused_run_is_not_called_resumable(comity: Any, study: Path) -> None:
    refused = comity("run", "study.toml", "--set", "simulation.grant=1.5")
    (folder,) = Path("runs").iterdir()
    for again in (comity("run", "--resume", folder), comity("report", folder)):
        assert (again.code, again.out, again.err.count("\n")) == (4, "", 1)
        assert "was refused" in again.err and "1.50" in again.err and "simulation.grant" in again.err
        assert "--resume" not in again.err and f"comity run {study.absolute()}" in again.err
    assert refused.err.count("\n") == 1


def test_what_public_figures_refuse_leaves_no_folder(comity: Any, study: Path) -> None:
    study.write_text(STUDY.replace('variant = "published"\nmethod = "avg"', 'statistic = "votes"'))
    ended = comity("run", "study.toml", "--set", "privacy.colluders=0")
    assert ended.code == 4 and "privacy.colluders" in ended.err
    assert not Path("runs").exists()


def test_the_terminal_says_what_the_page_says_of_a_useless_result(comity: Any, study: Path) -> None:
    from comity.report.result import load_result
    from comity.report.sentences import describe_quality

    said = []
    for epsilon in ("0.001", "1000"):
        sets = ("--set", f"privacy.epsilon={epsilon}", "--set", "softlabel.sensitivity=tight")
        ended = comity("run", "study.toml", "--seed", "1", *sets)
        assert ended.code == 0, ended.err
        folder = sorted(Path("runs").iterdir())[-1]
        said.append(describe_quality(load_result(folder)))
        assert said[-1] in ended.out
        assert said[-1] in html.unescape((folder / "report.html").read_text())
    assert said[0].startswith("No better than a constant") and not said[1].startswith("No better")


@pytest.mark.parametrize("text", ["loud", "quiet"])
def test_no_color_means_no_escape_codes(study: Path, text: str) -> None:
    """On a terminal, where bold text and a progress bar would be."""
    commands = [
        ["schema", "draft", "test.csv", "--target", "readmitted"],
        ["run", "study.toml", "--seed", "1"],
        ["plan", "nothing.toml"],
    ]
    for command in commands if text == "quiet" else commands[:1]:
        shown = on_a_terminal(command, {"NO_COLOR": "1"} if text == "quiet" else {})
        assert bool(re.search(rb"\x1b\[[0-9;]*m", shown)) is (text == "loud"), shown


def on_a_terminal(arguments: list[str], extra: dict[str, str]) -> bytes:
    command = "import sys; from comity.cli import main; sys.exit(main())"
    ours, theirs = pty.openpty()
    environment = {key: value for key, value in os.environ.items() if key != "NO_COLOR"} | {"TERM": "xterm"} | extra
    process = subprocess.Popen(
        [sys.executable, "-c", command, *arguments], stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 65536):
            shown += chunk
    except OSError:
        pass  # Linux says so when the other side has closed
    finally:
        os.close(ours)
        process.wait(timeout=60)
    return shown


def test_very_many_parties_are_told_beforehand_that_they_cant_be_resumed(comity: Any, study: Path) -> None:
    from comity.study.local import stacks

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stacks, "REAL_HOSTS", 4)
        told = comity("run", "study.toml", "--seed", "1")
        assert told.code == 0 and "can't be resumed" in told.err and told.err.count("\n") == 1
        assert comity("run", "study.toml", "--seed", "1", "--json").err == ""
    folder = sorted(Path("runs").iterdir())[0]
    assert not (folder / "ledgers").exists() and not (folder / "journal.sqlite").exists()
    (folder / "result.json").unlink()
    refused = comity("run", "--resume", folder)
    assert refused.code == 4 and "its 5 parties were simulated" in refused.err and "comity run" in refused.err
