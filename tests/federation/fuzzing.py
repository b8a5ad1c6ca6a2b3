"""Mutated messages, and what must hold of whoever reads them.

Two adversaries. Whoever carries messages flips bits, cuts and splices, and can't sign. An active coordinator, or a
party, changes what it likes in the messages of a real run and signs the result with its own key.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from io import StringIO
from typing import Any

import numpy as np

from comity.crypto.sealing import Identity
from comity.errors import ComityError
from comity.federation.coordinator.lifecycle import run
from comity.federation.coordinator.parties import Parties
from comity.federation.declare.consortium import COORDINATOR, EVERY_PARTY, Consortium
from comity.federation.declare.declaration import Declaration, Release
from comity.federation.declare.protection import Public
from comity.federation.declare.release import Blob
from comity.federation.messages.codec import decode, encode
from comity.federation.messages.signatures import SIGNATURE_BYTES, sign_reply, verify_reply
from comity.federation.owner.site import Site
from comity.federation.part import spec_of
from comity.federation.protocol import step
from comity.privacy.ledger import verify_export
from tests.support.asks import path_of, sign_ask
from tests.support.channels import LossyChannel
from tests.support.consortia import STUDY, make_consortium, make_identity
from tests.support.rounds import Rounds, set_up_run

PARTIES = 4


@dataclass(frozen=True)
class Greeted(Rounds):
    """With a step that draws nothing and never says the same twice, unless one answer per ask is the rule."""

    rounds: int = 1

    def declare(self, consortium: Consortium) -> Declaration:
        declaration = super().declare(consortium)
        fresh = Public("random, independent of all records")
        token = Release(name="token", source=EVERY_PARTY, to=COORDINATOR, protection=fresh, form=Blob(32))
        return replace(declaration, releases=(*declaration.releases, token))

    def coordinate(self, parties: Parties) -> dict[str, Any]:
        parties.ask(self.greet, need=0)
        return super().coordinate(parties)

    @step(gives=("token",))
    def greet(self, site: Site) -> dict[str, Any]:
        return {"token": site.secret()}


PROTOCOL = Greeted()


@cache
def keys_of(name: str) -> Identity:
    """Made once: a key takes as long as three messages."""
    return make_identity(name)


class Violation(AssertionError):
    """A rule was broken; the message says by which seed and message, which are enough to see it again."""


class Enough(Exception):
    """Stands for a coordinator that turns active in the middle of a run."""


def seed_of(name: str, fixed: int | None = None) -> int:
    """A fixed seed, that of COMITY_FUZZ_SEED, or a fresh one; printed, to be seen where a test fails."""
    given = os.environ.get("COMITY_FUZZ_SEED")
    seed = fixed if fixed is not None else int(given) if given else int.from_bytes(os.urandom(4), "big")
    print(f"{name}: COMITY_FUZZ_SEED={seed}")
    return seed


@contextmanager
def silent() -> Iterator[None]:
    """Without a line of the log for every message that is refused."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


# A real run to begin with.


@dataclass
class Crossed:
    """One ask of a run, and the reply to it, both signed."""

    party: str
    path: str
    ask: bytes
    reply: bytes


class Recorder(LossyChannel):
    """Keeps what crosses, and after `stop` rounds lets the coordinator turn active."""

    def __init__(self, hosts: Any, stop: int | None = None, lose: Any = ()) -> None:
        super().__init__(hosts, lose)
        self.crossed: list[Crossed] = []
        self.rounds = 0
        self.stop = stop

    def carry(self, messages: Any) -> dict[str, bytes]:
        if self.rounds == self.stop:
            raise Enough
        self.rounds += 1
        replies = super().carry(messages)
        for party, message in messages.items():
            if party in replies:
                self.crossed.append(Crossed(party, decode(message[:-SIGNATURE_BYTES])[2], message, replies[party]))
        return replies


def recorded(stop: int | None = None, noise: Any = None, lose: Any = ()) -> tuple[Any, Recorder]:
    """The sites of a run of the toy protocol with secure sums, as it goes until round `stop`, and what crossed."""
    parties, hosts = set_up_run(PROTOCOL, make_consortium(PARTIES), noise=noise, epsilon=50.0)
    channel = Recorder(hosts, stop, lose)
    parties.channel = channel
    with suppress(Enough):
        run(parties)
    return hosts, channel


# Whoever carries messages.


