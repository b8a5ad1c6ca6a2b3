"""Descent along noisy gradients: how many rounds, how the budget is divided, where residuals are clipped, how long a
step is.

Every figure follows from public quantities: n, d, K, the loss, colluders, drop-outs. None reads a record. The constants
are the same for every table and ε. They were chosen on training rows of Adult (22, 223 and 603 features), credit
defaults, KDD-99 and HAR at ε = 0.1, 1 and 10, each with one dataset left out in turn, by accuracy less a fifth of the
log loss (`python -m experiments choose averaging`). Differences below are in these units.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context, Decimal
from math import log, sqrt

import numpy as np
from numpy.typing import NDArray

from comity.federation.declare.consortium import Consortium
from comity.methods.averaging.second_moments import Blocks
from comity.privacy.accounting import gaussian_budget
from comity.privacy.loss import GDP
from comity.privacy.unit import Neighbours

Floats = NDArray[np.float64]

ROUNDS = 20
"""More rounds cost traffic, and the noise of a round grows as fast as averaging removes it. Of 10, 20 and 40 the best
whichever of Adult, credit defaults, KDD-99 and HAR is left out."""

SECOND_MOMENT_SHARE = Decimal("0.06")
"""Part of μ² for each second moment, of original and of whitened rows. They need few digits: they only set lengths.
Of 0.03, 0.06 and 0.1 the best whichever of Adult, credit defaults, KDD-99 and HAR is left out."""

CALIBRATION_SHARE = Decimal("0.02")
"""Part of μ² for all calibration sums together, where the model has probabilities. Of 0.01, 0.02, 0.05 and 0.1, six
runs of a case, the best over Adult, credit defaults, KDD-99 and HAR and without any but HAR; without HAR 0.05 is, which
costs HAR .0009."""

MIN_PROGRESS = 0.4
"""A plan warns where the rounds cover less of the distance to the best weights, were all directions alike. Chosen on
HAR, thinned to 3,800 records of 562 features, and on Adult with crossed columns at ε = 0.1, where more features taught
less than fewer; credit defaults and KDD-99 at ε = 0.1, which learn, are not warned of."""

MAX_NOISE = 0.14
"""A plan warns where the noise level of all margins together is higher. Seen on training rows of Adult (22 and 223
features, and by marital status, occupation and education), credit defaults, KDD-99, rentals in five classes and two
generated tables of 8 and 20 classes, of each 500, 2,000 and 8,000 records at ε from 0.1 to 3, three draws: no model
below 0.15 had a log loss or accuracy worse than the constant's by more than .003, and from there on half of them had.
KDD-99, Adult with two classes and by marital status learn at up to twice as much."""

# Noise levels between which the clip rises, and from where to where. Of five pairs of clips from 0.35 to 1 this one is
# the best whichever of Adult, credit defaults, KDD-99 and HAR is left out. Levels three times as high or as low changed
# it by .0002 before rows were whitened.
_LOUD, _QUIET = 0.01, 0.001
_MIN_CLIP, _MAX_CLIP = 0.5, 0.7
# Above so many features rounds are doubled where noise is little or much: of 100, 400 and 1,000 the best over Adult,
# credit defaults, KDD-99 and HAR. Without HAR, the widest, the others would not double them (.04 of HAR), without
# credit defaults from 100 on.
_NARROW = 400
# The noise levels between which they are not doubled, seen on training rows of HAR (all records, and thinned, with six
# classes and two), Adult with 603 features, and two generated tables of 513 sparse features at ε = 0.1, 0.3, 1, 10 and
# 10,000; none was left out. Between them 20 rounds are better than 40, in the units above: HAR at ε = 1 by .003 to
# .014, Adult at 0.3 by .007, the generated tables at 0.3 and 1 by .008 to .025. Below the first they are worse (HAR at
# 10 by .006). Above the second they are worse on HAR (at 0.3 by .016 to .18) and better on the others (at 0.1, Adult by
# .015, the generated tables by .016 and .035).
_LITTLE_NOISE, _MUCH_NOISE = 0.012, 0.1
# The ridge by all features: of 0.5, 0.8 and 1.2 the best whichever of Adult, credit defaults, KDD-99 and HAR is left
# out. By the directions above it: of 8, 12 and 18 the best over all and without KDD-99; without Adult or credit
# defaults 8 is, which costs Adult .005 and credit defaults .003, and without HAR 18, which costs HAR .017.
_RIDGE, _STANDING = 1.2, 12.0
_ROUND_DOWN = Context(prec=50, rounding=ROUND_FLOOR)


def count_rounds(features: int, noise: float) -> int:
    """`ROUNDS`, and for wide records, most of whose directions are weak and take longer, twice as many at some noise
    levels: at low ones, which let weak directions be learned, and at high ones, where steps are too short even for
    strong directions. Between these, more rounds bring more noise into weak directions than they find there."""
    return ROUNDS if features <= _NARROW or _LITTLE_NOISE < noise <= _MUCH_NOISE else 2 * ROUNDS


def first_averaged_round(rounds: int) -> int:
    """The released weights are the mean over the last half of the rounds."""
    return rounds - max(1, rounds // 2)


@dataclass(frozen=True)
class Budget:
    """How μ² is divided: the loss of each second moment, of each calibration sum, and of each round."""

    second_moment: GDP
    calibration: GDP | None
    gradient: GDP
    rounds: int

    @classmethod
    def divide(cls, consortium: Consortium, rounds: int, whitenings: int, calibrations: int) -> Budget:
        square = gaussian_budget(consortium.loss).square
        first = _ROUND_DOWN.multiply(square, SECOND_MOMENT_SHARE)
        spent, last = _ROUND_DOWN.multiply(first, Decimal(1 + whitenings)), None
        if calibrations:
            last = _ROUND_DOWN.divide(_ROUND_DOWN.multiply(square, CALIBRATION_SHARE), Decimal(calibrations))
            spent = _ROUND_DOWN.add(spent, _ROUND_DOWN.multiply(last, Decimal(calibrations)))
        # Rounded up before it is subtracted, so the parts never exceed the whole.
        left = _ROUND_DOWN.subtract(_ROUND_DOWN.subtract(square, spent), Decimal(1).scaleb(square.adjusted() - 40))
        each = GDP.squared(_ROUND_DOWN.divide(left, Decimal(rounds)))
        return cls(GDP.squared(first), None if last is None else GDP.squared(last), each, rounds)


def shared_noise_factor(consortium: Consortium) -> float:
    """How much wider the opened noise is than a trusted curator's: sqrt(K/(U − t))."""
    return sqrt(consortium.size / consortium.honest_parts)


