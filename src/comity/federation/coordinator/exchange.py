"""One round: an ask goes to parties, and each reply is checked as it comes, before anything is decided."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from comity.crypto.sealing import Identity
from comity.errors import Malformed
from comity.federation.coordinator.journal import Journal, Trace
from comity.federation.coordinator.replies import Reader, Refusal, plain
from comity.federation.declare.consortium import Consortium
from comity.federation.declare.declaration import Quorums
from comity.federation.messages import heads
from comity.federation.messages.channel import (
    ABSENT,
    CANCELLED,
    FAILED,
    LATE,
    NO_TIMEOUT,
    SILENT,
    SIZE,
    Alive,
    Channel,
    Lost,
    PendingAsk,
    Timeouts,
)
from comity.federation.messages.signatures import SIGNATURE_BYTES, Digests, sign_ask, verified_reply

Check = Callable[[str, dict[str, Any]], None]
"""Raises Malformed about the values of a party."""
Watch = Callable[[str, str, str], None]
"""Called with the path of an ask, a party, and what was heard of it: `alive`, `replied`, or why it is lost."""

MAX_UNSTORED_BYTES = 8 << 20
"""Bytes of replies after which they are stored."""
_REASONS = {
    ABSENT: "no answer",
    SILENT: "no answer and no sign of life",
    LATE: "no answer in time",
    SIZE: "its message or its reply is too large to be carried",
    FAILED: "failed; its own log says why",
    CANCELLED: "no answer before the run was cancelled",
}


class Cancellation:
    """Lets another thread end the pending ask of a run, and every later one."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._asking: PendingAsk | None = None
        self.cancelled = False

    def cancel(self) -> None:
        with self._lock:
            self.cancelled, asking = True, self._asking
        if asking is not None:
            asking.cancel()

    @contextmanager
    def around(self, asking: PendingAsk) -> Iterator[PendingAsk]:
        with self._lock:
            self._asking, cancelled = asking, self.cancelled
        try:
            with asking:
                if cancelled:
                    asking.cancel()
                yield asking
        finally:
            with self._lock:
                self._asking = None


@dataclass(frozen=True, kw_only=True)
class Terms:
    """When a round is decided: `need` replies count, and of each group in `needed` as many as it says; with
    `unanimous`, one refusal decides. `valid` checks the values of a reply beyond their declaration."""

    need: int
    quorums: Quorums = ()
    unanimous: bool = False
    valid: Check | None = None
    timeouts: Timeouts = NO_TIMEOUT
    watch: Watch | None = None
    cancellation: Cancellation = field(default_factory=Cancellation)


@dataclass
class Round:
    """The outcome of sending one ask: the parties that answered, why others are missing, and what is not stored yet."""

    answered: list[str] = field(default_factory=list)
    answers: dict[str, bytes] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)
    refusals: dict[str, Refusal] = field(default_factory=dict)
    heads: dict[tuple[str, bytes], list[heads.Head]] = field(default_factory=dict)
    unstored_bytes: int = 0


def exchange(  # noqa: C901 (a branch for each event of a channel)
    reader: Reader,
    parties: Sequence[str],
    keys: Identity,
    channel: Channel,
    journal: Journal,
    terms: Terms,
    store: Callable[[Round], None],
) -> Round:
    """Send a journalled ask to these parties. Whatever one of them replies, the others' replies count.

    Messages are made from the journal when the channel sends them. `store` writes replies down and removes them from
    the round; it is called whenever enough have come. Only replies that were verified here count towards those that are
    needed: a channel can't say that there are enough.
    """
    agreement, run, path = reader.agreement, reader.run, str(reader.path)
    done = Round()
    if not parties:
        return done
    ask = journal.ask(agreement.study, run, path)
    sent: dict[str, tuple[int, Digests]] = {}

    def message(party: str) -> Callable[[], bytes]:
        def made() -> bytes:
            signed, digests = sign_ask(keys, party, ask(party))
            sent[party] = len(signed) - SIGNATURE_BYTES, digests
            return signed

        return made

    with terms.cancellation.around(
        channel.ask({party: message(party) for party in parties}, timeouts=terms.timeouts)
    ) as asking:
        for event in asking:
            party, word = event.party, "replied"
            if isinstance(event, Alive):
                word = "alive"
            elif isinstance(event, Lost):
                word = event.why
                done.faults[party] = _REASONS.get(event.why, f"no answer ({plain(event.why)})")
            elif party in sent:
                _take(done, reader, party, event.reply, *sent[party], journal, terms.valid)
            else:
                done.faults[party] = "it answered an ask that it was not sent"
            del event
            if terms.watch is not None:
                terms.watch(path, party, word)
            if done.unstored_bytes > MAX_UNSTORED_BYTES:
                store(done)
            if word != "alive" and _is_decided(done, len(parties), terms):
                asking.hurry(terms.timeouts.grace)
    return done


def _is_decided(done: Round, asked: int, terms: Terms) -> bool:
    """Whether no further reply can change how the ask ends."""
    said_no = any(one.code != "stopped" for one in done.refusals.values())
    enough = len(done.answered) >= terms.need and not count_missing(terms.quorums, done.answered)
    return enough or asked - len(done.faults) < terms.need or (terms.unanimous and said_no)


def count_missing(quorums: Quorums, answered: Iterable[str]) -> int:
    """How many more parties must answer for every group to have enough."""
    here = frozenset(answered)
    return sum(max(0, least - len(members & here)) for members, least in quorums)


def _take(
    done: Round,
    reader: Reader,
    party: str,
    answer: bytes,
    size: int,
    digests: Digests,
    journal: Journal,
    valid: Check | None,
) -> None:
    consortium, run, path = reader.agreement.consortium, reader.run, str(reader.path)
    try:
        raw, digest = _verified(consortium, party, digests, answer)
        reply = reader.read(party, raw)
        if isinstance(reply, Refusal):
            done.refusals[party] = reply
            done.faults[party] = reply.text
            return
        if valid is not None:
            valid(party, reply.values)
    except Malformed as error:
        done.faults[party] = str(error)
        return
    journal.remember_trace(run, path, party, Trace(size, digests.body), Trace(len(raw), digest))
    done.heads[party, consortium.roster[party].sign] = [reply.head]
    if reply.boxes:
        journal.store_boxes(run, path, party, reply.boxes)
    done.answered.append(party)
    done.answers[party] = reply.stored
    done.unstored_bytes += len(reply.stored)


def _verified(consortium: Consortium, party: str, sent: Digests, answer: bytes) -> tuple[bytes, bytes]:
    identity = consortium.roster.get(party)
    if identity is None:
        raise Malformed("it has no pinned key in the roster", code="stranger")
    try:
        return verified_reply(identity, party, sent, answer)
    except Malformed as error:
        raise Malformed(
            "the reply is not what it signed for this ask: the reply or the ask was altered on the way",
            code="signature",
        ) from error
