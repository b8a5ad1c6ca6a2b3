"""The Python blocks of the documents run; every document is named here by being in the tree."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("**/*.md"), ROOT / "experiments" / "README.md"])
BLOCK = re.compile(r"^```python\n(.*?)^```", re.S | re.M)


def with_code() -> list[Path]:
    return [path for path in DOCUMENTS if BLOCK.search(path.read_text("utf-8"))]


@pytest.mark.parametrize("path", with_code(), ids=lambda path: path.name)
def test_python_blocks_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COMITY_HOME", str(tmp_path / "home"))
    module = ModuleType("document")
    monkeypatch.setitem(sys.modules, "document", module)
    for block in BLOCK.findall(path.read_text("utf-8")):
        exec(compile(block, str(path), "exec"), module.__dict__)


def test_there_are_documents_with_code() -> None:
    assert {path.name for path in with_code()} >= {"README.md", "CONTRIBUTING.md"}


def test_every_file_that_a_guarantee_names_exists() -> None:
    rows = [line for line in (ROOT / "docs" / "guarantees.md").read_text("utf-8").splitlines() if line.startswith("| ")]
    rules = [[cell.strip() for cell in row.strip("| ").split(" | ")] for row in rows if not row.startswith("| rule |")]
    assert len(rules) >= 233 and {len(cells) for cells in rules} == {3}
    named = {name for _, enforced, tested in rules for name in re.findall(r"`([^`]+)`", f"{enforced}, {tested}")}
    assert not {name for name in named if not any([*ROOT.glob(name), *(ROOT / "src" / "comity").glob(name)])}


def test_every_test_that_answers_a_theorem_exists() -> None:
    text = (ROOT / "docs" / "theorems.md").read_text("utf-8")
    for file, name in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text):
        assert (ROOT / file).exists(), file
        assert re.search(rf"^def {name}\b", (ROOT / file).read_text("utf-8"), re.M) if name else True, f"{file}::{name}"
