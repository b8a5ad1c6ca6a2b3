"""A softmax model from one private statistic: soft labels enter its risk only through their mean product with the rows.

    minimise  mean_i log Σ_c exp(W_c·z_i) − <W, A> + l2/2·|W|²,      A = mean_i (α_i − 1/C) z_iᵀ

over W whose rows sum to zero. The rows z_i are public; α_i enter through A alone, so that noise on A is all that
private labels need. Means may be weighted by public weights. A noisy A may lie where no labels could have put it; the
penalty keeps the minimiser finite there.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from comity.errors import DataError
from comity.learn.fitting.softmax import contrasts

Floats = NDArray[np.float64]


def softmax_from_moments(
    rows: Floats, moments: Floats, l2: float, *, weight: Floats | None = None, most: int = 200
) -> Floats:
    """Weights (C, D) for public rows (N, D) and moments (C − 1, D): A in the coordinates of `contrasts`.

    `weight` (N,) is how much each row counts, all rows alike where there is none. Its precision is free to choose: what
    it computes from is already released.
    """
    from scipy.optimize import minimize

    if rows.ndim != 2 or moments.ndim != 2 or moments.shape[1] != rows.shape[1] or not l2 > 0:
        raise DataError(f"moments must be (C - 1, {rows.shape[-1]}) and l2 above 0, found {moments.shape} and {l2}")
    basis = contrasts(len(moments) + 1)
    part = np.full(len(rows), 1 / len(rows)) if weight is None else weight / weight.sum()

    def risk(flat: Floats) -> tuple[float, Floats]:
        weights = flat.reshape(moments.shape)
        scores = rows @ weights.T @ basis
        top = scores.max(axis=1, keepdims=True)
        grown = np.exp(scores - top)
        total = grown.sum(axis=1, keepdims=True)
        value = (
            float(part @ (np.log(total) + top)[:, 0]) - float((weights * moments).sum()) + l2 / 2 * float(flat @ flat)
        )
        expected = basis @ ((grown * (part[:, None] / total)).T @ rows)
        return value, (expected - moments + l2 * weights).ravel()

    found = minimize(risk, np.zeros(moments.size), jac=True, method="L-BFGS-B", options={"maxiter": most, "gtol": 1e-5})
    return np.asarray(basis.T @ found.x.reshape(moments.shape), np.float64)
