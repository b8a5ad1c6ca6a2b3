"""What ε and δ mean for a person, in one sentence.

Of two neighbouring datasets that somebody holds for equally likely, the better guess after an (ε, δ)-private release is
right with probability (1 + TV)/2, and TV ≤ (e^ε − 1 + 2δ)/(e^ε + 1): at most (e^ε + δ)/(1 + e^ε). Without δ the belief
itself is bounded by that, whatever was released.
"""

from __future__ import annotations

import math
from decimal import ROUND_UP, Context, Decimal

from comity.privacy.loss import shown_small
from comity.runtime.results.outcome import Guarantee

_ONE = {"a record": "one record", "a person": "the records of one person", "a whole party": "all records of one party"}
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
    one = _ONE.get(guarantee.unit, guarantee.unit)
    if guarantee.neighbours == "replaced":
        before = f"takes two versions of {one} for equally likely"
    else:
        before = f"takes it for as likely as not that {one} took part"
    sure = percent(best_guess(guarantee.epsilon, guarantee.delta))
    if sure is None:
        return f"Whoever {before} may be certain after this run: so large an epsilon promises nothing."
    after = f"is at most {sure} sure of the truth after it"
    if guarantee.delta:
        delta = shown_small(Decimal(repr(guarantee.delta)))
        after = f"guesses right after it at most {sure} of the time (delta {delta}, the chance that eps leaves out, "
        after += "is counted in)"
    said = f"Whoever knows everything else and {before} before this run, 50 %, {after}."
    return f"Without the seed it would mean: {said[0].lower()}{said[1:]}" if guarantee.seeded else said


def percent(share: float) -> str | None:
    """Rounded up, to as many places as tell it from certainty; None where none do."""
    for decimals in range(1, _DECIMALS + 1):
        # A little up first: the double may lie below the number that it stands for.
        exact = Decimal(share) * 100 * (1 + Decimal("1e-15"))
        up = exact.quantize(Decimal(1).scaleb(-decimals), rounding=ROUND_UP, context=Context(prec=40))
        if up < 100:
            return f"{up} %"
    return None
