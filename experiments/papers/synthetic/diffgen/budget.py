"""What DiffGen's published noise truly costs, and the mechanisms that draw it.

Printed: ε/2 for choices, ε' = ε/(2(d + 2h)) for each of them, d numbers whose first split is chosen and h
specialisations, each of which chooses what to specialise and where new intervals are split; ε/2 for the counts of the
leaves, Laplace of scale 2/ε. What it costs (proof.md):

                                     a record comes or goes        a record is replaced
    a choice                         ε'/2                          ε'
    leaves                           ε/2                           ε
    in all                           3ε/4                          3ε/2
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal

from comity.privacy import Neighbours, NoisyCounts, NoisyMax, Pure

# Losses are rounded up, as a ledger rounds them.
_LOSSES = Context(prec=60, rounding=ROUND_CEILING)


@dataclass(frozen=True)
class DiffGenBudget:
    """The printed ε over `numbers` attributes that are numbers and as many `specialisations`."""

    epsilon: Decimal
    numbers: int
    specialisations: int
    neighbours: Neighbours

    @property
    def choices(self) -> int:
        return self.numbers + 2 * self.specialisations

    @property
    def _times(self) -> int:
        return 2 if self.neighbours is Neighbours.REPLACE else 1

    @property
    def choice(self) -> NoisyMax:
        """Exponential noise of mean 2/ε', whoever is a neighbour. New intervals that are split together hold different
        records: a replaced one may touch two of their rows, or one of them twice."""
        times = self._times
        loss = _LOSSES.divide(_LOSSES.multiply(self.epsilon, Decimal(times)), Decimal(4 * self.choices))
        return NoisyMax(loss=Pure(loss), sensitivity=1.0, touched=times, monotone=True)

    @property
    def leaves(self) -> NoisyCounts:
        """Laplace noise of scale 2/ε on each count."""
        loss = _LOSSES.divide(_LOSSES.multiply(self.epsilon, Decimal(self._times)), Decimal(2))
        return NoisyCounts(loss=Pure(loss), sensitivity=float(self._times))

    @property
    def total(self) -> Decimal:
        charged = self.leaves.charged
        assert isinstance(charged, Pure)
        return _LOSSES.add(_LOSSES.multiply(self.choice.charged.epsilon, Decimal(self.choices)), charged.epsilon)
