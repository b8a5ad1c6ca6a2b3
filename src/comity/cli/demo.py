"""`comity demo`: every method on generated and bundled data, in under a minute."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from comity.cli.options import AsJson
from comity.cli.progress import progress_bar


def demo(
    out: Annotated[Path, typer.Option(help="Where the pages go.")] = Path("demo-report"),
    as_json: AsJson = False,
) -> None:
    """Run small studies of every method on generated and bundled data: tables of error against epsilon, and pages.

    Example: comity demo --out demo-report
    """
    from comity.cli.figures import as_table
    from comity.cli.output import show
    from comity.demo import run_demo

    with progress_bar("demo") as progress:
        found = run_demo(out, progress)
    tables = "\n\n".join(as_table(rows) for rows in found["tables"].values())
    show(f"{tables}\n  report  {found['report']}", found, as_json=as_json)
