"""Parts of noise that several parties draw and whose sum has the distribution that is wanted.

A distribution is infinitely divisible when it is that of a sum of m independent, equal parts for every m.
The discrete Laplace distribution is (a part is the difference of two negative binomials of shape 1/m), and so is
the Gamma distribution that mixes Gaussians into spherical noise. A sum with more parts than it was laid out for
has independent noise on top and is as private; one with fewer is not. `mechanisms/proof.md` has the proofs and
what precision costs.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache

import numpy as np

from comity.privacy.mixture import PRECISE
from comity.privacy.sampling.gamma import gamma
from comity.privacy.sampling.table_sampler import poisson_table
from comity.privacy.sampling.uniforms import TINY, Floats, Integers, Uniforms, whole_geometrics

SMOOTHING = 9
"""Variance, in square grid units, that every part of spherical noise has besides its share of the mixture."""


def part_width(total: float, parts: int) -> float:
    """What a scale states for a part: the total's width over sqrt(parts), as its standard deviation is."""
    return total / float(np.sqrt(parts))


def parts_of(total: float, part: float) -> int:
    """The number of parts that `part_width` was given; exact up to 2^40 of them."""
    return round((total / part) ** 2)


def laplace_part(scale: float, parts: int, count: int) -> Integers:
    """Differences of two NB(1/parts, q) variables, q = exp(−1/scale): `parts` of them sum to discrete Laplace.

    NB(r, q) is a compound Poisson variable: as many jumps as Poisson(−r ln(1−q)) says, each with the
    logarithmic distribution P[k] ∝ q^k/k.
    """
    rate = _log_rate(Decimal(scale))
    jumps = poisson_table(PRECISE.divide(rate, parts)).draw(2 * count)
    owners = np.repeat(np.arange(2 * count), jumps)
    sizes = _logarithmic(rate, len(owners))
    sums = np.zeros(2 * count, np.int64)
    np.add.at(sums, owners, sizes)
    return sums[:count] - sums[count:]


def mixing_variance(beta: float, parts: int, dimension: int) -> Decimal:
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
    # Of ln(1 − t) for t = (1−q)^U, the form that loses no digits.
    shares = np.exp(exponents)
    logs: Floats = np.where(
        shares < 0.5, np.log1p(-np.minimum(shares, 0.5)), np.log(-np.expm1(np.minimum(exponents, -1e-300)))
    )

    def log(index: int) -> Decimal:
        with localcontext(PRECISE):
            return (1 - (-chosen.precise(index) * rate).exp()).ln()

    return 1 + whole_geometrics(Uniforms(count), logs, log, unsure=chosen.doubles < TINY)
