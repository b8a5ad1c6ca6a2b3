"""The package does without the experiments, and the wheel has none of them."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from importlib import import_module
from pathlib import Path

from comity.methods import PROTOCOLS

ROOT = Path(__file__).parents[2]
PUBLIC = ("comity", "comity.data", "comity.entropy", "comity.learn", "comity.privacy", "comity.protocol")


def test_the_wheel_has_the_package_alone_and_the_source_archive_everything() -> None:
    targets = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]
    assert targets["wheel"] == {"packages": ["src/comity"]}
    assert {"/src", "/experiments", "/tools", "/tests", "/docs", "/SECURITY.md"} <= set(targets["sdist"]["include"])


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
    script = "import sys; sys.modules['experiments'] = None; import comity.cli, comity.demo"
    subprocess.run([sys.executable, "-c", script], check=True)


def public_names(module: str) -> set[str] | None:
    """What a user imports from a module; everything is None."""
    if module == "comity.errors":
        return None
    methods = [
        f"comity.methods.{name}{part}" for name in PROTOCOLS for part in ("", ".published", ".published.baselines")
    ]
    public = (*PUBLIC, *methods)
    return set(getattr(import_module(module), "__all__", ())) if module in public else set()


def test_what_experiments_import_from_inside_is_listed_as_gaps_of_the_interface() -> None:
    found: dict[str, set[str]] = defaultdict(set)
    for path in (ROOT / "experiments").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                assert not [one.name for one in node.names if one.name.startswith("comity.")], path
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "comity":
                public = public_names(node.module or "")
                if public is not None:
                    found[node.module or ""] |= {one.name for one in node.names} - public
    page = (ROOT / "experiments" / "README.md").read_text("utf-8")
    _, _, listed = page.partition("## What experiments still import from inside\n")
    rows = re.findall(r"^\| `(comity[\w.]*)` \| (.*) \|$", listed, re.M)
    told = {module: set(re.findall(r"`(\w+)`", names)) for module, names in rows}
    assert len(told) == len(rows), "a module is listed twice"
    assert told == {module: names for module, names in found.items() if names}
