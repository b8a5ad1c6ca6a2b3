"""How an owner's loss is divided over its auction: bits that say whom the curator asks, and the running sum.

A record bids in one round (`rounds`), so that the bits of that round are all that it moves, and the running sum moves
by one summand. What one record loses is one round's bits and the whole sequence of sums, however many rounds there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context, Decimal

from comity.federation.declare.consortium import Consortium
from comity.privacy.accounting import gaussian_budget, pure_square
from comity.privacy.loss import GDP, LOSSES, Pure

_BUDGETS = Context(prec=50, rounding=ROUND_FLOOR)
_FOUR = Context(prec=4, rounding=ROUND_FLOOR)
_HALF_PI = Decimal("1.571")


@dataclass(frozen=True)
class AuctionBudget:
    """`asked` is the loss by all bits that the colluding owners see in a round, `running` that of the sums, `wish` the
    consumer's; `readers` is how many owners may pool their bits."""

    asked: Pure
    running: GDP
    wish: GDP
    readers: int

    @classmethod
    def of(cls, who: Consortium, share: float) -> AuctionBudget:
        """`share` is the part of μ² that the bits have."""
        whole = gaussian_budget(who.loss)
        bits = _BUDGETS.multiply(whole.square, Decimal(repr(share)))
        asked = _pure_within(bits)
        left = _BUDGETS.subtract(whole.square, pure_square(asked.epsilon))
        # A little less, so that the parts never exceed the whole.
        left = _BUDGETS.subtract(left, Decimal(1).scaleb(whole.square.adjusted() - 40))
        return cls(asked, GDP.squared(left), whole, max(1, who.colluders))

    @property
    def owner(self) -> GDP:
        """What an owner's record loses by all of it."""
        return GDP.squared(LOSSES.add(self.running.square, pure_square(self.asked.epsilon)))

    @property
    def each(self) -> float:
        """ε_r: what one owner's own bit of a round tells it about another one's record."""
        return float(self.asked.epsilon) / self.readers


def _pure_within(square: Decimal) -> Pure:
    """An ε whose μ² is at most `square`, to four digits: μ² of a pure ε is at most π/2·ε² (`pure_square`)."""
    return Pure(_FOUR.sqrt(_FOUR.divide(square, _HALF_PI)).next_minus(_FOUR))
