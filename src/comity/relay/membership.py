"""What the holder of a consortium does, and what a member does to join it.

    FOLDER/authority/       the authority's key and certificate; may be kept elsewhere (`authority`)
    FOLDER/roster.toml      who belongs to it
    FOLDER/relay/           the relay's own key, certificate, configuration and log
    FOLDER/invitations/     one for each member, no secret: whom to dial and whom to trust
    FOLDER/certificates/    one for each admitted member, to send back

An invitation goes to a member, a request comes back, a certificate goes out: no private key is ever sent. The
coordinator joins as any other member does, and may be anywhere.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from comity.artefacts.writing import write_text
from comity.errors import BadInput
from comity.relay.address import Relay
from comity.relay.certificates import (
    AUTHORITY,
    CERTIFICATE,
    REQUEST,
    YEAR,
    Authority,
    Issued,
    authority_fingerprint,
    fingerprint,
    install,
    new_request,
)
from comity.relay.roster import ROSTER, Roster, changing
from comity.relay.server import FOLDER, reload
from comity.relay.wire import COORDINATOR, checked_name
from comity.untrusted.toml import tables_of

MEMBERSHIP = "membership.toml"
_PORT = 4222


@dataclass(frozen=True)
class Invitation:
    """What a member must know: its name, whom to dial, and the authority that vouches for the relay. `web_address` is
    for a member whose firewall lets nothing else out; empty where the relay has no websockets."""

    member: str
    address: str
    authority: str
    web_address: str = ""

    @property
    def fingerprint(self) -> str:
        return authority_fingerprint(self.authority)

    def to_toml(self) -> str:
        return "".join(f"{key} = {json.dumps(value)}\n" for key, value in vars(self).items())

    @classmethod
    def load(cls, path: Path) -> Invitation:
        try:
            table = tables_of(path.read_text("utf-8"))
            found = cls(**table)
            if not all(isinstance(value, str) for value in table.values()):
                raise ValueError("expected texts")
        except (OSError, ValueError, TypeError) as error:
            raise BadInput(
                f"{path}: not an invitation to a consortium ({error}); ask for it again", code="invitation"
            ) from None
        checked_name(found.member)
        authority_fingerprint(found.authority)
        return found


@dataclass(frozen=True)
class Joined:
    """What came of joining: what to send, or, once there is a certificate, until when it holds."""

    relay: Relay
    request: Path
    key: str
    until: datetime | None


def init(
    folder: Path,
    *,
    address: str,
    listen: str | None = None,
    websocket: int | None = None,
    parties: Sequence[str] = (),
) -> list[Path]:
    """A new consortium, or further parties of one that is there; the invitations that were written. `websocket` is a
    second port, at which the relay takes websockets."""
    with changing(folder):
        return _init(folder, address, listen, websocket, parties)


def _init(folder: Path, address: str, listen: str | None, websocket: int | None, parties: Sequence[str]) -> list[Path]:
    host, port = _split(address)
    if (folder / ROSTER).exists():
        roster = Roster.load(folder)
        if roster.address != f"tls://{host}:{port}":
            raise BadInput(f"{folder / ROSTER}: members dial {roster.address}; leave --address as it is", key="address")
        if websocket is not None and roster.websocket is None:
            raise BadInput(
                f"{folder / ROSTER}: this relay takes no websockets, and one that runs can't begin to; leave "
                '--websocket out, or add websocket = "0.0.0.0:443" there and start the relay again',
                key="websocket",
            )
        invited = list(parties)
    else:
        here = (listen or f"0.0.0.0:{port}").rpartition(":")
        roster = Roster(f"tls://{host}:{port}", "".join(here))
        if websocket is not None:
            if str(websocket) == here[2]:
                raise BadInput(
                    f"--websocket {websocket}: the relay listens at this port already; choose another", key="websocket"
                )
            roster = replace(roster, websocket=f"{here[0]}:{websocket}")
        invited = [COORDINATOR, *parties]
    # All names before anything is written.
    for name in invited:
        roster = roster.invited(name)
    if not (folder / ROSTER).exists():
        authority, own = Authority.create(folder / "authority"), folder / FOLDER
        write_text(own / AUTHORITY, authority.pem)
        request = new_request(own, FOLDER)
        write_text(own / CERTIFICATE, authority.sign_relay(request, [host]).pem)
    roster.save(folder)
    pem = (folder / FOLDER / AUTHORITY).read_text("ascii")
    written = []
    for name in invited:
        written.append(folder / "invitations" / f"{name}.toml")
        write_text(written[-1], Invitation(name, roster.address, pem, roster.web_address or "").to_toml())
    return written


def join(invitation: Path, folder: Path, certificate: Path | None = None, *, websocket: bool = False) -> Joined:
    """A member's own side: makes its key and request in `folder`, or puts the certificate there that came back."""
    asked = Invitation.load(invitation)
    if websocket and not asked.web_address:
        raise BadInput(
            f"{invitation}: this relay takes no websockets; dial {asked.address}, or ask its holder for them",
            key="websocket",
        )
    address = asked.web_address if websocket else asked.address
    relay = Relay(address, folder / CERTIFICATE)
    known = folder / AUTHORITY
    if known.exists() and known.read_text("ascii") != asked.authority:
        raise BadInput(f"{known}: this folder belongs to another consortium; choose another", code="authority")
    write_text(known, asked.authority)
    write_text(folder / MEMBERSHIP, f"member = {json.dumps(asked.member)}\naddress = {json.dumps(address)}\n")
    request = new_request(folder, asked.member)
    until = None if certificate is None else install(folder, asked.member, _text(certificate))
    return Joined(relay, folder / REQUEST, fingerprint(request), until)


