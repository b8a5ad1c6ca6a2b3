"""Create a consortium, admit members, and remove them.

    FOLDER/roster.toml       the members, with the end date of each
    FOLDER/relay/            the relay's key, certificate, configuration and log
    FOLDER/consortium.toml   the invitation for all members, no secret; consortium-websocket.toml for websockets

A member sends its public block (`comity keys show`), the holder admits it, and the member puts the invitation beside
its site file. No private key is ever sent. The coordinator joins like any other member, and may be anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from comity.crypto.public_block import PublicBlock
from comity.errors import BadInput
from comity.files import write_atomically
from comity.relay.certificate import CERTIFICATE, KEY, create_certificate
from comity.relay.invitation import INVITATION, WEB_INVITATION, Entry, Invitation
from comity.relay.roster import ROSTER, Roster, lock_consortium
from comity.relay.server import FOLDER, reload

YEAR = timedelta(days=365)
_PORT = 4222


@dataclass(frozen=True)
class Admission:
    """The entries of admitted members by name, and whether a running relay has applied them."""

    entries: dict[str, Entry]
    relay_has_it: bool


def create_consortium(
    folder: Path, *, address: str, listen: str | None = None, websocket: int | None = None
) -> Invitation:
    """Create a consortium, or write the invitation of an existing one again. `websocket` is a second port, at which the
    relay takes websockets. A relay whose key and certificate were removed gets new ones, which members then need."""
    with lock_consortium(folder):
        host, port = _split_address(address)
        if (folder / ROSTER).exists():
            roster = Roster.load(folder)
            if roster.address != f"tls://{host}:{port}":
                raise BadInput(
                    f"{folder / ROSTER}: members connect to {roster.address}; give the same --address", key="address"
                )
            if websocket is not None and roster.websocket is None:
                raise BadInput(
                    f"{folder / ROSTER}: this relay takes no websockets, and a running relay can't enable them; leave "
                    '--websocket out, or add websocket = "0.0.0.0:443" there and restart the relay',
                    key="websocket",
                )
        else:
            here = (listen or f"0.0.0.0:{port}").rpartition(":")
            roster = Roster(f"tls://{host}:{port}", "".join(here))
            if websocket is not None:
                if str(websocket) == here[2]:
                    raise BadInput(
                        f"--websocket {websocket}: the relay listens at this port already; choose another",
                        key="websocket",
                    )
                roster = replace(roster, websocket=f"{here[0]}:{websocket}")
        own = folder / FOLDER
        if not (own / KEY).exists() and not (own / CERTIFICATE).exists():
            create_certificate(own, host)
        roster.save(folder)
        return _write_invitations(folder, roster)


def admit_members(folder: Path, blocks: Sequence[PublicBlock], *, until: datetime | None = None) -> Admission:
    """Admit members by their public blocks, for a year or until the given time. All are admitted, or none."""
    now = datetime.now(UTC)
    until = (until or now + YEAR).replace(microsecond=0)
    if until <= now:
        raise BadInput(f"--until {until:%Y-%m-%d}: this date has passed; give a later one", key="until")
    Roster.load(folder)
    with lock_consortium(folder):
        roster = Roster.load(folder)
        entries = {one.name: Entry(one.user, one.identity.fingerprint, until) for one in blocks}
        for name, entry in entries.items():
            roster = roster.admitted(name, entry)
        roster.save(folder)
        _write_invitations(folder, roster)
        return Admission(entries, reload(folder))


def revoke_member(folder: Path, name: str) -> bool:
    """Revoke a member: its key is never admitted again. Returns whether a running relay has cut it off; if none runs
    here, the next start does not admit it."""
    Roster.load(folder)
    with lock_consortium(folder):
        roster = Roster.load(folder).revoked(name)
        roster.save(folder)
        _write_invitations(folder, roster)
        return reload(folder)


def _write_invitations(folder: Path, roster: Roster) -> Invitation:
    try:
        pem = (folder / FOLDER / CERTIFICATE).read_text("ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(
            f"{folder / FOLDER / CERTIFICATE}: the relay's certificate can't be read ({error}); restore it from a copy",
            code="certificate",
        ) from error
    invitation = Invitation(roster.address, pem, roster.entries())
    write_atomically(folder / INVITATION, invitation.to_toml())
    if roster.web_address is not None:
        write_atomically(folder / WEB_INVITATION, replace(invitation, address=roster.web_address).to_toml())
    return invitation


def _split_address(address: str) -> tuple[str, int]:
    host, colon, port = address.removeprefix("tls://").rpartition(":")
    if not colon:
        host, port = port, str(_PORT)
    if not host or not port.isascii() or not port.isdecimal() or not 0 < int(port) < 1 << 16 or "/" in host:
        raise BadInput(f"--address {address!r}: expected HOST or HOST:PORT, as members reach it", key="address")
    return host.strip("[]"), int(port)
