"""The security matrix: what was tried, who refuses it, what the attacker is told and what the owner sees.

A test of an attack has `@attack` and asserts what its row says; the page is printed from the rows:

    python -m tests.relay.matrix
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
BEGIN, END = "<!-- the matrix: printed by its tests -->\n", "<!-- the end of the matrix -->\n"
MODULES = ("test_attacks_on_the_relay", "test_attacks_on_a_site", "test_attacks_by_the_relay", "test_attacks_by_packs")
HEADS = ("attack", "refused by", "the attacker is told", "the owner sees", "test")
NOTHING = "nothing"
ELSEWHERE = "nothing: it does not reach a site"


@dataclass(frozen=True)
class Row:
    """`told` and `sees` quote the server, the code of a reply or `comity site status`, or are a sentence about it."""

    what: str
    by: str
    told: str
    sees: str
    test: str

    @property
    def cells(self) -> tuple[str, ...]:
        told = self.told if " " in self.told or self.told == NOTHING else f"`{self.told}`"
        return self.what, self.by, told, self.sees, f"`{self.test}`"


Test = Callable[..., Any]


def attack(what: str, *, by: str, told: str, sees: str = ELSEWHERE) -> Callable[[Test], Test]:
    """Say which row of the matrix a test asserts. The test gets it from the fixture `row`."""

    def mark(test: Test) -> Test:
        module = test.__module__.rsplit(".", 1)[-1]
        test.row = Row(what, by, told, sees, f"{module}.py::{test.__name__}")  # type: ignore[attr-defined]
        return test

    return mark


def rows() -> list[Row]:
    found: list[Row] = []
    for name in MODULES:
        module = importlib.import_module(f"tests.relay.{name}")
        found += [test.row for test in vars(module).values() if hasattr(test, "row")]
    return found


def printed() -> str:
    lines = [HEADS, ("---",) * len(HEADS), *(row.cells for row in rows())]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


if __name__ == "__main__":
    sys.stdout.write(printed())