def carried(raw: bytes, other: bytes, chance: random.Random) -> bytes:
    """The message with bits flipped, cut, grown, or joined with a piece of another one."""
    out = bytearray(raw)
    for _ in range(chance.randint(1, 3)):
        at, kind = chance.randrange(len(out) + 1), chance.randrange(6)
        if kind == 0 and at < len(out):
            out[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            del out[at:]
        elif kind == 2:
            out[at:at] = chance.randbytes(chance.randint(1, 8))
        elif kind == 3:
            del out[at : at + chance.randint(1, 8)]
        elif kind == 4:
            out[at:] = other[chance.randrange(len(other) + 1) :]
        elif len(other) > SIGNATURE_BYTES:
            out[-SIGNATURE_BYTES:] = other[-SIGNATURE_BYTES:]
    return bytes(out)


# An active coordinator, or a party that lies.

_WORDS = ("", "ash", "birch", "cedar", "doum", "elm", "mallory", COORDINATOR, "mean/0", "slope/0", "\x1b[31m", "é" * 9)


def another(value: Any, chance: random.Random) -> Any:
    """Something else in place of a value: of its kind, of another kind, or out of its range."""
    kind = chance.randrange(4)
    if kind == 0:
        return chance.choice(
            [
                None,
                True,
                -1,
                0,
                1,
                2**100,
                0.5,
                float("nan"),
                float("inf"),
                b"",
                b"\0" * 64,
                [],
                {},
                [[]],
                {"": None},
                np.zeros(3),
                np.full(3, np.nan),
                np.zeros((0, 3)),
                np.zeros(4, "<i8"),
                np.zeros(3, "<u4"),
                chance.choice(_WORDS),
            ]
        )
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, int):
        return value + chance.choice([-1, 1, 1 << 62])
    if isinstance(value, float):
        return chance.choice([-value, value * 1e300, float("nan")])
    if isinstance(value, str):
        return chance.choice([chance.choice(_WORDS), value + "x", value[:-1], value.upper()])
    if isinstance(value, bytes):
        if not value:
            return b"x"
        out = bytearray(value)
        out[chance.randrange(len(out))] ^= 1 << chance.randrange(8)
        return bytes(out) if kind == 1 else bytes(out[:-1]) if kind == 2 else bytes(out) + b"\0"
    if isinstance(value, np.ndarray):
        if kind == 1 or not value.size:
            return value.astype(chance.choice(["<f8", "<i8", "<u8", "<u4", "|u1"]))
        if kind == 2:
            return value.reshape(-1)[: value.size - 1].copy()
        out_array = value.copy()
        out_array.reshape(-1)[chance.randrange(value.size)] += np.asarray(1).astype(value.dtype)
        return out_array
    if isinstance(value, list):
        mixed = list(value)
        chance.shuffle(mixed)
        return chance.choice([mixed, value[:-1], value + value[:1], [*value, chance.choice(_WORDS)]])
    if isinstance(value, dict):
        if not value or kind == 1:
            return {**value, chance.choice(_WORDS): chance.choice([b"", 0, None])}
        gone = chance.choice(sorted(value))
        return {key: item for key, item in value.items() if key != gone}
    return None


def changed(value: Any, chance: random.Random, depth: float = 0.75) -> Any:
    """The value with one thing in it replaced, somewhere."""
    if isinstance(value, list) and value and chance.random() < depth:
        at = chance.randrange(len(value))
        return [*value[:at], changed(value[at], chance, depth), *value[at + 1 :]]
    if isinstance(value, dict) and value and chance.random() < depth:
        at = chance.choice(sorted(value))
        return {**value, at: changed(value[at], chance, depth)}
    return another(value, chance)


def _letter(letter: Any, chance: random.Random) -> Any:
    """A letter with another head, or altered anywhere."""
    if isinstance(letter, dict) and isinstance(letter.get("head"), bytes) and chance.random() < 0.5:
        try:
            return {**letter, "head": encode(changed(decode(letter["head"]), chance))}
        except ComityError:
            return letter
    return changed(letter, chance, 1.0)


def respelled(path: str, chance: random.Random) -> str:
    """A path that means the same step, or nearly."""
    name, _, label = path.partition("[")
    label = label.rstrip("]")
    return chance.choice(
        [
            f".{path}",
            f"{name}[0{label}]",
            f"{name}[+{label}]",
            f"{name}[ {label}]",
            f"{name}[{label}]]",
            f"{name}[{label}] ",
            f"{name}[1]",
            f"{name}[-1]",
            f"{name}[mean/0]",
            f"{name}[mean/00]",
            f"sum.{path}",
            f"run.{path}",
            f"{name.rpartition('.')[2]}[{label}]",
            f"..{name}[{label}]",
            name,
            f"{name}[\u0660]",
        ]
    )


