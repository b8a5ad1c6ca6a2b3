"""The package does without the experiments, and the wheel has none of them."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_wheel_has_the_package_alone_and_the_source_archive_everything() -> None:
    targets = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]
    assert targets["wheel"] == {"packages": ["src/comity"]}
    assert {"/src", "/experiments", "/tools", "/tests"} <= set(targets["sdist"]["include"])


def test_nothing_in_the_package_names_a_module_of_the_experiments() -> None:
    """Neither in an import nor in a string that is imported later."""
    for path in (ROOT / "src" / "comity").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            named = []
            if isinstance(node, ast.Import):
                named = [one.name for one in node.names]
            elif isinstance(node, ast.ImportFrom):
                named = [node.module or ""]
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                named = [node.value] if node.value.startswith(("experiments.", "tools.")) else []
            assert not [name for name in named if name.split(".")[0] in ("experiments", "tools")], path


def test_the_demo_and_every_command_are_imported_without_experiments() -> None:
    script = (
        "import sys; sys.modules['experiments'] = None; import comity.cli, comity.demo.run\n"
        "print(sorted(comity.demo.run.demonstrations()))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['averaging', 'softlabel', 'summary', 'synthetic', 'vertical']"
