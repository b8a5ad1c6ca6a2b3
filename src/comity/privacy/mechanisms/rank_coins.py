"""Whom a published auction asks: a coin for each bidder, by its rank (Sarpatwar et al. 2019, Algorithm 3)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context, Decimal
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from comity.entropy import Stream
from comity.errors import StudyError
from comity.privacy.loss import LOSSES, Approx
from comity.privacy.mechanisms.computation import checked_values
from comity.privacy.permit import Permit

if TYPE_CHECKING:
    from comity.privacy.randomness import NoiseSource

_BELOW = Context(prec=60, rounding=ROUND_FLOOR)
# Beyond it 1 − e^(−x) is 1 in sixty digits, and a δ of 1 is no loss at all.
MOST = 110


@dataclass(frozen=True, kw_only=True)
class RankCoins:
    """Asks the bidder of rank i = 1, 2, … with probability exp(−ε(i − 1)), as printed. It is not private as claimed.

    Loss         (ε, 1 − e^(−ε)), for a bidder that sees its own coin, and a unit of another one's, which moves its rank
                 by one. No smaller δ holds: at rank 1 "not asked" has probability 0, at rank 2 it has 1 − e^(−ε). And
                 this one does: P[asked] falls by e^ε from rank i to i + 1, and P[not asked] at i + 1 exceeds e^ε times
                 that at i by (1 − e^ε) + e^(−εi)·(e^(2ε) − 1), which is largest at i = 1, where it is 1 − e^(−ε).
    """

    epsilon: float
    name: ClassVar[str] = "coins by rank"
    sensitivity: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.epsilon < math.inf:
            raise StudyError(f"epsilon of an auction must be positive and finite, found {self.epsilon}", key="epsilon")

    @property
    def loss(self) -> Approx:
        return self.charged

    @property
    def charged(self) -> Approx:
        return self.charged_for(1)

    def charged_for(self, coins: int) -> Approx:
        """What so many coins cost, of several bidders or rounds, one after the other.

        Under (ε, δ)-DP the secret is out with probability δ, and else ε is lost (Kairouz, Oh and Viswanath 2015): of k
        coins nothing is out with probability (1 − δ)^k = e^(−kε).
        """
        whole = LOSSES.multiply(Decimal(repr(float(self.epsilon))), Decimal(coins))
        if whole > MOST:
            raise StudyError(
                f"{coins} coins at epsilon {self.epsilon} lose everything but a chance of e^-{whole:.0f}; choose fewer "
                f"records, or a smaller epsilon of the auction, so that their product is at most {MOST}",
                key="epsilon",
            )
        return Approx(whole, LOSSES.subtract(Decimal(1), _BELOW.next_minus(_BELOW.exp(-whole))))

    def check(self, values: Any) -> None:
        found = checked_values(values, self.name, 1, 2.0**50)
        if found.min() < 1:
            raise StudyError(f"ranks begin at 1, found {found.min()}")

    def run(self, source: NoiseSource, values: Any, *, permit: Permit) -> NDArray[np.int64]:
        """1 for each that is asked, else 0; `values` are the ranks."""
        self.check(values)
        ranks = np.asarray(values, np.float64)
        coins = Stream(source.seed(permit=permit)).uniform(ranks.shape)
        return np.asarray(coins < np.exp(-self.epsilon * (ranks - 1)), np.int64)
