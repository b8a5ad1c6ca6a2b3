"""One round: an ask goes to parties, and what they reply is looked at before anything is decided."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from comity.crypto.sealed import Identity
from comity.errors import Malformed
from comity.federation import heads
from comity.federation.channel import Channel
from comity.federation.codec import decode
from comity.federation.consortium import Consortium
from comity.federation.envelope import SIGNATURE_BYTES, Digests, signed_ask, verified_reply
from comity.federation.journal import Journal, Trace
from comity.federation.letters import parted
from comity.federation.replies import Reader, Refusal

Valid = Callable[[str, dict[str, Any]], None]


@dataclass
class Round:
    """What came of sending one ask: replies to journal, why the others are missing, where ledgers stand."""

    answers: dict[str, bytes] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)
    refusals: dict[str, Refusal] = field(default_factory=dict)
    heads: dict[tuple[str, bytes], list[heads.Head]] = field(default_factory=dict)


def exchanged(
    reader: Reader, parties: Iterable[str], keys: Identity, channel: Channel, journal: Journal, valid: Valid | None
) -> Round:
    """Send a journalled ask to these parties. Whatever one of them replies, the others' replies count."""
    agreed, run, path = reader.agreed, reader.run, str(reader.path)
    waiting: dict[str, bytes] = {}
    digests: dict[str, Digests] = {}
    for party, ask in journal.messages(agreed.study, run, path, parties):
        waiting[party], digests[party] = signed_ask(keys, party, ask)
    replies = channel.ask(waiting) if waiting else {}
    done = Round()
    for party, message in waiting.items():
        if party not in replies:
            done.faults[party] = "no answer"
            continue
        try:
            raw, digest = _verified(agreed.consortium, party, digests[party], replies[party])
            reply = reader.read(party, raw)
            if isinstance(reply, Refusal):
                done.refusals[party] = reply
                done.faults[party] = reply.text
                continue
            if valid is not None:
                valid(party, reply.values)
        except Malformed as error:
            done.faults[party] = str(error)
            continue
        asked = Trace(len(message) - SIGNATURE_BYTES, digests[party].body)
        journal.remember_trace(run, path, party, asked, Trace(len(raw), digest))
        done.heads[party, agreed.consortium.roster[party].sign] = [reply.head]
        if reply.boxes:
            raw, boxes = parted(decode(raw))
            journal.hold(run, path, party, boxes)
        done.answers[party] = raw
    return done


def _verified(who: Consortium, party: str, sent: Digests, answer: bytes) -> tuple[bytes, bytes]:
    identity = who.roster.get(party)
    if identity is None:
        raise Malformed("it has no pinned key in the roster", code="stranger")
    try:
        return verified_reply(identity, party, sent, answer)
    except Malformed as error:
        raise Malformed(
            "what arrived is not what it signed for this ask; it was altered on the way, or the ask was",
            code="signature",
        ) from error
