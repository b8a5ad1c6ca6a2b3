"""What the coordinator makes of noisy sums of gradients: steps of whitened rows, then how sure the model is."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from comity.federation.coordinator.parties import Parties
from comity.federation.coordinator.released import Total
from comity.federation.declare.consortium import Consortium
from comity.methods.averaging import rule
from comity.methods.averaging.calibration import Slope
from comity.methods.averaging.moment_blocks import SQUARE, matrices, ranges, square
from comity.methods.averaging.sizes import together
from comity.methods.averaging.whitening import Whitening, whitened_by

if TYPE_CHECKING:
    from comity.methods.averaging.method import AveragingProtocol

Floats = NDArray[np.float64]


def descend(method: AveragingProtocol, parties: Parties) -> Floats:
    """Steps along noisy gradients of whitened rows, from zero; the mean of the last half of the way, calibrated."""
    consortium = parties.consortium
    opened, whitening = parties.sum(method.second_moment), Whitening.none(method.features)
    _require_moments(method, parties, "second_moment", opened)
    for look in range(method.looks):
        records = together(method.sizes, consortium, opened.names)
        whitening = whitened(method, whitening, look, opened.value, records, consortium)
        opened = parties.sum(method.whitened_moment, whitening=whitening.factors)
        _require_moments(method, parties, "whitened_moment", opened)
    steps = steps_from(method, matrices(opened.value, method.blocks), consortium)
    weights, kept = np.zeros(method.shape), np.zeros(method.shape)
    first = rule.averaged_from(method.steps)
    for number in range(method.steps):
        iterate = whitening.back(weights)
        noisy = parties.sum(method.gradient, iterate=iterate, whitening=whitening.factors).value
        weights = weights - steps.along(noisy)
        if number >= first:
            kept += weights / (method.steps - first)
    return _calibrated(method, parties, whitening.back(kept))


def _require_moments(method: AveragingProtocol, parties: Parties, name: str, opened: Total) -> None:
    most = opened.parties * parties.declaration[name].bounded.limit
    parties.require(name, opened.parties, ranges(opened.value, method.blocks, most))


def _calibrated(method: AveragingProtocol, parties: Parties, weights: Floats) -> Floats:
    slope = Slope()
    for _ in range(method.asks):
        deviation = method.declare(parties.consortium)["calibration"].opened_deviation(parties.consortium)
        slope = slope.after(parties.sum(method.calibration, iterate=slope.factor * weights).value, deviation)
    return slope.factor * weights


def whitened(
    method: AveragingProtocol, before: Whitening, look: int, opened: Floats, records: int, consortium: Consortium
) -> Whitening:
    """What a look at the second moments of rows adds to their whitening."""
    spread = method.declare(consortium)["second_moment"].opened_deviation(consortium)
    scale, directions = whitened_by(
        matrices(opened, method.blocks),
        square(opened),
        method.blocks,
        records=records,
        spread=spread,
        square_spread=spread / SQUARE,
    )
    return before.after(look, scale, directions)


def steps_from(method: AveragingProtocol, moments: Sequence[Floats], consortium: Consortium) -> rule.Steps:
    """Where a noisy gradient leads, from the noisy second moments of the blocks."""
    return rule.steps_of(
        moments,
        method.blocks,
        curvature=method.objective.curvature(method.cut(consortium)),
        noise=gradient_noise(method, consortium),
        spread=method.declare(consortium)["second_moment"].opened_deviation(consortium),
        touched=method.touched,
    )


def gradient_noise(method: AveragingProtocol, consortium: Consortium) -> float:
    """Deviation of one number of a gradient on which the budget of all rounds were spent."""
    budget = method.budget(consortium)
    whole = sqrt(float(budget.gradient.square) * budget.rounds)
    return method.declare(consortium)["gradient"].sensitivity / whole * rule.shared_factor(consortium)
