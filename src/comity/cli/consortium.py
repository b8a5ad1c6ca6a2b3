"""`comity consortium`: create a consortium, join it, and manage its members."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from comity.cli.options import AsJson, ConsortiumFolder, make_group
from comity.cli.output import show, table, warn

app = make_group(
    "Organisations that learn together over a relay: create, admit, revoke.",
    example="comity consortium init consortium --address relay.example.org",
)


@app.command()
def init(
    folder: ConsortiumFolder,
    address: Annotated[
        str, typer.Option(help="HOST or HOST:PORT at which members reach the relay.", show_default=False)
    ],
    coordinator: Annotated[
        Path | None,
        typer.Option(
            help="Make the coordinator's keys in this folder and admit it: where you coordinate studies too.",
            show_default=False,
        ),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(help="The address at which the relay listens, if not at all of them.", show_default=False),
    ] = None,
    websocket: Annotated[
        int | None,
        typer.Option(
            help="A second port, for members whose firewall lets only websockets out: 443.", show_default=False
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Create a relay and the invitation for its members; or write the invitation again.

    Example: comity consortium init consortium --address relay.example.org

    Example: comity consortium init consortium --address relay.example.org --coordinator coordinator
    """
    from comity.relay.invitation import INVITATION
    from comity.relay.membership import create_consortium

    made = create_consortium(folder, address=address, listen=listen, websocket=websocket)
    path = folder / INVITATION
    lines = [f"{path}: the invitation for all members; it is no secret. Compare its fingerprint by telephone:"]
    lines += [f"  {made.fingerprint}"]
    document = {"invitation": str(path), "address": made.address, "fingerprint": made.fingerprint}
    if coordinator is not None:
        keys, block = _make_coordinator(folder, coordinator)
        lines.append(f"{keys}: the coordinator's keys; {block}: its public keys, to send to owners")
        document |= {"keys": str(keys), "public": str(block)}
    lines += [
        f"Admit members by the public keys that they send: comity consortium add {folder} north.toml",
        f"Run the relay: comity relay serve {folder}, or as a service: comity consortium units",
    ]
    show("\n".join(lines), document, as_json=as_json)


def _make_coordinator(folder: Path, home: Path) -> tuple[Path, Path]:
    """The coordinator's key file and the file of its public keys, once it is admitted."""
    from comity.crypto import key_file
    from comity.crypto.public_block import PublicBlock, block_text
    from comity.files import write_atomically
    from comity.relay.membership import admit_members
    from comity.relay.wire import COORDINATOR

    keys, block = home / f"{COORDINATOR}.key", home / f"{COORDINATOR}.toml"
    identity = key_file.load(keys) if keys.exists() else key_file.create(keys)
    write_atomically(block, block_text(COORDINATOR, identity))
    admit_members(folder, [PublicBlock.load(block)])
    return keys, block


