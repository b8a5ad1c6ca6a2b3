"""Permits for draws that nobody pays for, and a source that draws nothing, to compare a method with the exact value."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.privacy.permit import Permit, simulated_permit

Integers = NDArray[np.int64]


def make_permit() -> Permit:
    return simulated_permit("test")


class NoNoise:
    """Takes its permits, so that ledgers are charged as ever, and draws nothing. It lives in the tests and is never a
    switch in the product."""

    seeded = True

    def discrete_laplace(self, scale: float, shape: Any, *, permit: Any) -> Integers:
        return _nothing(shape, permit)

    def rounded_gaussian(self, sigma: float, shape: Any, *, permit: Any) -> Integers:
        return _nothing(shape, permit)

    def spherical(self, beta: float, shape: Any, *, permit: Any) -> Integers:
        return _nothing(shape, permit)

    def laplace_part(self, scale: float, parts: int, shape: Any, *, permit: Any) -> Integers:
        return _nothing(shape, permit)

    def spherical_part(self, beta: float, parts: int, shape: Any, *, permit: Any) -> Integers:
        return _nothing(shape, permit)

    def noisy_max(self, scores: Any, scale: float, *, permit: Any) -> Integers:
        permit.use()
        return np.asarray(np.argmax(scores, axis=-1), np.int64)

    def exponential_choice(self, scores: Any, scale: float, *, permit: Any) -> Integers:
        return self.noisy_max(scores, scale, permit=permit)

    def seed(self, *, permit: Any) -> bytes:
        permit.use()
        return bytes(32)


def _nothing(shape: Any, permit: Any) -> Integers:
    permit.use()
    return np.zeros(shape, np.int64)
