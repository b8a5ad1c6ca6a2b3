"""Where noise comes from: exact draws for releases, fast seeded draws for simulation.

All sources draw integers, and every draw takes a permit first. A released draw comes from the operating system's
entropy, by exact samplers or to eighty digits, so no floating-point artefact weakens a proof. A seeded draw follows the
same distributions up to floating point, is reproducible, and protects nobody.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from comity.entropy import derive, fresh_seed
from comity.errors import DataError, StudyError
from comity.privacy.mechanisms.scale import MAX_UNITS
from comity.privacy.permit import Permit
from comity.privacy.sampling.lattice_noise import (
    SMOOTHING,
    keep_probabilities,
    laplace_part,
    mixture_components,
    part_variance,
    spherical_variance,
)
from comity.privacy.sampling.lazy_bits import LazyWords, exponential_choice, normals, permute_and_flip
from comity.privacy.sampling.precise import PRECISE

Integers = NDArray[np.int64]
Shape = int | tuple[int, ...]


class NoiseSource(Protocol):
    """Draws noise on the integers; each draw uses up its permit."""

    @property
    def seeded(self) -> bool:
        """Whether someone can know the draws; results made from them can't be presented as private."""
        ...

    def discrete_laplace(self, scale: float, shape: Shape, *, permit: Permit) -> Integers:
        """Independent integers with probabilities proportional to exp(−|z|/scale)."""
        ...

    def rounded_gaussian(self, sigma: float, shape: Shape, *, permit: Permit) -> Integers:
        """Independent variables of N(0, σ²), each rounded to the nearest integer."""
        ...

    def spherical(self, beta: float, shape: Shape, *, permit: Permit) -> Integers:
        """One lattice vector with probability proportional to exp(−|z|₂/β), in the given shape."""
        ...

    def laplace_part(self, scale: float, parts: int, shape: Shape, *, permit: Permit) -> Integers:
        """Independent integers; `parts` of them add up to one of `discrete_laplace`."""
        ...

    def spherical_part(self, beta: float, parts: int, shape: Shape, *, permit: Permit) -> Integers:
        """One lattice vector; `parts` of them add up to spherical noise with a little smoothing."""
        ...

    def noisy_max(self, scores: Integers, scale: float, *, permit: Permit) -> Integers:
        """The index of the largest score along the last axis after adding exponential noise of mean `scale`."""
        ...

    def exponential_choice(self, scores: Integers, scale: float, *, permit: Permit) -> Integers:
        """An index along the last axis, with probability proportional to exp(score/scale)."""
        ...

    def seed(self, *, permit: Permit) -> bytes:
        """32 secret bytes from which a mechanism makes the noise of several rounds."""
        ...


