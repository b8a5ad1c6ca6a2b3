"""From noisy moments to a model: the quadratic objective, its minimiser, and standard errors of its coefficients.

Linear: least squares. Logistic: the loss to second order around zero, x·w/2 + (x·w)²/8 − y x·w, whose minimiser is
four times the least-squares fit of y − ½. Everything here is post-processing of one release.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from comity.learn.quadratic import allowed_residual, bias, covariance, solve, solve_where_clear, spectral_norm
from comity.methods.vertical.dissection import Dissection

Floats = NDArray[np.float64]

RIDGE = 0.25
"""Of a classifier, over the noise's norm. By training rows of Adult, credit defaults, KDD-99 and HAR, ε 0.1 and 1, one
left out at a time (`experiments/choose`), of 0.03 to 0.5: 0.125 over all, without credit defaults and without KDD-99;
0.06 without Adult, 0.25 without HAR, which is what 0.125 wins on (by 0.12 at ε = 1). Adult loses 0.015 there, with 16
columns and with 137, and rounds that start from it lose 0.001 to 0.004 in log loss on Adult and credit defaults and
0.02 on HAR: for those tables, and since rounds are what `auto` makes at that ε, 0.25."""


@dataclass(frozen=True, eq=False)
class Regression:
    """Coefficients of encoded rows with their standard errors, and how much of each the ridge decides: 0 for none of
    it, 1 for all.

    Errors account for the noise and, in a linear model, for the residuals and for how far the ridge may have shrunk a
    coefficient (`bias`); for a logistic one they are about the quadratic objective's minimiser. They are about the
    coefficients of the population that records are drawn from, and so about the exact fit of the same records too.
    Moments do not tell in which rows residuals are larger: they may be so by `quadratic.UNEQUAL`.
    """

    coef: Floats
    errors: Floats
    shrunk: Floats


def fitted(dissection: Dissection, opened: Floats, rows: int, deviation: float) -> Regression:
    """`deviation` is that of the noise in each opened entry; 0 gives the exact minimiser."""
    columns = dissection.columns
    gram, moment, square = dissection.split(dissection.assembled(opened, rows))
    variances, moment_variances, _ = dissection.split(dissection.variances(deviation))
    norm = spectral_norm(variances)
    # A classifier needs the direction alone, which a ridge keeps steady. A regression needs the length as well: it is
    # shrunk only where the noise could have made an eigenvalue.
    found = solve(gram, moment, RIDGE * norm) if columns.classes else solve_where_clear(gram, moment, norm)
    label = float(np.abs(columns.label.table).max())
    # The label column is ±label for y = 1 and 0, so that Σ x (y − ½) is the moment over twice that.
    factor = 2.0 / label if columns.classes else 1.0 / label
    squares = float(square - 2 * found.weights @ moment + found.weights @ gram @ found.weights)
    residual = max(0.0, squares) / rows if columns.classes else allowed_residual(squares, rows)
    spread = covariance(found, variances, moment_variances, gram, residual)
    mapping = columns.mapping
    squared = np.maximum(np.einsum("ij,jk,ik->i", mapping, spread, mapping), 0.0)
    along = (mapping @ found.axes) ** 2
    if not columns.classes:
        mean = float(moment[-1]) ** 2 / float(gram[-1, -1]) if columns.intercept else 0.0
        squared = squared + along @ bias(found, max(0.0, float(square) - mean), label) ** 2
    shrunk = along @ found.shrunk / np.maximum(along.sum(axis=1), 1e-300)
    return Regression(factor * mapping @ found.weights, factor * np.sqrt(squared), shrunk)
