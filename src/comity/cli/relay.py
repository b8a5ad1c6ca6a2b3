"""`comity relay`: the server that members dial."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from comity.cli.options import AsJson
from comity.cli.output import show

app = typer.Typer(
    help="The server that members of a consortium dial; it carries sealed messages and may read none.\n\n"
    "Example: comity relay serve consortium",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="The consortium's folder.", show_default=False)]


@app.command("serve")
def serve_relay(folder: Folder, as_json: AsJson = False) -> None:
    """Run the relay until stopped; a member whose certificate ends is cut off.

    Example: comity relay serve consortium
    """
    from comity.errors import Stopped
    from comity.relay.roster import Roster
    from comity.relay.server import FOLDER, LOG, serve

    roster, log = Roster.load(folder), folder / FOLDER / LOG

    def ready() -> None:
        text = f"the relay listens at {roster.listen}, members dial {roster.address}; its log is {log}"
        show(text, {"listen": roster.listen, "address": roster.address, "log": str(log)}, as_json=as_json)

    if serve(folder, ready=ready):
        raise Stopped(f"{log}: the relay ended by itself; its log says why", code="server")


@app.command("reload")
def reload_relay(folder: Folder, as_json: AsJson = False) -> None:
    """Give a running relay the members of the roster, and see that it took them.

    Example: comity relay reload consortium
    """
    from comity.relay.roster import changing
    from comity.relay.server import reload

    with changing(folder):
        taken = reload(folder)
    text = "the relay has the new list" if taken else "no relay of this folder runs on this machine"
    show(text, {"relay_has_it": taken}, as_json=as_json)
