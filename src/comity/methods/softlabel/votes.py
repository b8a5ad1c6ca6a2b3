"""Statistics of local classifiers: whitened votes on the auxiliary rows, vote histograms, averages of unit-norm models.

Votes are the private statistic of soft-label learning, (1/N) Σ α_i z_iᵀ. The soft-label risk depends on the votes
through this product alone. Over whitened rows the product is a contraction, so its sensitivity is that of a single vote
for any N, dimension and regularisation (proof.md, 1).

Repeated public rows count for less per copy: noise hides a group of rows more the smaller its share of the public rows
is, so a row that fills half of them would otherwise be learned long before the others.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from math import sqrt
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from comity.errors import DataError
from comity.federation.declare.bounds import Ball, Simplex
from comity.learn.feature_map import FeatureMap, compose, fit_self_training_map, fit_whitened_pca
from comity.learn.fits import contrasts, fit_softmax
from comity.methods.softlabel.self_training import softmax_from_moments
from comity.methods.softlabel.statistic import (
    Filled,
    Labels,
    Statistic,
    enforce_simplex,
    has_records,
    prior_squares,
    shrink,
)
from comity.special import softmax as normalise

Floats = NDArray[np.float64]

_TOLERANCE = 1e-8
# The penalty for exact moments, and how it grows with the noise on them. Chosen on training rows of KDD-99, after its
# test rows had been seen.
_LEAST_L2 = 1e-4
_L2_PER_DEVIATION = 4.0
# The model's risk is averaged over about this many of the public rows: more of them change it by less than the noise.
# A limit of work, not tuned on data.
_ENOUGH_ROWS = 10_000
# A row found c times in public counts c^0.8 in all. Chosen on training rows of KDD-99 that no party and no auxiliary
# table held: c^0.9 to c^0.7 raise the mean accuracy of 5,000 parties at ε = 0.01, c^0.8 the most and at every smaller
# noise tried too; with c^0.6 the most frequent row is lost in some draws. Tables without repeats are not touched.
_REPEATS = 0.2


@dataclass(frozen=True, eq=False, kw_only=True)
class Votes(Statistic):
    """Contributes K (V − 1/C)ᵀ U Z / N for votes V (N, C), public rows Z (N, D), public weights U of mean one on the
    diagonal, Zᵀ U Z/N = 1.

    Sensitivity  √2: each of N rows of votes moves by at most √2, √U times all rows by √(2N), and √(U/N) Z has norm one.
                 For two classes 1: the contribution is half the difference of the two columns, which moves by at most 1
                 in each row of votes.
    """

    name: ClassVar[str] = "votes"
    needs: ClassVar[Literal["votes", "records"]] = "votes"
    pure: ClassVar[bool] = True

    rows: Floats = field(repr=False)
    weight: Floats | None = field(default=None, repr=False)

    @classmethod
    def on(
        cls, auxiliary: Floats, classes: int, dimensions: int | None = None, first: FeatureMap | None = None
    ) -> Votes:
        """Over the `dimensions` directions of largest public variance, or all; `first` maps the rows beforehand."""
        weight = weight_repeats(auxiliary)
        found = fit_whitening(first, auxiliary, dimensions, weight)
        return cls(classes=classes, map=found, rows=shorten(found(auxiliary), weight), weight=weight)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.classes - 1, self.map.dimensions

    @property
    def bound(self) -> Ball:
        if self.classes == 2:
            return Ball(0.5)
        # Contributions are images of the simplex: its diameter is smaller than the ball's.
        return Ball(sqrt(1 - 1 / self.classes), diameter=sqrt(2))

    @property
    def signal(self) -> float:
        return self.bound.radius

    def contribution(self, features: Floats, labels: Labels, filled: Filled, votes: Floats | None = None) -> Floats:
        if votes is None or votes.shape[-2:] != (len(self.rows), self.classes):
            found = None if votes is None else votes.shape
            raise DataError(f"votes must have the shape (..., {len(self.rows)}, {self.classes}), found {found}")
        turned = enforce_simplex(votes) @ class_basis(self.classes).T
        if self.weight is not None:
            turned = turned * self.weight[:, None]
        return np.asarray(np.where(has_records(filled), vote_moments(turned, self.rows), 0.0), np.float64)

    def model(self, mean: Floats, deviation: float) -> Floats:
        """Shrink the moments, then fit the softmax model of least risk under them."""
        likely = shrink(mean, self.prior, deviation)
        if self.classes == 2:
            likely, deviation = -sqrt(2) * likely, sqrt(2) * deviation
        some = slice(None, None, max(1, len(self.rows) // _ENOUGH_ROWS))
        weight = None if self.weight is None else self.weight[some]
        return softmax_from_moments(self.rows[some], likely, _LEAST_L2 + _L2_PER_DEVIATION * deviation, weight=weight)

    @property
    def prior(self) -> Floats:
        return prior_squares(self.map, self.map.dimensions - 1, self.signal, self.classes)


@dataclass(frozen=True, eq=False, kw_only=True)
class Histograms(Statistic):
    """Contributes the votes themselves, (N, C): noisy soft labels of the auxiliary rows, on which anything may be
    trained.

    Sensitivity  √(2N): each of N rows moves by at most √2. A whitened mean over N rows divides the noise by √N, so a
                 linear model sees as much noise as from `Votes`; a single label has √N times more.
    """

    name: ClassVar[str] = "histograms"
    needs: ClassVar[Literal["votes", "records"]] = "votes"
    # Spherical noise in N·C dimensions would be longer than any histogram.
    pure: ClassVar[bool] = False

    rows: Floats = field(repr=False)

    @classmethod
    def on(
        cls, auxiliary: Floats, classes: int, dimensions: int | None = None, first: FeatureMap | None = None
    ) -> Histograms:
        found = fit_whitening(first, auxiliary, dimensions)
        return cls(classes=classes, map=found, rows=shorten(found(auxiliary)))

    @property
    def shape(self) -> tuple[int, ...]:
        return len(self.rows), self.classes

    @property
    def bound(self) -> Simplex:
        return Simplex(len(self.rows), self.classes)

    @property
    def signal(self) -> float:
        return sqrt(len(self.rows) * (1 - 1 / self.classes))

    def noise_to_signal(self, deviation: float) -> float:
        """Of the whitened product that a linear model is learned from, comparable with `Votes`."""
        size = (self.classes - 1) * self.map.dimensions
        return deviation / sqrt(len(self.rows)) * sqrt(size) / sqrt(1 - 1 / self.classes)

    def contribution(self, features: Floats, labels: Labels, filled: Filled, votes: Floats | None = None) -> Floats:
        if votes is None or votes.shape[-2:] != self.shape:
            found = None if votes is None else votes.shape
            raise DataError(f"votes must have the shape (..., {len(self.rows)}, {self.classes}), found {found}")
        return np.asarray(np.where(has_records(filled), enforce_simplex(votes), 1.0 / self.classes), np.float64)

    def model(self, mean: Floats, deviation: float) -> Floats:
        votes = Votes(classes=self.classes, map=self.map, rows=self.rows)
        basis = class_basis(self.classes)
        # Independent noise on N rows, averaged over them with weights of mean square one.
        less = float(np.linalg.norm(basis[0])) / sqrt(len(self.rows))
        return votes.model(vote_moments(mean @ basis.T, self.rows), deviation * less)

    def soft_labels(self, mean: Floats, deviation: float) -> Floats:
        """Rows in the simplex (N, C) to train any model on.

        The nearest distribution to each noisy row. Where noise exceeds the shares, single rows say nothing: then the
        posteriors of the linear model, which averages over rows.
        """
        if deviation * self.classes <= 1:
            return project_on_simplex(mean)
        return np.asarray(normalise(self.rows @ self.model(mean, deviation).T, axis=1), np.float64)


@dataclass(frozen=True, eq=False, kw_only=True)
class Models(Statistic):
    """Contributes the weights of its own softmax classifier, (C − 1) x D coordinates, scaled to norm one.

    Sensitivity  2: two points of the unit ball. The norm of a party's weights says how certain it is, not in which
                 direction; without it the noise does not depend on the regularisation. A zero model stays zero, the
                 centre of the ball. The projection bounds the intercept with the rest.
    """

    name: ClassVar[str] = "models"
    needs: ClassVar[Literal["votes", "records"]] = "records"
    pure: ClassVar[bool] = True

    l2: float = 1e-1

    @classmethod
    def on(cls, auxiliary: Floats, classes: int, dimensions: int = 20) -> Models:
        """In the `dimensions` directions of largest variance of the self-training map: few, since each carries
        noise."""
        found = fit_self_training_map(auxiliary)
        assert found.whitening is not None
        return cls(classes=classes, map=replace(found, whitening=found.whitening[:, :dimensions], constant=True))

    @property
    def shape(self) -> tuple[int, ...]:
        return self.classes - 1, self.map.dimensions

    @property
    def bound(self) -> Ball:
        return Ball(1.0)

    @property
    def signal(self) -> float:
        return 1.0

    def contribution(self, features: Floats, labels: Labels, filled: Filled, votes: Floats | None = None) -> Floats:
        fit = fit_softmax(
            self.map(features),
            np.where(filled, labels, 0),
            self.l2,
            classes=self.classes,
            mask=filled,
            tol=_TOLERANCE,
        )
        weights = contrasts(self.classes) @ fit.weights
        length = np.sqrt((weights**2).sum(axis=(-2, -1), keepdims=True))
        usable = fit.converged[..., None, None] & has_records(filled)
        return np.asarray(np.where(usable, weights / np.where(length > 0, length, 1.0), 0.0), np.float64)

    def model(self, mean: Floats, deviation: float) -> Floats:
        return np.asarray(contrasts(self.classes).T @ mean, np.float64)


def weight_repeats(auxiliary: Floats) -> Floats | None:
    """Weights (N,) of mean one by how often each public row occurs; None where no row repeats."""
    keys = [row.tobytes() for row in np.asarray(auxiliary, np.float64) + 0.0]
    found = Counter(keys)
    if len(found) == len(keys):
        return None
    weight = np.array([found[key] for key in keys], np.float64) ** -_REPEATS
    return np.asarray(weight / weight.mean(), np.float64)


def fit_whitening(
    first: FeatureMap | None, auxiliary: Floats, dimensions: int | None, weight: Floats | None = None
) -> FeatureMap:
    if first is None:
        return fit_whitened_pca(auxiliary, dimensions, weight)
    return compose(first, fit_whitened_pca(first(auxiliary), dimensions, weight))


def class_basis(classes: int) -> Floats:
    """Rows that sum to zero: an orthonormal basis; for two classes half their difference."""
    return np.array([[-0.5, 0.5]]) if classes == 2 else contrasts(classes)


def vote_moments(turned: Floats, rows: Floats) -> Floats:
    """(..., k, D) from (..., N, k) and (N, D), without a product per row in memory."""
    return np.asarray(turned.swapaxes(-1, -2) @ rows / len(rows), np.float64)


def shorten(rows: Floats, weight: Floats | None = None) -> Floats:
    """Scale rows to Zᵀ U Z/N <= 1 exactly: rounding in the whitening may leave it a little above."""
    weighted = rows if weight is None else rows * weight[:, None]
    largest = float(np.linalg.eigvalsh(weighted.T @ rows / len(rows))[-1])
    return np.asarray(rows / sqrt(max(1.0, largest)) * (1 - 1e-12), np.float64)


def project_on_simplex(rows: Floats) -> Floats:
    """The Euclidean projection of each row on the simplex (Held, Wolfe and Crowder 1974)."""
    descending = -np.sort(-rows, axis=-1)
    excess = (np.cumsum(descending, axis=-1) - 1) / np.arange(1, rows.shape[-1] + 1)
    support = (descending > excess).sum(axis=-1, keepdims=True)
    level = np.take_along_axis(excess, support - 1, axis=-1)
    return np.asarray(np.maximum(rows - level, 0.0), np.float64)