class ReleasedNoise:
    """Draws that may be released: exact or to eighty digits, from the operating system's entropy, without a seed."""

    seeded = False

    def discrete_laplace(self, scale: float, shape: Shape, *, permit: Permit) -> Integers:
        count = _count_draws(scale, shape)
        from comity.privacy.sampling.exact_draws import exact_laplace

        permit.use()
        return exact_laplace(float(scale), count).reshape(shape)

    def rounded_gaussian(self, sigma: float, shape: Shape, *, permit: Permit) -> Integers:
        count = _count_draws(sigma, shape)
        permit.use()
        return normals(float(sigma), count, LazyWords(fresh_seed())).rounded().reshape(shape)

    def spherical(self, beta: float, shape: Shape, *, permit: Permit) -> Integers:
        dimension = _count_draws(beta, shape)
        # Refuses a β that is too small while the permit is unused.
        mixture_components(Decimal(float(beta)), dimension)
        permit.use()
        variance = spherical_variance(Decimal(float(beta)), dimension)
        return self._gaussian(float(PRECISE.sqrt(variance)), dimension).reshape(shape)

    def laplace_part(self, scale: float, parts: int, shape: Shape, *, permit: Permit) -> Integers:
        count = _count_draws(scale, shape, parts)
        permit.use()
        return laplace_part(float(scale), parts, count).reshape(shape)

    def spherical_part(self, beta: float, parts: int, shape: Shape, *, permit: Permit) -> Integers:
        dimension = _count_draws(beta, shape, parts)
        permit.use()
        variance = part_variance(float(beta), parts, dimension)
        return self._gaussian(float(PRECISE.sqrt(variance)), dimension).reshape(shape)

    def noisy_max(self, scores: Integers, scale: float, *, permit: Permit) -> Integers:
        _count_draws(scale, ())
        listed = _check_scores(scores)
        permit.use()
        rows = listed.reshape(-1, listed.shape[-1])
        return permute_and_flip(rows, float(scale), LazyWords(fresh_seed())).reshape(listed.shape[:-1])

    def exponential_choice(self, scores: Integers, scale: float, *, permit: Permit) -> Integers:
        _count_draws(scale, ())
        listed = _check_scores(scores)
        permit.use()
        rows = listed.reshape(-1, listed.shape[-1])
        return exponential_choice(rows, float(scale), LazyWords(fresh_seed())).reshape(listed.shape[:-1])

    def seed(self, *, permit: Permit) -> bytes:
        permit.use()
        return fresh_seed()

    def _gaussian(self, sigma: float, count: int) -> Integers:
        """Discrete Gaussians, the components of spherical noise."""
        from comity.privacy.sampling.exact_draws import exact_gaussian

        return exact_gaussian(sigma, count)


