"""Checks of a consortium's folder for `comity doctor`: members, server, the relay's certificate, configuration."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from comity.errors import ComityError
from comity.relay.certificate import CERTIFICATE, load_certificate
from comity.relay.invitation import INVITATION, Invitation
from comity.relay.roster import Roster
from comity.relay.server import CONFIGURATION, FOLDER, find_server, is_running, server_configuration
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
    yield _certificate(folder, now)
    yield _configuration(folder, roster, now)


def _members(folder: Path, roster: Roster, now: datetime) -> Iterator[Finding]:
    listed = ", ".join(f"{name} {member.state(now)}" for name, member in roster.members.items())
    yield Finding("roster", "ok", f"{folder}: {listed or 'no members yet'}")
    for name, entry in roster.entries().items():
        if entry.until - now < SOON:
            ends = "ended" if entry.until <= now else "ends"
            remedy = f"admit it again: comity consortium add {folder} {name}.toml --until DATE"
            yield Finding("member", "warning", f"the entry of {name} {ends} on {entry.until:%Y-%m-%d}; {remedy}")


def _certificate(folder: Path, now: datetime) -> Finding:
    """The relay's certificate, which the invitation must pin."""
    path, remedy = folder / FOLDER / CERTIFICATE, "replace it (docs/deploy.md, New keys)"
    try:
        until = load_certificate(path).not_valid_after_utc
        pinned = Invitation.load(folder / INVITATION).certificate
        written = path.read_text("ascii")
    except ComityError as error:
        return Finding("relay", "failure", str(error))
    if pinned.strip() != written.strip():
        sentence = f"{folder / INVITATION}: pins another certificate than {path}"
        sentence += f"; write it again: comity consortium init {folder} --address ADDRESS"
        return Finding("relay", "failure", sentence)
    sentence = f"the relay's certificate is valid until {until:%Y-%m-%d}"
    if until <= now:
        return Finding("relay", "failure", f"{sentence}; {remedy}")
    return (
        Finding("relay", "warning", f"{sentence}; {remedy}") if until - now < SOON else Finding("relay", "ok", sentence)
    )


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
