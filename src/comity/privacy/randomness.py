"""Where noise comes from: exact draws for releases, fast seeded draws for simulation.

Both draw integers. A released draw is made from the operating system's entropy, by exact samplers or to eighty
digits, so no floating-point artefact of a sampler weakens a proof; a seeded draw follows the same distributions
up to floating point, is reproducible, and protects nobody. Every draw takes a permit first.
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from comity.entropy import fresh_seed
from comity.errors import DataError, StudyError
from comity.privacy.choices import permute_and_flip
from comity.privacy.mechanisms.scale import WIDEST
from comity.privacy.mixture import PRECISE, keep_probabilities, keep_probability, powers
from comity.privacy.permit import Permit
from comity.privacy.sampling.gamma import gamma
from comity.privacy.sampling.infinitely_divisible import SMOOTHING, laplace_part, mixing_variance
from comity.privacy.sampling.lazy_words import LazyWords
from comity.privacy.sampling.normals import normals
from comity.privacy.sampling.uniforms import precise_uniform

Integers = NDArray[np.int64]
Shape = int | tuple[int, ...]


class NoiseSource(Protocol):
    """Draws noise on the integers, against a permit that is used up by the draw."""

    @property
    def seeded(self) -> bool:
        """Whether someone can know the draws; what is made of them can't be presented as private."""
        ...

    def discrete_laplace(self, scale: float, shape: Shape, *, permit: Permit) -> Integers:
        """Independent integers with probabilities proportional to exp(−|z|/scale)."""
        ...

    def rounded_gaussian(self, sigma: float, shape: Shape, *, permit: Permit) -> Integers:
        """Independent variables of N(0, σ²), each rounded to the nearest integer."""
        ...

    def spherical(self, beta: float, shape: Shape, *, permit: Permit) -> Integers:
        """One lattice vector with probability proportional to exp(−|z|₂/β), given in the shape asked for."""
        ...

    def laplace_part(self, scale: float, parts: int, shape: Shape, *, permit: Permit) -> Integers:
        """Independent integers, `parts` of which add up to one of `discrete_laplace`."""
        ...

    def spherical_part(self, beta: float, parts: int, shape: Shape, *, permit: Permit) -> Integers:
        """One lattice vector, `parts` of which add up to spherical noise and a little smoothing."""
        ...

    def noisy_max(self, scores: Integers, scale: float, *, permit: Permit) -> Integers:
        """Where along the last axis the largest score is, after adding exponential noise of mean `scale` to each."""
        ...

    def seed(self, *, permit: Permit) -> bytes:
        """32 secret bytes from which a mechanism makes the noise of several rounds."""
        ...


class ReleasedNoise:
    """Draws that may be released: exact or to eighty digits, the operating system's entropy, no seed anywhere."""

    seeded = False

    def discrete_laplace(self, scale: float, shape: Shape, *, permit: Permit) -> Integers:
        count = _checked(scale, shape)
        from comity.privacy.sampling.exact_draws import exact_laplace

        permit.use()
        return exact_laplace(float(scale), count).reshape(shape)

    def rounded_gaussian(self, sigma: float, shape: Shape, *, permit: Permit) -> Integers:
        count = _checked(sigma, shape)
        permit.use()
        return normals(float(sigma), count, LazyWords(fresh_seed())).rounded().reshape(shape)

    def spherical(self, beta: float, shape: Shape, *, permit: Permit) -> Integers:
        dimension = _checked(beta, shape)
        components = powers(Decimal(float(beta)), dimension)
        permit.use()
        variance = _variance(Decimal(float(beta)), dimension, components)
        return self._gaussian(float(PRECISE.sqrt(variance)), dimension).reshape(shape)

    def laplace_part(self, scale: float, parts: int, shape: Shape, *, permit: Permit) -> Integers:
        count = _checked(scale, shape, parts)
        permit.use()
        return laplace_part(float(scale), parts, count).reshape(shape)

    def spherical_part(self, beta: float, parts: int, shape: Shape, *, permit: Permit) -> Integers:
        dimension = _checked(beta, shape, parts)
        permit.use()
        variance = mixing_variance(float(beta), parts, dimension)
        return self._gaussian(float(PRECISE.sqrt(variance)), dimension).reshape(shape)

    def noisy_max(self, scores: Integers, scale: float, *, permit: Permit) -> Integers:
        _checked(scale, ())
        listed = _checked_scores(scores)
        permit.use()
        rows = listed.reshape(-1, listed.shape[-1])
        return permute_and_flip(rows, float(scale), LazyWords(fresh_seed())).reshape(listed.shape[:-1])

    def seed(self, *, permit: Permit) -> bytes:
        permit.use()
        return fresh_seed()

    def _gaussian(self, sigma: float, count: int) -> Integers:
        """Discrete Gaussians, of which spherical noise is mixed."""
        from comity.privacy.sampling.exact_draws import exact_gaussian

        return exact_gaussian(sigma, count)


