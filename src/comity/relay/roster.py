"""The members of a consortium, in one file at the relay: each member's name, key, expiry and revoked keys.

The file holds no secret. The relay's configuration follows from it and from the time: a member whose certificate has
expired is no longer admitted, because an open connection outlives the certificate that opened it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

from comity.errors import BadInput, Refused, Stopped
from comity.federation.declare.consortium import fold
from comity.files import locked, make_folder, write_atomically
from comity.relay.certificates import IssuedCertificate, relay_user
from comity.relay.wire import COORDINATOR, require_member_name, require_party_name
from comity.untrusted.toml import read_tables

ROSTER = "roster.toml"
LOCK_SECONDS = 30.0
"""How long to wait for another process's change. A reload that fails takes less."""


@contextmanager
def lock_consortium(folder: Path) -> Iterator[None]:
    """Allow one change at a time across processes: no change is lost, and each reload applies the caller's own."""
    make_folder(folder)
    path = folder / ".changing"

    def blocked() -> Stopped:
        return Stopped(
            f"{path}: another process is changing this consortium and did not finish within {LOCK_SECONDS:.0f} s; stop "
            "it and try again",
            code="changing",
        )

    with locked(path, seconds=LOCK_SECONDS, blocked=blocked):
        yield


@dataclass(frozen=True)
class Member:
    """`key` is the fingerprint of the member's key, None while it is only invited. `out` are its revoked keys."""

    key: str | None = None
    until: datetime | None = None
    out: tuple[str, ...] = ()

    def state(self, now: datetime) -> str:
        if self.key is None or self.until is None:
            return "revoked" if self.out else "invited"
        return "admitted" if now < self.until else "expired"


@dataclass(frozen=True)
class Roster:
    """Members connect to `address`. The relay listens at `listen`, and for websockets at `websocket`."""

    address: str
    listen: str
    members: Mapping[str, Member] = field(default_factory=lambda: MappingProxyType({}))
    websocket: str | None = None

    @property
    def web_address(self) -> str | None:
        """The address for members behind a firewall that lets only websockets out; None if the relay takes none."""
        if self.websocket is None:
            return None
        return f"wss://{self.address.removeprefix('tls://').rpartition(':')[0]}:{self.websocket.rpartition(':')[2]}"

    @property
    def parties(self) -> tuple[str, ...]:
        return tuple(name for name in self.members if name != COORDINATOR)

    def users(self, now: datetime) -> dict[str, str]:
        """The members that the relay admits at this time, with the user of each."""
        return {
            name: relay_user(name, member.key)
            for name, member in self.members.items()
            if member.key is not None and member.state(now) == "admitted"
        }

    def invited(self, name: str) -> Roster:
        """A roster with one more member, invited and not yet admitted."""
        require_member_name(name) if name == COORDINATOR else require_party_name(name)
        same = next((known for known in self.members if fold(known) == fold(name)), None)
        if same is not None:
            raise BadInput(f"{ROSTER}: a member {same!r} exists already; choose another name", code="name", key=name)
        return self._with(name, Member())

    def require(self, name: str, key: str) -> None:
        """Refuse a member that is not invited, a revoked key, and the key of another member."""
        member = self._member(name)
        if key in member.out:
            raise Refused(
                f"the key {key} of {name} was revoked; have {name} make a new key and a new request", code="revoked"
            )
        other = next((n for n, m in self.members.items() if n != name and key in (m.key, *m.out)), None)
        if other is not None:
            raise Refused(f"the key {key} belongs to {other}; have {name} make its own", code="keys")

    def admitted(self, name: str, issued: IssuedCertificate) -> Roster:
        """A roster with this key for a member; the member's earlier key is revoked."""
        self.require(name, issued.key)
        member = self._member(name)
        earlier = () if member.key in (None, issued.key) else (member.key,)
        return self._with(name, Member(issued.key, issued.until, (*member.out, *filter(None, earlier))))

    def revoked(self, name: str) -> Roster:
        """A roster that never admits this member's current key again."""
        member = self._member(name)
        if member.key is None:
            raise BadInput(f"{ROSTER}: {name} is not admitted, so there is nothing to revoke", code="name", key=name)
        return self._with(name, Member(out=(*member.out, member.key)))

    def _member(self, name: str) -> Member:
        if name not in self.members:
            raise BadInput(
                f"{ROSTER}: {name!r} is not invited; members: {', '.join(self.members) or 'none'}. "
                "Invite it first: comity consortium init --party",
                code="name",
                key="party",
            )
        return self.members[name]

    def _with(self, name: str, member: Member) -> Roster:
        return replace(self, members=MappingProxyType({**self.members, name: member}))

    def save(self, folder: Path) -> None:
        lines = [f"address = {json.dumps(self.address)}", f"listen = {json.dumps(self.listen)}"]
        if self.websocket is not None:
            lines.append(f"websocket = {json.dumps(self.websocket)}")
        for name, member in self.members.items():
            lines += ["", f"[members.{name}]"]
            if member.key is not None and member.until is not None:
                lines += [f'key = "{member.key}"', f"until = {member.until.astimezone(UTC).isoformat()}"]
            if member.out:
                lines.append(f"out = {json.dumps(list(member.out))}")
        write_atomically(folder / ROSTER, "\n".join(lines) + "\n")

    @classmethod
    def load(cls, folder: Path) -> Roster:
        path = folder / ROSTER
        try:
            table = read_tables(path.read_text("utf-8"))
            members = {require_member_name(name): _member(one) for name, one in table.get("members", {}).items()}
            websocket = table.get("websocket")
            return cls(
                _text(table["address"]),
                _text(table["listen"]),
                MappingProxyType(members),
                None if websocket is None else _text(websocket),
            )
        except FileNotFoundError:
            raise BadInput(
                f"{path}: there is no consortium here; make one: comity consortium init", code="roster"
            ) from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadInput(
                f"{path}: not a roster of Comity ({error}); restore it from a copy", code="roster"
            ) from error


def _member(table: Mapping[str, object]) -> Member:
    key, until, out = table.get("key"), table.get("until"), table.get("out", [])
    if unknown := set(table) - {"key", "until", "out"}:
        raise ValueError(f"unknown key {sorted(unknown)[0]}")
    if (key is None) != (until is None) or not isinstance(out, list):
        raise ValueError("a member has both key and until, or neither; out is a list")
    if until is not None and (not isinstance(until, datetime) or until.tzinfo is None):
        raise ValueError("until must be a time with its UTC offset")
    return Member(None if key is None else _text(key), until, tuple(map(_text, out)))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected text, found {value!r}")
    return value
