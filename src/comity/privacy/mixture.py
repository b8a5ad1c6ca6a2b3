"""Noise with probabilities proportional to exp(−|z|/β) on the lattice Z^d, as a mixture of Gaussians.

Since ∫ v^(−1/2) exp(−v/2β² − |z|²/2v) dv is proportional to exp(−|z|/β), the noise is drawn by choosing a
variance v with density proportional to v^(−1/2) exp(−v/2β²) θ(v)^d, where θ(v) = Σ_z exp(−z²/2v) over the
integers, and then d independent discrete Gaussians of that variance. Because θ(v) <= 1 + sqrt(2πv), the
variance is proposed from a mixture of Gamma distributions, v ~ Gamma((j+1)/2, 2β²) with the binomial weights
of (1 + sqrt(2πv))^d, and kept with probability (θ(v) / (1 + sqrt(2πv)))^d. No term is left out:
`mechanisms/proof.md` has the derivation and what finite precision costs.
"""

from __future__ import annotations

from decimal import Context, Decimal, localcontext
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from comity.errors import StudyError

PRECISE = Context(prec=80)
"""Eighty digits: the arithmetic of everything between the uniform bits and the variance."""

_PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459")
_NEGLIGIBLE = Decimal("1e-60")
_FAR = Decimal(140)
"""exp(−140) is below 1e-60: later terms of θ change nothing at this precision."""


@lru_cache(maxsize=64)
def powers(beta: Decimal, dimension: int) -> tuple[tuple[int, Decimal], ...]:
    """The proposal's components: pairs of a power j, largest first, and the probability of j or a larger one.

    The weight of j is C(d, j) (2π)^(j/2) Γ((j+1)/2) (2β²)^((j+1)/2), so that weight j − 1 is weight j times
    j/(d−j+1) · q(j) / (2β sqrt(π)), with q(j) = Γ(j/2)/Γ((j+1)/2) and q(j) q(j+1) = 2/j. The weights fall at
    least as fast as those of a Poisson distribution with mean sqrt(d)/2β.
    """
    if beta * beta < dimension:
        raise StudyError(
            f"spherical noise in {dimension} dimensions needs a scale of at least sqrt({dimension}) grid "
            f"units, found {beta:.4g}: make the grid finer"
        )
    with localcontext(PRECISE):
        ratio = _PI.sqrt()
        half_step = 1 / (2 * beta * ratio)
        for j in range(1, dimension):
            ratio = 2 / (j * ratio)
        weight = Decimal(1)
        weights = [(dimension, weight)]
        for j in range(dimension, 0, -1):
            weight = weight * j * ratio * half_step / (dimension - j + 1)
            if weight < _NEGLIGIBLE:
                break
            weights.append((j - 1, weight))
            if j > 1:
                ratio = 2 / ((j - 1) * ratio)
        total = sum(weight for _, weight in weights)
        shares, so_far = [], Decimal(0)
        for j, weight in weights:
            so_far += weight
            shares.append((j, so_far / total))
        return tuple(shares)


def keep_probability(variance: Decimal, dimension: int) -> Decimal:
    """(θ(v) / (1 + sqrt(2πv)))^d."""
    with localcontext(PRECISE):
        root = (2 * _PI * variance).sqrt()
        # Poisson summation: θ(v) = sqrt(2πv) θ(1/4π²v), of which the faster series is summed.
        wide = root >= 1
        exponent = 2 * _PI * _PI * variance if wide else 1 / (2 * variance)
        theta = Decimal(1)
        k = 1
        while (power := k * k * exponent) < _FAR:
            theta += 2 * (-power).exp()
            k += 1
        return Decimal(((root * theta if wide else theta) / (1 + root)) ** dimension)


def keep_probabilities(variances: NDArray[np.float64], dimension: int) -> NDArray[np.float64]:
    """`keep_probability` in floating point, for simulation."""
    root = np.sqrt(2 * np.pi * variances)
    wide = root >= 1
    exponent = np.where(wide, 2 * np.pi**2 * variances, 0.5 / variances)
    theta = 1 + 2 * sum((np.exp(-k * k * exponent) for k in (2, 3, 4)), start=np.exp(-exponent))
    theta = np.where(wide, root * theta, theta)
    return np.asarray((theta / (1 + root)) ** dimension, np.float64)
