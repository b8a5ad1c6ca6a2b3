"""The noisy objective of the functional mechanism: its coefficients, and its solution with or without a repair."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Repair = Literal["none", "zhang", "floor"]

ZHANG_RIDGE = 4
"""Zhang et al. (2012), section 6.1: the ridge in deviations of the noise."""


def coefficients(gram: Floats, moment: Floats, *, logistic: bool) -> Floats:
    """Of the polynomial in w, without its constant: those of degree two, then those of degree one.

    `gram` is Σ x xᵀ, or some rows of it; `moment` is Σ x y for squared loss and Σ x (y − ½) for logistic loss.
    """
    second, first = (gram / 8, -moment) if logistic else (gram, -2 * moment)
    return np.concatenate([second.reshape(-1), first])


def minimise_polynomial(polynomial: Floats, features: int, deviation: float, repair: Repair = "none") -> Floats:
    """Line 16: the w where wᵀMw + aᵀw has no slope. `deviation` is that of the noise in an entry.

    "none"   as printed. Where M has an eigenvalue below zero the polynomial has no minimum, and w is a saddle.
    "zhang"  what Zhang et al. (2012) do, whose mechanism the paper uses: a ridge of 4 deviations on M, then
             directions whose eigenvalue is still not above zero are left out.
    "floor"  eigenvalues below the deviation are raised to it.
    """
    second = polynomial[: features**2].reshape(features, features)
    values, vectors = np.linalg.eigh((second + second.T) / 2)
    if repair == "zhang":
        values = values + ZHANG_RIDGE * deviation
        vectors, values = vectors[:, values > 0], values[values > 0]
    elif repair == "floor":
        values = np.maximum(values, max(deviation, 1e-12))
    else:
        # Grid noise can cancel an eigenvalue exactly; a step of 1e-12 keeps the division finite.
        values = np.where(np.abs(values) < 1e-12, 1e-12, values)
    inverse = (vectors / values) @ vectors.T
    return np.asarray(-inverse @ polynomial[features**2 :] / 2, np.float64)
