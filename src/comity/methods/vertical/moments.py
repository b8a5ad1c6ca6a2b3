"""The moments: which sums of products z_a z_b are released, how far a record moves them, and the regression from them.

With Z the columns of all parties and c the intercept's constant, the objective of a regression needs the upper triangle
of (c, Z)ᵀ(c, Z). An entry within one party's columns, and every entry with the constant, is that party's own sum. An
entry across parties is a secure product, of which both hold a share. Public entries are not released: n c², the square
of a yes/no or of a two-class label, and, for one-hot columns, the zeros within a group and the sums that equal the
diagonal.

Entries have integer weights, because shares can only be multiplied by integers: 5 on the diagonal and 7 off it, close
to 1 : √2, so isotropic noise on the weighted vector treats the symmetric matrix evenly. Under L1 noise all weights are
1.

The regression is post-processing of this one release. Linear: least squares. Two classes: the posterior mean of
`posterior`. Sensitivities are derived in proof.md; their bounds are those of numbers on the grid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from comity.learn.noisy_regression import NoisyMoments, estimate
from comity.learn.posterior_mean import mean_weights
from comity.learn.quadratic import solve_where_clear, spectral_norm
from comity.methods.vertical.design import LABEL, NUMBER, ONE_HOT, PLACES, Design, Piece
from comity.methods.vertical.posterior import Posterior, fit_posterior

Floats = NDArray[np.float64]
Words = NDArray[np.uint64]

# The smallest integers near 1 : √2; not tuned on data.
DIAGONAL, BESIDE = 5, 7

# More than the rounding of the few floating-point operations below.
_UP = 1 + 1e-12
_BLOCK = 1 << 14


@dataclass(frozen=True, eq=False)
class MomentEntries:
    """The released entries: places (first <= second) in a matrix whose last row and column are the constant's."""

    design: Design
    first: NDArray[np.int64]
    second: NDArray[np.int64]
    weight: NDArray[np.int64]

    @classmethod
    def of(cls, design: Design) -> MomentEntries:
        width, centred = design.width, design.centred
        wanted = np.triu(np.ones((width + 1, width + 1), bool))
        wanted[width, width] = False
        if not design.intercept:
            wanted[:, width] = False
        for piece in design.pieces:
            if piece.constant_square:
                wanted[piece.start, piece.start] = False
            if piece.kind == ONE_HOT and not centred:
                own = slice(piece.start, piece.stop)
                wanted[own, own] = np.eye(piece.stop - piece.start, dtype=bool)
                wanted[own, width] = False
        first, second = np.nonzero(wanted)
        weight = np.where(first == second, DIAGONAL, BESIDE) if centred else np.ones(len(first), np.int64)
        return cls(design, first.astype(np.int64), second.astype(np.int64), weight.astype(np.int64))

    @property
    def size(self) -> int:
        return len(self.first)

    # At a site.

    def share(self, party: str, own: Floats, products: Mapping[tuple[str, str], Words]) -> Words:
        """A party's share of the weighted entries: its own sums, its shares of products, zero elsewhere.

        `own` are the party's sums of products (`gram`), with the sums of its columns as a last row.
        """
        width, places = self.design.width, self.design.places(party)
        matrix = np.zeros((width + 1, width + 1), np.uint64)
        matrix[places, places] = as_words(own[:-1])
        constant = round(self.design.constant * 2**PLACES)
        matrix[places, width] = as_words(constant * own[-1])
        for (earlier, later), share in products.items():
            matrix[self.design.places(earlier), self.design.places(later)] = share
        return matrix[self.first, self.second] * self.weight.astype(np.uint64)

    # At the coordinator, or where all columns are in one place.

    def exact(self, columns: Floats) -> Floats:
        """The weighted entries of pooled columns, equal to the sum of all shares to the last bit."""
        units = gram(columns)
        whole = np.zeros((len(units), len(units)))
        whole[:-1, :-1], whole[:-1, -1] = units[:-1], round(self.design.constant * 2**PLACES) * units[-1]
        return np.asarray(whole[self.first, self.second] * self.weight * 4.0**-PLACES, np.float64)

    def assemble(self, opened: Floats, rows: int) -> Floats:
        """The symmetric matrix from opened weighted entries, completed by the public entries."""
        width, constant = self.design.width, self.design.constant
        matrix = np.zeros((width + 1, width + 1))
        matrix[self.first, self.second] = opened / self.weight
        matrix[width, width] = rows * constant**2
        for piece in self.design.pieces:
            if piece.constant_square:
                matrix[piece.start, piece.start] = rows * piece.table[0, 0] ** 2
            if piece.kind == ONE_HOT and not self.design.centred:
                for at in range(piece.start, piece.stop):
                    matrix[at, width] = matrix[at, at] * constant / piece.table[0, 0]
        return matrix + np.triu(matrix, 1).T

    def variances(self, deviation: float) -> Floats:
        """Variances of the noise in the assembled matrix, where each weighted entry has this deviation."""
        width, constant = self.design.width, self.design.constant
        matrix = np.zeros((width + 1, width + 1))
        matrix[self.first, self.second] = (deviation / self.weight) ** 2
        for piece in self.design.pieces:
            if piece.kind == ONE_HOT and not self.design.centred:
                for at in range(piece.start, piece.stop):
                    matrix[at, width] = matrix[at, at] * (constant / piece.table[0, 0]) ** 2
        return matrix + np.triu(matrix, 1).T

    def split(self, matrix: Floats) -> tuple[Floats, Floats, float]:
        """(features and constant)ᵀ(same), the same with the label, and the label's square."""
        at = self.design.features
        if self.design.intercept:
            at = np.append(at, self.design.width)
        label = next(piece.start for piece in self.design.pieces if piece.kind == LABEL)
        return matrix[np.ix_(at, at)], matrix[at, label], float(matrix[label, label])


