"""Mechanisms, one per file: what they add, what that promises, and why. The longer proofs are in proof.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from comity.privacy.loss import Loss
from comity.privacy.mechanisms.gaussian import Gaussian
from comity.privacy.mechanisms.laplace import Laplace
from comity.privacy.mechanisms.mean_weights import MeanWeights
from comity.privacy.mechanisms.noisy_counts import NoisyCounts
from comity.privacy.mechanisms.noisy_max import NoisyMax
from comity.privacy.mechanisms.noisy_threshold import NoisyThreshold
from comity.privacy.mechanisms.prefix_sums import PrefixSums
from comity.privacy.mechanisms.rank_coins import RankCoins
from comity.privacy.mechanisms.scale import Scale
from comity.privacy.mechanisms.spherical import Spherical
from comity.privacy.permit import Permit

if TYPE_CHECKING:
    from comity.privacy.randomness import NoiseSource

__all__ = [
    "Gaussian",
    "Laplace",
    "MeanWeights",
    "Noise",
    "NoisyCounts",
    "NoisyMax",
    "NoisyThreshold",
    "PrefixSums",
    "RankCoins",
    "Scale",
    "Spherical",
]


class Noise(Protocol):
    """Additive noise: how much of it a sensitivity needs, and a draw of that much."""

    @property
    def loss(self) -> Loss:
        """The budget it was made for."""
        ...

    @property
    def charged(self) -> Loss:
        """What one draw costs: where the budget is in other terms, the loss that it buys."""
        ...

    @property
    def name(self) -> str: ...

    @property
    def norm(self) -> str:
        """The norm that its sensitivity is measured in: "l1" or "l2"."""
        ...

    def scale(
        self,
        *,
        sensitivity: float,
        shape: tuple[int, ...],
        parts: int = 1,
        grid: float | None = None,
        exact: bool = False,
    ) -> Scale:
        """Noise for a release of this shape; `grid` is the widest grid allowed, by default a fine one.

        Values that are `exact` are whole numbers already: they lie on the grid, and rounding adds nothing.
        With `parts` above 1 the noise is the sum of that many parties' parts.
        """
        ...

    def draw(
        self,
        source: NoiseSource,
        scale: Scale,
        shape: tuple[int, ...],
        *,
        permit: Permit,
        part: bool = False,
    ) -> NDArray[np.int64]:
        """The noise in grid units: all of it, or one party's part."""
        ...
