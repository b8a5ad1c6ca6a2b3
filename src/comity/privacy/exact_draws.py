"""OpenDP's exact samplers, asked for integers. Imported when something is drawn: planning draws nothing."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from opendp import domains, measurements, measures, metrics
from opendp.mod import enable_features

Integers = NDArray[np.int64]

enable_features("contrib")


def exact_laplace(scale: float, count: int) -> Integers:
    measurement = measurements.make_laplace(_vectors(), metrics.l1_distance(T="i64"), scale=scale)
    return np.array(measurement([0] * count), np.int64)


def exact_gaussian(sigma: float, count: int) -> Integers:
    measurement = measurements.make_gaussian(_vectors(), metrics.l2_distance(T="f64"), scale=sigma)
    return np.array(measurement([0] * count), np.int64)


def exact_noisy_max(scores: Integers, scale: float) -> int:
    space = _vectors(), metrics.linf_distance(T="i64")
    choose = measurements.make_noisy_max(*space, measures.max_divergence(), scale=scale)
    return int(choose(scores.tolist()))


def _vectors() -> domains.Domain:
    return domains.vector_domain(domains.atom_domain(T="i64"))
