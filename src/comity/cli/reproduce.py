"""`comity reproduce`: a paper's table or figure done again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from comity.cli.options import AsJson
from comity.cli.output import show, table


def reproduce(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Which table or figure, or: list", show_default=False)],
    quick: Annotated[bool, typer.Option("--quick", help="Under a minute, with fewer repeats.")] = False,
    out: Annotated[Path | None, typer.Option(help="A folder for the plot.", show_default=False)] = None,
    as_json: AsJson = False,
) -> None:
    """Do a paper's table or figure again, with its figures beside ours. Data come from the folder COMITY_DATA.

    Example: comity reproduce list

    Example: COMITY_DATA=data comity reproduce softlabel-har --quick --out plots
    """
    from comity.cli.figures import as_table, document
    from comity.errors import BadInput
    from comity.reproduce import REPRODUCTIONS

    if name == "list":
        listed = [(known, redone.about) for known, redone in sorted(REPRODUCTIONS.items())]
        show(table(("name", "redoes"), listed), [{"name": n, "about": a} for n, a in listed], as_json=as_json)
        return
    if name not in REPRODUCTIONS:
        raise typer.BadParameter(f"there is no reproduction {name!r}; known: {', '.join(REPRODUCTIONS)}.")
    if out is not None:
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput(f"{out}: plots can't be written here ({error.strerror}); choose another --out") from error
    found = document(name, REPRODUCTIONS[name].run(quick=quick, out=out))
    said = f"{name}{', quick: fewer repeats than the full reproduction' if quick else ''}"
    show(f"{said}\n{as_table(found['rows'])}", {**found, "quick": quick}, as_json=as_json)
