"""The members of a consortium, in one file at the relay: each member's name, keys, end date and revoked keys.

The file holds no secret. The relay's configuration follows from it and from the time: a member whose end date has
passed is no longer admitted, and its open connections are cut.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from types import MappingProxyType

from comity.errors import BadInput, Refused, Stopped
from comity.federation.declare.consortium import fold
from comity.files import locked, make_folder, write_atomically
from comity.relay.invitation import Entry, read_entry, read_text
from comity.relay.wire import COORDINATOR, require_member_name, require_party_name
from comity.untrusted.toml import read_tables

ROSTER = "roster.toml"
LOCK_SECONDS = 30.0
"""How long to wait for another process's change. A reload that fails takes less."""
_FORMAT = 2


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
    """`entry` is None once the member is revoked. `out` are its earlier keys, which are never admitted again."""

    entry: Entry | None = None
    out: tuple[str, ...] = ()

    def state(self, now: datetime) -> str:
        if self.entry is None:
            return "revoked"
        return "admitted" if now < self.entry.until else "expired"


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

    def entries(self) -> dict[str, Entry]:
        """The entries of all members that are not revoked."""
        return {name: member.entry for name, member in self.members.items() if member.entry is not None}

    def users(self, now: datetime) -> dict[str, str]:
        """The members that the relay admits at this time, with the user of each."""
        return {
            name: member.entry.key
            for name, member in self.members.items()
            if member.entry is not None and member.state(now) == "admitted"
        }

    def require(self, name: str, key: str) -> None:
        """Refuse a name that looks like another member's, a revoked key, the key of another member, and a second key of
        a member. A member writes the name in its block itself, so it could otherwise take another member's place."""
        require_member_name(name) if name == COORDINATOR else require_party_name(name)
        same = next((known for known in self.members if fold(known) == fold(name) and known != name), None)
        if same is not None:
            raise BadInput(f"{ROSTER}: a member {same!r} exists already; choose another name", code="name", key=name)
        if name in self.members and key in self.members[name].out:
            raise Refused(
                f"the key {key} of {name} was revoked; have {name} make new keys: comity keys new", code="revoked"
            )
        known = self.entries().get(name)
        if known is not None and known.key != key:
            raise Refused(
                f"{name} is admitted with other keys (fingerprint {known.fingerprint}); if {name} itself has new ones, "
                f"revoke the old ones first: comity consortium revoke FOLDER {name}",
                code="keys",
            )
        for other, member in self.members.items():
            if other != name and key in (*((member.entry.key,) if member.entry else ()), *member.out):
                raise Refused(f"the key {key} belongs to {other}; have {name} make its own", code="keys")

    def admitted(self, name: str, entry: Entry) -> Roster:
        """A roster with this entry for a member."""
        self.require(name, entry.key)
        return self._with(name, Member(entry, self.members.get(name, Member()).out))

    def revoked(self, name: str) -> Roster:
        """A roster that never admits this member's current key again."""
        member = self.members.get(name, Member())
        if member.entry is None:
            listed = ", ".join(self.entries()) or "none"
            raise BadInput(
                f"{ROSTER}: {name} is not admitted, so there is nothing to revoke; members: {listed}",
                code="name",
                key=name,
            )
        return self._with(name, Member(None, (*member.out, member.entry.key)))

    def _with(self, name: str, member: Member) -> Roster:
        return replace(self, members=MappingProxyType({**self.members, name: member}))

    def save(self, folder: Path) -> None:
        lines = [f"format = {_FORMAT}", f"address = {json.dumps(self.address)}", f"listen = {json.dumps(self.listen)}"]
        if self.websocket is not None:
            lines.append(f"websocket = {json.dumps(self.websocket)}")
        for name, member in self.members.items():
            lines += ["", f"[members.{name}]"]
            if member.entry is not None:
                lines += member.entry.to_lines()
            if member.out:
                lines.append(f"out = {json.dumps(list(member.out))}")
        write_atomically(folder / ROSTER, "\n".join(lines) + "\n")

    @classmethod
    def load(cls, folder: Path) -> Roster:
        path = folder / ROSTER
        try:
            table = read_tables(path.read_text("utf-8"))
            if "format" not in table and "listen" in table:
                raise BadInput(
                    f"{path}: this consortium is of an earlier version, whose members had certificates; make it anew: "
                    "comity consortium init NEW_FOLDER (docs/deploy.md, Coming from certificates)",
                    code="roster",
                )
            if table["format"] != _FORMAT:
                raise ValueError(f"format {table['format']!r} is not {_FORMAT}")
            members = {require_member_name(name): _member(one) for name, one in table.get("members", {}).items()}
            websocket = table.get("websocket")
            return cls(
                read_text(table["address"]),
                read_text(table["listen"]),
                MappingProxyType(members),
                None if websocket is None else read_text(websocket),
            )
        except BadInput:
            raise
        except FileNotFoundError:
            raise BadInput(
                f"{path}: there is no consortium here; make one: comity consortium init", code="roster"
            ) from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadInput(
                f"{path}: not a roster of Comity ({error}); restore it from a copy", code="roster"
            ) from error


def _member(table: Mapping[str, object]) -> Member:
    out = table.get("out", [])
    if not isinstance(out, list):
        raise ValueError("out is a list of keys")
    revoked = tuple(map(read_text, out))
    if set(table) == {"out"}:
        return Member(None, revoked)
    return Member(read_entry(table, more=frozenset({"out"})), revoked)
