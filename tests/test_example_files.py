"""The scripts and notebooks of `examples/` run as they stand, and its page lists each of them."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
FILES = sorted([*EXAMPLES.glob("*/*.py"), *EXAMPLES.glob("*.ipynb")])


def code_of(path: Path) -> str:
    if path.suffix == ".py":
        return path.read_text("utf-8")
    cells = json.loads(path.read_text("utf-8"))["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_an_example_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COMITY_HOME", str(tmp_path / "home"))
    module = ModuleType("example")
    monkeypatch.setitem(sys.modules, "example", module)
    exec(compile(code_of(path), str(path), "exec"), module.__dict__)


def test_the_page_lists_every_example() -> None:
    listed = set(re.findall(r"\]\(([\w./-]+)\)", (EXAMPLES / "README.md").read_text("utf-8")))
    assert listed == {str(path.relative_to(EXAMPLES)) for path in FILES}


def test_notebooks_are_committed_without_outputs() -> None:
    for path in EXAMPLES.glob("*.ipynb"):
        cells = json.loads(path.read_text("utf-8"))["cells"]
        assert all(not cell["outputs"] for cell in cells if cell["cell_type"] == "code"), path.name