def asked_otherwise(ask: bytes, others: list[Crossed], chance: random.Random, current: bytes | None) -> bytes:
    """An ask of the run with something changed, decoded and written again: what an active coordinator may sign.

    `current` is the nonce that the run was begun with, which the coordinator knows.
    """
    body = ask[:-SIGNATURE_BYTES]
    kind = chance.randrange(12)
    if kind == 0:
        out = bytearray(body)
        out[chance.randrange(len(out))] ^= 1 << chance.randrange(8)
        return bytes(out)
    study, run_id, path, shared, own, mail, nonce, seen = decode(body)
    if chance.random() < 0.9:
        nonce = current or nonce
    given = decode(chance.choice(others).ask[:-SIGNATURE_BYTES])
    if kind == 1:
        path = respelled(path, chance)
    elif kind == 2:
        path = given[2]
    elif kind == 3:
        run_id = chance.choice(["run-2", "run-3", "", "r" * 300, "run-1\0", "RUN-1"])
    elif kind == 4:
        study = chance.choice(["6" * 64, "", STUDY[:-1]])
    elif kind == 5:
        shared = encode(changed(decode(shared), chance))
    elif kind == 6:
        own = encode(changed(decode(own), chance))
    elif kind == 7:
        shared, own = (own, shared) if chance.random() < 0.5 else (given[3], given[4])
    elif kind == 8:
        mail = given[5] if chance.random() < 0.5 else [*mail, *given[5]]
        chance.shuffle(mail)
    elif kind == 9:
        mail = [_letter(one, chance) if chance.random() < 0.5 else one for one in mail] or [{"to": "ash"}]
    elif kind == 10:
        seen = given[7] if chance.random() < 0.5 else changed(seen or given[7], chance, 1.0)
    # Else as it was asked of another party or in another run, with the nonce of this one.
    try:
        return encode([study, run_id, path, shared, own, mail, nonce, seen])
    except TypeError:
        return encode(changed(decode(body), chance, 0.0))


def replied_otherwise(reply: bytes, others: list[Crossed], chance: random.Random) -> bytes:
    """A reply of the run with something changed: what a party that lies may sign."""
    body = reply[:-SIGNATURE_BYTES]
    kind = chance.randrange(8)
    if kind == 0:
        out = bytearray(body)
        out[chance.randrange(len(out))] ^= 1 << chance.randrange(8)
        return bytes(out)
    if kind == 1:
        return chance.choice(others).reply[:-SIGNATURE_BYTES]
    if kind == 2:
        return encode(chance.choice([{"stopped": True}, {"refused": "\x1b[2J", "key": "k"}, {"ok": {}, "mail": []}, 7]))
    value = decode(body)
    if kind == 3 and isinstance(value, dict) and value.get("mail"):
        return encode({**value, "mail": [_letter(one, chance) for one in value["mail"]]})
    return encode(changed(value, chance))


# What must hold of a site.


