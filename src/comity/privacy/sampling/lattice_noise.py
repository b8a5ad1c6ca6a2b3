"""Spherical and Laplace noise on the integer lattice: drawn at once, or in parts by several parties.

At once    Noise on Z^d with probabilities proportional to exp(−|z|/β) is a mixture of Gaussians. Since
           ∫ v^(−1/2) exp(−v/2β² − |z|²/2v) dv is proportional to exp(−|z|/β), the sampler chooses a variance v with
           density proportional to v^(−1/2) exp(−v/2β²) θ(v)^d, where θ(v) = Σ_z exp(−z²/2v) over the integers, and
           then draws d independent discrete Gaussians of that variance. Because θ(v) <= 1 + sqrt(2πv), it proposes the
           variance from a mixture of Gamma distributions, v ~ Gamma((j+1)/2, 2β²) with the binomial weights of
           (1 + sqrt(2πv))^d, and keeps it with probability (θ(v) / (1 + sqrt(2πv)))^d. No term is left out.
In parts   A distribution is infinitely divisible when for every m it is that of a sum of m independent, equal parts.
           The discrete Laplace distribution is (a part is the difference of two negative binomials of shape 1/m), and
           so is the Gamma distribution that mixes Gaussians into spherical noise. A sum with more parts than planned
           has additional independent noise and is as private; a sum with fewer is not.

`mechanisms/proof.md` has the derivations, and what finite precision costs.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from comity.errors import StudyError
from comity.privacy.sampling.precise import (
    PRECISE,
    TINY,
    Floats,
    Integers,
    Uniforms,
    gamma,
    poisson_table,
    precise_uniform,
    whole_geometrics,
)

SMOOTHING = 9
"""Variance, in square grid units, that every part of spherical noise has besides its share of the mixture."""

_PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459")
_NEGLIGIBLE = Decimal("1e-60")
_FAR = Decimal(140)
"""exp(−140) is below 1e-60: later terms of θ change nothing at this precision."""


@lru_cache(maxsize=64)
def mixture_components(beta: Decimal, dimension: int) -> tuple[tuple[int, Decimal], ...]:
    """The components of the proposal: pairs of a power j, largest first, and the probability of j or a larger one.

    The weight of j is C(d, j) (2π)^(j/2) Γ((j+1)/2) (2β²)^((j+1)/2), so weight j − 1 is weight j times
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


def spherical_variance(beta: Decimal, dimension: int) -> Decimal:
    """The mixing variance of spherical noise, from 384-bit uniforms and eighty digits."""
    components = mixture_components(beta, dimension)
    with localcontext(PRECISE):
        while True:
            choice = precise_uniform()
            power = next((j for j, share in components if choice <= share), components[-1][0])
            variance = 2 * beta * beta * gamma(Fraction(power + 1, 2))
            if precise_uniform() <= keep_probability(variance, dimension):
                return variance


def part_width(total: float, parts: int) -> float:
    """The stated width of a part: the total's over sqrt(parts), like its standard deviation."""
    return total / float(np.sqrt(parts))


def count_parts(total: float, part: float) -> int:
    """The number of parts behind a `part_width`; exact up to 2^40 parts."""
    return round((total / part) ** 2)


def laplace_part(scale: float, parts: int, count: int) -> Integers:
    """Differences of two NB(1/parts, q) variables, q = exp(−1/scale): `parts` of them sum to discrete Laplace.

    NB(r, q) is a compound Poisson variable: Poisson(−r ln(1−q)) many jumps, each with the logarithmic distribution
    P[k] ∝ q^k/k.
    """
    rate = _log_rate(Decimal(scale))
    jumps = poisson_table(PRECISE.divide(rate, parts)).draw(2 * count)
    owners = np.repeat(np.arange(2 * count), jumps)
    sizes = _logarithmic(rate, len(owners))
    sums = np.zeros(2 * count, np.int64)
    np.add.at(sums, owners, sizes)
    return sums[:count] - sums[count:]


def part_variance(beta: float, parts: int, dimension: int) -> Decimal:
    """The variance of one party's part of spherical noise: its share of the mixture, and the smoothing."""
    scale = PRECISE.multiply(2, PRECISE.multiply(Decimal(beta), Decimal(beta)))
    return PRECISE.fma(scale, gamma(Fraction(dimension + 1, 2 * parts)), SMOOTHING)


@lru_cache(maxsize=16)
def _log_rate(scale: Decimal) -> Decimal:
    """−ln(1 − q)."""
    with localcontext(PRECISE):
        return -(1 - (-1 / scale).exp()).ln()


def _logarithmic(rate: Decimal, count: int) -> Integers:
    """Integers with P[k] = q^k/(k·rate), rate = −ln(1−q), as a mixture of geometric variables.

    With U uniform and D = 1 − (1−q)^U, the probability of k is E[(1−D) D^(k−1)] = ∫₀^q D^(k−1) dD/rate.
    """
    chosen = Uniforms(count)
    exponents = np.asarray(-chosen.doubles * float(rate))
    # The form of ln(1 − t), t = (1−q)^U, that loses no digits.
    shares = np.exp(exponents)
    logs: Floats = np.where(
        shares < 0.5, np.log1p(-np.minimum(shares, 0.5)), np.log(-np.expm1(np.minimum(exponents, -1e-300)))
    )

    def log(index: int) -> Decimal:
        with localcontext(PRECISE):
            return (1 - (-chosen.precise(index) * rate).exp()).ln()

    return 1 + whole_geometrics(Uniforms(count), logs, log, unsure=chosen.doubles < TINY)