def to_units(columns: Floats) -> Floats:
    """Entries in units of 2^−PLACES, rounded like the secure products."""
    return np.asarray(np.rint(np.clip(columns, -1.0, 1.0) * 2.0**PLACES), np.float64)


def gram(columns: Floats) -> Floats:
    """Integer sums of products and, as a last row, of the columns. Exact: fewer than 2^28 products below 2^25 stay
    below 2^53."""
    width = columns.shape[1]
    total = np.zeros((width + 1, width))
    for start in range(0, len(columns), _BLOCK):
        block = to_units(columns[start : start + _BLOCK])
        total[:width] += block.T @ block
        total[width] += block.sum(axis=0)
    return total


def as_words(values: Floats) -> Words:
    return np.asarray(values, np.int64).view(np.uint64)


def squared_bound(design: Design) -> float:
    """B²: the largest squared norm of (c, z). Nobody sees a whole row, so it is a sum over pieces."""
    return design.constant**2 + sum(piece.squared for piece in design.pieces)


def l2_sensitivity(design: Design) -> float:
    """L2 sensitivity of the weighted entries: at most max(5, 7/√2)·√2·B² (proof.md, 2)."""
    return max(DIAGONAL, BESIDE / sqrt(2)) * sqrt(2) * squared_bound(design) * _UP


def l1_sensitivity(design: Design) -> float:
    """L1 sensitivity of entries of weight 1 (proof.md, 3). One-hot pieces have one non-zero entry; squares of numbers
    are never negative; of signed entries only pairs in which one changes sign move; known entries are not released.
    """
    return _all_pairs(design, design.pieces)


def block_sensitivity(design: Design, party: str) -> float:
    """L1 sensitivity of one party's own entries of weight 1, with those of the constant (proof.md, 8)."""
    return _all_pairs(design, [piece for piece in design.pieces if piece.party == party])


def pair_sensitivity(design: Design, one: str, other: str) -> float:
    """L1 sensitivity of the entries of weight 1 across two parties: reached where all entries of one change sign
    (proof.md, 8)."""
    sums = [sum(piece.absolute for piece in design.pieces if piece.party == party) for party in (one, other)]
    return 2 * sums[0] * sums[1] * _UP


def _all_pairs(design: Design, pieces: Sequence[Piece]) -> float:
    one_hot = [piece for piece in pieces if piece.kind == ONE_HOT]
    signed = [piece for piece in pieces if piece.kind != ONE_HOT]
    total = sum(2 * piece.squared for piece in one_hot)
    total += sum(piece.squared for piece in signed if not piece.constant_square)
    total += sum(2 * one.absolute * other.absolute for one, other in combinations(one_hot, 2))
    total += sum(2 * one.absolute * other.absolute for one in one_hot for other in signed)
    bounds = [design.constant, *(piece.absolute for piece in signed)]
    every, largest = sum(bounds), max(bounds)
    apart = max(largest, every / 2)
    return (total + 2 * apart * (every - apart)) * _UP


def l1_sensitivity_about(design: Design, party: str) -> float:
    """L1 sensitivity of all entries of weight 1 where only one party's columns change (proof.md, 5)."""
    own = [piece for piece in design.pieces if piece.party == party]
    rest = [piece for piece in design.pieces if piece.party != party]
    total = sum(2 * piece.squared for piece in own if piece.kind == ONE_HOT)
    total += sum(piece.squared for piece in own if piece.kind != ONE_HOT and not piece.constant_square)
    pairs = [*combinations(own, 2), *((one, other) for one in own for other in rest)]
    for one, other in pairs:
        if ONE_HOT in (one.kind, other.kind):
            total += 2 * one.absolute * other.absolute
    every = design.constant + sum(piece.absolute for piece in design.pieces if piece.kind != ONE_HOT)
    flipped = min(sum(piece.absolute for piece in own if piece.kind != ONE_HOT), every / 2)
    return min((total + 2 * flipped * (every - flipped)) * _UP, l1_sensitivity(design))


def party_share(design: Design, party: str) -> float:
    """The loss in μ² about one party's columns alone, as a share of the whole: 4f(1 − f) for a party with a share
    f <= ½ of B², all of it for a larger one (proof.md, 5)."""
    fraction = sum(piece.squared for piece in design.pieces if piece.party == party) / squared_bound(design)
    return 1.0 if fraction >= 0.5 else 4 * fraction * (1 - fraction)


