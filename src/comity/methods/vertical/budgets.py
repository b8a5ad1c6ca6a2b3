"""Budgets from the top down and from the bottom up: what a study's loss means to one party, and the reverse.

Ledgers debit the loss about whole records. A party may also ask what the release tells about *its own* columns when all
others are fixed: less, unless it holds half of the squared norm or more (proof.md, 5). Noise by block, from the bottom
up, is in `blocks.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from math import sqrt

from comity.errors import StudyError
from comity.methods.vertical.layout import Layout
from comity.methods.vertical.sensitivity import (
    l1_sensitivity,
    l1_sensitivity_about,
    l2_sensitivity,
    party_share,
)
from comity.privacy.accounting import gaussian_budget, gdp_epsilon
from comity.privacy.loss import Approx, Loss, Pure, shown


def party_losses(columns: Layout, loss: Loss, carry: float = 0.0) -> dict[str, float]:
    """From the top down: the ε about each party's own columns, at the δ of the study.

    `carry` is how much of the sensitivity, in the norm of the noise, is the products' own inexactness. It may move what
    is released whoever's columns change, so that it stands in full beside the part of one party.
    """
    if isinstance(loss, Pure):
        return {party: float(loss.epsilon) * pure_share(columns, party, carry) for party in columns.parties}
    square, delta = float(gaussian_budget(loss).square), _delta(loss)
    return {party: gdp_epsilon(square * square_share(columns, party, carry), delta) for party in columns.parties}


def affordable(columns: Layout, wished: Mapping[str, float], delta: float, carry: float = 0.0) -> float:
    """The largest ε about whole records at which no party's own columns lose more than wished; δ = 0 is pure."""
    least = float("inf")
    for party, epsilon in wished.items():
        if party not in columns.parties:
            raise StudyError(
                f"vertical.party_epsilon names {party}, the parties are {', '.join(columns.parties)}; correct it",
                key="vertical.party_epsilon",
            )
        if not delta:
            least = min(least, epsilon / pure_share(columns, party, carry))
            continue
        square = float(gaussian_budget(Approx(epsilon, delta)).square) / square_share(columns, party, carry)
        least = min(least, gdp_epsilon(square, delta))
    return least


def pure_share(columns: Layout, party: str, carry: float = 0.0) -> float:
    """Of a pure ε, what the release tells about one party's columns: Laplace noise is laid out for whole records."""
    return (l1_sensitivity_about(columns, party) + carry) / (l1_sensitivity(columns) + carry)


def square_share(columns: Layout, party: str, carry: float = 0.0) -> float:
    """The same of a ρ, which grows with the square of what one party can move."""
    whole = l2_sensitivity(columns)
    return ((sqrt(party_share(columns, party)) * whole + carry) / (whole + carry)) ** 2


def shown_up(epsilon: float, most: Decimal | None = None) -> str:
    """Three digits, rounded up, as every loss is shown; more than the error of the few operations that led to it. No
    part loses more than the whole, so that rounding stops at `most`."""
    if not epsilon:
        return "0"
    up = Decimal(epsilon * (1 + 1e-12))
    return shown(up if most is None else min(up, most), decimals=2, digits=3)


def _delta(loss: Loss) -> float:
    if not isinstance(loss, Approx) or loss.delta == Decimal(0):
        raise StudyError("Gaussian noise needs privacy.delta above 0", key="privacy.delta")
    return float(loss.delta)
