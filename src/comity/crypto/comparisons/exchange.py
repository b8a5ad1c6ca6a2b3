"""Two sides that send each other one message per round.

A two-sided computation is a generator on each side: it yields the message of a round and is sent the other side's
message of the same round. Whoever has nothing to say yields no bytes. What a generator yields depends on its arguments,
secrets included, and on what it was sent, so a carrier may rebuild one after a restart from the same arguments by
sending it the stored messages again; never a different message in place of a stored one. Messages are neither sealed
nor signed here: an altered one of the right form is noticed by the signatures of whoever carries it.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from enum import IntEnum
from typing import Generic, TypeVar

Result = TypeVar("Result")
OfCurator = TypeVar("OfCurator")
OfParties = TypeVar("OfParties")

Exchange = Generator[bytes, bytes, Result]


class Side(IntEnum):
    """The curator, and whoever represents the parties."""

    CURATOR = 0
    PARTIES = 1


@dataclass(frozen=True)
class Transcript(Generic[OfCurator, OfParties]):
    """What each side ended with, and every message it was sent, by round."""

    curator: OfCurator
    parties: OfParties
    sent_to_curator: tuple[bytes, ...]
    sent_to_parties: tuple[bytes, ...]

    @property
    def rounds(self) -> int:
        return len(self.sent_to_curator)

    @property
    def bytes(self) -> int:
        """In both directions."""
        return sum(map(len, self.sent_to_curator + self.sent_to_parties))


def run_locally(curator: Exchange[OfCurator], parties: Exchange[OfParties]) -> Transcript[OfCurator, OfParties]:
    """Both sides in one process, message by message."""
    sent_to_curator: list[bytes] = []
    sent_to_parties: list[bytes] = []
    curator_done, curator_message, curator_result = _advance(curator, None)
    parties_done, parties_message, parties_result = _advance(parties, None)
    while not (curator_done or parties_done):
        sent_to_curator.append(parties_message)
        sent_to_parties.append(curator_message)
        curator_done, curator_message, curator_result = _advance(curator, sent_to_curator[-1])
        parties_done, parties_message, parties_result = _advance(parties, sent_to_parties[-1])
    if curator_done != parties_done or curator_result is None or parties_result is None:
        raise ValueError("the two sides were expected to end in the same round")
    return Transcript(curator_result[0], parties_result[0], tuple(sent_to_curator), tuple(sent_to_parties))


def _advance(side: Exchange[Result], message: bytes | None) -> tuple[bool, bytes, tuple[Result] | None]:
    try:
        return False, next(side) if message is None else side.send(message), None
    except StopIteration as end:
        return True, b"", (end.value,)