class SeededNoise:
    """Reproducible draws for simulation only: anyone who knows the seed knows the noise."""

    seeded = True

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)

    def discrete_laplace(self, scale: float, shape: Shape, *, permit: Permit) -> Integers:
        count = _count_draws(scale, shape)
        permit.use()
        return self._laplace(scale, count).reshape(shape)

    def rounded_gaussian(self, sigma: float, shape: Shape, *, permit: Permit) -> Integers:
        count = _count_draws(sigma, shape)
        permit.use()
        return np.rint(sigma * self._generator.standard_normal(count)).astype(np.int64).reshape(shape)

    def spherical(self, beta: float, shape: Shape, *, permit: Permit) -> Integers:
        dimension = _count_draws(beta, shape)
        # Refuses a β that is too small while the permit is unused.
        mixture_components(Decimal(float(beta)), dimension)
        permit.use()
        return self._lattice_rows(beta, 1, dimension).reshape(shape)

    def laplace_part(self, scale: float, parts: int, shape: Shape, *, permit: Permit) -> Integers:
        count = _count_draws(scale, shape, parts)
        permit.use()
        success = -math.expm1(-1 / scale)
        first, second = self._generator.negative_binomial(1 / parts, success, (2, count))
        return np.asarray(first - second, np.int64).reshape(shape)

    def spherical_part(self, beta: float, parts: int, shape: Shape, *, permit: Permit) -> Integers:
        dimension = _count_draws(beta, shape, parts)
        permit.use()
        return self._part_rows(beta, parts, 1, dimension).reshape(shape)

    def noisy_max(self, scores: Integers, scale: float, *, permit: Permit) -> Integers:
        _count_draws(scale, ())
        listed = _check_scores(scores)
        permit.use()
        return np.asarray(np.argmax(listed + self._generator.exponential(scale, listed.shape), axis=-1), np.int64)

    def exponential_choice(self, scores: Integers, scale: float, *, permit: Permit) -> Integers:
        _count_draws(scale, ())
        listed = _check_scores(scores)
        permit.use()
        # The largest score with Gumbel noise has exactly these probabilities.
        return np.asarray(np.argmax(listed + self._generator.gumbel(0.0, scale, listed.shape), axis=-1), np.int64)

    def seed(self, *, permit: Permit) -> bytes:
        permit.use()
        return self._generator.bytes(32)

    def _laplace(self, scale: float, count: int) -> Integers:
        success = -math.expm1(-1 / scale)
        first, second = self._generator.geometric(success, (2, count))
        return np.asarray(first - second, np.int64)

    def _gaussian(self, sigmas: NDArray[np.float64]) -> Integers:
        """Discrete Gaussians by rejection; each proposal is within a constant factor of its target.

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
        components = mixture_components(Decimal(float(beta)), dimension)
        shapes = np.array([(j + 1) / 2 for j, _ in components])
        shares = np.array([float(share) for _, share in components])
        variances = np.empty(rows)
        waiting = np.arange(rows)
        while waiting.size:
            uniform = self._generator.random((2, len(waiting)))
            component = np.minimum(np.searchsorted(shares, uniform[0]), len(shapes) - 1)
            proposal = 2 * beta * beta * self._generator.standard_gamma(shapes[component])
            # A variance that underflows gives the lattice point 0, as the smallest positive one does.
            proposal = np.maximum(proposal, 1e-6)
            kept = uniform[1] < keep_probabilities(proposal, dimension)
            variances[waiting[kept]] = proposal[kept]
            waiting = waiting[~kept]
        sigmas = np.repeat(np.sqrt(variances), dimension)
        return self._gaussian(sigmas).reshape(rows, dimension)


class SeededDraws:
    """Seeded noise for simulation only, one stream per (release, index): a resumed simulation draws the same noise.

    All parties of a cohort draw their parts from the same stream.
    """

    seeded = True

    def __init__(self, root: bytes) -> None:
        self._root = root
        self._streams: dict[tuple[str, int], SeededNoise] = {}

    def _stream(self, permit: Permit) -> SeededNoise:
        key = (permit.release, permit.index)
        if key not in self._streams:
            self._streams[key] = SeededNoise(int.from_bytes(derive(self._root, *key)[:8], "big"))
        return self._streams[key]

    def discrete_laplace(self, scale: float, shape: Shape, *, permit: Permit) -> Integers:
        return self._stream(permit).discrete_laplace(scale, shape, permit=permit)

    def rounded_gaussian(self, sigma: float, shape: Shape, *, permit: Permit) -> Integers:
        return self._stream(permit).rounded_gaussian(sigma, shape, permit=permit)

    def spherical(self, beta: float, shape: Shape, *, permit: Permit) -> Integers:
        return self._stream(permit).spherical(beta, shape, permit=permit)

    def laplace_part(self, scale: float, parts: int, shape: Shape, *, permit: Permit) -> Integers:
        return self._stream(permit).laplace_part(scale, parts, shape, permit=permit)

    def spherical_part(self, beta: float, parts: int, shape: Shape, *, permit: Permit) -> Integers:
        return self._stream(permit).spherical_part(beta, parts, shape, permit=permit)

    def noisy_max(self, scores: Integers, scale: float, *, permit: Permit) -> Integers:
        return self._stream(permit).noisy_max(scores, scale, permit=permit)

    def exponential_choice(self, scores: Integers, scale: float, *, permit: Permit) -> Integers:
        return self._stream(permit).exponential_choice(scores, scale, permit=permit)

    def seed(self, *, permit: Permit) -> bytes:
        return self._stream(permit).seed(permit=permit)


def _count_draws(scale: float, shape: Shape, parts: int = 1) -> int:
    if not 0 < scale <= MAX_UNITS:
        raise StudyError(f"a noise scale must be above 0 and at most 2^50 grid units, found {scale!r}: change the grid")
    count = math.prod(shape) if isinstance(shape, tuple) else shape
    if parts < 1:
        raise StudyError(f"noise needs at least one part, found {parts}")
    if count < 1:
        raise StudyError(f"noise needs a shape with at least one number, found shape {shape}")
    return count


def _check_scores(scores: Integers) -> Integers:
    listed = np.asarray(scores)
    if listed.ndim < 1 or listed.size == 0 or not np.issubdtype(listed.dtype, np.signedinteger):
        raise DataError(
            f"scores are rows of at least one whole number, found {listed.dtype} of shape {listed.shape}: "
            "put them on the mechanism's grid first"
        )
    if np.abs(listed.astype(np.float64)).max() > MAX_UNITS:
        raise DataError("scores must be within 2^50 grid units: choose a coarser grid")
    return listed.astype(np.int64)
