"""A site whose contributions are exact, for comparing a deployed run with a local one. It lives in the tests: the
product has no switch for it.

    python -m tests.deploy.noiseless SITE_FILE      serves like `comity site serve`
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np

from comity.runtime.site.desk import Desk
from comity.runtime.site.serving import endpoint_of


class NoNoise:
    """Takes its permits, so that ledgers are charged as ever, and draws nothing."""

    seeded = True

    def discrete_laplace(self, scale: float, shape: Any, *, permit: Any) -> np.ndarray:
        return _nothing(shape, permit)

    def rounded_gaussian(self, sigma: float, shape: Any, *, permit: Any) -> np.ndarray:
        return _nothing(shape, permit)

    def spherical(self, beta: float, shape: Any, *, permit: Any) -> np.ndarray:
        return _nothing(shape, permit)

    def laplace_part(self, scale: float, parts: int, shape: Any, *, permit: Any) -> np.ndarray:
        return _nothing(shape, permit)

    def spherical_part(self, beta: float, parts: int, shape: Any, *, permit: Any) -> np.ndarray:
        return _nothing(shape, permit)

    def noisy_max(self, scores: np.ndarray, scale: float, *, permit: Any) -> np.ndarray:
        permit.use()
        found: np.ndarray = np.argmax(scores, axis=-1)
        return found

    def seed(self, *, permit: Any) -> bytes:
        permit.use()
        return bytes(32)


def _nothing(shape: Any, permit: Any) -> np.ndarray:
    permit.use()
    return np.zeros(shape, np.int64)


class NoiselessDesk(Desk):
    """An owner's desk that answers exactly."""

    def _open(self) -> None:
        super()._open()
        self._owner = replace(self._owner, noise=NoNoise())


if __name__ == "__main__":
    served = NoiselessDesk(sys.argv[1])
    endpoint_of(served.site).serve(served)
