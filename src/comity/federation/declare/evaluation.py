"""What a study says about its evaluation: the share of the records that is set aside, and what measuring may cost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context, Decimal

from comity.errors import StudyError
from comity.privacy.accounting import gaussian_budget
from comity.privacy.loss import GDP, Approx, Loss, Pure
from comity.privacy.unit import Neighbours, Unit

SHARE, BUDGET = 0.2, 0.1
"""Of the records, and of a whole party's budget, where the study says nothing. Not tuned on data."""

TRAINING, ASIDE = "training", "set aside"
"""The two parts of an owner's records, as ledgers call them."""

_DOWN = Context(prec=40, rounding=ROUND_FLOOR)


@dataclass(frozen=True)
class Evaluation:
    """`share` of each owner's records is set aside; `loss` is what measuring on them may cost.

    `parallel` says that a unit lies in one of the two parts, so that training and evaluation cost the dearer of the
    two and not their sum (proof.md, 2). A whole party lies in both, and pays for both. `pure` takes the place of `loss`
    beside a method that spends no δ: a ledger counts such a method in pure ε. `exact` numbers of records are set aside
    where numbers are public; otherwise every record has a coin of its own.
    """

    share: float
    loss: Loss
    pure: Pure
    parallel: bool
    exact: bool = True

    def count(self, records: int) -> int:
        """How many of so many records are set aside where their number is public."""
        return math.floor(self.share * records)

    def left(self, records: int) -> int:
        """How many of so many records are trained on, at least one; with coins, a number that hardly ever fails to be
        reached."""
        by_chance = 0.0 if self.exact else 4 * math.sqrt(records * self.share * (1 - self.share))
        return max(1, records - self.count(records) - math.ceil(by_chance))


def divided(
    loss: Loss,
    unit: Unit,
    neighbours: Neighbours,
    *,
    share: float | None = None,
    budget: float | None = None,
) -> tuple[Loss, Evaluation]:
    """What the method may lose, and the terms of the evaluation.

    A record or person lies in one part: both may lose all of `loss`. A whole party's `budget`, a share of it, goes to
    the evaluation.
    """
    part = SHARE if share is None else share
    if not 0 < part <= 0.5:
        raise StudyError(f"evaluation.share must lie above 0 and at most at 0.5, found {part}", key="evaluation.share")
    exact = neighbours is Neighbours.REPLACE and unit is not Unit.PERSON
    if unit is not Unit.PARTY:
        if budget is not None:
            raise StudyError(
                f'evaluation.budget belongs to privacy.unit = "party"; with unit = "{unit}" a unit is trained on or '
                "set aside, and the evaluation costs nothing beside the study's epsilon: leave it out",
                key="evaluation.budget",
            )
        return loss, Evaluation(part, loss, _pure(loss), parallel=True, exact=exact)
    given = BUDGET if budget is None else budget
    if not 0 < given < 1:
        raise StudyError(f"evaluation.budget must lie between 0 and 1, found {given}", key="evaluation.budget")
    method, rest = _shared(loss, given)
    left = Pure(_DOWN.subtract(_pure(loss).epsilon, _pure(method).epsilon))
    return method, Evaluation(part, rest, left, parallel=False)


def _pure(loss: Loss) -> Pure:
    if not isinstance(loss, Pure | Approx):
        raise StudyError(f"a study's budget is an epsilon, with a delta or without; found {loss}", key="privacy")
    return Pure(loss.epsilon)


def _shared(loss: Loss, budget: float) -> tuple[Loss, Loss]:
    """ε in two parts. With a δ the evaluation has the μ² that the method leaves: squares add up, and what both charge
    together is what the whole (ε, δ) buys."""
    epsilon = _pure(loss).epsilon
    rest = _DOWN.multiply(epsilon, Decimal(repr(budget)))
    kept = _DOWN.subtract(epsilon, rest)
    if not isinstance(loss, Approx):
        return Pure(kept), Pure(rest)
    method = Approx(kept, loss.delta)
    return method, GDP.squared(_DOWN.subtract(gaussian_budget(loss).square, gaussian_budget(method).square))
