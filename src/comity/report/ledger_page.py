"""The page of a ledger: what was granted, spent and left of each dataset, how losses add up, and what was left when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

from markupsafe import Markup

from comity._version import __version__
from comity.privacy.accounting import gdp_epsilon, gdp_square
from comity.privacy.currency import Currency, delta_of
from comity.privacy.ledger import Account, Moment, format_rounded
from comity.report.page import render
from comity.report.plots import Amount, draw_amounts

MAX_DRAWN = 40
"""Moments that a plot has room for; the oldest beyond are left out, and the page says so."""


@dataclass(frozen=True)
class DatasetPage:
    account: Account
    sums: Markup
    course: Markup
    left_out: int
    explained: str


def render_ledger(name: str, accounts: Sequence[Account], history: Sequence[Moment]) -> str:
    pages = [make_dataset_page(one, [m for m in history if m.dataset == one.dataset]) for one in accounts]
    return render("ledger.html.jinja", name=name, pages=pages, version=__version__)


def make_dataset_page(account: Account, moments: Sequence[Moment], *, most: int = MAX_DRAWN) -> DatasetPage:
    """One dataset's account with its plots; `moments` are those of this dataset, of which the last `most` are drawn."""
    shown = moments[-most:]
    return DatasetPage(
        account, draw_sums(account), draw_course(shown), len(moments) - len(shown), explain_arithmetic(account)
    )


def draw_sums(account: Account) -> Markup:
    """Granted, spent, reserved and left."""
    if account.granted is None or account.left is None or not account.spent_epsilon.is_finite():
        return Markup("")
    granted = account.granted.epsilon
    amounts = [
        Amount("granted", float(granted), format_rounded(granted, ROUND_FLOOR)),
        Amount("spent", float(account.spent_epsilon), format_rounded(account.spent_epsilon, ROUND_CEILING), ours=True),
    ]
    if account.reserved_epsilon:
        reserved = account.reserved_epsilon
        amounts.append(Amount("reserved", float(reserved), format_rounded(reserved, ROUND_CEILING)))
    amounts.append(Amount("left", float(account.left), format_rounded(account.left, ROUND_FLOOR)))
    most = max(one.value for one in amounts)
    return Markup(draw_amounts(f"Budget of {account.dataset}, as epsilon", amounts, most=most))


def draw_course(moments: Sequence[Moment]) -> Markup:
    """What was left after each event, the oldest on top."""
    known = [one for one in moments if one.left is not None]
    most = max((float(one.granted or 0) for one in known), default=0.0)
    if len(known) < 2 or not most:
        return Markup("")
    amounts = [
        Amount(_label(one), float(one.left or 0), f"left {format_rounded(one.left or Decimal(0), ROUND_FLOOR)}")
        for one in known
    ]
    return Markup(draw_amounts("What was left after each event, as epsilon", amounts, most=most))


def _label(one: Moment) -> str:
    of = f"{one.what}, {one.study[:24]}" if one.run else one.what
    return f"{one.time[:10]} {of}"


def explain_arithmetic(account: Account) -> str:
    """How losses add up in this ledger, with an example at its own delta."""
    if account.currency is None or account.granted is None:
        return "This ledger has no limit; it counts each kind of loss separately."
    if not account.currency.adds_squares:
        return "Losses add up: two studies of epsilon 1.00 cost 2.00, and what is left is the difference."
    example = ""
    if account.currency is Currency.GAUSSIAN:
        delta = float(delta_of(account.granted))
        both = gdp_epsilon(2 * gdp_square(1.0, delta), delta)
        example = f": two studies of epsilon 1.00 cost {format_rounded(Decimal(repr(both)), ROUND_CEILING)}, not 2.00"
    return (
        f"Losses add as squares, as the deviations of independent noise do{example}. What is left is more than the "
        "difference between what was granted and what was spent."
    )
