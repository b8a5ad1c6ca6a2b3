"""How far noise moves the weights of a linear regression: a solution with little of the ridge in it, and its deviations
by repeating the release.

A ridge makes predictions better and each weight smaller. Intervals therefore lie around another solution of the same
moments, `unshrink`, from which the ridge is nearly gone. How far it is off is found by a parametric bootstrap: moments
are made from the released model, residuals and noise are drawn anew by public randomness that the release names, and
the same solution is taken from each of them. To first order noise of the Gram matrix moves weights by a linear function
of it; where it is not small beside an eigenvalue that is wrong by up to a third, in both directions, and the
repetitions are not.
"""

from __future__ import annotations

from math import sqrt

import numpy as np
from numpy.typing import NDArray

from comity.entropy import Stream
from comity.learn.quadratic import Solution

Floats = NDArray[np.float64]

REPEATS, FEWEST_REPEATS, _OF_COLUMNS = 100, 25, 20_000
"""Repetitions, whose root mean square has an error of 7 %, and columns in all of them: above 200 columns there are
fewer, so that a coordinator takes seconds. Not tuned on data."""

_TAKEN_BACK = 2
"""How often what the ridge took is added again; the ridge's share of an axis is raised to one more than that. Of 0, 1,
2 and 5, by hand on CPS, rentals, hours and news: 1 leaves biases of two deviations, 5 doubles widths."""

HIDDEN_SIZE = 0.6
"""How large the weight along an axis may be of which the ridge left nothing, in units of half the target's range: what
an interval is to hold beside noise. With rows drawn anew from CPS (wages, and wages by states) and hours of rentals at
ε = 1, 60 draws each, of 0.3, 0.4, 0.6 and 0.9 the third is the first at which every coefficient that is told is held in
93 % of the draws; without CPS it is the same, and without rentals too. These tables were used whole. Larger sizes leave
more coefficients untold."""


def unshrink(gram: Floats, moment: Floats, norm: float) -> Solution:
    """The solution with a ridge of half the noise's norm on eigenvalues that are no larger than that norm, from which
    the ridge is taken back twice (iterated Tikhonov): of an axis with the ridge's share s it leaves out s³."""
    values, axes = np.linalg.eigh((gram + gram.T) / 2)
    least = 1e-12 * float(np.abs(values).max())
    ridge = np.where(values > norm, 0.0, norm / 2)
    kept = np.maximum(values, 0.0) + np.maximum(ridge, least)
    share = ridge / kept
    # 1/kept · (1 + s + s²) is (1 − s³)/value, and stays finite where the value is 0.
    inverse = (axes * (sum(share**power for power in range(_TAKEN_BACK + 1)) / kept)) @ axes.T
    left = share ** (_TAKEN_BACK + 1)
    return Solution(np.asarray(inverse @ moment, np.float64), np.asarray(inverse, np.float64), axes, kept, left * kept)


def repeat_release(
    gram: Floats, weights: Floats, variances: Floats, moment_variances: Floats, *, residual: float, norm: float
) -> Floats:
    """How far `unshrink` is from `weights`, one line for each repetition of a release whose truth they are: `gram` is
    the noisy Gram matrix, of which the positive part is taken, and `residual` the variance of residuals."""
    values, axes = np.linalg.eigh((gram + gram.T) / 2)
    values = np.maximum(values, 0.0)
    true = (axes * values) @ axes.T
    of_rows = sqrt(residual) * (axes * np.sqrt(values))
    # Fresh for every release: what repetitions are off by is not the same in all of them.
    width, stream = len(weights), Stream.public("spread of weights", gram.tobytes(), weights.tobytes())
    deviations, repeats = np.sqrt(variances), max(FEWEST_REPEATS, min(REPEATS, _OF_COLUMNS // max(1, width)))
    off = np.empty((repeats, width))
    for at in range(repeats):
        drawn = stream.normal((width + 2, width))
        noise = np.triu(drawn[:width] * deviations)
        noisy = true + noise + np.triu(noise, 1).T
        moment = true @ weights + of_rows @ drawn[width] + np.sqrt(moment_variances) * drawn[width + 1]
        off[at] = unshrink(noisy, moment, norm).weights - weights
    return off
