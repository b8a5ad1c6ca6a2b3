"""A mixture of products that has the released two-way counts: what rows are sampled from.

K components of equal weight; in each the columns are independent, with probabilities softmax(logits). Its two-way
counts are n·PᵀP/K, so that fitting them is least squares by gradients, with no clique to grow and no order to choose.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from comity.entropy import Stream
from comity.methods.synthetic.consistent import Consistent
from comity.methods.synthetic.layout import Layout

Floats = NDArray[np.float64]

# Settled on Adult. Credit defaults and bikes alone choose the same number of steps against 600: two-way distances at
# ε = 1 are .0206 and .0237 instead of .0231 and .0265, and at .1 equal within 2 %. Schemas with more cells get fewer,
# so that no fit takes much longer than one there.
COMPONENTS, STEPS, RATE = 100, 2000, 0.1
_WIDE, _FEWEST = 160, 400
# No count is believed to more than this: the mixture can't reach every exact table, and what it misses of one should
# not be paid by the others. Settled on Adult.
_FLOOR = 20.0
_FIRST, _SECOND, _TINY = 0.9, 0.999, 1e-8


@dataclass(frozen=True)
class Mixture:
    """Probabilities (components, cells); those of each column add up to one in each component."""

    layout: Layout
    probabilities: Floats

    def column(self, k: int) -> Floats:
        start = self.layout.offsets[k]
        return self.probabilities[:, start : start + self.layout.sizes[k]]

    def pair(self, i: int, j: int) -> Floats:
        """The share of records in each pair of cells."""
        return np.asarray(self.column(i).T @ self.column(j)) / len(self.probabilities)

    def single(self, k: int) -> Floats:
        return np.asarray(self.column(k).mean(0))


def fit(
    layout: Layout,
    agreed: Consistent,
    chance: Stream,
    *,
    pairs: Mapping[tuple[int, int], Floats] | None = None,
    pull: float = 0.0,
    start: Mixture | None = None,
    components: int = COMPONENTS,
    steps: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Mixture:
    """Least squares on `pairs`, or on the agreed ones, by Adam, each weighted by how well it is known.

    `pull` draws components together: it costs what all of them are apart from their mean, the trace of the matrix of
    interactions, in units of the largest eigenvalue that noise alone would give that matrix. A column that follows
    another is left out, since it is drawn from that one. From `start`, or from near the single columns.
    """
    width, total = layout.width, agreed.total
    if steps is None:
        steps = most_steps(layout)
    target, weight = np.zeros((width, width)), np.zeros((width, width))
    places = [slice(start, start + size) for start, size in zip(layout.offsets, layout.sizes)]
    noise = []
    for (i, j), table in (agreed.pairs if pairs is None else pairs).items():
        if i in layout.follows or j in layout.follows:
            continue
        noise.append(agreed.deviation[i, j])
        believed = 1 / max(noise[-1], _FLOOR) ** 2
        target[places[i], places[j]], weight[places[i], places[j]] = table / total, believed
        target[places[j], places[i]], weight[places[j], places[i]] = table.T / total, believed
    single = np.concatenate([agreed.singles[k] for k in range(layout.columns)]) / total
    if start is None:
        logits = 0.5 * chance.normal((components, width)) + np.log(np.maximum(single, 1e-6))
    else:
        components = len(start.probabilities)
        logits = np.log(np.maximum(start.probabilities, 1e-30))
    scale = total**2
    single_weight = layout.columns / max(agreed.narrowest, _FLOOR) ** 2
    together = 0.0
    if noise and pull:
        # Half a squared distance with eigenvalues pulled by λ, in units of the loss; a symmetric matrix of noise has
        # eigenvalues up to 2σ√width.
        typical = float(np.median(noise))
        together = 2 * total / max(typical, _FLOOR) ** 2 * pull * 2 * typical * sqrt(width)
    logits = logits.astype(np.float32)
    weight32 = (weight * scale).astype(np.float32)
    target32 = target.astype(np.float32)
    first, second = np.zeros_like(logits), np.zeros_like(logits)
    starts = np.array(layout.offsets)
    sizes = np.array(layout.sizes)
    for step in range(1, steps + 1):
        p = _softmax(logits, starts, sizes)
        off = (p.T @ p) / components - target32
        middle = p.mean(0)
        slope = (2 * weight32 * off).astype(np.float32)
        gradient = p @ slope / components * 2
        gradient += (2 * single_weight * scale * (middle - single) / components).astype(np.float32)
        if together:
            gradient += np.float32(2 * together / components) * (p - middle)
        inner = np.repeat(np.add.reduceat(gradient * p, starts, axis=1), sizes, axis=1)
        gradient = p * (gradient - inner)
        first = _FIRST * first + (1 - _FIRST) * gradient
        second = _SECOND * second + (1 - _SECOND) * gradient**2
        rate = RATE * (1 - (step - 1) / steps)
        corrected = np.sqrt(second / (1 - _SECOND**step)) + _TINY
        logits -= (rate * first / (1 - _FIRST**step) / corrected).astype(np.float32)
        if progress is not None and step % 50 == 0:
            progress(step, steps)
    return Mixture(layout, _softmax(logits.astype(np.float64), starts, sizes))


def most_steps(layout: Layout) -> int:
    return max(_FEWEST, min(STEPS, int(STEPS * (_WIDE / layout.width) ** 2)))


def _softmax(logits: Floats, starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> Floats:
    largest = np.repeat(np.maximum.reduceat(logits, starts, axis=1), sizes, axis=1)
    raised = np.exp(logits - largest)
    return np.asarray(raised / np.repeat(np.add.reduceat(raised, starts, axis=1), sizes, axis=1))
