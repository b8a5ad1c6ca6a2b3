"""Create a consortium and manage its members; join one as a member.

    FOLDER/authority/       the authority's key and certificate; may be kept elsewhere (`authority`)
    FOLDER/roster.toml      the members
    FOLDER/relay/           the relay's key, certificate, configuration and log
    FOLDER/invitations/     one for each member, no secret: the relay's address and the authority to trust
    FOLDER/certificates/    one for each admitted member, to send back

The operator sends an invitation, the member sends back a signing request, the operator returns a certificate: no
private key is ever sent. The coordinator joins like any other member, and may be anywhere.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from comity.errors import BadInput
from comity.files import write_atomically
from comity.relay.address import RelayAddress
from comity.relay.certificates import (
    AUTHORITY,
    CERTIFICATE,
    REQUEST,
    YEAR,
    Authority,
    IssuedCertificate,
    authority_fingerprint,
    create_request,
    install_certificate,
    request_fingerprint,
)
from comity.relay.roster import ROSTER, Roster, lock_consortium
from comity.relay.server import FOLDER, reload
from comity.relay.wire import COORDINATOR, require_member_name
from comity.untrusted.toml import read_tables

MEMBERSHIP = "membership.toml"
_PORT = 4222


@dataclass(frozen=True)
class Invitation:
    """What a member needs: its name, the relay's address, and the authority that certifies the relay. `web_address` is
    for a member whose firewall lets only websockets out; empty if the relay takes none."""

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
            table = read_tables(path.read_text("utf-8"))
            found = cls(**table)
            if not all(isinstance(value, str) for value in table.values()):
                raise ValueError("expected texts")
        except (OSError, ValueError, TypeError) as error:
            raise BadInput(
                f"{path}: not an invitation to a consortium ({error}); ask its operator for a new one",
                code="invitation",
            ) from None
        require_member_name(found.member)
        authority_fingerprint(found.authority)
        return found


@dataclass(frozen=True)
class JoinResult:
    """The request to send, with its key's fingerprint; once a certificate is installed, `until` is its expiry."""

    relay: RelayAddress
    request: Path
    key: str
    until: datetime | None


def create_consortium(
    folder: Path,
    *,
    address: str,
    listen: str | None = None,
    websocket: int | None = None,
    parties: Sequence[str] = (),
) -> list[Path]:
    """Create a consortium, or invite further parties to an existing one. Returns the invitations written. `websocket`
    is a second port, at which the relay takes websockets."""
    with lock_consortium(folder):
        return _create(folder, address, listen, websocket, parties)


def _create(
    folder: Path, address: str, listen: str | None, websocket: int | None, parties: Sequence[str]
) -> list[Path]:
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
    # Check all names before writing anything.
    for name in invited:
        roster = roster.invited(name)
    if not (folder / ROSTER).exists():
        authority, own = Authority.create(folder / "authority"), folder / FOLDER
        write_atomically(own / AUTHORITY, authority.pem)
        request = create_request(own, FOLDER)
        write_atomically(own / CERTIFICATE, authority.sign_relay(request, [host]).pem)
    roster.save(folder)
    pem = (folder / FOLDER / AUTHORITY).read_text("ascii")
    written = []
    for name in invited:
        written.append(folder / "invitations" / f"{name}.toml")
        write_atomically(written[-1], Invitation(name, roster.address, pem, roster.web_address or "").to_toml())
    return written


def join_consortium(
    invitation: Path, folder: Path, certificate: Path | None = None, *, websocket: bool = False
) -> JoinResult:
    """A member's side: make its key and signing request in `folder`, or install the certificate that came back."""
    asked = Invitation.load(invitation)
    if websocket and not asked.web_address:
        raise BadInput(
            f"{invitation}: this relay takes no websockets; use {asked.address}, or ask its operator to enable them",
            key="websocket",
        )
    address = asked.web_address if websocket else asked.address
    relay = RelayAddress(address, folder / CERTIFICATE)
    known = folder / AUTHORITY
    if known.exists() and known.read_text("ascii") != asked.authority:
        raise BadInput(f"{known}: this folder belongs to another consortium; choose another", code="authority")
    write_atomically(known, asked.authority)
    write_atomically(folder / MEMBERSHIP, f"member = {json.dumps(asked.member)}\naddress = {json.dumps(address)}\n")
    request = create_request(folder, asked.member)
    until = None if certificate is None else install_certificate(folder, asked.member, _text(certificate))
    return JoinResult(relay, folder / REQUEST, request_fingerprint(request), until)


def load_membership(folder: Path) -> tuple[str, RelayAddress]:
    """The member's name and the relay's address, from a folder that `join_consortium` wrote."""
    path = folder / MEMBERSHIP
    try:
        table = read_tables(path.read_text("utf-8"))
        return require_member_name(table["member"]), RelayAddress(str(table["address"]), folder / CERTIFICATE)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput(
            f"{path}: no membership here ({error}); run: comity consortium join", code="membership"
        ) from None


def admit_member(
    folder: Path, request: Path, name: str, *, authority: Path | None = None, validity: timedelta = YEAR
) -> tuple[IssuedCertificate, Path, bool]:
    """Admit a member. Returns its certificate, the file it was written to, and whether a running relay applied it."""
    text = _text(request)
    Roster.load(folder).require(name, request_fingerprint(text))
    with lock_consortium(folder):
        issued = Authority.load(authority or folder / "authority").sign_member(text, name, validity=validity)
        Roster.load(folder).admitted(name, issued).save(folder)
        path = folder / "certificates" / f"{name}.pem"
        write_atomically(path, issued.pem)
        return issued, path, reload(folder)


def renew_relay_certificate(
    folder: Path, *, authority: Path | None = None, validity: timedelta = YEAR
) -> tuple[IssuedCertificate, bool]:
    """Sign a new certificate for the relay's key, or for a new key if the old one was removed. Returns it, and whether
    a running relay applied it. Members trust the authority, so nothing changes for them."""
    host, _ = _split_address(Roster.load(folder).address)
    with lock_consortium(folder):
        own = folder / FOLDER
        issued = Authority.load(authority or folder / "authority").sign_relay(
            create_request(own, FOLDER), [host], validity=validity
        )
        write_atomically(own / CERTIFICATE, issued.pem)
        return issued, reload(folder)


def revoke_member(folder: Path, name: str) -> bool:
    """Revoke a member: its key is never admitted again. Returns whether a running relay has cut it off; if none runs
    here, the next start does not admit it."""
    Roster.load(folder)
    with lock_consortium(folder):
        Roster.load(folder).revoked(name).save(folder)
        return reload(folder)


def _split_address(address: str) -> tuple[str, int]:
    host, colon, port = address.removeprefix("tls://").rpartition(":")
    if not colon:
        host, port = port, str(_PORT)
    if not host or not port.isascii() or not port.isdecimal() or not 0 < int(port) < 1 << 16 or "/" in host:
        raise BadInput(f"--address {address!r}: expected HOST or HOST:PORT, as members reach it", key="address")
    return host.strip("[]"), int(port)


def _text(path: Path) -> str:
    try:
        return path.read_text("ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: can't be read ({error})", code="request") from error
