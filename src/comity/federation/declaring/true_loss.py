"""What a published method truly loses, beside what its paper claims."""

from __future__ import annotations

from dataclasses import dataclass

INFINITE = "infinite: no epsilon holds"


@dataclass(frozen=True)
class TrueLoss:
    """One line of a plan: what is lost `about` somebody `to` somebody, as `claimed` and in truth, and `why` they differ
    or do not. A `true` loss that begins with "at most" is the smallest bound that is proved, the others are attained.
    """

    about: str
    to: str
    claimed: str
    true: str
    why: str

    def __str__(self) -> str:
        return f"{self.about}, to {self.to}: {self.true}; the paper claims {self.claimed} ({self.why})"
