"""`comity demo`: the starter of every method, simulated, on one page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from comity.cli.options import AsJson
from comity.cli.progress import progress_bar


def demo(
    out: Annotated[Path, typer.Option(help="The folder for the page, the studies and their runs.")] = Path(
        "demo-report"
    ),
    as_json: AsJson = False,
) -> None:
    """Simulate a small study of every method on generated records, and write one page that shows the results.

    Example: comity demo --out demo-report
    """
    from comity.cli.output import show
    from comity.demo import run_demo

    with progress_bar("demo") as progress:
        found = run_demo(out, progress)
    lines = [_line(row) for rows in found["tables"].values() for row in rows]
    show([*lines, f"page: {found['report']}"], found, as_json=as_json)


def _line(row: Mapping[str, Any]) -> str:
    known = ("protocol", "dataset", "epsilon", "error")
    compared = " · ".join(f"{name.replace('_', ' ')} {value:.3f}" for name, value in row.items() if name not in known)
    error = "" if row["error"] is None else f"  error {row['error']:.3f}  ({compared})"
    return f"{row['protocol']:<10} eps {row['epsilon']:g}{error}"
