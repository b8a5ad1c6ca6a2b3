"""One release instead of many: second moments of the records with their targets, and the regression made of them.

A record is u = (x, b·t), its features in the unit ball and its target on [−1, 1] times a public b. The sum of u uᵀ
over all parties, opened once with noise, holds Σxxᵀ, Σxt and Σt², and least squares needs nothing else; everything
after the opening is post-processing. Two classes are t = ±1: the loss to second order around zero has four times the
least-squares fit of t/2 for its minimum (as in `comity.methods.vertical.moments`).

Sensitivity  |u|² <= 1 + b² =: B. Of the upper triangle with √2 beside the diagonal, in L2: √2·B if a record is
             replaced, B if it is added. Of the plain triangle, in L1: Σ_{i<=j} |u_i u_j| = (|u|₁² + |u|²)/2, at most
             ((l + b)² + B)/2 for rows of L1 norm l; twice that if a record is replaced (proof.md, 7).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from comity.federation.declare.bounds import EntrySum, Range, RecordSum
from comity.federation.declare.consortium import COORDINATOR, EVERY_PARTY, Consortium
from comity.federation.declare.declaration import Release
from comity.federation.declare.plausibility import moment_ranges
from comity.federation.declare.protection import Summed
from comity.federation.declare.release import Array
from comity.learn.quadratic import allowed_residual, bias, covariance, solve, solve_where_clear, spectral_norm
from comity.learn.record_sum import from_upper_triangle, in_unit_ball, upper_triangle
from comity.privacy.accounting import gaussian_budget
from comity.privacy.loss import Pure
from comity.privacy.mechanisms.gaussian import Gaussian
from comity.privacy.mechanisms.laplace import Laplace
from comity.privacy.unit import Neighbours

Floats = NDArray[np.float64]

TARGET = 0.5
"""b: a larger one makes Σxxᵀ noisier, a smaller one Σxt. As in vertical regression, where it was chosen on Adult;
on training rows of CPS, the one table whose target is a number, the best of 0.25, 0.5 and 1."""

_SQUARED = 1 + TARGET**2


@dataclass(frozen=True)
class Moments:
    """The layout of the release: so many features, rows of an L1 norm of `reach` at most, and the noise's own norm."""

    features: int
    reach: float
    pure: bool

    @property
    def entries(self) -> int:
        return (self.features + 1) * (self.features + 2) // 2

    @property
    def moved(self) -> float:
        """How far an added record moves the vector, in L1 where noise is pure and in L2 elsewhere."""
        return ((self.reach + TARGET) ** 2 + _SQUARED) / 2 if self.pure else _SQUARED

    def release(self, consortium: Consortium, records: int) -> Release:
        """The one release that costs anything; a party has room for so many records."""
        replaced = consortium.neighbours is Neighbours.REPLACE
        if self.pure:
            assert isinstance(consortium.loss, Pure)
            return self._release(
                Summed(Laplace(consortium.loss)),
                # No product of two entries exceeds the square of the longest row.
                EntrySum(self.moved, self.moved * (2 if replaced else 1), records * _SQUARED, records),
            )
        return self._release(
            Summed(Gaussian(gaussian_budget(consortium.loss))),
            RecordSum(self.moved * (sqrt(2.0) if replaced else 1.0), records * _SQUARED, records),
        )

    def _release(self, protection: Summed, bound: EntrySum | RecordSum) -> Release:
        return Release(
            name="moments",
            source=EVERY_PARTY,
            to=COORDINATOR,
            protection=protection,
            form=Array((self.entries,), "<i8"),
            bound=bound,
        )

    # At a site.

    def of(self, features: Floats, targets: Floats, filled: NDArray[np.bool_]) -> Floats:
        """The vector of a party's records (..., n, d) or of a stack of them; each lies within its bounds first."""
        rows = in_unit_ball(features)
        if self.pure:
            rows = within_reach(rows, self.reach)
        with np.errstate(invalid="ignore"):
            kept = np.where(np.isfinite(targets), np.clip(targets, -1.0, 1.0), 0.0)
        joined = np.concatenate([rows, TARGET * kept[..., None]], axis=-1) * filled[..., None]
        triangle = upper_triangle(joined)
        return triangle / self._weights if self.pure else triangle

    # At the coordinator.

    def matrix(self, opened: Floats) -> Floats:
        """The symmetric matrix, features first, then the target."""
        return from_upper_triangle(opened * self._weights if self.pure else opened, self.features + 1)

    def variances(self, deviation: float) -> Floats:
        """Of the noise in each entry of the matrix, when each opened one has this deviation."""
        width = self.features + 1
        if self.pure:
            return np.full((width, width), deviation**2)
        return np.full((width, width), deviation**2 / 2) + np.diag(np.full(width, deviation**2 / 2))

    def ranges(self, opened: Floats, most: float) -> tuple[Range, ...]:
        """What public figures allow, where no sum of squares is above `most`. In L1 entries are cut one by one, after
        which pairs need not fit together."""
        spread, gaussian = np.sqrt(self.variances(1.0)), not self.pure
        return moment_ranges(self.matrix(opened), spread, most, gaussian=gaussian, pairs=gaussian)

    @property
    def _weights(self) -> Floats:
        """What `upper_triangle` multiplies its entries by: noise that is measured in L1 treats all entries alike."""
        row, column = np.triu_indices(self.features + 1)
        return np.where(row == column, 1.0, sqrt(2.0))


@dataclass(frozen=True, eq=False)
class Regression:
    """Coefficients of encoded rows for a target on [−1, 1], or for the log odds of the second class; with standard
    errors that account for the noise and, in a linear model, for residuals that may be unequal and for how far the
    ridge may have shrunk a coefficient; `shrunk` is how much of each it decides, from 0 to 1."""

    coef: Floats
    errors: Floats
    shrunk: Floats


def fitted(layout: Moments, opened: Floats, *, records: int, deviation: float, classes: bool) -> Regression:
    """`deviation` is that of the noise in each opened entry; 0 gives the exact minimiser."""
    matrix, variances = layout.matrix(opened), layout.variances(deviation)
    gram, moment, square = matrix[:-1, :-1], matrix[:-1, -1], float(matrix[-1, -1])
    norm = spectral_norm(variances[:-1, :-1])
    # Of a class the direction alone matters, which a ridge keeps steady; a number is shrunk only where noise could
    # have made an eigenvalue. Not tuned on data: the same as in vertical regression.
    found = solve(gram, moment, norm / 2) if classes else solve_where_clear(gram, moment, norm)
    factor = (2.0 if classes else 1.0) / TARGET
    squares = square - 2 * float(found.weights @ moment) + float(found.weights @ gram @ found.weights)
    residual = max(0.0, squares) / records if classes else allowed_residual(squares, records)
    spread = covariance(found, variances[:-1, :-1], variances[:-1, -1], gram, residual)
    squared, along = np.maximum(np.diag(spread), 0.0), found.axes**2
    if not classes:
        squared = squared + along @ bias(found, max(0.0, square), TARGET) ** 2
    return Regression(factor * found.weights, factor * np.sqrt(squared), along @ found.shrunk)


def within_reach(rows: Floats, reach: float) -> Floats:
    """Rows (..., d) of an L1 norm of at most `reach`; longer ones are divided."""
    norms = np.abs(rows).sum(-1, keepdims=True)
    return np.asarray(rows * np.minimum(1.0, reach / np.maximum(norms, 1e-300)), np.float64)
