"""Commands on hostile files: each ends in one sentence, and none lets the file control the terminal."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import asdict, replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from comity.artefacts.artefact import save_artefact
from comity.cli.run_folder import RunManifest, begin_run
from comity.data import Categorical, Classes, Numeric, Schema
from comity.federation.messages.sealed_channel import seal_messages
from comity.methods.synthetic.artefact import NoisyCounts, SyntheticDataset
from comity.methods.synthetic.counts import fit_counting
from comity.site.logs import JsonLines, TextLines
from comity.untrusted.text import is_hidden
from tests.site.test_pack import files_of, forged
from tests.support.sites import Sites
from tests.support.study_folder import STUDY
from tests.untrusted.test_toml import HOSTILE

from .conftest import Ended

Comity = Callable[..., Ended]

FORGED = "FORGED: nothing leaves"
EVIL = f"evil\x1b[2J\x1b]0;title\x07\x9b31m\x7f\u202elive\u2066\u200b\ufeff\r\n{FORGED}"
"""Clears the screen, sets the title, changes colours by a C1 control, reverses, hides, and begins a new line."""
KEY = json.dumps(EVIL).replace("\x7f", "\\u007f")
"""The same as a key or a text of TOML."""


def check_shown(text: str) -> None:
    """What a terminal gets of it: line ends of ours, and nothing else that acts."""
    assert not [one for one in text if one != "\n" and is_hidden(one)]
    assert not [line for line in text.split("\n") if line.lstrip().startswith("FORGED")]


def check_ended(ended: Ended, code: int, *, names_it: bool = True) -> None:
    """One line of text, or one object."""
    assert ended.code == code and "defect" not in ended.err, ended.err[:400]
    assert ended.err.count("\n") == 1
    check_shown(ended.err)
    check_shown(ended.out)
    if names_it:
        assert FORGED in ended.err and "\\u202e" in ended.err
        assert "\\u001b[2J" in ended.err or "\\x1b[2J" in ended.err


@pytest.mark.parametrize("kind", HOSTILE)
def test_toml_that_can_not_be_read_is_bad_input(comity: Comity, tmp_path: Path, kind: str) -> None:
    """In every file of TOML that a command takes."""
    path, folder = tmp_path / "file.toml", tmp_path / "folder"
    path.write_text(HOSTILE[kind])
    folder.mkdir()
    (folder / "roster.toml").write_text(HOSTILE[kind])
    (tmp_path / "records.csv").write_text("a\n1\n")
    begin_run(folder, RunManifest("r1", "study.toml", ".", "ab" * 32, None, {}, 2, resumable=True, deployed=True), "")
    (folder / "result.json").write_text("{}")
    (tmp_path / "study.toml").write_text(STUDY.replace("schema.toml", "file.toml"))
    for words in (
        ("plan", path),
        ("plan", tmp_path / "study.toml"),
        ("run", path),
        ("study", "pack", path, "--keys", path),
        ("schema", "check", path, tmp_path / "records.csv"),
        ("site", "inbox", "--site", path),
        ("consortium", "show", folder),
        ("consortium", "add", folder, path),
        ("fetch", folder, "--keys", path),
    ):
        ended = comity(*words)
        check_ended(ended, 3, names_it=False)
        assert len(ended.err) < 900, words
    # A list of runs shows the run all the same.
    run = RunManifest("r1", "study.toml", ".", "ab" * 32, None, {}, 2, resumable=True)
    (tmp_path / "runs" / "r1").mkdir(parents=True)
    begin_run(tmp_path / "runs" / "r1", run, HOSTILE[kind])
    assert comity("runs", "--out", tmp_path / "runs").code == 0


@pytest.mark.parametrize(
    "change",
    {
        "key": ("[privacy]", f"[privacy]\n{KEY} = 1"),
        "table": ("[privacy]", f"[{KEY}]\na = 1\n[privacy]"),
        "value": ("epsilon = 2.0", f"epsilon = {KEY}"),
        "method": ('"softlabel"', KEY),
        "schema": ('"schema.toml"', KEY),
        "file": ('"public.csv"', KEY),
        "study": ('name = "small"', f"name = {KEY}"),
    }.items(),
    ids=lambda change: change[0],
)
def test_a_study_writes_nothing_to_the_terminal_of_its_reader(comity: Comity, study: Path, change: Any) -> None:
    _, (old, new) = change
    study.write_text(STUDY.replace(old, new, 1))
    check_ended(comity("plan", study), 3)
    check_ended(comity("plan", study, "--json"), 3, names_it=False)
    assert FORGED in json.loads(comity("plan", study, "--json").err)["error"]["sentence"]
    check_ended(comity("run", study, "--quiet"), 3)


def test_a_sentence_is_short_whatever_it_quotes(comity: Comity, study: Path) -> None:
    text = study.read_text().replace('protocol = "softlabel"', f'protocol = "{"x" * 100_000}"')
    study.write_text(text)
    ended = comity("plan", study)
    assert (ended.code, ended.err.count("\n")) == (3, 1) and len(ended.err) < 2_500 and "study.protocol" in ended.err


@pytest.mark.parametrize(
    ("key", "value"), [("run", []), ("study_hash", {"a": 1}), ("parties", "3"), ("run", "\ud800"), ("refused", 1)]
)
def test_a_run_that_describes_itself_by_other_types_is_bad_input(
    comity: Comity, tmp_path: Path, key: str, value: Any
) -> None:
    run = RunManifest("r", str(tmp_path), str(tmp_path), "0" * 64, None, {}, 3, resumable=True, deployed=True)
    (tmp_path / "run.json").write_text(json.dumps({**asdict(run), "format": "comity-run-2", key: value}))
    ended = comity("fetch", tmp_path, "--to", tmp_path / "to")
    check_ended(ended, 3, names_it=False)
    assert "run.json" in ended.err


def test_a_schema_and_records_write_nothing_to_the_terminal(comity: Comity, tmp_path: Path) -> None:
    schema, records = tmp_path / "schema.toml", tmp_path / "records.csv"
    text = Schema((Numeric(EVIL, 0, 9), Categorical("ward", (EVIL, "x")))).to_toml()
    schema.write_text(text)
    pd.DataFrame({EVIL: ["1", "a\x1b[2J"], "ward": ["x", EVIL[:12]]}).to_csv(records, index=False)
    shown = comity("schema", "check", schema, records)
    assert shown.code == 3 and FORGED in shown.out and "a\\x1b[2J" in shown.out
    check_shown(shown.out)
    found = comity("schema", "check", schema, records, "--json")
    check_shown(found.out)
    assert any(one["column"] == EVIL for one in found.document["findings"]), "JSON means the name as it is"
    schema.write_text(text.replace("kind", KEY, 1))
    check_ended(comity("schema", "check", schema, records), 3)
    pd.DataFrame({"age": [1, 2, 3, 4], EVIL: ["x", "y", "x", "y"]}).to_csv(records, index=False)
    drafted = comity("schema", "draft", records, "--target", EVIL)
    check_shown(drafted.out)
    target = Schema.parse(drafted.out).target
    assert target is not None and target.name == EVIL, "what is printed is still a schema"


def test_a_list_of_runs_writes_nothing_to_the_terminal(comity: Comity, tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "2026-11-18-1"
    folder.mkdir(parents=True)
    run = RunManifest(EVIL, "study.toml", ".", EVIL, None, {}, 2, resumable=True)
    begin_run(folder, run, f"[study]\nname = {KEY}\n")
    (folder / "result.json").write_text(json.dumps({"guarantee": {"loss": EVIL}}))
    listed = comity("runs", "--out", folder.parent)
    assert listed.code == 0 and listed.out.count(FORGED) == 3
    check_shown(listed.out)
    found = comity("runs", "--out", folder.parent, "--json")
    check_shown(found.out)
    assert found.document["runs"][0]["run"] == EVIL
    check_ended(comity("fetch", "nothing", "--out", folder.parent), 3)
    (folder / "result.json").unlink()
    (folder / "run.json").write_text(json.dumps({**asdict(replace(run, refused=EVIL)), "format": "comity-run-2"}))
    check_ended(comity("run", "--resume", folder), 4)


def test_released_counts_write_nothing_to_the_terminal(comity: Comity, tmp_path: Path) -> None:
    schema = Schema((Categorical(EVIL, ("a", EVIL)), Numeric("age", 0, 9)), target=Classes("out", ("n", EVIL)))
    counting = fit_counting(schema)
    counts = NoisyCounts(counting, "mixture", np.full(counting.layout.counts, 20.0), 1.0, None, 3)
    save_artefact(SyntheticDataset(counts), tmp_path / "data")
    for words in (("--table",), ("--table", "--by", EVIL), ("--correlations",)):
        shown = comity("synth", tmp_path, *words)
        assert shown.code == 0, shown.err
        check_shown(shown.out)
        found = comity("synth", tmp_path, *words, "--json")
        check_shown(found.out)
        assert found.document["rows"]
    check_ended(comity("synth", tmp_path, "--table", "--by", "age" + EVIL), 3)


def test_what_a_site_refused_writes_nothing_to_its_owners_terminal_or_log(comity: Comity, tmp_path: Path) -> None:
    """A submitter whom the owner knows packs a study with such names in it."""
    sites = Sites.make(tmp_path)
    study, north = sites.study(), sites.identity("north")
    streams = StringIO(), StringIO()
    handlers = [logging.StreamHandler(stream) for stream in streams]
    handlers[0].setFormatter(TextLines("%(levelname)s %(message)s"))
    handlers[1].setFormatter(JsonLines())
    logger = logging.getLogger("comity")
    for one in handlers:
        logger.addHandler(one)
    try:
        text = (study.folder / "study.toml").read_bytes()
        changes = {
            "key": (b"[privacy]", f"[privacy]\n{KEY} = 1\n".encode()),
            "name": (b'"readmission"', KEY.encode()),
            "file": (b'"schema.toml"', KEY.encode()),
        }
        for kind, (old, new) in changes.items():
            files = {**files_of(sites.pack(sites.study())), "study.toml": text.replace(old, new, 1)}
            (tmp_path / kind).write_bytes(forged(sites, files))
            check_ended(comity("site", "receive", tmp_path / kind, "--site", sites.site("north")), 3)
            sealed_pack = seal_messages({"north": (tmp_path / kind).read_bytes}, {"north": north.public}, "study")
            sites.services()["north"].receive(sealed_pack.messages["north"]())
        named = {**files_of(sites.pack(sites.study())), EVIL: b""}
        (tmp_path / "named").write_bytes(forged(sites, named))
        check_ended(comity("site", "receive", tmp_path / "named", "--site", sites.site("north")), 4, names_it=False)
    finally:
        for one in handlers:
            logger.removeHandler(one)
    shown = comity("site", "status", "--site", sites.site("north"))
    check_shown(shown.out)
    document = comity("site", "status", "--site", sites.site("north"), "--json")
    check_shown(document.out)
    assert shown.code == 0 and shown.out.count(FORGED) == len(document.document["refusals"]) >= 3
    for stream in streams:
        check_shown(stream.getvalue())
        assert stream.getvalue().count("\n") == stream.getvalue().count(FORGED) == 3, "a line for each"
