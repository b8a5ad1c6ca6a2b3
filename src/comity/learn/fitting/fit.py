"""What a solver returns: weights, and how near to the minimiser they are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from comity.errors import DataError
from comity.learn.fitting.newton import Floats


@dataclass(frozen=True, eq=False)
class Fit:
    """Weights of one party or of a stack of them.

    `gradient_norm` is the true norm of the full gradient at `weights`, one number per party. A party that
    could not be brought to `tol` is flagged by `converged`, and nothing is raised: in a stack one party's
    data must not decide whether the others are answered. Whoever claims a sensitivity replaces a flagged
    fit by its neutral value.
    """

    weights: Floats
    gradient_norm: Floats
    tol: float

    @property
    def converged(self) -> NDArray[np.bool_]:
        return np.asarray(self.gradient_norm <= self.tol)


def weighted_records(x: Floats, mask: NDArray[np.bool_] | None) -> tuple[Floats, Floats]:
    """Features (..., n, d), finite and zero in padding, and the weight of each record in its party's mean.

    A weight is 1/n for each of a party's n records and zero for padding; a party without records weighs
    nothing.
    """
    x = np.asarray(x, np.float64)
    if x.ndim < 2 or x.shape[-1] == 0:
        raise DataError(f"features must have the shape (..., records, features) with features >= 1, found {x.shape}")
    shape = x.shape[:-1]
    if mask is None:
        weight = np.full(shape, 1.0 / max(1, shape[-1]))
    else:
        present = np.asarray(mask, np.bool_)
        if present.shape != shape:
            raise DataError(f"the mask must have one entry per record, shape {shape}; found {present.shape}")
        weight = present / np.maximum(1, present.sum(-1, keepdims=True))
        x = np.where(present[..., None], x, 0.0)
    # One pass without a copy; it also catches numbers whose squares are not finite.
    if not np.isfinite(np.vdot(x, x)):
        raise DataError(
            "features must be finite numbers of finite norm, found NaN or infinity; encode the records by "
            "their schema first"
        )
    return x, weight


def checked_settings(l2: float, tol: float, most: int) -> None:
    if not (np.isfinite(l2) and l2 > 0):
        raise DataError(f"l2 must be a finite number above 0, found {l2}; without a penalty there may be no minimiser")
    if not (tol > 0 and most >= 1):
        raise DataError(f"tol must be above 0 and most at least 1, found tol {tol} and most {most}")
