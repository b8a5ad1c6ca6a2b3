"""`comity bench`: ours and an anchor measured in the same run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from comity.cli.options import AsJson
from comity.cli.output import show, table


def bench(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What to measure, or: list", show_default=False)],
    out: Annotated[Path | None, typer.Option(help="A folder for the plot.", show_default=False)] = None,
    rows: Annotated[int | None, typer.Option(help="How many records to measure with.", min=1000)] = None,
    as_json: AsJson = False,
) -> None:
    """Measure Comity beside an anchor in the same run.

    Example: comity bench list

    Example: comity bench ledger --json

    Example: comity bench vertical --out plots

    Example: comity bench stream --rows 50000000
    """
    from comity.bench import BENCHES
    from comity.cli.figures import as_table, document
    from comity.errors import BadInput

    if name == "list":
        listed = [(known, bench.about) for known, bench in sorted(BENCHES.items())]
        show(table(("name", "measures"), listed), [{"name": n, "about": a} for n, a in listed], as_json=as_json)
        return
    if name not in BENCHES:
        raise typer.BadParameter(f"there is no bench {name!r}; known: {', '.join(BENCHES)}.")
    options: dict[str, Any] = {}
    if out is not None:
        if not BENCHES[name].plots:
            raise typer.BadParameter(f"bench {name} has no plot; leave --out away.")
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput(f"{out}: plots can't be written here ({error.strerror}); choose another --out") from error
        options["out"] = out
    if rows is not None:
        if "rows" not in BENCHES[name].options:
            raise typer.BadParameter(f"bench {name} has a size of its own; leave --rows away.")
        options["rows"] = rows
    found = document(name, BENCHES[name].run(**options))
    show(f"{name} on {found['machine']['cpu']}\n{as_table(found['rows'])}", found, as_json=as_json)
