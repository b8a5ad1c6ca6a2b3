"""Checks of a consortium's folder for `comity doctor`: members, server, the relay's certificate, configuration."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from comity.errors import ComityError
from comity.relay.certificates import check_certificate
from comity.relay.roster import Roster
from comity.relay.server import CONFIGURATION, FOLDER, find_server, is_running, server_configuration
from comity.relay.wire import RELAY
from comity.site.health import SOON, Finding


def check_consortium(folder: Path, now: datetime | None = None) -> Iterator[Finding]:
    """Check what the operator of a consortium has. A running server is taken to use the configuration file."""
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
        until = check_certificate(folder / FOLDER, RELAY)
        soon, ended = until - now < SOON, until <= now
        sentence = f"the relay's certificate is valid until {until:%Y-%m-%d}"
        more = f"; make a new one: comity consortium renew {folder}" if soon else ""
        yield Finding("relay", "failure" if ended else "warning" if soon else "ok", sentence + more)
    except ComityError as error:
        yield Finding("relay", "failure", str(error))
    yield _configuration(folder, roster, now)


def _members(folder: Path, roster: Roster, now: datetime) -> Iterator[Finding]:
    listed = ", ".join(f"{name} {member.state(now)}" for name, member in roster.members.items())
    yield Finding("roster", "ok", f"{folder}: {listed}")
    for name, member in roster.members.items():
        if member.until is not None and member.until - now < SOON:
            ends = "expired" if member.until <= now else "expires"
            remedy = "have it join again, then admit it: comity consortium add"
            sentence = f"the certificate of {name} {ends} on {member.until:%Y-%m-%d}; {remedy}"
            yield Finding("member", "warning", sentence)


def _configuration(folder: Path, roster: Roster, now: datetime) -> Finding:
    """Compare the server's configuration with the roster: a member removed from the file by hand is still admitted."""
    path = folder / FOLDER / CONFIGURATION
    expected = server_configuration(
        roster.users(now), listen=roster.listen, folder=path.parent.resolve(), websocket=roster.websocket
    )
    remedy = f"comity relay reload {folder}" if is_running(folder) else f"comity relay serve {folder} writes it"
    try:
        written = path.read_text("utf-8")
    except FileNotFoundError:
        return Finding("configuration", "warning", f"{path}: not written yet; {remedy}")
    except (OSError, UnicodeDecodeError) as error:
        return Finding("configuration", "failure", f"{path}: can't be read ({error}); {remedy}")
    if written != expected:
        return Finding("configuration", "failure", f"{path}: does not match roster.toml; {remedy}")
    return Finding("configuration", "ok", f"{path}: matches roster.toml")
