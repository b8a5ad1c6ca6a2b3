"""`comity relay`: the server to which members connect."""

from __future__ import annotations

from comity.cli.options import AsJson, ConsortiumFolder, make_group
from comity.cli.output import show

app = make_group(
    "The server to which members of a consortium connect; it carries sealed messages and can read none.",
    example="comity relay serve consortium",
)


@app.command("serve")
def serve_relay(folder: ConsortiumFolder, as_json: AsJson = False) -> None:
    """Run the relay until stopped. It cuts off a member at its end date.

    Example: comity relay serve consortium
    """
    from comity.errors import Stopped
    from comity.relay.roster import Roster
    from comity.relay.server import FOLDER, LOG, serve

    roster, log = Roster.load(folder), folder / FOLDER / LOG

    def ready() -> None:
        text = f"the relay listens at {roster.listen}, members connect to {roster.address}; its log is {log}"
        show(text, {"listen": roster.listen, "address": roster.address, "log": str(log)}, as_json=as_json)

    if serve(folder, ready=ready):
        raise Stopped(f"{log}: the relay ended unexpectedly; this log says why", code="server")


@app.command("reload")
def reload_relay(folder: ConsortiumFolder, as_json: AsJson = False) -> None:
    """Apply the roster to a running relay, and check that the relay took it.

    Example: comity relay reload consortium
    """
    from comity.relay.roster import lock_consortium
    from comity.relay.server import reload

    with lock_consortium(folder):
        taken = reload(folder)
    text = "the relay uses the new list" if taken else "no relay of this folder runs on this machine"
    show(text, {"relay_has_it": taken}, as_json=as_json)
