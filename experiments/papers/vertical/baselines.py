"""The other private methods of the paper's tables: noisy gradient descent and noisy Frank-Wolfe.

The paper gives no settings for any of them. DPSGD makes 20 passes at a step of 200 over rows of L1 norm 1; DPFW is
(ε, δ)-private, as in the paper, with the radius and steps of each table. All of these were picked among a dozen by
looking at errors, which favours both. `one_pass_sgd` has the settings of Song, Chaudhuri and Sarwate (2013), whom the
paper cites, and was not tuned.

DPFW in one place is the private Frank-Wolfe of Talwar, Thakurta and Zhang (2015), which Lou and Cheung (2018) start
from. Over K parties, `shared_frank_wolfe` follows what the abstract of Lou and Cheung says: blocks are sampled, and a
feature that becomes active is shared as a private Johnson-Lindenstrauss projection. The text of their paper was not at
hand: how blocks are sampled, what is spent on which message, and the size of the projection are ours. It is not their
algorithm by the book.
"""

from __future__ import annotations

from math import sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from comity.entropy import Stream
from comity.privacy import ZCDP, Gaussian, Laplace, NoiseSource, NoisyMax, Pure, Spherical, simulated_permit

Floats = NDArray[np.float64]

PASSES = 20
STEP = 200.0
BATCH = 50
PENALTY = 1e-4
SKETCH = 100
"""Dimensions of the projection."""


def dpsgd(
    features: Floats,
    labels: Floats,
    *,
    epsilon: float,
    source: NoiseSource,
    passes: int = PASSES,
    step: float = STEP,
) -> Floats:
    """Full gradients of the logistic loss, rows clipped to L1 norm 1, Laplace noise, ε shared by all passes.

    A replaced record moves a sum of gradients (σ(x·w) − y)x by at most 2 in L1.
    """
    rows = features / np.maximum(1.0, np.abs(features).sum(axis=1, keepdims=True))
    count, width = rows.shape
    noise = Laplace(Pure(epsilon / passes))
    scale = noise.scale(sensitivity=2.0, shape=(width,))
    weights = np.zeros(width)
    for number in range(passes):
        gradient = rows.T @ (expit(rows @ weights) - labels)
        drawn = noise.draw(source, scale, (width,), permit=simulated_permit("gradient", number)) * scale.grid
        weights -= step * (gradient + drawn) / count
    return weights


def one_pass_sgd(features: Floats, labels: Floats, *, epsilon: float, source: NoiseSource, number: int = 0) -> Floats:
    """Song, Chaudhuri and Sarwate (2013): one pass in batches, noise of density exp(−ε|z|/2) on each sum of gradients.

    Every record is in one batch, so all batches together are ε-private. Rows are divided by √d, so that a gradient of
    the logistic loss has norm 1 at most and a replaced record moves a sum by 2. The step is 1/√t.
    """
    rows = features / sqrt(features.shape[1])
    count, width = rows.shape
    order = Stream.public("reproduce vertical", "batches", number, count).permutation(count)
    noise = Spherical(Pure(epsilon))
    scale = noise.scale(sensitivity=2.0, shape=(width,))
    weights = np.zeros(width)
    for at in range(count // BATCH):
        batch = order[at * BATCH : (at + 1) * BATCH]
        gradient = rows[batch].T @ (expit(rows[batch] @ weights) - labels[batch])
        drawn = noise.draw(source, scale, (width,), permit=simulated_permit("batch", at)) * scale.grid
        weights -= (PENALTY * weights + (gradient + drawn) / BATCH) / sqrt(at + 1)
    return weights / sqrt(width)


def frank_wolfe(
    features: Floats,
    labels: Floats,
    *,
    rho: float,
    source: NoiseSource,
    radius: float = 1.0,
    steps: int = 30,
) -> Floats:
    """Least squares over an L1 ball by steps towards the vertex of the noisily steepest descent (after Talwar, Thakurta
    and Zhang 2015), with ρ shared by all steps: an ε-DP choice is ε²/2-zCDP.

    Rows lie in [−1, 1]^d and labels in [−1, 1]; a residual is clipped to 1 + radius, so that a replaced record moves
    any coordinate of Σ (x·w − y)x by at most 2(1 + radius).
    """
    width = features.shape[1]
    choose = NoisyMax(loss=Pure(sqrt(2 * rho / steps)), sensitivity=2 * (1 + radius))
    weights = np.zeros(width)
    for number in range(steps):
        residual = np.clip(features @ weights - labels, -1 - radius, 1 + radius)
        gradient = features.T @ residual
        scores = np.concatenate([-gradient, gradient])
        best = int(choose.run(source, scores, permit=simulated_permit("vertex", number)))
        vertex = np.zeros(width)
        vertex[best % width] = radius if best < width else -radius
        weights += 2.0 / (number + 2) * (vertex - weights)
    return weights


def shared_frank_wolfe(
    features: Floats,
    labels: Floats,
    *,
    parties: int,
    rho: float,
    source: NoiseSource,
    radius: float = 1.0,
    steps: int = 30,
    number: int = 0,
) -> Floats:
    """Least squares by block-coordinate Frank-Wolfe over columns at K parties; each party's weights lie in an L1 ball.

    All know a projection P with m rows of variance 1/m. The holder of the label releases P·y with Gaussian noise, and a
    party releases P·x the same way when feature x gets its first weight. The residual r = Σ w·(noisy P·x) − noisy P·y
    is then public. In each step one party is drawn, which moves its weights towards the vertex with the noisily
    smallest x·(Pᵀr).

    A replaced record moves P·x by at most 2·max|P_i| in L2, and each score by at most 2·max|(Pᵀr)_i|, which is public.
    Half of ρ is for steps + 1 projections, half for the choices of the vertices.
    """
    count, width = features.shape
    public = Stream.public("reproduce vertical", "projection", parties, number, count)
    projection = public.normal((SKETCH, count)) / sqrt(SKETCH)
    longest = float(np.sqrt((projection**2).sum(axis=0).max()))
    noise = Gaussian(ZCDP(rho / 2 / (steps + 1)))
    scale = noise.scale(sensitivity=2 * longest, shape=(SKETCH,))

    def share(column: Floats, name: str, place: int) -> Floats:
        drawn = noise.draw(source, scale, (SKETCH,), permit=simulated_permit(name, place)) * scale.grid
        return np.asarray(projection @ column + drawn, np.float64)

    blocks = np.array_split(np.arange(width), parties)
    held = projection @ features
    label = share(labels, "label", 0)
    shared: dict[int, Floats] = {}
    weights = np.zeros(width)
    choice = Pure(sqrt(rho / steps))
    for at in range(steps):
        own = blocks[int(public.integers(parties, 1)[0])]
        residual = sum((weights[place] * sketch for place, sketch in shared.items()), -label)
        furthest = 2 * float(np.abs(projection.T @ residual).max())
        slope = held[:, own].T @ residual
        scores = np.concatenate([-slope, slope])
        choose = NoisyMax(loss=choice, sensitivity=furthest)
        best = int(choose.run(source, scores, permit=simulated_permit("vertex", at)))
        chosen = int(own[best % len(own)])
        if chosen not in shared:
            shared[chosen] = share(features[:, chosen], "feature", at)
        moved = 2 * parties / (at + 2 * parties)
        weights[own] *= 1 - moved
        weights[chosen] += moved * (radius if best < len(own) else -radius)
    return weights
