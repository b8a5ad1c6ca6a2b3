"""What an owner reads when the budget does not suffice: requested, remaining, difference, and what to do.

Requested is rounded up and remaining down, so the difference that is shown always suffices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

from comity.privacy.accounting import Spent, remaining
from comity.privacy.ledger_account import Balance, delta_of, figure, total
from comity.privacy.loss import ZCDP, Loss


@dataclass(frozen=True, slots=True)
class Shortfall:
    """What a refusal for lack of budget says: requested rounded up, remaining down, and their difference."""

    requested: str
    remaining: str
    difference: str
    sentence: str


def shortfall(
    *, study: str, dataset: str, where: str, balance: Balance, losses: Sequence[Loss], converted: bool
) -> Shortfall:
    """Why `losses` do not fit. `converted`: the study states half of them, since the relations differ."""
    granted, held = balance.granted, balance.committed
    assert granted is not None
    wanted, delta = total(Spent.zero(), losses), delta_of(granted)
    grant = f'comity ledger grant {where} --dataset {dataset} --why "..."'
    over = held.delta + wanted.delta - delta
    if over > 0:
        asked, left = _small(wanted.delta, ROUND_CEILING), _small(delta - held.delta, ROUND_FLOOR)
        short = _small(over, ROUND_CEILING)
        advice = "Grant more" if left == "0" else "Lower privacy.delta, or grant more"
        return _said(study, dataset, "delta", asked, left, short, f"{advice}: {grant} --delta {short}")
    needed, room = total(held, losses).epsilon_at(delta), remaining(granted, held)
    if not needed.is_finite():
        asked, left = str(ZCDP(wanted.rho)), figure(room, ROUND_FLOOR)
        return Shortfall(
            asked,
            left,
            "a delta above 0",
            f"refused: {study} asks {asked} of {dataset}, which needs a delta, and none is left. Choose a "
            f"mechanism with a pure loss, or grant one: {grant} --delta ...",
        )
    more = needed - min(held.epsilon_at(delta), granted.epsilon)
    decimals = min(6, max(2, *(1 - value.adjusted() for value in (room, more) if value)))
    asked, left = figure(more, ROUND_CEILING, decimals), figure(room, ROUND_FLOOR, decimals)
    short = str(Decimal(asked) - Decimal(left))
    if not Decimal(left):
        advice = "Grant more"
    elif not converted:
        advice = f"Lower privacy.epsilon to {left}, or grant more"
    elif wanted.rho:
        # Four times ρ is more than twice ε; no figure is better than one that would be refused again.
        advice = "Lower privacy.epsilon, or grant more"
    else:
        advice = f"Lower privacy.epsilon to {Decimal(left) / 2}, or grant more"
    return _said(study, dataset, "eps", asked, left, short, f"{advice}: {grant} --epsilon {short}")


def _said(study: str, dataset: str, what: str, asked: str, left: str, short: str, remedy: str) -> Shortfall:
    sentence = f"refused: {study} asks {what} {asked} of {dataset}, {left} is left ({short} short). {remedy}"
    return Shortfall(asked, left, short, sentence)


def _small(value: Decimal, rounding: str) -> str:
    """Two significant digits, in powers of ten."""
    if value <= 0:
        return "0"
    rounded = Context(prec=2, rounding=rounding).plus(value)
    mantissa = rounded.scaleb(-rounded.adjusted()).normalize()
    return f"{mantissa:f}e{rounded.adjusted()}"
