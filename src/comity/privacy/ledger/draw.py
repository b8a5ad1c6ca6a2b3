"""One draw of noise, as a ledger reserves and counts it."""

from __future__ import annotations

from dataclasses import dataclass

from comity.privacy.loss import Loss
from comity.privacy.parallel import WHOLE


@dataclass(frozen=True, slots=True)
class Draw:
    """One draw of noise that a run may make: number `index` of a release, at a loss in the study's unit.

    `part` names the records that it reads, if each unit is in one of several disjoint parts. Draws of different parts
    cost together what the most expensive part costs (`comity.privacy.parallel`).
    """

    release: str
    index: int
    loss: Loss
    mechanism: str
    sensitivity: str | float
    part: str = WHOLE
