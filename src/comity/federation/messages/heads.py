"""Signed heads of ledgers, which other participants keep to notice a ledger that was restored from an old copy.

Every reply carries the head of its site's ledger after the commit of that reply, signed with the pinned key. The
coordinator keeps the newest head of each party and shows it with every ask. So do the parties that watch each other:
they receive the others' heads at the end of a run, and return them when the next run begins. A site that is shown a
head of its ledger that the ledger does not know freezes the ledger before it answers anything new.

    holds for    a ledger restored from a copy, if the coordinator kept its journal, or if one of the `WATCHERS` parties
                 before the restored one in the study's order took part in a run with it since, and is relayed
    does not     a coordinator that hides what it received, together with a machine that lost its witness

A head names its ledger: an owner of two ledgers is shown heads of both, and each ledger ignores the other's.
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

# Others keep heads of at most so many ledgers of a party.
MAX_LEDGERS = 8
# How many parties keep the heads of one party. The limit keeps a run's traffic linear in the number of parties.
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
        and len(value) <= MAX_LEDGERS
        and all(map(is_head, value))
        and len({one["ledger"] for one in value}) == len(value)
    )


def sign_head(keys: Identity, party: str, ledger: str, count: int, head: str) -> Head:
    signature = keys.sign(_text(party, ledger, count, head))
    return {"ledger": ledger, "count": count, "head": head, "signature": signature}


def verify(identity: PublicIdentity, party: str, head: Head) -> None:
    """Refuse a head that this party did not sign: an invented head would freeze its ledger."""
    identity.verify(head["signature"], _text(party, head["ledger"], head["count"], head["head"]))


def filter_authentic(identity: PublicIdentity, party: str, found: Iterable[Head]) -> list[Head]:
    """The heads that this party signed."""
    out = []
    for head in found:
        with suppress(Malformed):
            verify(identity, party, head)
            out.append(head)
    return out


def newest(known: Iterable[Head], found: Iterable[Head]) -> list[Head]:
    """The later head of each ledger, the latest changes last; beyond the limit the oldest are dropped."""
    out = {one["ledger"]: one for one in known}
    for one in found:
        before = out.get(one["ledger"])
        if before is None or one["count"] > before["count"]:
            out.pop(one["ledger"], None)
            out[one["ledger"]] = one
    return list(out.values())[-MAX_LEDGERS:]


def collect_heads(
    consortium: Consortium, memories: Iterable[Mapping[str, list[Head]]]
) -> dict[tuple[str, bytes], list[Head]]:
    """What parties remember of each other's ledgers, by party and pinned key."""
    out: dict[tuple[str, bytes], list[Head]] = {}
    for remembered in memories:
        for party, found in remembered.items():
            identity = consortium.roster[party]
            whose = party, identity.sign
            out[whose] = newest(out.get(whose, []), filter_authentic(identity, party, found))
    return out


def watched_parties(consortium: Consortium, party: str) -> tuple[str, ...]:
    """Whose heads this party keeps: those after it in the study's order, which wraps around."""
    names = list(consortium.parties)
    place = names.index(party)
    return tuple(names[(place + step) % len(names)] for step in range(1, min(WATCHERS, len(names) - 1) + 1))


@lru_cache(maxsize=1 << 10, typed=True)
def _text(party: str, ledger: str, count: int, head: str) -> bytes:
    # The cache is typed: True equals 1, but was never signed as a count.
    return encode(["ledger head", party, ledger, count, head])
