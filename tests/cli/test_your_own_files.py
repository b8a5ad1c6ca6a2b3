"""The page about own files is true: its commands run in order, and what it shows of files and output is there."""

from __future__ import annotations

import io
import re
import shlex
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from comity.data.tables.sources import check_table
from comity.methods import PROTOCOLS

from .conftest import Ended

Comity = Callable[..., Ended]

PAGE = (Path(__file__).parents[2] / "docs" / "your-own-files.md").read_text("utf-8")
BLOCK = re.compile(r"^```(\w+)(?: (file|in)=(\S+))?\n(.*?)^```", re.S | re.M)


def run_console(text: str, comity: Comity, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the lines after a dollar; the lines after each are lines of its output."""
    said: list[str] = []
    for line in text.splitlines():
        if line.startswith("$ cd "):
            monkeypatch.chdir(line.removeprefix("$ cd "))
        elif line.startswith("$ comity "):
            ended = comity(*shlex.split(line)[2:])
            assert ended.code == 0, f"{line}: {ended.err}"
            said = ended.out.splitlines()
        else:
            assert line in said, f"{line!r} is not among:\n" + "\n".join(said)


def test_every_block_of_the_page_runs(tmp_path: Path, comity: Comity, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    module = ModuleType("page")
    kinds = set()
    for kind, where, name, text in BLOCK.findall(PAGE):
        kinds.add((kind, where))
        if kind == "python":
            exec(compile(text, "your-own-files.md", "exec"), module.__dict__)
        elif kind == "console":
            run_console(text, comity, monkeypatch)
        elif where == "file":
            (tmp_path / name).write_text(text)
        elif where == "in":
            written = (tmp_path / name).read_text()
            assert all(line in written for line in text.splitlines())
        else:
            table: dict[str, Any] = tomllib.loads(text)["data"]["patients"]
            check_table(table, "site.toml")
            study = tomllib.loads((tmp_path / "heart" / "study.toml").read_text())
            assert table == study["simulation"]["data"]["south"]
    assert kinds == {("python", ""), ("console", ""), ("toml", "in"), ("toml", "file"), ("toml", "")}


def test_the_page_has_a_line_for_every_method() -> None:
    from comity.cli.new import QUESTIONS

    assert set(QUESTIONS) == set(PROTOCOLS)
    for protocol, question in QUESTIONS.items():
        assert f"| {question} | `{protocol}` | `comity new " in PAGE