def membership(folder: Path) -> tuple[str, Relay]:
    """Who a folder of `join` makes its owner, and the relay it dials."""
    path = folder / MEMBERSHIP
    try:
        table = tables_of(path.read_text("utf-8"))
        return checked_name(table["member"]), Relay(str(table["address"]), folder / CERTIFICATE)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput(
            f"{path}: nobody joined here ({error}); run: comity consortium join", code="membership"
        ) from None


def add(
    folder: Path, request: Path, name: str, *, authority: Path | None = None, life: timedelta = YEAR
) -> tuple[Issued, Path, bool]:
    """Admit a member: its certificate, where it was written, and whether a running relay has taken it up."""
    text = _text(request)
    Roster.load(folder).require(name, fingerprint(text))
    with changing(folder):
        issued = Authority.load(authority or folder / "authority").sign_member(text, name, life=life)
        Roster.load(folder).admitted(name, issued).save(folder)
        path = folder / "certificates" / f"{name}.pem"
        write_text(path, issued.pem)
        return issued, path, reload(folder)


def renew(folder: Path, *, authority: Path | None = None, life: timedelta = YEAR) -> tuple[Issued, bool]:
    """Sign a new certificate for the relay's own key, or for a new one where that was removed; whether a running relay
    has taken it up. Members trust the authority, so that they notice nothing."""
    host, _ = _split(Roster.load(folder).address)
    with changing(folder):
        own = folder / FOLDER
        issued = Authority.load(authority or folder / "authority").sign_relay(
            new_request(own, FOLDER), [host], life=life
        )
        write_text(own / CERTIFICATE, issued.pem)
        return issued, reload(folder)


def revoke(folder: Path, name: str) -> bool:
    """Take a member out: its key is never admitted again. Whether a running relay has cut it off; where none runs
    here, the next one that starts does not admit it."""
    Roster.load(folder)
    with changing(folder):
        Roster.load(folder).revoked(name).save(folder)
        return reload(folder)


def _split(address: str) -> tuple[str, int]:
    host, colon, port = address.removeprefix("tls://").rpartition(":")
    if not colon:
        host, port = port, str(_PORT)
    if not host or not port.isascii() or not port.isdecimal() or not 0 < int(port) < 1 << 16 or "/" in host:
        raise BadInput(f"--address {address!r}: expected HOST or HOST:PORT, as members dial it", key="address")
    return host.strip("[]"), int(port)


def _text(path: Path) -> str:
    try:
        return path.read_text("ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: can't be read ({error})", code="request") from error
