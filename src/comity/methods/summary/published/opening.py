"""The first broadcast: the weights of the seeds. Seeds are public, and so is the chance here; anybody can repeat it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from comity.entropy import Stream
from comity.methods.summary.published.budget import OPENING, iterations
from comity.privacy.mechanisms.sarpatwar import STEPS, grid_mean

Floats = NDArray[np.float64]


def opening(sums: NDArray[np.int64], records: int, stream: Stream) -> Floats:
    """As `MeanWeights` with the printed ε of the first round: two rows, means and λ."""
    truth, weights = sums / STEPS, np.zeros(len(sums))
    means, total, count = grid_mean(weights), np.zeros(len(sums)), iterations(len(sums))
    chance = stream.uniform((count, len(sums)))
    signed = stream.uniform(count) - 0.5
    for number in range(count):
        # Exponential noise on the scores, then a measurement with Laplace noise, both of scale 1/ε.
        scores = np.abs(records * means - truth) - np.log(chance[number]) / OPENING
        worst = int(np.argmax(scores))
        noise = -np.sign(signed[number]) * np.log(1 - 2 * abs(signed[number])) / OPENING
        weights[worst] += (truth[worst] + noise - records * means[worst]) / (2 * records)
        means[worst] = grid_mean(weights[worst : worst + 1])[0]
        total += means
    return np.stack([total / count, weights])
