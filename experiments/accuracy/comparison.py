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

from experiments.accuracy import averaging, softlabel, vertical
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
_HEAD = """# Accuracy

This page compares the defaults of Comity's methods with models without privacy, on public tables.
`python -m experiments papers generalisation --out docs` prints it. COMITY_DATA names the folder of the tables, which
`experiments/accuracy/tables.py` describes.

A case is a method on a table, over K parties of which t may collude, at ε and δ = 1e-6 (`pure`: δ = 0). The guarantee
protects one replaced record, with soft labels one replaced party. All figures are from test records:

- `ours`: mean accuracy over repeats with fresh noise (R² if the target is a number); `spread`: its standard deviation;
- `pooled`: the same kind of model on all records without noise; `below_pooled` is pooled − ours;
- `own`: mean over the parties, each with a model of its records alone;
- `constant`: a model that always says the most frequent class, or the mean;
- `reachable constant`: where whole parties are protected, the largest mean accuracy of a constant that any mechanism
  can choose under this privacy (`src/comity/methods/softlabel/proof.md`, 7);
- `sklearn`: scikit-learn's fit on all records by its defaults;
- `diffprivlib`: one owner of all records, pure ε, by its defaults.
"""


def run(*, quick: bool, out: Path | None) -> list[dict[str, Any]]:
    """The rows of all methods; with `out` also accuracy.md. COMITY_DATA names the folder of the data."""
    with threadpool_limits(1, user_api="blas"):
        rows = [row for make in COMPARED.values() for row in make(quick=quick)]
    if out is not None:
        (out / "accuracy.md").write_text(page(rows), encoding="utf-8")
    return rows


def page(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows as a document."""
    lines = [f"| {' | '.join(SHOWN)} |", "|" + "---|" * len(SHOWN)]
    lines += [f"| {' | '.join(_cell(row.get(head)) for head in SHOWN)} |" for row in rows]
    notes = dict.fromkeys(str(row["note"]) for row in rows if row.get("note"))
    return "\n".join([_HEAD, *lines, *(("", *(f"- {note}" for note in notes)) if notes else ()), ""])


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4f}" if isinstance(value, float) else str(value)
