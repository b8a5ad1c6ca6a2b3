"""How an owner's loss is divided over its two releases. The consumer spends all of its own on one."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context, Decimal

from comity.federation.declare.consortium import Consortium
from comity.privacy.accounting import gaussian_budget
from comity.privacy.loss import GDP

FOR_MASS = Decimal("0.05")
"""Part of μ² for an owner's mass: one number, which needs few digits. Settled on MNIST."""
_BUDGETS = Context(prec=50, rounding=ROUND_FLOOR)


@dataclass(frozen=True)
class Budget:
    moments: GDP
    mass: GDP
    wish: GDP

    @classmethod
    def of(cls, who: Consortium) -> Budget:
        whole = gaussian_budget(who.loss)
        mass = _BUDGETS.multiply(whole.square, FOR_MASS)
        # A little less, so that the parts never exceed the whole.
        left = _BUDGETS.subtract(_BUDGETS.subtract(whole.square, mass), Decimal(1).scaleb(whole.square.adjusted() - 40))
        return cls(GDP.squared(left), GDP.squared(mass), whole)
