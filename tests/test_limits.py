"""Limits on how complex and how wide a function may be: few exceptions, each with its reason."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXCEPTION = re.compile(r"# noqa: (?:C901|PLR0913)(?P<reason> \(.+\))?$")


def test_limits_are_on_for_the_package() -> None:
    lint = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["ruff"]["lint"]
    assert {"C901", "PLR0913"} <= set(lint["select"])
    assert lint["mccabe"]["max-complexity"] <= 10 and lint["pylint"]["max-args"] <= 13
    relaxed = [where for where, rules in lint["per-file-ignores"].items() if {"C901", "PLR0913"} & set(rules)]
    assert relaxed == ["tests/**"]


def test_exceptions_are_few_and_say_why() -> None:
    found = 0
    for path in (ROOT / "src").rglob("*.py"):
        lines = path.read_text("utf-8").splitlines()
        for place, line in enumerate(lines):
            if "C901" in line or "PLR0913" in line:
                exception = EXCEPTION.search(line)
                assert exception, f"{path}:{place + 1}: name the rule and nothing else, and the reason in brackets"
                above = lines[place - 1].strip()
                assert exception["reason"] or above.startswith("# "), f"{path}:{place + 1}: say why"
                found += 1
    assert 0 < found <= 10
