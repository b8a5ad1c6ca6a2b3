"""The short pages that say how to do one thing: their commands run in order, and say what the pages show."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.sites import Sites

from .conftest import Ended
from .test_your_own_files import BLOCK, run_console

Comity = Callable[..., Ended]

DOCS = Path(__file__).parents[2] / "docs"


def run_page(page: str, text: str, comity: Comity, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run every block in order, and return how many commands there were."""
    module, commands = ModuleType("page"), 0
    for kind, where, name, block in BLOCK.findall(text):
        if kind == "python":
            exec(compile(block, page, "exec"), module.__dict__)
        elif kind in ("console", "sh"):
            run_console(block, comity, monkeypatch)
            commands += block.count("$ comity ")
        elif where == "file":
            Path(name).write_text(block)
    return commands


@pytest.mark.parametrize(("page", "commands"), [("schema.md", 1), ("databases.md", 1), ("back-up.md", 4)])
def test_every_command_of_a_page_runs(
    page: str, commands: int, tmp_path: Path, comity: Comity, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_page(page, (DOCS / page).read_text("utf-8"), comity, monkeypatch) == commands


def test_the_commands_about_approving_run(tmp_path: Path, comity: Comity, monkeypatch: pytest.MonkeyPatch) -> None:
    sites = Sites.make(tmp_path)
    arrived = sites.services()["north"].take_in(sites.pack(sites.study(epsilon=0.3)))
    monkeypatch.chdir(sites.home("north"))
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    text = (DOCS / "approve.md").read_text("utf-8").replace("3d59", arrived.study[:8])
    assert run_page("approve.md", text, comity, monkeypatch) == 5
    assert "refused" in comity("site", "inbox").out


@pytest.mark.long
def test_the_first_study_runs_as_its_page_says(tmp_path: Path, comity: Comity, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_page("first-study.md", (DOCS / "first-study.md").read_text("utf-8"), comity, monkeypatch) == 3
