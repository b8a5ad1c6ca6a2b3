"""Heads of ledgers, as others keep them: whoever saw a later one notices a ledger that was put back.

Every reply carries the head of its site's ledger after the commit that the reply belongs to, signed under the pinned
key. The coordinator keeps the newest of each party and shows it with every ask; so do the parties that watch each
other, who are shown the others' heads at the end of a run and hand back what they remember when the next one begins. A
site that is shown a head of its own that its ledger does not know freezes it, before it answers anything new.

    holds for    a ledger restored from a copy, if the coordinator kept its journal, or any of the `WATCHERS` parties
                 before the restored one in the study's order took part in a run with it since, and is relayed
    does not     a coordinator that hides on purpose what it was told, together with a machine that lost its witness

A head names its ledger: an owner of two ledgers is shown heads of both, and each ignores what is not its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any

from comity.crypto.sealing import Identity, PublicIdentity
from comity.errors import Malformed
from comity.federation.declare.consortium import Consortium
from comity.federation.messages.codec import encode

Head = dict[str, Any]

# Ledgers of one party that others keep heads of.
MOST = 8
# How many parties keep the heads of one: bounded, so that what a run shows grows with the parties and not their square.
WATCHERS = 8


class Heads:
    """Heads of one party: one for each of its ledgers."""

    def fits(self, value: Any, dims: Mapping[str, int], consortium: Consortium) -> bool:
        return are_heads(value)


def is_head(value: Any) -> bool:
    match value:
        case {"ledger": str(ledger), "count": int(count), "head": str(head), "signature": bytes(signature), **rest}:
            return not rest and len(ledger) <= 64 and len(head) <= 64 and len(signature) == 64 and 0 <= count < 2**62
        case _:
            return False


def are_heads(value: Any) -> bool:
    return (
        type(value) is list
        and len(value) <= MOST
        and all(map(is_head, value))
        and len({one["ledger"] for one in value}) == len(value)
    )


def signed(keys: Identity, party: str, ledger: str, count: int, head: str) -> Head:
    signature = keys.sign(_text(party, ledger, count, head))
    return {"ledger": ledger, "count": count, "head": head, "signature": signature}


def verify(identity: PublicIdentity, party: str, head: Head) -> None:
    """Refuses what this party did not sign. Without it anyone could show a made-up head, and an unknown one freezes."""
    identity.verify(head["signature"], _text(party, head["ledger"], head["count"], head["head"]))


def authentic(identity: PublicIdentity, party: str, found: Iterable[Head]) -> list[Head]:
    """Those that this party signed; a head that it did not sign is nobody's."""
    out = []
    for head in found:
        with suppress(Malformed):
            verify(identity, party, head)
            out.append(head)
    return out


def newest(known: Iterable[Head], found: Iterable[Head]) -> list[Head]:
    """The later head of each ledger, those that moved last at the end; the oldest go where there are too many."""
    out = {one["ledger"]: one for one in known}
    for one in found:
        before = out.get(one["ledger"])
        if before is None or one["count"] > before["count"]:
            out.pop(one["ledger"], None)
            out[one["ledger"]] = one
    return list(out.values())[-MOST:]


def handed_back(
    consortium: Consortium, memories: Iterable[Mapping[str, list[Head]]]
) -> dict[tuple[str, bytes], list[Head]]:
    """What parties remember of each other's ledgers, by party and pinned key."""
    out: dict[tuple[str, bytes], list[Head]] = {}
    for remembered in memories:
        for party, found in remembered.items():
            identity = consortium.roster[party]
            whose = party, identity.sign
            out[whose] = newest(out.get(whose, []), authentic(identity, party, found))
    return out


def watched(consortium: Consortium, party: str) -> tuple[str, ...]:
    """Whose heads this party keeps: those after it in the study's order, the first following the last."""
    names = list(consortium.parties)
    place = names.index(party)
    return tuple(names[(place + step) % len(names)] for step in range(1, min(WATCHERS, len(names) - 1) + 1))


@lru_cache(maxsize=1 << 10, typed=True)
def _text(party: str, ledger: str, count: int, head: str) -> bytes:
    # By type as well: True is not the count 1, and was never signed.
    return encode(["ledger head", party, ledger, count, head])
