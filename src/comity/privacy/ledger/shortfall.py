"""What an owner reads when the budget does not suffice: requested, remaining, difference, and what to do.

Requested is rounded up and remaining down, so the difference that is shown always suffices.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

from comity.privacy.accounting import Spent
from comity.privacy.composition import delta_of
from comity.privacy.currency import Currency
from comity.privacy.ledger.account import Balance, figure


@dataclass(frozen=True, slots=True)
class Shortfall:
    """What a refusal for lack of budget says: requested rounded up, remaining down, and their difference."""

    requested: str
    remaining: str
    difference: str
    sentence: str


def shortfall(
    *, study: str, dataset: str, where: str, balance: Balance, wanted: Spent, converted: bool, pure: bool
) -> Shortfall:
    """Why a run that costs `wanted` does not fit.

    `converted` says that the study states other figures, in its own relation or kind; `pure` that all of them are pure.
    """
    granted, held = balance.granted, balance.committed
    assert granted is not None and balance.left is not None
    needed = held.plus(wanted)
    delta = delta_of(granted)
    grant = f'comity ledger grant {where} --dataset {dataset} --why "..."'
    over = needed.delta - delta
    if over > 0:
        asked, left = _small(wanted.delta, ROUND_CEILING), _small(delta - held.delta, ROUND_FLOOR)
        short = _small(over, ROUND_CEILING)
        advice = "Grant more" if left == "0" else "Lower privacy.delta, or grant more"
        return _said(study, dataset, "delta", asked, left, short, f"{advice}: {grant} --delta {short}")
    more, room = balance.epsilon_of(wanted), balance.left
    missing = balance.epsilon_of(needed) - granted.epsilon
    if not missing.is_finite():
        sentence = (
            f"refused: {study} asks more of {dataset} than any grant holds. Raise the noise: lower privacy.epsilon"
        )
        return Shortfall("infinite", figure(room, ROUND_FLOOR), "infinite", sentence)
    decimals = min(6, max(2, *(1 - value.adjusted() for value in (room, more, missing) if value > 0)))
    asked, left = figure(more, ROUND_CEILING, decimals), figure(room, ROUND_FLOOR, decimals)
    additive = balance.currency in (Currency.PURE, Currency.APPROX)
    short = str(Decimal(asked) - Decimal(left)) if additive else figure(missing, ROUND_CEILING, decimals)
    if not Decimal(left):
        advice = "Grant more"
    elif not converted:
        advice = f"Lower privacy.epsilon to {left}, or grant more"
    elif balance.currency is Currency.PURE:
        advice = f"Lower privacy.epsilon to {Decimal(left) / 2}, or grant more"
    else:
        # No figure is better than one that would be refused again.
        advice = "Lower privacy.epsilon, or grant more"
    if pure and balance.currency in (Currency.GAUSSIAN, Currency.CONCENTRATED):
        advice = f"Pure losses are dear in {balance.currency.spoken}: keep a ledger without a delta for them. {advice}"
    at = "" if balance.currency is Currency.PURE else f" at delta {_small(delta, ROUND_FLOOR)}"
    return _said(study, dataset, "eps", asked, left, short, f"{advice}: {grant} --epsilon {short}", at)


def _said(
    study: str, dataset: str, what: str, asked: str, left: str, short: str, remedy: str, at: str = ""
) -> Shortfall:
    sentence = f"refused: {study} asks {what} {asked}{at} of {dataset}, {left} is left ({short} short). {remedy}"
    return Shortfall(asked, left, short, sentence)


def _small(value: Decimal, rounding: str) -> str:
    """Two significant digits, in powers of ten."""
    if value <= 0:
        return "0"
    rounded = Context(prec=2, rounding=rounding).plus(value)
    mantissa = rounded.scaleb(-rounded.adjusted()).normalize()
    return f"{mantissa:f}e{rounded.adjusted()}"
