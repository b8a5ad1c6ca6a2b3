"""The commands that read or write no run: new, plan, schema, ledger, doctor, help."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from comity._version import __version__
from comity.cli.output import fields
from comity.study.simulation.simulate import run_study
from comity.study.study import Study
from tests.support.html import check_page

COMMANDS = [
    *(["new"], ["plan"], ["run"], ["report"], ["predict"], ["demo"], ["doctor"]),
    *(["schema", "check"], ["schema", "draft"]),
    *(["ledger", name] for name in ("init", "show", "grant", "verify", "export", "write-off", "abandon")),
    *(["consortium", name] for name in ("init", "add", "revoke", "show", "units", "try")),
    *(["relay", "serve"], ["relay", "reload"], ["study", "submit"]),
]


@pytest.mark.parametrize("command", [[], ["schema"], ["ledger"], ["consortium"], ["relay"], *COMMANDS], ids=" ".join)
def test_every_help_page_has_an_example(comity: Any, command: list[str]) -> None:
    ended = comity(*command, "--help")
    assert ended.code == 0
    assert f"comity {' '.join(command)}".strip() in " ".join(ended.out.split("Example", 1)[1].split())


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_a_json_form(comity: Any, command: list[str]) -> None:
    assert "--json" in comity(*command, "--help").out


def test_version(comity: Any) -> None:
    assert comity("--version").out == f"comity {__version__}\n"


def test_help_loads_nothing_heavy() -> None:
    heavy = ["numpy", "pandas", "scipy", "sklearn", "pyarrow", "matplotlib", "opendp", "pydantic", "cryptography"]
    script = f"import sys, comity.cli; print([name for name in {heavy!r} if name in sys.modules])"
    began = time.perf_counter()
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
    assert time.perf_counter() - began < 5


def test_new_writes_a_study_that_beats_a_constant_and_own_data(
    comity: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = comity("new", "triage", "--json")
    assert ended.code == 0
    assert set(ended.document["files"]) == {
        "study.toml",
        "schema.toml",
        "records.parquet",
        "public.parquet",
        "test.parquet",
    }
    # The starter's records are made up, and what takes their place will not be.
    assert {path.stat().st_mode & 0o077 for path in (tmp_path / "triage", *(tmp_path / "triage").iterdir())} == {0}
    again = comity("new", "triage")
    assert again.code == 3 and "triage" in again.err and "choose another name" in again.err
    outcome = run_study(Study.load("triage/study.toml"), seed=7)
    constant, alone = outcome.baseline("constant"), outcome.baseline("own data")
    assert outcome.error is not None and constant is not None and alone is not None
    assert outcome.error < constant.error - 0.1
    assert outcome.error < alone.error - 0.03


def test_new_refuses_an_unknown_protocol_and_a_strange_name(comity: Any, tmp_path: Path) -> None:
    assert comity("new", tmp_path / "x", "--protocol", "magic").code == 2
    assert comity("new", tmp_path / "a:b").code == 2
    assert list(tmp_path.iterdir()) == []


def test_plan_reads_no_data(comity: Any, study: Path) -> None:
    whole = comity("plan", "study.toml").out
    for name in ("records.csv", "test.csv"):
        (study.parent / name).unlink()
    ended = comity("plan", "study.toml")
    assert (ended.code, ended.out) == (0, whole)
    assert Study.load(study).hash in ended.out


def test_plan_shows_defaults_and_overrides(comity: Any, study: Path) -> None:
    document = comity("plan", "study.toml", "--all", "--set", "privacy.epsilon=0.5", "--json").document
    assert document["defaults"]["softlabel.l2"] == 0.0001
    assert "softlabel.method" not in document["defaults"]
    assert "eps 0.50" in document["loss_per_party"]
    assert document["hash"] != comity("plan", "study.toml", "--json").document["hash"]
    assert "softlabel.l2" in comity("plan", "study.toml", "--all").out
    assert "softlabel.l2" not in comity("plan", "study.toml").out


def test_plan_begins_in_words_and_has_the_table_under_all(comity: Any, study: Path) -> None:
    short, whole = comity("plan", "study.toml").out, comity("plan", "study.toml", "--all").out
    words = ("protects", "reads", "leaves", "results", "trusts", "costs", "true", "true", "hash", "details")
    assert [line.split()[0] for line in short.splitlines()[1:] if line[2] != " "] == [*words]
    assert "loss per party" not in short and "mu 0." not in short
    assert "loss per party" in whole and short.splitlines()[:6] == whole.splitlines()[:6]
    assert comity("plan", "study.toml", "--json").document["overview"]["protects"] in short


def test_plan_writes_a_page(comity: Any, study: Path) -> None:
    said = comity("plan", "study.toml", "--html", "plan.html")
    assert said.code == 0 and said.out.endswith("page       plan.html\n")
    assert "what this study would do" in check_page(Path("plan.html").read_text("utf-8")).text


def test_sentences_wrap_at_words_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("leaves", "an encrypted sum with noise, opened only as the total of all parties"), ("hash", "f" * 64)]
    assert fields(rows) == [f"  {word:<10} {text}" for word, text in rows]
    monkeypatch.setattr("sys.stdout", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setenv("COLUMNS", "60")
    *wrapped, hashed = fields(rows)
    assert all(len(line) <= 60 for line in wrapped) and all(line.startswith(" " * 13) for line in wrapped[1:])
    assert " ".join(" ".join(wrapped).split()) == f"leaves {rows[0][1]}"
    assert hashed.endswith("f" * 64)


def test_plan_tells_the_present_name_of_an_option(comity: Any, study: Path) -> None:
    said = comity("plan", str(study), "--json")
    assert json.loads(said.out)["notices"] == []
    text = study.read_text(encoding="utf-8")
    assert 'scaling = "normalised"' in text
    study.write_text(text.replace("scaling =", "rows ="), encoding="utf-8")
    page = json.loads(comity("plan", str(study), "--json").out)
    assert page["hash"] == json.loads(said.out)["hash"] and ".rows is now called" in page["notices"][0]
    assert page["notices"][0] in comity("plan", str(study)).out


def test_schema_check_lists_every_mismatch(comity: Any, study: Path) -> None:
    assert comity("schema", "check", "schema.toml", "records.csv").code == 0
    wrong = pd.read_csv("records.csv").drop(columns="age").assign(heart_rate="fast")
    wrong.to_csv("wrong.csv", index=False)
    ended = comity("schema", "check", "schema.toml", "wrong.csv", "--json")
    assert ended.code == 3
    assert not ended.document["fits"]
    assert {f["column"] for f in ended.document["findings"] if f["severity"] == "error"} == {"age", "heart_rate"}


def test_schema_draft_warns_loudly_and_never_overwrites(comity: Any, study: Path) -> None:
    arguments = ["schema", "draft", "test.csv", "--target", "readmitted", "--identifier", "patient", "--out", "d.toml"]
    ended = comity(*arguments)
    assert ended.code == 0 and "VOIDS THE GUARANTEE" in ended.err
    assert comity("schema", "check", "d.toml", "test.csv").code == 0
    before = Path("d.toml").read_text()
    assert comity(*arguments).code == 3
    assert Path("d.toml").read_text() == before


def test_the_life_of_a_ledger(comity: Any, tmp_path: Path) -> None:
    path, exported = tmp_path / "north.ledger", tmp_path / "north.json"
    made = comity("ledger", "init", path, "--dataset", "patients", "--epsilon", "3", "--delta", "1e-5")
    assert made.code == 0 and "patients · record, replace" in made.out and "left 3.00" in made.out
    assert comity("ledger", "init", path, "--dataset", "patients", "--epsilon", "9").code == 4
    assert comity("ledger", "grant", path, "--epsilon", "0.5", "--why", "board").code == 0
    (account,) = comity("ledger", "show", path, "--json").document["accounts"]
    assert account["granted"] == "approx:3.5,0.00001" and account["left_epsilon"] == "3.5"
    entries = comity("ledger", "show", path, "--entries", "--json").document["entries"]
    assert [entry["note"] for entry in entries if entry["kind"] == "grant"][-1] == "board"
    assert "board" in comity("ledger", "show", path, "--entries").out
    assert comity("ledger", "export", path, "--to", exported).code == 0
    head = comity("ledger", "verify", path, "--json").document["head"]
    assert comity("ledger", "verify", exported, "--json").document["head"] == head
    tampered = exported.read_text().replace('"board"', '"bored"')
    exported.write_text(tampered)
    assert comity("ledger", "verify", exported).code == 4
    assert comity("ledger", "write-off", path, "--why", "backup").code == 2
    assert comity("ledger", "write-off", path, "--why", "backup", "--all", "--delta", "1e-5").code == 2
    assert comity("ledger", "write-off", path, "--why", "backup", "--epsilon", "1", "--delta", "1e-5").code == 0
    # In Gaussian DP the squares add up: of 3.5, 1 leaves more than 2.5.
    shown = comity("ledger", "show", path).out
    assert "left 3.28 (losses add as squares" in shown and "in Gaussian DP (mu)" in shown
    assert comity("ledger", "write-off", path, "--why", "backup", "--all").code == 0
    assert "left 0.00" in comity("ledger", "show", path).out


@pytest.mark.parametrize("epsilon", ["-1", "0", "nan", "much"])
def test_a_grant_is_a_positive_number(comity: Any, tmp_path: Path, epsilon: str) -> None:
    path = tmp_path / "north.ledger"
    ended = comity("ledger", "init", path, "--dataset", "patients", f"--epsilon={epsilon}")
    assert ended.code == 3 and "epsilon" in ended.err
    assert not path.exists()


def test_a_ledger_that_is_not_there_is_not_made(comity: Any, tmp_path: Path) -> None:
    ended = comity("ledger", "show", tmp_path / "none.ledger")
    assert ended.code in (3, 4) and "none.ledger" in ended.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("given", "place"),
    [
        (["bench", "ledger"], "bench ledger"),
        (["reproduce", "softlabel-har", "--quick"], "papers softlabel-har --quick"),
        (["reproduce"], "papers list"),
    ],
    ids=" ".join,
)
def test_a_command_that_moved_says_where_to(comity: Any, given: list[str], place: str) -> None:
    ended = comity(*given)
    assert (ended.code, ended.out) == (2, "") and ended.err.count("\n") == 1
    assert ended.err.endswith(f"python -m experiments {place}\n")
    assert comity(*given, "--json").failure["code"] == "moved"
    assert given[0] not in comity("--help").out


def test_doctor_finds_a_data_folder_without_data(comity: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert comity("doctor").code == 0
    monkeypatch.setenv("COMITY_DATA", str(tmp_path))
    ended = comity("doctor", "--json")
    assert ended.code == 3
    assert not ended.document["data"]["ok"] and ended.document["durable_write"]["ok"]
    assert list(tmp_path.iterdir()) == []


def test_json_is_one_document(comity: Any, study: Path) -> None:
    for arguments in (["plan", "study.toml"], ["schema", "check", "schema.toml", "test.csv"]):
        json.loads(comity(*arguments, "--json").out)


@pytest.mark.parametrize("protocol", [pytest.param("averaging", marks=pytest.mark.long), "vertical"])
def test_new_studies_of_other_methods_run_as_they_are(
    protocol: str, comity: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert comity("new", "trial", "--protocol", protocol).code == 0
    monkeypatch.chdir(tmp_path / "trial")
    planned = comity("plan", "study.toml", "--json").document
    assert planned["unit"] == "a record" and planned["claim"] == "private"
    run = comity("run", "study.toml", "--seed", 7, "--json").document
    errors = {one["name"]: one["error"] for one in run["baselines"]}
    assert run["error"] < errors["own data"] - (0.03 if protocol == "vertical" else 0)
