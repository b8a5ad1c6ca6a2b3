"""What the published noise is printed to cost, and what it costs.

Printed: k iterations of ε each are (ε', δ)-DP with ε' = sqrt(2k·ln(1/δ))·ε + kε(e^ε − 1) (Dwork, Rothblum and Vadhan
2010), k = d^1.5 for the consumer and 5 in each round for the summary; and nothing for the auction. The noise below is
that of the study's (ε', δ) by this formula, for either side. What it truly costs (proof.md, 2 to 4):

    an iteration          3εΔ, where a record moves each coordinate of the sum by Δ
    consumer              Δ = 2: a record is replaced. Printed: ε
    summary               Δ = 4: a record that is replaced changes two of those that are chosen. Printed: ε
    auction               (ε_a, 1 − e^(−ε_a)) for each round and each owner that reads along
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from math import expm1, log, log1p, sqrt

from comity.errors import StudyError
from comity.federation.declare.consortium import Consortium
from comity.privacy.accounting import Spent
from comity.privacy.loss import LOSSES, ZCDP, Approx
from comity.privacy.mechanisms import MeanWeights, RankCoins

EACH_ROUND = 5
"""Iterations in each round after the first."""
OPENING = 0.05
"""Printed ε of an iteration on the seeds, which are public: it protects nobody, and is part of the method."""


@dataclass(frozen=True)
class PublishedBudget:
    """`wish` and `means` are the printed ε of an iteration, for the consumer and for the summary."""

    claimed: Approx
    dimensions: int
    rounds: int
    readers: int
    coins: RankCoins
    wish: float
    means: float

    @classmethod
    def of(cls, who: Consortium, dimensions: int, rounds: int, auction_epsilon: float) -> PublishedBudget:
        loss = who.loss
        if not isinstance(loss, Approx) or loss.delta <= 0 or loss.epsilon <= 0:
            raise StudyError(
                f"summary.variant = published lays an epsilon and a delta out over many iterations, found {loss}; set "
                "privacy.epsilon and privacy.delta above 0",
                key="privacy.delta",
            )
        epsilon, delta = float(loss.epsilon), float(loss.delta)
        later = EACH_ROUND * max(1, rounds - 1)
        return cls(
            loss,
            dimensions,
            rounds,
            max(1, who.colluders),
            RankCoins(epsilon=auction_epsilon),
            wish=printed_share(epsilon, delta, iterations(dimensions)),
            means=printed_share(epsilon, delta, later),
        )

    @property
    def wished(self) -> MeanWeights:
        """The consumer's mean; one of its records may be replaced."""
        count = iterations(self.dimensions)
        return MeanWeights(epsilon=self.wish, iterations=count, dimensions=self.dimensions, sensitivity=2.0)

    @property
    def summarised(self) -> MeanWeights:
        """The mean of the summary so far, in one round; two records of it may be others."""
        return MeanWeights(epsilon=self.means, iterations=EACH_ROUND, dimensions=self.dimensions, sensitivity=4.0)

    @property
    def broadcasts(self) -> ZCDP:
        """What all means of the summary cost a record."""
        loss = self.summarised.charged
        assert isinstance(loss, ZCDP)
        return loss * (self.rounds - 1)

    @property
    def auction(self) -> Approx:
        """What being asked, or not, tells the owners that read along, in all rounds."""
        return self.coins.charged_for(self.rounds * self.readers)

    @property
    def owner(self) -> Approx:
        """What a record of an owner loses: the means at the study's δ, and the auction, one after the other."""
        auction, delta = self.auction, self.claimed.delta
        means = Spent.zero().add(self.broadcasts).epsilon_at(delta)
        # Nothing is out where neither of the two lets it out.
        kept = (Decimal(1) - delta) * (Decimal(1) - auction.delta)
        return Approx(LOSSES.add(means, auction.epsilon), LOSSES.subtract(Decimal(1), kept))


def iterations(dimensions: int) -> int:
    """Of the consumer's mean, and of the first broadcast: d^1.5."""
    return int(dimensions**1.5)


def printed(epsilon: float, delta: float, count: int) -> float:
    """ε' of so many iterations, by the paper's formula."""
    return sqrt(2 * count * log(1 / delta)) * epsilon + count * epsilon * expm1(epsilon)


def printed_share(whole: float, delta: float, count: int) -> float:
    """The ε of an iteration for which `printed` says `whole`."""
    # Beyond it one iteration alone would be printed as more.
    low, high = 0.0, min(whole, 1 + log1p(whole))
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if printed(middle, delta, count) <= whole else (low, middle)
    return low