@app.command()
def add(
    folder: ConsortiumFolder,
    blocks: Annotated[
        list[Path],
        typer.Argument(metavar="KEYS...", help="Files of public keys, as members sent them.", show_default=False),
    ],
    until: Annotated[
        str | None, typer.Option(metavar="DATE", help="The end date, as 2027-12-31.", show_default="in a year")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Admit members by their public keys, and reload a relay that runs here. The file's table names the member.

    For a member whose entry ends, this moves its end date.

    Example: comity consortium add consortium north.toml --until 2027-12-31
    """
    from comity.crypto.public_block import PublicBlock
    from comity.relay.invitation import INVITATION
    from comity.relay.membership import admit_members

    done = admit_members(folder, [PublicBlock.load(path) for path in blocks], until=_end(until))
    lines = ["compare each fingerprint with its member by telephone:"]
    lines += [f"  {name:<12} until {one.until:%Y-%m-%d}  {one.fingerprint}" for name, one in done.entries.items()]
    lines += [f"send {folder / INVITATION} to each of them", _taken(folder, done.relay_has_it)]
    members = [
        {"member": name, "key": one.key, "fingerprint": one.fingerprint, "until": one.until.isoformat()}
        for name, one in done.entries.items()
    ]
    show("\n".join(lines), {"members": members, "relay_has_it": done.relay_has_it}, as_json=as_json)


def _end(text: str | None) -> datetime | None:
    try:
        return None if text is None else datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        raise typer.BadParameter(f"--until expects a date as 2027-12-31, found {text!r}.") from None


@app.command()
def revoke(
    folder: ConsortiumFolder,
    party: Annotated[str, typer.Argument(metavar="PARTY", help="The member to revoke.")],
    as_json: AsJson = False,
) -> None:
    """Revoke a member's keys for good: a relay that runs here cuts the member off at once.

    Example: comity consortium revoke consortium north
    """
    from comity.relay.membership import revoke_member

    taken = revoke_member(folder, party)
    show(f"{party} is revoked\n{_taken(folder, taken)}", {"party": party, "relay_has_it": taken}, as_json=as_json)


@app.command("show")
def members(folder: ConsortiumFolder, as_json: AsJson = False) -> None:
    """Show the members of a consortium, with their end dates and fingerprints.

    Example: comity consortium show consortium
    """
    from comity.relay.roster import Roster

    roster, now = Roster.load(folder), datetime.now(UTC)
    rows = [
        (name, one.state(now), "", "")
        if one.entry is None
        else (name, one.state(now), f"{one.entry.until:%Y-%m-%d}", one.entry.fingerprint)
        for name, one in roster.members.items()
    ]
    heads = ("member", "state", "until", "fingerprint")
    text = f"{roster.address}\n{table(heads, rows)}"
    show(text, {"address": roster.address, "members": [dict(zip(heads, row)) for row in rows]}, as_json=as_json)


def _taken(folder: Path, taken: bool) -> str:
    if taken:
        return "the relay uses the new list"
    warn(f"no relay runs here; copy {folder}/roster.toml to where it runs, and there: comity relay reload {folder}")
    return "the next relay that starts from this folder uses the new list"


@app.command()
def units(
    folder: Annotated[Path, typer.Argument(metavar="[FOLDER]", help="Where to write them.")] = Path("operating"),
    as_json: AsJson = False,
) -> None:
    """Write systemd units for relay, site and coordinator, a container file and a compose file, for review.

    Example: comity consortium units operating
    """
    from importlib.resources import files

    from comity.errors import BadInput
    from comity.files import write_atomically

    texts = {one.name: one.read_text("utf-8") for one in files("comity").joinpath("operating").iterdir()}
    for name in texts:
        if (folder / name).exists():
            raise BadInput(f"{folder / name}: exists already; choose another folder", key="folder")
    for name, text in texts.items():
        write_atomically(folder / name, text)
    written = sorted(str(folder / name) for name in texts)
    show("\n".join(written), {"written": written}, as_json=as_json)


@app.command("try")
def try_out(
    parties: Annotated[int, typer.Option(help="How many organisations.", min=2, max=30)] = 3,
    folder: Annotated[
        Path | None, typer.Option(help="Keep everything in this new folder.", show_default="deleted")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Try a consortium on this machine: relay, coordinator and sites as processes on loopback, one study end to end.

    Example: comity consortium try --parties 3

    Example: comity consortium try --parties 3 --folder here
    """
    import tempfile
    import time

    from comity.errors import BadInput
    from comity.report.result import load_result

    try:
        from comity.relay.sandbox import create_sandbox, party_names, run_sandbox
    except ModuleNotFoundError as error:
        raise BadInput(f"{error.name} is missing; run: pip install 'comity[deploy-try]'") from error

    if folder is not None and folder.exists():
        raise BadInput(f"{folder}: exists already; choose a new folder", key="folder")
    began, names = time.perf_counter(), party_names(parties)
    with tempfile.TemporaryDirectory(prefix="comity-") as place:
        home = Path(place) if folder is None else folder
        tried = run_sandbox(create_sandbox(home.absolute(), names), names)
        result = load_result(tried.run)
        seconds = time.perf_counter() - began
    rounds = len({line.path for line in result.transcript.lines})
    lines = [
        f"{parties} organisations and a coordinator over a relay: {seconds:.1f} s, the study {result.seconds:.1f} s",
        f"  {result.study} · run {result.run} · {rounds} steps · {result.guarantee}",
    ]
    if folder is not None:
        lines += [f"  {'coordinator':<12} {tried.run}", *(f"  {name:<12} {at}" for name, at in tried.results.items())]
    document = {"parties": parties, "seconds": seconds, "study_seconds": result.seconds, "run": result.run}
    folders = {"folder": str(tried.run), "results": {name: str(at) for name, at in tried.results.items()}}
    show("\n".join(lines), {**document, **(folders if folder is not None else {})}, as_json=as_json)
