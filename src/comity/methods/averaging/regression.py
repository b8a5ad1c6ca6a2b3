"""Regression from one release: second moments of the records with their targets.

A record is u = (x, b·t), its features in the unit ball and its target on [−1, 1] times a public b. The sum of u uᵀ
over all parties, opened once with noise, holds Σxxᵀ, Σxt and Σt². Least squares needs nothing else; everything after
the opening is post-processing. Two classes are t = ±1: the loss to second order around zero is minimal at four times
the least-squares fit of t/2 (as in `comity.methods.vertical.moments`).

Sensitivity  |u|² <= 1 + b² =: B. Of the upper triangle with √2 beside the diagonal, in L2: √2·B if a record is
             replaced, B if it is added. Of the plain triangle, in L1: Σ_{i<=j} |u_i u_j| = (|u|₁² + |u|²)/2, at most
             ((l + b)² + B)/2 for rows of L1 norm l; twice that if a record is replaced (proof.md, 7).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from comity.data.exact_sums import round_factor
from comity.federation.declare.bounds import EntrySum, Range, RecordSum
from comity.federation.declare.consortium import COORDINATOR, EVERY_PARTY, Consortium
from comity.federation.declare.declaration import Release
from comity.federation.declare.plausibility import moment_ranges
from comity.federation.declare.protection import Summed
from comity.federation.declare.release import Array
from comity.learn.quadratic import allowed_residual, bias, covariance, solve, solve_where_clear, spectral_norm
from comity.learn.record_sum import from_upper_triangle, in_unit_ball, triangle_weights, upper_products
from comity.privacy.accounting import gaussian_budget
from comity.privacy.loss import Pure
from comity.privacy.mechanisms import Noise
from comity.privacy.mechanisms.gaussian import Gaussian
from comity.privacy.mechanisms.laplace import Laplace
from comity.privacy.unit import Neighbours

Floats = NDArray[np.float64]

TARGET_WEIGHT = 0.5
"""b: a larger one makes Σxxᵀ noisier, a smaller one Σxt. As in vertical regression, where it was chosen on Adult;
on training rows of CPS, the one table whose target is a number, the best of 0.25, 0.5 and 1."""

_MAX_SQUARE = 1 + TARGET_WEIGHT**2
# Noise of sums of products between which moments replace the average of local fits. On training rows of Adult, credit
# defaults and KDD-99, of upper ends of 0.01, 0.02 and 0.04 the first is the best over all and without Adult or credit
# defaults; without KDD-99 0.02 is, which costs KDD-99 .008. No case lay below the lower end. Never to take moments is
# worth .001 more, whichever is left out: they are fits to second order, whose log loss is worse and accuracy mostly
# better. They are kept for that, and because all three have a rare class: on a table of even ones a fit by moments had
# an accuracy of .797 where the average had .749.
_FINE, _COARSE = 0.001, 0.01


def moments_are_better(noise: float) -> bool:
    """Whether a logistic model under pure ε is better fitted to moments than averaged from local fits. `noise` is the
    deviation of one sum of products times √d, over the records."""
    return _FINE < noise <= _COARSE


@dataclass(frozen=True)
class Moments:
    """The released vector, for rows of `features` numbers with an L1 norm of at most `l1_bound`. `pure` says whether
    its noise is Laplace, scaled in L1, or Gaussian, scaled in L2."""

    features: int
    l1_bound: float
    pure: bool

    @property
    def entries(self) -> int:
        return (self.features + 1) * (self.features + 2) // 2

    @property
    def sensitivity(self) -> float:
        """How far an added record moves the vector, in the norm of its noise."""
        return ((self.l1_bound + TARGET_WEIGHT) ** 2 + _MAX_SQUARE) / 2 if self.pure else _MAX_SQUARE

    def release(self, consortium: Consortium, records: int) -> Release:
        """The one release that costs anything. A party's sum has room for `records` records."""
        replaced, added = consortium.neighbours is Neighbours.REPLACE, self.sensitivity
        bound: EntrySum | RecordSum
        if isinstance(consortium.loss, Pure):
            noise: Noise = Laplace(consortium.loss)
            # No product of two entries exceeds the square of the longest row.
            bound = EntrySum(added, added * (2 if replaced else 1), records * _MAX_SQUARE, records)
        else:
            noise = Gaussian(gaussian_budget(consortium.loss))
            bound = RecordSum(added * (sqrt(2.0) if replaced else 1.0), records * _MAX_SQUARE, records)
        return Release(
            name="moments",
            source=EVERY_PARTY,
            to=COORDINATOR,
            protection=Summed(noise),
            form=Array((self.entries,), "<i8"),
            bound=bound,
        )

    # At a site.

    def sum_records(self, features: Floats, targets: Floats, filled: NDArray[np.bool_]) -> Floats:
        """The vector of a party's records (..., n, d), or of a stack of parties. Each record is clipped first."""
        return self.weigh(self.sum_products(features, targets, filled))

    def sum_products(self, features: Floats, targets: Floats, filled: NDArray[np.bool_]) -> Floats:
        """The vector without its factors, of entries on the grid of exact sums."""
        rows = in_unit_ball(features)
        if self.pure:
            rows = clip_l1(rows, self.l1_bound)
        with np.errstate(invalid="ignore"):
            bounded = np.where(np.isfinite(targets), np.clip(targets, -1.0, 1.0), 0.0)
        joined = np.concatenate([rows, TARGET_WEIGHT * bounded[..., None]], axis=-1) * filled[..., None]
        return upper_products(round_factor(joined))

    def weigh(self, products: Floats) -> Floats:
        """√2 beside the diagonal, but under Laplace noise, which treats all entries alike."""
        return products if self.pure else products * self._weights

    # At the coordinator.

    def matrix(self, opened: Floats) -> Floats:
        """The symmetric matrix: features first, then the target."""
        return from_upper_triangle(opened * self._weights if self.pure else opened, self.features + 1)

    def variances(self, deviation: float) -> Floats:
        """Of the noise in each entry of the matrix, where each opened number has this deviation."""
        width = self.features + 1
        if self.pure:
            return np.full((width, width), deviation**2)
        return np.full((width, width), deviation**2 / 2) + np.diag(np.full(width, deviation**2 / 2))

    def plausible_ranges(self, opened: Floats, most: float) -> tuple[Range, ...]:
        """What public figures allow, where no sum of squares is above `most`. In L1 entries are clipped one by one,
        after which pairs need not be consistent."""
        spread, gaussian = np.sqrt(self.variances(1.0)), not self.pure
        return moment_ranges(self.matrix(opened), spread, most, gaussian=gaussian, pairs=gaussian)

    @property
    def _weights(self) -> Floats:
        return triangle_weights(self.features + 1)


