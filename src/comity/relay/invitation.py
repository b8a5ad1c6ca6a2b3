"""The invitation to a consortium: one file, the same for all members, which each puts beside its site file.

    address = "tls://relay.example.org:4222"
    certificate = "-----BEGIN CERTIFICATE----- ..."      the relay's, pinned: no other server is the relay

    [members.north]                                      who was admitted when the file was written
    key = "UABC..."
    fingerprint = "0a1b 2c3d ..."
    until = 2027-11-18T00:00:00+00:00

It holds no secret. The relay decides whom it admits. The list lets a site notice, before it connects, that it has the
key file of another member, and when its entry ends.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from comity.crypto.relay_key import decode_user
from comity.errors import BadInput
from comity.relay.certificate import certificate_fingerprint, read_certificate
from comity.relay.wire import require_member_name
from comity.untrusted.toml import read_tables

INVITATION = "consortium.toml"
WEB_INVITATION = "consortium-websocket.toml"


@dataclass(frozen=True)
class Entry:
    """A member as the relay admits it: its user, the fingerprint of the keys that studies pin, and when it ends."""

    key: str
    fingerprint: str
    until: datetime

    def to_lines(self) -> list[str]:
        until = self.until.astimezone(UTC).isoformat()
        return [f"key = {json.dumps(self.key)}", f"fingerprint = {json.dumps(self.fingerprint)}", f"until = {until}"]


@dataclass(frozen=True)
class Invitation:
    """What a member needs to reach the relay, and no other server."""

    address: str
    certificate: str
    members: Mapping[str, Entry] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def fingerprint(self) -> str:
        return certificate_fingerprint(read_certificate(self.certificate, "the invitation"))

    @property
    def valid_until(self) -> datetime:
        """When the relay's certificate expires."""
        return read_certificate(self.certificate, "the invitation").not_valid_after_utc

    @property
    def valid_from(self) -> datetime:
        """When the relay's certificate begins."""
        return read_certificate(self.certificate, "the invitation").not_valid_before_utc

    def name_of(self, user: str) -> str | None:
        """The member with this key; None if the list has none."""
        return next((name for name, entry in self.members.items() if entry.key == user), None)

    def to_toml(self) -> str:
        pem = self.certificate.strip()
        lines = [f"address = {json.dumps(self.address)}", f'certificate = """\n{pem}\n"""']
        for name, entry in self.members.items():
            lines += ["", f"[members.{name}]", *entry.to_lines()]
        return "\n".join(lines) + "\n"

    @classmethod
    def load(cls, path: Path) -> Invitation:
        try:
            return _parse(path.read_text("utf-8"))
        except FileNotFoundError:
            raise BadInput(
                f"{path}: there is no invitation here; ask the consortium's holder for {INVITATION} and put it there",
                code="invitation",
                key="invitation",
            ) from None
        except _Earlier:
            raise BadInput(
                f"{path}: this invitation is of an earlier version, whose members had certificates; ask the "
                "consortium's holder for a new one (docs/deploy.md, Coming from certificates)",
                code="invitation",
                key="invitation",
            ) from None
        except BadInput as error:
            raise BadInput(f"{path}: {error}", code=error.code, key=error.key) from error
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise _not_an_invitation(path, error) from None


class _Earlier(Exception):
    """The invitation is of an earlier version."""


# A hundred sites of one process read one invitation several times each, and it lists all members.
@lru_cache(maxsize=8)
def _parse(text: str) -> Invitation:
    table = read_tables(text)
    if "authority" in table:
        raise _Earlier
    if unknown := set(table) - {"address", "certificate", "members"}:
        raise ValueError(f"unknown key {sorted(unknown)[0]}")
    members = {require_member_name(name): read_entry(one) for name, one in table.get("members", {}).items()}
    found = Invitation(read_text(table["address"]), read_text(table["certificate"]), MappingProxyType(members))
    read_certificate(found.certificate, "certificate")
    return found


def _not_an_invitation(path: Path, error: Exception) -> BadInput:
    return BadInput(
        f"{path}: not an invitation to a consortium ({error}); ask its holder for a new one",
        code="invitation",
        key="invitation",
    )


def read_entry(table: Mapping[str, Any], *, more: frozenset[str] = frozenset()) -> Entry:
    """An entry of an invitation or a roster; ValueError if it is none. `more` are further keys that it may have."""
    if unknown := set(table) - {"key", "fingerprint", "until"} - more:
        raise ValueError(f"unknown key {sorted(unknown)[0]}")
    key, until = read_text(table["key"]), table["until"]
    decode_user(key)
    if not isinstance(until, datetime) or until.tzinfo is None:
        raise ValueError("until must be a time with its UTC offset")
    return Entry(key, read_text(table["fingerprint"]), until)


def read_text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected text, found {value!r}")
    return value
