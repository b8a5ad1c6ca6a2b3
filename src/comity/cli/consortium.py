"""`comity consortium`: create a consortium, join it, and manage its members."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from comity.cli.options import AsJson, ConsortiumFolder, make_group
from comity.cli.output import show, table, warn

app = make_group(
    "Organisations that learn together over a relay: invite, join, admit, revoke.",
    example="comity consortium init consortium --address relay.example.org --party north",
)

AuthorityFolder = Annotated[
    Path | None, typer.Option(help="The authority's folder, if it is kept elsewhere.", show_default=False)
]
ValidDays = Annotated[int, typer.Option(help="How long the certificate is valid.", min=1, max=1825)]


@app.command()
def init(
    folder: ConsortiumFolder,
    address: Annotated[
        str, typer.Option(help="HOST or HOST:PORT at which members reach the relay.", show_default=False)
    ],
    party: Annotated[
        list[str] | None, typer.Option(help="A party to invite; repeat the option for each.", show_default=False)
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
    """Create an authority, a relay and an invitation for each party; or invite further parties.

    Example: comity consortium init consortium --address relay.example.org --party north --party south
    """
    from comity.relay.membership import Invitation, create_consortium

    written = create_consortium(folder, address=address, listen=listen, websocket=websocket, parties=party or [])
    if not written:
        raise typer.BadParameter("no party to invite; give --party NAME.")
    first = Invitation.load(written[0])
    lines = [
        *(f"{path}" for path in written),
        "",
        "Send each member its invitation; it is no secret. Each member compares the authority's fingerprint with you:",
        f"  {first.fingerprint}",
        "Each member sends back a signing request. Admit it: comity consortium add",
        "Run the relay: comity relay serve, or as a service: comity consortium units",
    ]
    document = {
        "invitations": list(map(str, written)),
        "address": first.address,
        "fingerprint": first.fingerprint,
    }
    show("\n".join(lines), document, as_json=as_json)


@app.command()
def join(
    invitation: Annotated[Path, typer.Argument(metavar="INVITATION", help="The file you were sent.")],
    folder: Annotated[Path, typer.Option(help="The folder for your key and certificate.")] = Path("relay"),
    certificate: Annotated[
        Path | None, typer.Option(help="The certificate that came back.", show_default=False)
    ] = None,
    websocket: Annotated[bool, typer.Option("--websocket", help="Connect to the relay by websocket.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make your key and the signing request to send back; with --certificate, install the certificate that came back.

    Example: comity consortium join north.toml

    Example: comity consortium join north.toml --certificate north.pem
    """
    from comity.relay.membership import Invitation, join_consortium

    asked = Invitation.load(invitation)
    done = join_consortium(invitation, folder, certificate, websocket=websocket)
    document = {
        "member": asked.member,
        "address": done.relay.address,
        "request": str(done.request),
        "key": done.key,
        "authority": asked.fingerprint,
        "until": None if done.until is None else done.until.isoformat(),
    }
    if done.until is None:
        lines = [
            f"compare the authority's fingerprint with the operator who invited you:\n  {asked.fingerprint}",
            f"send back {done.request}; the operator compares your key's fingerprint with you:\n  {done.key}",
        ]
    else:
        lines = [f"{asked.member} is a member until {done.until:%Y-%m-%d}. In your site file:", "", "[relay]"]
        lines += [f'address = "{done.relay.address}"', f'certificate = "{done.relay.certificate}"']
    show("\n".join(lines), document, as_json=as_json)


@app.command()
def add(
    folder: ConsortiumFolder,
    request: Annotated[Path, typer.Argument(metavar="REQUEST", help="The signing request that came back.")],
    party: Annotated[
        str, typer.Option(help="The member that sent the request; the name inside the request is ignored.")
    ],
    authority: AuthorityFolder = None,
    days: ValidDays = 365,
    as_json: AsJson = False,
) -> None:
    """Admit a member: sign its certificate, and reload a relay that runs here.

    Example: comity consortium add consortium north.request.pem --party north
    """
    from comity.relay.membership import admit_member

    issued, path, taken = admit_member(folder, request, party, authority=authority, validity=timedelta(days=days))
    lines = [
        f"{party} is admitted until {issued.until:%Y-%m-%d}; send it {path}",
        f"compare its key's fingerprint with it: {issued.key}",
        _taken(folder, taken),
    ]
    document = {"party": party, "key": issued.key, "until": issued.until.isoformat(), "certificate": str(path)}
    show("\n".join(lines), {**document, "relay_has_it": taken}, as_json=as_json)


@app.command()
def renew(
    folder: ConsortiumFolder,
    authority: AuthorityFolder = None,
    days: ValidDays = 365,
    as_json: AsJson = False,
) -> None:
    """Sign a new certificate for the relay. Remove relay/key.pem first to give it a new key too.

    Example: comity consortium renew consortium
    """
    from comity.relay.membership import renew_relay_certificate

    issued, taken = renew_relay_certificate(folder, authority=authority, validity=timedelta(days=days))
    lines = [f"the relay's certificate is valid until {issued.until:%Y-%m-%d}"]
    lines.append(
        "the relay uses it" if taken else f"if the relay runs elsewhere, copy {folder / 'relay'} there and restart it"
    )
    show("\n".join(lines), {"until": issued.until.isoformat(), "relay_has_it": taken}, as_json=as_json)


@app.command()
def revoke(
    folder: ConsortiumFolder,
    party: Annotated[str, typer.Argument(metavar="PARTY", help="The member to revoke.")],
    as_json: AsJson = False,
) -> None:
    """Revoke a member's key for good: a relay that runs here cuts the member off at once.

    Example: comity consortium revoke consortium north
    """
    from comity.relay.membership import revoke_member

    taken = revoke_member(folder, party)
    show(f"{party} is revoked\n{_taken(folder, taken)}", {"party": party, "relay_has_it": taken}, as_json=as_json)


@app.command("show")
def members(folder: ConsortiumFolder, as_json: AsJson = False) -> None:
    """Show the members of a consortium.

    Example: comity consortium show consortium
    """
    from datetime import UTC, datetime

    from comity.relay.roster import Roster

    roster, now = Roster.load(folder), datetime.now(UTC)
    rows = [
        (name, member.state(now), member.key or "", "" if member.until is None else f"{member.until:%Y-%m-%d}")
        for name, member in roster.members.items()
    ]
    heads = ("member", "state", "key", "until")
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