@dataclass(frozen=True, eq=False)
class Regression:
    """Coefficients of encoded rows for a target on [−1, 1], or for the log odds of the second class.

    The standard errors account for the noise and, in a linear model, for unequal residuals and for how far the ridge
    may have shrunk a coefficient. `shrunk` is the share of each coefficient that the ridge decides, from 0 to 1.
    """

    coef: Floats
    errors: Floats
    shrunk: Floats


def fit_regression(layout: Moments, opened: Floats, *, records: int, deviation: float, classes: bool) -> Regression:
    """`deviation` is that of the noise in each opened number; 0 gives the exact minimiser."""
    matrix, variances = layout.matrix(opened), layout.variances(deviation)
    gram, moment, square = matrix[:-1, :-1], matrix[:-1, -1], float(matrix[-1, -1])
    norm = spectral_norm(variances[:-1, :-1])
    # Classes depend on the direction alone, which a ridge keeps steady; a number is shrunk only where noise could have
    # made an eigenvalue. Not tuned on data: the same as in vertical regression.
    found = solve(gram, moment, norm / 2) if classes else solve_where_clear(gram, moment, norm)
    factor = (2.0 if classes else 1.0) / TARGET_WEIGHT
    squares = square - 2 * float(found.weights @ moment) + float(found.weights @ gram @ found.weights)
    residual = max(0.0, squares) / records if classes else allowed_residual(squares, records)
    spread = covariance(found, variances[:-1, :-1], variances[:-1, -1], gram, residual)
    squared, along = np.maximum(np.diag(spread), 0.0), found.axes**2
    if not classes:
        squared = squared + along @ bias(found, max(0.0, square), TARGET_WEIGHT) ** 2
    return Regression(factor * found.weights, factor * np.sqrt(squared), along @ found.shrunk)


def clip_l1(rows: Floats, bound: float) -> Floats:
    """Rows (..., d) of an L1 norm of at most `bound`; longer ones are divided."""
    norms = np.abs(rows).sum(-1, keepdims=True)
    return np.asarray(rows * np.minimum(1.0, bound / np.maximum(norms, 1e-300)), np.float64)