class SeededNoise:
    """Reproducible draws for simulation only: the seed tells everyone the noise."""

    seeded = True

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)

    def discrete_laplace(self, scale: float, shape: Shape, *, permit: Permit) -> Integers:
        count = _checked(scale, shape)
        permit.use()
        return self._laplace(scale, count).reshape(shape)

    def rounded_gaussian(self, sigma: float, shape: Shape, *, permit: Permit) -> Integers:
        count = _checked(sigma, shape)
        permit.use()
        return np.rint(sigma * self._generator.standard_normal(count)).astype(np.int64).reshape(shape)

    def spherical(self, beta: float, shape: Shape, *, permit: Permit) -> Integers:
        dimension = _checked(beta, shape)
        powers(Decimal(float(beta)), dimension)
        permit.use()
        return self._lattice_rows(beta, 1, dimension).reshape(shape)

    def laplace_part(self, scale: float, parts: int, shape: Shape, *, permit: Permit) -> Integers:
        count = _checked(scale, shape, parts)
        permit.use()
        success = -math.expm1(-1 / scale)
        first, second = self._generator.negative_binomial(1 / parts, success, (2, count))
        return np.asarray(first - second, np.int64).reshape(shape)

    def spherical_part(self, beta: float, parts: int, shape: Shape, *, permit: Permit) -> Integers:
        dimension = _checked(beta, shape, parts)
        permit.use()
        return self._part_rows(beta, parts, 1, dimension).reshape(shape)

    def noisy_max(self, scores: Integers, scale: float, *, permit: Permit) -> Integers:
        _checked(scale, ())
        listed = _checked_scores(scores)
        permit.use()
        return np.asarray(np.argmax(listed + self._generator.exponential(scale, listed.shape), axis=-1), np.int64)

    def seed(self, *, permit: Permit) -> bytes:
        permit.use()
        return self._generator.bytes(32)

    def _laplace(self, scale: float, count: int) -> Integers:
        success = -math.expm1(-1 / scale)
        first, second = self._generator.geometric(success, (2, count))
        return np.asarray(first - second, np.int64)

    def _gaussian(self, sigmas: NDArray[np.float64]) -> Integers:
        """Discrete Gaussians, by rejection, where each proposal lies within a constant factor of its target.

        From σ = 1 on, a normal x is rounded to y = x − u and kept with probability
        exp((u² − 1/4)/2σ²) / cosh(yu/σ²): the two points y ± u together have density proportional to
        exp(−(y² + u²)/2σ²) cosh(yu/σ²), of which exp(−y²/2σ²) remains for every u. Below, a discrete Laplace
        variable is kept with probability exp(−(|y| − σ²)²/2σ²).
        """
        out = np.empty(sigmas.shape, np.int64)
        for chosen, propose in ((sigmas >= 1, self._rounded_normal), (sigmas < 1, self._folded_laplace)):
            waiting = np.flatnonzero(chosen)
            while waiting.size:
                sigma = sigmas[waiting]
                proposal, keep = propose(sigma)
                kept = self._generator.random(len(waiting)) < keep
                out[waiting[kept]] = proposal[kept]
                waiting = waiting[~kept]
        return out

    def _rounded_normal(self, sigma: NDArray[np.float64]) -> tuple[Integers, NDArray[np.float64]]:
        normal = self._generator.standard_normal(len(sigma)) * sigma
        nearest = np.rint(normal)
        off, precision = normal - nearest, 1 / (sigma * sigma)
        keep = np.exp((off * off - 0.25) * precision / 2) / np.cosh(nearest * off * precision)
        return nearest.astype(np.int64), keep

    def _folded_laplace(self, sigma: NDArray[np.float64]) -> tuple[Integers, NDArray[np.float64]]:
        proposal = self._laplace(1.0, len(sigma))
        with np.errstate(under="ignore"):
            keep = np.exp(-(((np.abs(proposal) - sigma * sigma) / sigma) ** 2) / 2)
        return proposal, keep

    def _part_rows(self, beta: float, parts: int, rows: int, dimension: int) -> Integers:
        mixing = 2 * beta * beta * self._generator.standard_gamma((dimension + 1) / (2 * parts), rows)
        return self._gaussian(np.repeat(np.sqrt(mixing + SMOOTHING), dimension)).reshape(rows, dimension)

    def _lattice_rows(self, beta: float, rows: int, dimension: int) -> Integers:
        components = powers(Decimal(float(beta)), dimension)
        shapes = np.array([(j + 1) / 2 for j, _ in components])
        shares = np.array([float(share) for _, share in components])
        variances = np.empty(rows)
        waiting = np.arange(rows)
        while waiting.size:
            uniform = self._generator.random((2, len(waiting)))
            component = np.minimum(np.searchsorted(shares, uniform[0]), len(shapes) - 1)
            proposal = 2 * beta * beta * self._generator.standard_gamma(shapes[component])
            # A variance that underflows stands for the lattice point 0, as the smallest positive one does.
            proposal = np.maximum(proposal, 1e-6)
            kept = uniform[1] < keep_probabilities(proposal, dimension)
            variances[waiting[kept]] = proposal[kept]
            waiting = waiting[~kept]
        sigmas = np.repeat(np.sqrt(variances), dimension)
        return self._gaussian(sigmas).reshape(rows, dimension)