def noise_level(consortium: Consortium, features: int, records: int) -> float:
    """ν: the norm of the noise in a mean of gradients of norm at most 1 that takes the whole budget."""
    moved = 2.0 if consortium.neighbours is Neighbours.REPLACE else 1.0
    whole = sqrt(float(gaussian_budget(consortium.loss).square))
    return moved * shared_noise_factor(consortium) * sqrt(features) / (whole * records)


def clip_for(noise: float) -> float:
    """The norm that logistic residuals are clipped to: 0.5 from a noise level of 0.01, 0.7 up to 0.001, and between by
    its logarithm."""
    quiet = (log(_LOUD) - log(noise)) / (log(_LOUD) - log(_QUIET))
    return _MIN_CLIP + (_MAX_CLIP - _MIN_CLIP) * min(1.0, max(0.0, quiet))


@dataclass(frozen=True, eq=False)
class Preconditioner:
    """The matrix P⁻¹ of a step W −= g̃ P⁻¹, block by block of the features."""

    blocks: Blocks
    inverses: tuple[Floats, ...]

    def step(self, gradient: Floats) -> Floats:
        """The step for a noisy gradient sum (k, d)."""
        parts = [gradient[..., block] @ inverse for block, inverse in zip(self.blocks, self.inverses)]
        return np.concatenate(parts, axis=-1)


def fit_preconditioner(
    moments: Sequence[Floats], blocks: Blocks, *, curvature: float, noise: float, spread: float, touched: int
) -> Preconditioner:
    """From noisy second moments S̃ of blocks of features, of which a record touches `touched` at most.

    P = κ/2·k·S̃₊ + ridge·I, where κ is the curvature that steps are made for (`Objective.step_curvature`) and k·S the
    second moment of whole rows: at the true S, where the loss curves by no more than κ, a step overshoots by no more
    than the distance it starts from. `noise` is that of a gradient (`solve_ridge`), `spread` the deviation of the noise
    on a released second moment: eigenvalues of a symmetric matrix of it rarely exceed √(2d)·spread, so larger ones come
    from the records.
    """
    pairs = [np.linalg.eigh(moment) for moment in moments]
    lengths = [curvature / 2 * touched * np.maximum(values, 0.0) for values, _ in pairs]
    own = [length[values > sqrt(2.0 * len(values)) * spread] for length, (values, _) in zip(lengths, pairs)]
    ridge = solve_ridge(noise, blocks[-1].stop, np.concatenate(own))
    inverses = [np.asarray((axes / (length + ridge)) @ axes.T, np.float64) for length, (_, axes) in zip(lengths, pairs)]
    return Preconditioner(blocks, tuple(inverses))


def solve_ridge(noise: float, features: int, strengths: Floats) -> float:
    """What is added to the curvature κ/2·k·S̃ in all directions: steps are short where only noise is left.

    `noise` is the deviation of one number of a gradient that takes the budget of all rounds: √d·noise is its length.
    `strengths` are curvatures that noise alone could not have made. The ridge is 1.2 times that length, or 12·noise·√e
    where this is less: e counts the directions above the ridge, each by its part, and at least one,
    e = Σ s/(s + ridge). So records of many features that vary in few directions take steps as long as the few allow;
    with √d in place of √e their weights would hardly move.
    """
    low, high = 0.0, noise * min(_RIDGE * sqrt(features), _STANDING * sqrt(max(1, len(strengths))))
    for _ in range(60):
        middle = (low + high) / 2
        standing = max(1.0, float((strengths / (strengths + middle)).sum()))
        low, high = (middle, high) if middle < _STANDING * noise * sqrt(standing) else (low, middle)
    return high


def max_progress(
    *, curvature: float, step_curvature: float, noise: float, records: int, features: int, rounds: int, touched: int
) -> float:
    """At most this share of the distance from zero to the best weights is covered in an average direction, where all
    directions are alike.

    The eigenvalues of Σxxᵀ add up to at most the number of records, so an average one is at most records/d. In its
    direction a round leaves 1 − κ·(n/d)/(κ'/2·k·(n/d) + ridge) of the distance, where κ bounds the curvature and steps
    are made for κ'. Shorter rows and flatter losses cover less; records that vary in few directions cover more along
    these.
    """
    strength = records / features
    ridge = solve_ridge(noise, features, np.full(features, step_curvature / 2 * touched * strength))
    rate = curvature * strength / (step_curvature / 2 * touched * strength + ridge)
    return 1 - (1 - min(1.0, rate)) ** rounds
