"""What ε and δ mean for a person, in two sentences.

Of two neighbouring datasets that somebody holds for equally likely, the better guess after an (ε, δ)-private release is
right with probability (1 + TV)/2, and TV ≤ (e^ε − 1 + 2δ)/(e^ε + 1): at most (e^ε + δ)/(1 + e^ε). Without δ the belief
itself is bounded by that, whatever was released.
"""

from __future__ import annotations

import math
from decimal import ROUND_UP, Context, Decimal

from comity.privacy.loss import format_small
from comity.study.results.outcome import Guarantee

_REPLACED = {
    "a record": ("every other record", "of yours"),
    "a person": ("everybody else's records", "of all your records"),
    "a whole party": ("every other party's records", "of all your party's records"),
}
_ADDED = {"a record": "your record took part", "a person": "you took part", "a whole party": "your party took part"}
# Beyond so many nines the figure says nothing that "certain" does not.
_DECIMALS = 6


def best_guess(epsilon: float, delta: float) -> float:
    """How often a guess between two equally likely datasets is right at best."""
    if epsilon > 700:
        return 1.0
    return min(1.0, (math.exp(epsilon) + delta) / (1 + math.exp(epsilon)))


def meaning(guarantee: Guarantee) -> str:
    """For the reader of a page: how far anybody's belief can move. Empty where the claimed loss does not hold."""
    if guarantee.claim != "private":
        return ""
    others, yours = _REPLACED[guarantee.unit]
    unsure = f"two versions {yours}" if guarantee.neighbours == "replaced" else f"whether {_ADDED[guarantee.unit]}"
    between = "between " if guarantee.neighbours == "replaced" else ""
    before = f"Suppose someone knows {others} and is unsure {between}{unsure}: a coin toss, 50 %."
    sure = percent(best_guess(guarantee.epsilon, guarantee.delta))
    if sure is None:
        after = "After this run they may be certain: so large an epsilon promises nothing."
    else:
        after = (
            f"After seeing everything this run published, their best guess is right at most {sure} of the time"
            f"{_counted(guarantee.delta)}."
        )
    return f"{'Without the seed it would mean: ' if guarantee.seeded else ''}{before} {after}"


def _counted(delta: float) -> str:
    return f" (delta {format_small(Decimal(repr(delta)))} is counted in)" if delta else ""


def percent(share: float) -> str | None:
    """Rounded up, to as many places as tell it from certainty; None where none do."""
    for decimals in range(1, _DECIMALS + 1):
        # A little up first: the double may lie below the number that it stands for.
        exact = Decimal(share) * 100 * (1 + Decimal("1e-15"))
        up = exact.quantize(Decimal(1).scaleb(-decimals), rounding=ROUND_UP, context=Context(prec=40))
        if up < 100:
            return f"{up} %"
    return None
