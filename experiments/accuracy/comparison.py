"""How accurate the defaults are on public tables, with what they are to be compared with beside each in the same run.

Each method has a module here with a function

    def rows(*, quick: bool) -> Iterator[dict[str, Any]]

which makes its rows with `rows.row` over the `tables` beside this file. Constants that `python -m experiments choose`
chose saw training rows of these tables only; others say beside themselves on what they were chosen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from comity.errors import BadInput
from experiments.accuracy import averaging, pictures, softlabel, vertical
from experiments.accuracy.rows import REACHABLE

COMPARED = {"averaging": averaging.rows, "softlabel": softlabel.rows, "vertical": vertical.rows}

SHOWN = (
    "case",
    "ours",
    "spread",
    "pooled",
    "below_pooled",
    "constant",
    REACHABLE,
    "own",
    "log_loss",
    "pooled_log_loss",
    "constant_log_loss",
    "auc",
    "pooled_auc",
    "sklearn",
    "diffprivlib",
    "repeats",
)
BEGIN, END = "<!-- The command writes what follows. -->", "<!-- The command wrote what precedes. -->"
_PAGE = f"# Accuracy\n\n{BEGIN}\n{END}\n"


def run(*, quick: bool, out: Path | None) -> list[dict[str, Any]]:
    """The rows of all methods; with `out` also the table of its accuracy.md and the pictures beside it. Other text of
    that page stays. COMITY_DATA names the folder of the data."""
    with threadpool_limits(1, user_api="blas"):
        rows = [row for make in COMPARED.values() for row in make(quick=quick)]
    if out is not None:
        page = out / "accuracy.md"
        text = page.read_text("utf-8") if page.exists() else _PAGE
        page.write_text(with_table(text, rows), encoding="utf-8")
        pictures.draw_all(out)
    return rows


def with_table(text: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """The page with the rows in place of its table."""
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise BadInput(f"accuracy.md: expected one line {BEGIN!r} and one line {END!r} around its table; put them back")
    before, after = text.partition(BEGIN)[0], text.partition(END)[2]
    return f"{before}{BEGIN}\n{table(rows)}{END}{after}"


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows as a table, and the notes on them as a list."""
    lines = [f"| {' | '.join(SHOWN)} |", "|" + "---|" * len(SHOWN)]
    lines += [f"| {' | '.join(_cell(row.get(head)) for head in SHOWN)} |" for row in rows]
    notes = dict.fromkeys(str(row["note"]) for row in rows if row.get("note"))
    return "\n".join([*lines, *(("", *(f"- {note}" for note in notes)) if notes else ()), ""])


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4f}" if isinstance(value, float) else str(value)
