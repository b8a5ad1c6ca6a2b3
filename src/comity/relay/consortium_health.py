"""Whether a consortium's folder can do its work: the server, its certificate, its configuration, and who belongs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from comity.errors import ComityError
from comity.relay.certificates import check_installed
from comity.relay.roster import Roster
from comity.relay.server import CONFIGURATION, FOLDER, find_server, is_running, server_configuration
from comity.relay.wire import RELAY
from comity.site.health import SOON, Finding


def examined_consortium(folder: Path, now: datetime | None = None) -> Iterator[Finding]:
    """Look at what the holder of a consortium has; what a running server took is what it was last seen to take."""
    now = now or datetime.now(UTC)
    try:
        roster = Roster.load(folder)
    except ComityError as error:
        yield Finding("roster", "failure", str(error))
        return
    yield from _members(folder, roster, now)
    try:
        yield Finding("server", "ok", f"{find_server()}")
    except ComityError as error:
        yield Finding("server", "failure", str(error))
    try:
        until = check_installed(folder / FOLDER, RELAY)
        soon, ended = until - now < SOON, until <= now
        sentence = f"the relay's certificate holds until {until:%Y-%m-%d}"
        more = f"; make a new one: comity consortium renew {folder}" if soon else ""
        yield Finding("relay", "failure" if ended else "warning" if soon else "ok", sentence + more)
    except ComityError as error:
        yield Finding("relay", "failure", str(error))
    yield _configuration(folder, roster, now)


def _members(folder: Path, roster: Roster, now: datetime) -> Iterator[Finding]:
    states = {name: member.state(now) for name, member in roster.members.items()}
    told = ", ".join(f"{name} {state}" for name, state in states.items())
    yield Finding("roster", "ok", f"{folder}: {told}")
    for name, member in roster.members.items():
        if member.until is not None and member.until - now < SOON:
            ends = "ended" if member.until <= now else "ends"
            sentence = f"the certificate of {name} {ends} on {member.until:%Y-%m-%d}; have it join again, and add it"
            yield Finding("member", "warning", sentence)


def _configuration(folder: Path, roster: Roster, now: datetime) -> Finding:
    """What the server was given, against what the roster says now: whoever was taken out by hand is still in."""
    path = folder / FOLDER / CONFIGURATION
    due = server_configuration(
        roster.users(now), listen=roster.listen, folder=path.parent.resolve(), websocket=roster.websocket
    )
    remedy = f"comity relay reload {folder}" if is_running(folder) else f"comity relay serve {folder} writes it"
    try:
        written = path.read_text("utf-8")
    except FileNotFoundError:
        return Finding("configuration", "warning", f"{path}: not written yet; {remedy}")
    except (OSError, UnicodeDecodeError) as error:
        return Finding("configuration", "failure", f"{path}: can't be read ({error}); {remedy}")
    if written != due:
        return Finding("configuration", "failure", f"{path}: is not what roster.toml says; {remedy}")
    return Finding("configuration", "ok", f"{path}: admits whom roster.toml admits")
