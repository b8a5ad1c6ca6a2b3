"""Audits of a shared sum: what a coalition sees of one contribution, and the loss that a release claims.

The coalition knows every contribution but the changed one, and its own part of the noise: the honest parts are left.
Bounds are taken at a confidence of 1 − 1e-7.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from comity.privacy.loss import Pure
from comity.privacy.permit import simulated_permit
from comity.privacy.randomness import SeededNoise

SURE = 1 - 1e-7
COUNT = 40_000
DELTA = 1e-5


def draw_views(release: Any, consortium: Any, values: Any, seed: Any, *, parts: Any = None, count: Any = COUNT) -> Any:
    """`count` views of one contribution under the honest parts of its noise."""
    scale, source = release.scale(consortium), SeededNoise(seed)
    parts = consortium.honest_parts if parts is None else parts
    shape = (count, *release.shape)
    total = np.rint(values / scale.grid) + np.zeros(shape)
    for _ in range(parts):
        if isinstance(consortium.loss, Pure):
            total += source._part_rows(
                scale.total, consortium.honest_parts, count, int(np.prod(release.shape))
            ).reshape(shape)
        else:
            total += source.rounded_gaussian(scale.part, shape, permit=simulated_permit(release.name))
    return total * scale.grid


def claimed_mu(release: Any) -> float:
    """With the Gaussian noise of all its draws neighbours are no further apart than N(0, 1) and N(μ, 1)."""
    return sqrt(release.times * float(release.loss.square))
