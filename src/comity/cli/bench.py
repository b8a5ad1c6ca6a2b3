"""`comity bench`: ours and an anchor measured in the same run."""

from __future__ import annotations

from typing import Annotated

import typer

from comity.cli.options import AsJson
from comity.cli.output import show, table


def bench(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What to measure, or: list", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Measure Comity beside an anchor in the same run.

    Example: comity bench list

    Example: comity bench ledger --json
    """
    from comity.bench import BENCHES
    from comity.cli.figures import as_table, document

    if name == "list":
        listed = [(bench.name, bench.about) for bench in BENCHES.values()]
        show(table(("name", "measures"), listed), [{"name": n, "about": a} for n, a in listed], as_json=as_json)
        return
    if name not in BENCHES:
        raise typer.BadParameter(f"there is no bench {name!r}; known: {', '.join(BENCHES)}.")
    found = document(name, BENCHES[name].run())
    show(f"{name} on {found['machine']['cpu']}\n{as_table(found['rows'])}", found, as_json=as_json)
