"""OpenDP's exact samplers for integers. Imported at the first draw: planning draws nothing, and OpenDP loads slowly."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from opendp import domains, measurements, metrics
from opendp.mod import enable_features

Integers = NDArray[np.int64]

enable_features("contrib")


def exact_laplace(scale: float, count: int) -> Integers:
    measurement = measurements.make_laplace(_vectors(), metrics.l1_distance(T="i64"), scale=scale)
    return np.array(measurement([0] * count), np.int64)


def exact_gaussian(sigma: float, count: int) -> Integers:
    measurement = measurements.make_gaussian(_vectors(), metrics.l2_distance(T="f64"), scale=sigma)
    return np.array(measurement([0] * count), np.int64)


def _vectors() -> domains.Domain:
    return domains.vector_domain(domains.atom_domain(T="i64"))