def _variance(beta: Decimal, dimension: int, components: tuple[tuple[int, Decimal], ...]) -> Decimal:
    """The mixing variance of spherical noise, from 384-bit uniforms and 80-digit arithmetic."""
    with localcontext(PRECISE):
        while True:
            choice = precise_uniform()
            power = next((j for j, share in components if choice <= share), components[-1][0])
            variance = 2 * beta * beta * gamma(Fraction(power + 1, 2))
            if precise_uniform() <= keep_probability(variance, dimension):
                return variance


def _checked(scale: float, shape: Shape, parts: int = 1) -> int:
    if not 0 < scale <= WIDEST:
        raise StudyError(
            f"a noise scale must lie above 0 and at most 2^50 grid units, found {scale!r}: change the grid"
        )
    count = math.prod(shape) if isinstance(shape, tuple) else shape
    if parts < 1:
        raise StudyError(f"noise is shared among at least one party, found {parts}")
    if count < 1:
        raise StudyError(f"noise is drawn for at least one number, found shape {shape}")
    return count


def _checked_scores(scores: Integers) -> Integers:
    listed = np.asarray(scores)
    if listed.ndim < 1 or listed.size == 0 or not np.issubdtype(listed.dtype, np.signedinteger):
        raise DataError(
            f"scores are rows of at least one whole number, found {listed.dtype} of shape {listed.shape}: "
            "put them on the mechanism's grid first"
        )
    if np.abs(listed.astype(np.float64)).max() > WIDEST:
        raise DataError("scores must lie within 2^50 grid units: choose a coarser grid")
    return listed.astype(np.int64)
