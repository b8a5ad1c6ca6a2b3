"""What a person meets at the terminal: grouped commands, completion, a log, progress in words, schemas for editors."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from comity.cli.app import GROUPS, app
from comity.cli.editor_schemas import schema_schema, site_schema, study_schema
from comity.methods import PROTOCOLS, entry_of, load_object
from comity.study.progress import RunProgress
from comity.study.simulation.simulate import run_study
from comity.study.study import Study
from comity.untrusted.toml import read_tables


def test_every_command_is_in_one_group_of_the_help_page(comity: Any) -> None:
    shown = comity("--help").out
    grouped = [name for names in GROUPS.values() for name in names]
    assert len(grouped) == len(set(grouped)) and "Others" not in shown
    names = {one.name for one in app.registered_commands if not one.hidden} | {
        one.name for one in app.registered_groups
    }
    assert set(grouped) == names
    places = [shown.index(f"\n{heading}:") for heading in GROUPS]
    assert places == sorted(places)
    for heading, listed in GROUPS.items():
        below = shown[shown.index(f"\n{heading}:") :]
        assert all(below.index(f"\n  {name} ") < len(below) for name in listed)


def test_a_shell_completes_commands() -> None:
    script = [sys.executable, "-c", "import sys; from comity.cli import main; sys.exit(main())"]
    asked = {**os.environ, "_COMITY_COMPLETE": "complete_bash", "COMP_WORDS": "comity com", "COMP_CWORD": "1"}
    done = subprocess.run(script, env=asked, capture_output=True, text=True, timeout=60, check=False)
    assert set(done.stdout.split()) == {"compare", "combine"}, done.stderr


def test_a_log_level_is_taken_before_the_command(comity: Any, study: Path) -> None:
    root, ours = logging.getLogger(), logging.getLogger("comity")
    before, level = list(root.handlers), ours.level
    try:
        assert comity("--log-level", "debug", "plan", "study.toml").code == 0
        assert ours.level == logging.DEBUG
        assert comity("--log-level", "loud", "plan", "study.toml").code == 2
    finally:
        root.handlers[:] = before
        ours.setLevel(level)


def test_progress_counts_rounds_and_names_what_is_sent(tmp_path: Path) -> None:
    load_object(entry_of("averaging").starter)(tmp_path)
    study = Study.load(tmp_path / "study.toml", overrides={"averaging.rounds": 3, "simulation.baselines": False})
    said: list[str] = []
    run_study(study, seed=1, progress=RunProgress.of(study, said.append))
    rounds = [one for one in said if one.startswith("round ")]
    total = sum(row.times for row in study.plan().rows if row.loss != "-")
    assert rounds[-1] == f"round {total} of {total}: calibration {total}/{total}"
    assert [one.split()[1] for one in rounds] == [str(number) for number in range(1, total + 1)]
    assert any(": gradient " in one for one in rounds)
    assert "reserving the budget" in said and "handing out the result" in said
    assert not [one for one in said if "sum." in one or "[" in one]


def test_stacks_of_one_round_are_one_round() -> None:
    said: list[str] = []
    progress = RunProgress(said.append, {"vote": "votes"}, 2)
    for words in ("vote[0] 500/2000", "vote[0] 1000/2000", "vote[1] 500/2000", "other_step[0]", "writing the report"):
        progress(words)
    progress("align.deal_key[0]")
    assert said == [
        *("round 1 of 2: votes 1/2", "round 1 of 2: votes 1/2", "round 2 of 2: votes 2/2"),
        *("other step", "writing the report", "matching the parties' records"),
    ]


def unknown_keys(value: Any, schema: dict[str, Any], root: dict[str, Any], at: str = "") -> list[str]:
    """Keys that the schema does not allow: a small reader of what these schemas use."""
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rpartition("/")[2]]
    choices = schema.get("oneOf") or schema.get("anyOf")
    if choices:
        return min((unknown_keys(value, one, root, at) for one in choices), key=len)
    if "const" in schema and schema["const"] != value:
        return [f"{at}: {value}"]
    if not isinstance(value, dict):
        return [at] * (schema.get("type") == "object")
    found = []
    for key, one in value.items():
        inner = schema.get("properties", {}).get(key, schema.get("additionalProperties", True))
        if inner is False:
            found.append(f"{at}.{key}")
        elif inner is not True:
            found += unknown_keys(one, inner, root, f"{at}.{key}")
    return found


@pytest.mark.parametrize("name", PROTOCOLS)
def test_files_of_starters_follow_the_schemas_for_editors(name: str, tmp_path: Path) -> None:
    load_object(entry_of(name).starter)(tmp_path)
    for file, schema in (("study.toml", study_schema()), ("schema.toml", schema_schema())):
        tables = read_tables((tmp_path / file).read_text("utf-8"))
        assert unknown_keys(tables, schema, schema) == []
        assert unknown_keys({**tables, "misspelt": {}}, schema, schema) == [".misspelt"]
    assert Study.load(tmp_path / "study.toml").about.purpose
    study = study_schema()
    own = {name: {"no_such_option": 1}, "study": {"purpos": "x"}, "parties": {"ash": {"colums": []}}}
    assert len(unknown_keys(own, study, study)) == 3


def test_the_schema_of_a_site_file_has_its_policy(comity: Any, tmp_path: Path) -> None:
    schema = site_schema()
    assert unknown_keys({"party": "a", "policy": {"approval": "by-hand"}}, schema, schema) == []
    assert unknown_keys({"policy": {"aproval": "by-hand"}}, schema, schema) == [".policy.aproval"]
    said = comity("schema", "json", "site", "--to", tmp_path / "site.json")
    assert said.code == 0 and json.loads((tmp_path / "site.json").read_text("utf-8")) == schema
    assert comity("schema", "json", "site").document == schema
    assert comity("schema", "json", "other").code == 2


def test_doctor_ends_with_a_verdict(comity: Any, study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert comity("doctor").out.splitlines()[-1].split(None, 1) == ["verdict", "ready: this machine can run studies"]
    monkeypatch.setenv("COMITY_DATA", str(study.parent))
    ended = comity("doctor")
    assert ended.code == 3 and "NOT READY: 1 thing has to be fixed" in ended.out.splitlines()[-1]
    assert comity("doctor", "--site", "none.toml", "--json").document["verdict"].startswith("NOT READY")