@dataclass
class Watched:
    """A site, what it gave out so far, and what its file held after it."""

    host: Any
    given: dict[tuple[str, str], bytes] = field(default_factory=dict)
    steps: dict[tuple[str, str, str], bytes] = field(default_factory=dict)
    outcomes: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.held, self.written = self.durable(), self.writes()

    def writes(self) -> int:
        """How many rows were ever written, also those that were rolled back: where it stands still, nothing changed."""
        with self.host.store.ledger.reading() as connection:
            return int(connection.total_changes)

    def unchanged(self) -> bool:
        if self.writes() == self.written:
            return True
        self.written = self.writes()
        return self.durable() == self.held

    def durable(self) -> bytes:
        """A digest of everything that the site's file holds, but for the noting of a head that it lacks."""
        out = hashlib.sha256()
        with self.host.store.ledger.reading() as connection:
            owner = self.host.store.ledger.owner
            for query in (
                "select kind, run, release, loss, head from entries where owner = ? and kind != 'freeze' order by seq",
                "select run, path, digest, body from reply where owner = ? order by run, path",
                "select run, name, value from state where owner = ? order by run, name",
                "select run from ended where owner = ? order by run",
            ):
                for row in connection.execute(query, (owner,)):
                    out.update(repr(row).encode())
        return out.digest()

    def drawn(self) -> list[tuple[str, str, int]]:
        return [(e.run, e.release, e.index) for e in self.host.store.ledger.entries() if e.kind == "draw"]

    def take(self, raw: bytes, *, carried_only: bool = False, verified: bool = True) -> dict[str, Any]:
        """Ask, and check what comes back and what it did."""
        answered = self.host.answer(raw).reply
        if verified:
            verify_reply(keys_of(self.host.party).public, self.host.party, raw, answered)
        body = answered[:-SIGNATURE_BYTES]
        reply: dict[str, Any] = decode(body)
        kind = next(name for name in ("refused", "stopped", "ok") if name in reply)
        self.outcomes[kind] = self.outcomes.get(kind, 0) + 1
        if kind == "refused":
            if set(reply) != {"refused", "key"} or not (reply["refused"] + reply["key"]).isprintable():
                raise Violation(f"a refusal says more than a code and a key: {reply}")
            if len(reply["refused"]) > 40 or len(reply["key"]) > 80:
                raise Violation(f"a refusal is long: {reply}")
            if not self.unchanged():
                raise Violation(f"a refusal changed what the site holds: {reply}")
            return reply
        if carried_only:
            raise Violation(f"a message that nobody signed was answered: {reply}")
        if path_of(raw) == "run.ready[0]":
            # The one step that is answered as things stand, because it changes nothing.
            if not self.unchanged() or reply["ok"] or reply["mail"]:
                raise Violation(f"a site that was asked whether it is ready did more: {reply}")
            return reply
        if not set(reply) <= {"ok", "mail", "boxes", "stopped", "head"}:
            raise Violation(f"a reply holds more than values and mail: {set(reply)}")
        _, run_id, path, *_ = decode(raw[:-SIGNATURE_BYTES])
        if self.given.setdefault((run_id, path), body) != body:
            raise Violation(f"two different replies under {path} of {run_id}")
        name, _, label = path.partition("[")
        mount, _, leaf = name.rpartition(".")
        function = getattr(self.host.agreement.mounts[mount.strip(".")], leaf)
        step = (run_id, function.__qualname__, label.strip(" ]+"))
        if self.steps.setdefault(step, body) != body:
            raise Violation(f"one step of a run was answered twice, under another spelling: {path}")
        spec = spec_of(function)
        if spec.sends is not None and (run_id, spec.sends, int(label[:-1])) not in self.drawn():
            raise Violation(f"{path} was answered without a debit")
        self.held, self.written = self.durable(), self.writes()
        return reply

    def audit(self) -> None:
        """The file as a whole: chains, no draw twice, nothing drawn that was not reserved, no noise without a debit."""
        ledger = self.host.store.ledger
        ledger.verify()
        file = StringIO()
        ledger.export(file)
        verify_export(json.loads(file.getvalue()))
        entries, drawn = ledger.entries(), self.drawn()
        if len(set(drawn)) != len(drawn):
            raise Violation(f"a draw was debited twice: {drawn}")
        promised = {(e.run, e.release, e.index) for e in entries if e.kind == "reserve"}
        if not set(drawn) <= promised:
            raise Violation("something was drawn that was not reserved")
        with ledger.reading() as connection:
            kept = connection.execute(
                "select run, name from state where owner = ? and name like 'out:%'", (ledger.owner,)
            )
            noisy = {(run_id, name) for run_id, name in kept}
        for run_id, name in noisy:
            release, _, index = name.removeprefix("out:").partition("/")
            if (run_id, release, int(index)) not in drawn:
                raise Violation(f"{name} holds noise that nobody paid for")


def both_shares(sites: dict[str, Watched], threshold: int) -> None:
    """Over all that these sites gave out: of no party and sum enough shares of the self mask and of the will."""
    counted: dict[tuple[str, str, str], dict[str, int]] = {}
    for site in sites.values():
        for (run_id, path), body in site.given.items():
            opening = decode(body).get("ok", {}).get("opening")
            if opening is None:
                continue
            for kind in ("self", "recovery"):
                for party in opening[kind]:
                    of = counted.setdefault((run_id, path, party), {"self": 0, "recovery": 0})
                    of[kind] += 1
    for key, shares in counted.items():
        if min(shares.values()) >= threshold:
            raise Violation(f"both secrets of a party can be rebuilt: {key} {shares}")


def sent_by_coordinator(party: str, ask: bytes) -> bytes:
    return sign_ask(keys_of(COORDINATOR), party, ask)


def sent_by(party: str, message: bytes, reply: bytes) -> bytes:
    return sign_reply(keys_of(party), party, message, reply)
