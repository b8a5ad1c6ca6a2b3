"""How far the noise of the gradients moves each weight of the model, so that a page can tell findings from noise.

Post-processing of what the coordinator opened. Near the best weights w* a step is w ← w − P⁻¹(G(w − w*) + η), with G
the curvature and η the noise of the round. P has the axes of the noisy second moment S̃. G is taken as half of
κ·S̃₊, with κ the curvature that steps are made for, and of several classes as two thirds: probabilities that are
neither 0 nor 1 come near that. Along an axis of curvature g and step p a round adds
noise p·η and keeps 1 − p·g of what was there. The model is the mean over the last half of the rounds. A deviation is
rough: it leaves out clipped residuals, curvature across blocks, and the noise of the calibration, which moves all
weights by one small share of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from comity.methods.averaging.descent import Preconditioner, first_averaged_round
from comity.methods.averaging.objectives import Objective

Floats = NDArray[np.float64]


def estimate_weight_noise(
    moments: Sequence[Floats],
    preconditioner: Preconditioner,
    unwhiten: Callable[[Floats], Floats],
    *,
    objective: Objective,
    clip: float,
    noise: float,
    rounds: int,
) -> Floats:
    """The deviation of each weight (d,) of the original rows. `noise` is that of a number of an opened gradient
    of residuals clipped to `clip`."""
    curvature = objective.step_curvature(clip) * (2 / 3 if objective.kind == "softmax" else 1 / 2)
    width = preconditioner.blocks[-1].stop
    spread = np.zeros((width, width))
    for moment, block, inverse in zip(moments, preconditioner.blocks, preconditioner.inverses):
        values, axes = np.linalg.eigh(moment)
        steps = np.einsum("ji,jk,ki->i", axes, inverse, axes)
        kept = 1 - steps * curvature * np.maximum(values, 0.0)
        spread[block, block] = (noise * steps * _sum_of_rounds(kept, rounds))[:, None] * axes.T
    return np.asarray(np.linalg.norm(unwhiten(spread), axis=0), np.float64)


def _sum_of_rounds(kept: Floats, rounds: int) -> Floats:
    """The deviation of the mean over the last half of the rounds, where every round adds noise of deviation 1 and keeps
    this share of what was there."""
    first = first_averaged_round(rounds)
    square = np.zeros_like(kept)
    for added in range(rounds):
        lasting = [kept ** (number - added) for number in range(max(first, added), rounds)]
        square += (np.sum(lasting, axis=0) / (rounds - first)) ** 2
    return np.sqrt(square)
