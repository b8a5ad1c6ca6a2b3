"""What DiffGen's published noise costs, and the mechanisms that draw it.

Printed: ε/2 for choices, ε' = ε/(2(d + 2h)) for each of them, d numbers whose first split is chosen and h
specialisations, each of which chooses what to specialise and where new intervals are split; ε/2 for the counts of the
leaves, Laplace of scale 2/ε. What it costs (proof.md):

                                     a record is added or removed  a record is replaced
    a choice                         ε'/2                          ε'
    leaves                           ε/2                           ε
    in all                           3ε/4                          3ε/2

Fioretto and Van Hentenryck (2019) print ε' for the counts of the leaves too (`even`): Laplace of scale 1/ε', which
costs ε', or 2ε'; in all ε/4 + ε', or ε/2 + 2ε'.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal

from comity.privacy import ExponentialMechanism, Neighbours, NoisyCounts, Pure

# Losses are rounded up, as a ledger rounds them.
_LOSSES = Context(prec=60, rounding=ROUND_CEILING)


@dataclass(frozen=True)
class DiffGenBudget:
    """The printed ε over `numbers` attributes that are numbers and as many `specialisations`. `even` gives the leaves
    no more than one choice."""

    epsilon: Decimal
    numbers: int
    specialisations: int
    neighbours: Neighbours
    even: bool = False

    @property
    def choices(self) -> int:
        return self.numbers + 2 * self.specialisations

    @property
    def _times(self) -> int:
        return 2 if self.neighbours is Neighbours.REPLACE else 1

    @property
    def choice(self) -> ExponentialMechanism:
        """Weights exp(ε'u/2), under both neighbour relations. New intervals that are split together hold different
        records: a replaced one may touch two of their rows, or one of them twice."""
        times = self._times
        loss = _LOSSES.divide(_LOSSES.multiply(self.epsilon, Decimal(times)), Decimal(4 * self.choices))
        return ExponentialMechanism(loss=Pure(loss), sensitivity=1.0, touched=times, monotone=True)

    @property
    def leaves(self) -> NoisyCounts:
        """Laplace noise of scale 2/ε on each count; of 1/ε' if `even`."""
        shares = 2 * self.choices if self.even else 2
        loss = _LOSSES.divide(_LOSSES.multiply(self.epsilon, Decimal(self._times)), Decimal(shares))
        return NoisyCounts(loss=Pure(loss), sensitivity=float(self._times))

    @property
    def total(self) -> Decimal:
        charged = self.leaves.charged
        assert isinstance(charged, Pure)
        return _LOSSES.add(_LOSSES.multiply(self.choice.charged.epsilon, Decimal(self.choices)), charged.epsilon)
