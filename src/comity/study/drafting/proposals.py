"""What a draft proposes about somebody's file: taken or not by the person who knows the file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Proposal:
    """One translation of one file's column. A proposal that is not `sure` rests on values alone."""

    party: str
    column: str
    sentence: str
    sure: bool = True


Decide = Callable[[Proposal], bool]


def take_sure(proposal: Proposal) -> bool:
    """The decision where nobody is asked: only what names or spellings show is taken."""
    return proposal.sure


def take_all(proposal: Proposal) -> bool:
    return True


@dataclass(frozen=True, eq=False)
class Decisions:
    """Proposals with the answers they got, and sentences about the rest: what could not be matched, and what the author
    should check because nothing says whether it is wrong."""

    decide: Decide = take_sure
    taken: list[Proposal] = field(default_factory=list)
    declined: list[Proposal] = field(default_factory=list)
    unmatched: list[str] = field(default_factory=list)
    checks: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def propose(self, party: str, column: str, sentence: str, *, sure: bool = True) -> bool:
        proposal = Proposal(party, column, sentence, sure)
        accepted = self.decide(proposal)
        (self.taken if accepted else self.declined).append(proposal)
        return accepted
