"""Reading a reply: the coordinator takes declared values from it, or a reason to continue without the party.

Whatever a party sends, reading it raises nothing but `Malformed`, and nothing of a reply is used before all of it is
checked: the names, forms and bounds of its values, the receivers, heads and boxes of its letters, and its signature on
the head of its ledger.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from comity.crypto.sealing import Identity
from comity.errors import Malformed, Refused, SiteLost, Stopped
from comity.federation.agreement import Agreement
from comity.federation.declare.bounds import OpenedValue
from comity.federation.declare.consortium import COORDINATOR
from comity.federation.declare.plausibility import require_plausible
from comity.federation.declare.protection import Entrusted, Noised, Summed
from comity.federation.declare.release import Release
from comity.federation.messages import heads
from comity.federation.messages.ask import StepPath
from comity.federation.messages.codec import decode, encode
from comity.federation.messages.letters import Head, Letter, is_split_letter, open_values
from comity.federation.messages.wire_format import OTHER_RELEASE, SAME_RELEASE
from comity.federation.part import StepSpec
from comity.federation.sum.coordinator import check_masked

_MAX_WORD = 48
_MAX_LISTED = 5
_SAID_BY_OTHER_RELEASES = {
    OTHER_RELEASE: "its site runs another release of Comity",
    "no-step": "its site does not know this step",
    "form": "its site expects a message of another form",
}


@dataclass(frozen=True)
class Refusal:
    """A party refused, or stopped. `code` and `key` came over the wire and are made safe for a terminal."""

    code: str
    key: str = ""

    @property
    def text(self) -> str:
        if self.code == "stopped":
            return "stopped; its own log says why"
        said = f"refused: {self.code}" + (f" ({self.key})" if self.key else "")
        if self.code in _SAID_BY_OTHER_RELEASES:
            return f"{said}; {_SAID_BY_OTHER_RELEASES[self.code]}: {SAME_RELEASE}"
        return said


class PartyValues(dict[str, Any]):
    """The values that one party gave. A missing one raises Malformed, with the party's name."""

    def __init__(self, party: str, path: str, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        self._missing = f"{party} gave no {{}} in {path}"

    def __missing__(self, name: str) -> Any:
        raise Malformed(self._missing.format(name), code="form", key=name)


@dataclass(frozen=True)
class Reply:
    values: PartyValues
    mail: list[Letter]
    boxes: Mapping[bytes, bytes]
    """By SHA-256."""
    head: heads.Head
    stored: bytes
    """The reply as it is journalled: with digests in place of boxes."""


@dataclass(frozen=True)
class Reader:
    """Reads the replies to one ask. `keys` is the coordinator's key of the run."""

    agreement: Agreement
    run: str
    path: StepPath
    spec: StepSpec
    dims: Mapping[str, int]
    keys: Identity

    def read(self, party: str, raw: bytes) -> Reply | Refusal:
        match decode(raw):
            case {"refused": str(code), "key": str(key), **rest} if not rest:
                return Refusal(plain(code), plain(key))
            case {"stopped": True, "head": head, **rest} if not rest:
                self._check_head(party, head)
                return Refusal("stopped")
            case {"ok": dict(values), "mail": list(mail), "head": head, **rest} if set(rest) <= {"boxes"}:
                found = rest.get("boxes", [])
            case _:
                raise self._wrong("it has no valid form")
        self._check_head(party, head)
        if type(found) is not list or not all(type(box) is bytes for box in found):
            raise self._wrong("its boxes are not bytes")
        digests = [hashlib.sha256(box).digest() for box in found]
        self._check_mail(party, mail, {*digests})
        stored = encode({"ok": values, "mail": mail, "head": head, "boxes": digests}) if found else raw
        return Reply(self._values(party, values), mail, dict(zip(digests, found)), head, stored)

    def read_stored(self, party: str, raw: bytes) -> tuple[PartyValues, list[Letter]]:
        """Read a reply that was accepted before, from the journal."""
        reply = decode(raw)
        return self._values(party, reply["ok"]), reply["mail"]

    def _values(self, party: str, values: dict[str, Any]) -> PartyValues:
        agreement, spec = self.agreement, self.spec
        declared = agreement.declared(self.path.mount)
        given = set(values)
        if spec.sends is not None:
            if spec.sends not in given:
                raise self._wrong(f"it lacks {spec.sends}")
            given.remove(spec.sends)
        if not spec.is_given(given):
            raise self._wrong(f"it gives {list(spec.gives)}, found {sorted(map(plain, given))}")
        heads_of = self._heads(party)
        opened = open_values(values, declared, self.keys, heads_of)
        for key, value in opened.items():
            if key == spec.sends and isinstance(agreement.declaration[key].protection, Summed):
                over = agreement.sum_group(f"{key}/{self.path.label}").consortium
                check_masked(party, value, agreement.declaration[key], over)
                continue
            declared[key].check(value, party, COORDINATOR, agreement.consortium, self.dims)
            if key == spec.sends:
                self._check_own(party, agreement.declaration[key], value)
        return PartyValues(party, str(self.path), opened)

    def _check_own(self, party: str, release: Release, units: Any) -> None:
        """A contribution that the coordinator sees by itself lies within its bound, give or take its noise. A share has
        no bound."""
        if isinstance(release.protection, Noised | Entrusted) and not isinstance(release.bound, OpenedValue | None):
            consortium = self.agreement.consortium
            value = np.asarray(units * release.spacing(consortium), np.float64)
            require_plausible(release, consortium, value, 1, sender=party)

    def _heads(self, party: str) -> Any:
        study, run, path = self.agreement.study, self.run, str(self.path)
        return lambda name: Head(study, run, path, party, COORDINATOR, name)

    def _check_mail(self, party: str, mail: list[Any], boxes: set[bytes]) -> None:
        used, written = set(), set()
        agreement, consortium = self.agreement, self.agreement.consortium
        for letter in mail:
            if not is_split_letter(letter):
                raise self._wrong("its mail holds something that is not a letter")
            head = Head.of(letter)
            if (head.study, head.run, head.path, head.sender) != (agreement.study, self.run, str(self.path), party):
                raise self._wrong("it has a letter under another head")
            if head.to != letter["to"] or head.to == party or not consortium.knows(head.to):
                raise self._wrong("it has a letter to no other participant")
            release = agreement.letter(head.path, head.name)
            if not consortium.includes(release.source, party) or not consortium.includes(release.to, head.to):
                raise self._wrong("it has a letter that is not declared")
            if (head.to, head.name) in written:
                raise self._wrong("it has two letters under one head")
            written.add((head.to, head.name))
            if "bulk" in letter:
                used.add(letter["bulk"])
        if used != boxes:
            raise self._wrong("it has a letter without its box, or a box without a letter")

    def _check_head(self, party: str, head: Any) -> None:
        if not heads.is_head(head):
            raise self._wrong("it has no head of a ledger")
        heads.verify(self.agreement.consortium.roster[party], party, head)

    def _wrong(self, why: str) -> Malformed:
        return Malformed(f"the reply to {self.path} is not what was declared: {why}", code="form")


def too_few(
    path: StepPath, got: int, need: int, faults: Mapping[str, str], said_no: Mapping[str, Refusal]
) -> Refused | Stopped:
    """The error of an ask with too few replies: which parties are missing, and why."""
    if said_no:
        each = [f"{party} {one.text.replace('refused', f'refused {path}', 1)}" for party, one in said_no.items()]
        first, refusal = next(iter(said_no.items()))
        more = f" and {len(each) - _MAX_LISTED} more" if len(each) > _MAX_LISTED else ""
        return Refused("; ".join(each[:_MAX_LISTED]) + more, code=refusal.code, key=refusal.key, party=first)
    reasons: dict[str, list[str]] = {}
    for party, why in sorted(faults.items()):
        reasons.setdefault(why, []).append(party)
    listed = "; ".join(f"{_few(parties)} ({why})" for why, parties in reasons.items())
    kind = Stopped if faults and all(why.startswith("stopped") for why in reasons) else SiteLost
    return kind(
        f"{path}: {got} of the {need} needed answered, without {listed or 'those lost before'}. Nothing is lost: run "
        "again with the same run id to resume",
        party=min(faults, default=""),
    )


def _few(names: list[str]) -> str:
    return ", ".join(names[:_MAX_LISTED]) + (
        f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    )


def plain(text: str) -> str:
    """Make a word from the wire safe for a terminal: printable ASCII, not long."""
    shown = "".join(letter if letter.isascii() and letter.isprintable() else "?" for letter in text[: _MAX_WORD + 1])
    return shown if len(text) <= _MAX_WORD else shown[:_MAX_WORD] + "..."