@dataclass(frozen=True, eq=False)
class Regression:
    """Coefficients of encoded rows, and what is known of each: `unshrunk` around which its interval lies, their
    standard errors, and how much of an error may be the ridge's, from 0 to 1.

    Of a linear model `coef` predict best on average over what noise leaves possible, and `unshrunk` are other
    estimates. Errors account for noise, residuals and what an estimate left out (`learn/noisy_regression.py`); they are
    about the population that records are drawn from, and so about the exact fit of the same records too. Categories
    count from the average record (`Design.about_average`). Where `shrunk` is above `quadratic.DECIDED` a coefficient
    can't be told. Of two classes both are the posterior mean, errors are posterior deviations, and `shrunk` is the
    posterior variance over the prior's.
    """

    coef: Floats
    unshrunk: Floats
    errors: Floats
    shrunk: Floats


def entry_noise(variances: Floats, rows: int) -> float:
    """The deviation of the noise in one entry, over the rows: the root mean square of the noisiest row of the matrix.

    What columns tell of a label lies in few directions, however many columns there are, so it is this number and not
    the norm of all noise that says what can be learnt."""
    return sqrt(float(variances.mean(axis=1).max())) / rows


def fit_regression(entries: MomentEntries, opened: Floats, rows: int, deviation: float) -> Regression:
    """`deviation` is that of the noise in each opened entry; 0 gives the exact minimise_polynomial."""
    found = OpenedMoments.of(entries, opened, rows, deviation)
    return _fit_classes(found) if entries.design.classes else _fit_number(found)


@dataclass(frozen=True, eq=False)
class OpenedMoments:
    """Opened moments of features and label, with the variances of their noise and its norm."""

    design: Design
    rows: int
    gram: Floats
    moment: Floats
    square: float
    variances: Floats
    moment_variances: Floats
    square_variance: float
    norm: float

    @classmethod
    def of(cls, entries: MomentEntries, opened: Floats, rows: int, deviation: float) -> OpenedMoments:
        gram, moment, square = entries.split(entries.assemble(opened, rows))
        variances, moment_variances, square_variance = entries.split(entries.variances(deviation))
        norm = spectral_norm(variances)
        return cls(entries.design, rows, gram, moment, square, variances, moment_variances, square_variance, norm)

    def posterior(self) -> Posterior:
        return fit_posterior(self.design, self.rows, self.gram, self.moment, self.variances, self.moment_variances)

    @property
    def label(self) -> float:
        return float(np.abs(self.design.label.table).max())

    def squares(self, weights: Floats) -> float:
        """The sum of squared residuals under these weights."""
        return float(self.square - 2 * weights @ self.moment + weights @ self.gram @ weights)


def _fit_classes(found: OpenedMoments) -> Regression:
    """The posterior mean: what noise may have made is shrunk, down to a constant."""
    posterior = found.posterior()
    mapping = found.design.mapping
    squared = np.maximum(np.einsum("ij,jk,ik->i", mapping, posterior.covariance, mapping), 0.0)
    along = (mapping[:, : len(posterior.axes)] @ posterior.axes) ** 2
    shrunk = along @ posterior.shrunk / np.maximum(along.sum(axis=1), 1e-300)
    coef = mapping @ posterior.weights
    return Regression(coef, coef, np.sqrt(squared), shrunk)


def _fit_number(found: OpenedMoments) -> Regression:
    """A regression needs the length too. Its weights predict best on average over what noise leaves possible; intervals
    lie around other estimates, each of which leaves out as little as its interval allows for."""
    design, means = found.design, None
    if design.intercept:
        means = found.gram[:-1, -1] / (design.constant * found.rows)
    mapping, factor = design.about_average(means), 1.0 / found.label
    noisy = NoisyMoments(
        found.gram,
        found.moment,
        found.square,
        found.variances,
        found.moment_variances,
        found.rows,
        found.label,
        design.intercept,
        _spread(found, means),
    )
    estimates = estimate(noisy, mapping)
    if found.norm > 0:
        weights = mean_weights(noisy, found.square_variance)
    else:
        weights = solve_where_clear(found.gram, found.moment, 0.0).weights
    coef = factor * (mapping @ weights)
    return Regression(coef, factor * estimates.values, factor * estimates.errors, estimates.open)


def _spread(found: OpenedMoments, means: Floats | None) -> Floats:
    """How much larger squared weights may be for a number that takes up a small part of its declared range: its
    variance if it were uniform over the range, over what it is, as far as noise shows that; 1 at least."""
    out, squares = np.ones(len(found.gram)), np.diag(found.gram) / found.rows
    noise = np.sqrt(np.diag(found.variances)) / found.rows
    columns = {at: number for number, at in enumerate(found.design.features.tolist())}
    for piece in found.design.pieces:
        if piece.kind == NUMBER:
            at = columns[piece.start]
            variance = squares[at] - (0.0 if means is None else means[at] ** 2)
            out[at] = max(1.0, float(piece.table[0, 0]) ** 2 / 3 / max(variance, noise[at], 1e-12))
    return out
