"""What the published noise truly costs, and the mechanisms that draw it.

Printed: ε/2 for the tree, ε/(2h) for each of its h levels (h − 1 of choices and the leaves), and ε/2 for the counts of
the levels 1 … p − 1. The noise below is that of the paper; what it costs is derived in proof.md, 2 to 4:

    with ε' = ε/(2h)                 a record comes or goes        a record is replaced
    one level of choices             ε'/2                          ε'
    leaves                           ε'                            2ε'
    counts of p − 1 levels           ε/2                           ε·(p − 2)/(p − 1)

Choices cost half of what is printed because scores are monotone. A record that is replaced counts twice everywhere but
at the root, whose count it leaves as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from comity.errors import StudyError
from comity.privacy.loss import LOSSES, Loss, Pure
from comity.privacy.mechanisms import NoisyCounts, NoisyMax
from comity.privacy.unit import Neighbours


@dataclass(frozen=True)
class Budget:
    """The printed ε of a study, laid out over a tree of `depth` levels, the first `levels` − 1 of which are `counted`
    where sizes are made consistent."""

    epsilon: Decimal
    depth: int
    levels: int
    neighbours: Neighbours
    counted: bool = True

    @classmethod
    def of(cls, loss: Loss, depth: int, levels: int, neighbours: Neighbours, *, counted: bool = True) -> Budget:
        if not isinstance(loss, Pure) or loss.epsilon <= 0:
            raise StudyError(
                f"synthetic.variant = published has Laplace noise and needs a pure epsilon above 0, found {loss}; set "
                "privacy.delta to 0",
                key="privacy.delta",
            )
        return cls(loss.epsilon, depth, levels, neighbours, counted)

    @property
    def replaced(self) -> bool:
        return self.neighbours is Neighbours.REPLACE

    def _share(self, times: int, of: int) -> Pure:
        return Pure(LOSSES.divide(LOSSES.multiply(self.epsilon, Decimal(times)), Decimal(of)))

    @property
    def choice(self) -> NoisyMax:
        """Of one level: exponential noise of mean 2/ε', whoever is a neighbour."""
        twice = 2 if self.replaced else 1
        return NoisyMax(loss=self._share(twice, 4 * self.depth), sensitivity=1.0, touched=twice, monotone=True)

    @property
    def leaves(self) -> NoisyCounts:
        """Laplace noise of scale 1/ε' on each count."""
        moved = 2 if self.replaced else 1
        return NoisyCounts(loss=self._share(moved, 2 * self.depth), sensitivity=float(moved))

    @property
    def counts(self) -> NoisyCounts:
        """Laplace noise of scale 2(p − 1)/ε on each count."""
        measured = self.levels - 1
        moved = 2 * (measured - 1) if self.replaced else measured
        return NoisyCounts(loss=self._share(moved, 2 * measured), sensitivity=float(moved))

    @property
    def total(self) -> Decimal:
        """The loss of a sharer by everything that it releases."""
        each = LOSSES.multiply(self.choice.charged.epsilon, Decimal(self.depth - 1))
        rest = [one.charged for one in ((self.leaves, self.counts) if self.counted else (self.leaves,))]
        return LOSSES.add(each, sum((one.epsilon for one in rest if isinstance(one, Pure)), Decimal(0)))

    @property
    def factor(self) -> float:
        """The loss by the printed ε."""
        return float(self.total / self.epsilon)
