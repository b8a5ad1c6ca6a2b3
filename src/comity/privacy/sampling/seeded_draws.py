"""Seeded noise that depends on what it is for, not on what was drawn before: a resumed simulation draws the same."""

from __future__ import annotations

from comity.entropy import derive
from comity.privacy.permit import Permit
from comity.privacy.randomness import Integers, SeededNoise, Shape


class SeededDraws:
    """For simulation only. Each (release, index) has a stream of its own; a cohort draws its parties' parts from it."""

    seeded = True

    def __init__(self, root: bytes) -> None:
        self._root = root
        self._streams: dict[tuple[str, int], SeededNoise] = {}

    def _of(self, permit: Permit) -> SeededNoise:
        key = (permit.release, permit.index)
        if key not in self._streams:
            self._streams[key] = SeededNoise(int.from_bytes(derive(self._root, *key)[:8], "big"))
        return self._streams[key]

    def discrete_laplace(self, scale: float, shape: Shape, *, permit: Permit) -> Integers:
        return self._of(permit).discrete_laplace(scale, shape, permit=permit)

    def rounded_gaussian(self, sigma: float, shape: Shape, *, permit: Permit) -> Integers:
        return self._of(permit).rounded_gaussian(sigma, shape, permit=permit)

    def spherical(self, beta: float, shape: Shape, *, permit: Permit) -> Integers:
        return self._of(permit).spherical(beta, shape, permit=permit)

    def laplace_part(self, scale: float, parts: int, shape: Shape, *, permit: Permit) -> Integers:
        return self._of(permit).laplace_part(scale, parts, shape, permit=permit)

    def spherical_part(self, beta: float, parts: int, shape: Shape, *, permit: Permit) -> Integers:
        return self._of(permit).spherical_part(beta, parts, shape, permit=permit)

    def noisy_max(self, scores: Integers, scale: float, *, permit: Permit) -> Integers:
        return self._of(permit).noisy_max(scores, scale, permit=permit)

    def seed(self, *, permit: Permit) -> bytes:
        return self._of(permit).seed(permit=permit)
