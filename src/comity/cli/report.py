"""`comity report`: make a run's page again, and open it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from comity.cli.options import AsJson
from comity.cli.output import show


def report(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.", show_default=False)],
    open_it: Annotated[
        bool | None,
        typer.Option("--open/--no-open", help="Open it in a browser; by default on a terminal.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write report.html from what a run left in its folder, print its path, and open it.

    Example: comity report runs/2026-11-15-1
    """
    from comity.cli.run_folder import read_begun, require_resumable
    from comity.errors import StudyError
    from comity.report.result import load_result

    if not (folder / "result.json").is_file():
        begun = read_begun(folder)
        require_resumable(folder, begun)
        raise StudyError(
            f"{folder}: there is no result.json, so no run has ended here; resume it with: comity run --resume {folder}"
        )
    path = folder / "report.html"
    load_result(folder).report(path)
    show(str(path), {"report": str(path)}, as_json=as_json)
    if open_it if open_it is not None else sys.stdout.isatty():
        import webbrowser

        webbrowser.open(path.absolute().as_uri())
