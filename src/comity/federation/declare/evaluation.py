"""A study's terms for its evaluation: the share of the records that is held out, and what measuring may cost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context, Decimal

from comity.errors import StudyError
from comity.privacy.accounting import gaussian_budget
from comity.privacy.loss import GDP, Approx, Loss, Pure
from comity.privacy.unit import Neighbours, Unit

SHARE, BUDGET = 0.2, 0.1
"""The defaults: a share of the records, and of a whole party's budget. Not tuned on data."""

TRAINING, HOLDOUT = "training", "set aside"
"""The two parts of an owner's records, as ledger files name them."""

_DOWN = Context(prec=40, rounding=ROUND_FLOOR)


@dataclass(frozen=True)
class Evaluation:
    """`share` of each owner's records is held out; `loss` is what measuring on them may cost.

    `parallel` says that a unit lies in one of the two parts, so training and evaluation together cost the larger of the
    two and not their sum (proof.md, 2). A whole party lies in both and pays for both. `pure` replaces `loss` beside a
    method that spends no δ, which a ledger counts in pure ε. Where numbers of records are public, an `exact` number is
    held out; otherwise a coin decides for each record.
    """

    share: float
    loss: Loss
    pure: Pure
    parallel: bool
    exact: bool = True

    def count(self, records: int) -> int:
        """How many of so many records are held out where their number is public."""
        return math.floor(self.share * records)

    def left(self, records: int) -> int:
        """How many of so many records are trained on, at least one. With coins: a number that is almost surely
        reached."""
        by_chance = 0.0 if self.exact else 4 * math.sqrt(records * self.share * (1 - self.share))
        return max(1, records - self.count(records) - math.ceil(by_chance))


def split_budget(
    loss: Loss,
    unit: Unit,
    neighbours: Neighbours,
    *,
    share: float | None = None,
    budget: float | None = None,
) -> tuple[Loss, Evaluation]:
    """What the method may lose, and the terms of the evaluation.

    A record or person lies in one part, so each part may lose all of `loss`. Of a whole party's loss, the share
    `budget` goes to the evaluation.
    """
    part = SHARE if share is None else share
    if not 0 < part <= 0.5:
        raise StudyError(f"evaluation.share must be above 0 and at most 0.5, found {part}", key="evaluation.share")
    exact = neighbours is Neighbours.REPLACE and unit is not Unit.PERSON
    if unit is not Unit.PARTY:
        if budget is not None:
            raise StudyError(
                f'evaluation.budget applies to privacy.unit = "party" only. With unit = "{unit}" each unit is either '
                "trained on or held out, so the evaluation costs nothing extra: leave it out",
                key="evaluation.budget",
            )
        return loss, Evaluation(part, loss, _pure(loss), parallel=True, exact=exact)
    given = BUDGET if budget is None else budget
    if not 0 < given < 1:
        raise StudyError(f"evaluation.budget must be between 0 and 1, found {given}", key="evaluation.budget")
    method, rest = _split(loss, given)
    left = Pure(_DOWN.subtract(_pure(loss).epsilon, _pure(method).epsilon))
    return method, Evaluation(part, rest, left, parallel=False)


def _pure(loss: Loss) -> Pure:
    if not isinstance(loss, Pure | Approx):
        raise StudyError(f"a study's budget is an epsilon, with or without a delta; found {loss}", key="privacy")
    return Pure(loss.epsilon)


def _split(loss: Loss, budget: float) -> tuple[Loss, Loss]:
    """Split ε in two. With a δ the evaluation gets the μ² that the method leaves: squares add up, so both together
    charge what the whole (ε, δ) buys."""
    epsilon = _pure(loss).epsilon
    rest = _DOWN.multiply(epsilon, Decimal(repr(budget)))
    kept = _DOWN.subtract(epsilon, rest)
    if not isinstance(loss, Approx):
        return Pure(kept), Pure(rest)
    method = Approx(kept, loss.delta)
    return method, GDP.squared(_DOWN.subtract(gaussian_budget(loss).square, gaussian_budget(method).square))
