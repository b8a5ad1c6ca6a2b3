"""`comity demo`: a consortium on generated and bundled data, in under a minute."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from comity.cli.options import AsJson
from comity.cli.progress import progress_bar


def demo(
    out: Annotated[Path, typer.Option(help="Where the report goes.")] = Path("demo-report"),
    as_json: AsJson = False,
) -> None:
    """Run small studies on generated and bundled data: a table of error against epsilon, and a report.

    Example: comity demo --out demo-report
    """
    from comity.cli.figures import as_table
    from comity.cli.output import show
    from comity.demo import run_demo

    with progress_bar("demo") as progress:
        found = run_demo(out, progress)
    show(f"{as_table(found['table'])}\n  report  {found['report']}", found, as_json=as_json)
