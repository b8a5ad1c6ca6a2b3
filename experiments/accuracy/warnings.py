"""Every cell of docs/accuracy.md that is below its constant, by accuracy or by log loss, and whether its plan warns.

`python -m experiments papers warnings` prints these cells and fails where one has no warning. It reads the page, the
tables' schemas and what the plans say today, and runs no study.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from comity.errors import BadInput
from experiments.accuracy.few_rows_tables import load_table
from experiments.accuracy.warned import plan_warnings, warn_of_columns

PAGE = Path(__file__).parents[2] / "docs" / "accuracy.md"
_FEW_ROWS = re.compile(r"(\d+) rows of (\S+) t=(\d) eps=(\S+)")
FEW_OWNERS = 2
"""Owners of every case of the table of few rows."""

Cells = Mapping[str, str]


def run(*, quick: bool, out: Path | None = None) -> list[dict[str, Any]]:
    """A row for each cell below its constant. COMITY_DATA names the folder of the data."""
    found = [*check_comparison(read_table("case")), *check_few_rows(read_table("few rows"))]
    silent = [str(row["case"]) for row in found if row["warned"] == "no"]
    if silent:
        raise BadInput(
            f"{PAGE.name}: below a constant without a warning of the plan: {', '.join(silent)}; let the method's "
            "warnings say it"
        )
    return found


def read_table(first: str, page: Path = PAGE) -> list[Cells]:
    """The rows of the page's table whose first column has this name; a page without any would hide every cell."""
    lines = [line.strip("| \n").split(" | ") for line in page.read_text("utf-8").splitlines()]
    start = next((place for place, line in enumerate(lines) if line[0] == first), None)
    rows: list[Cells] = []
    for line in lines[start + 2 :] if start is not None else ():
        if len(line) != len(lines[start or 0]):
            break
        rows.append(dict(zip(lines[start or 0], line)))
    if not rows:
        raise BadInput(f"{page.name}: found no table that begins with the column {first!r}; compute it again")
    return rows


def is_below(row: Cells, accuracy: str, constant: str, loss: str, constant_loss: str) -> bool:
    """By the mean accuracy (R² of a number), or by the mean log loss, which numbers have not."""
    less = float(row[accuracy]) < float(row[constant])
    if row[loss] == "-":
        return less
    if row[constant_loss] == "-":
        raise BadInput(f"{row[next(iter(row))]}: has a log loss and none of its constant to compare with")
    return less or float(row[loss]) > float(row[constant_loss])


def check_comparison(rows: list[Cells]) -> Iterator[dict[str, Any]]:
    for row in rows:
        if is_below(row, "ours", "constant", "log_loss", "constant_log_loss"):
            told = plan_warnings(row["case"])
            yield _shown(row["case"], row["ours"], row["constant"], row["log_loss"], row["constant_log_loss"], told)


def check_few_rows(rows: list[Cells]) -> Iterator[dict[str, Any]]:
    for row in rows:
        if is_below(row, "accuracy", "constant", "log loss", "constant's"):
            case = _FEW_ROWS.fullmatch(row["few rows"])
            assert case is not None, row["few rows"]
            count, name, colluders, epsilon = int(case[1]), case[2], int(case[3]), float(case[4])
            told = warn_of_columns(load_table(name), FEW_OWNERS, colluders, epsilon, rows=count)
            yield _shown(row["few rows"], row["accuracy"], row["constant"], row["log loss"], row["constant's"], told)


def _shown(case: str, ours: str, constant: str, loss: str, constant_loss: str, told: tuple[str, ...]) -> dict[str, Any]:
    def number(text: str) -> float | None:
        return None if text == "-" else float(text)

    return {
        "case": case,
        "ours": number(ours),
        "constant": number(constant),
        "log_loss": number(loss),
        "constant_log_loss": number(constant_loss),
        "warned": "yes" if told else "no",
    }
