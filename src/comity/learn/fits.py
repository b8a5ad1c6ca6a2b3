"""Penalised fits of linear models, each for one party or for a stack of parties at once.

    minimise  mean_i loss(w·x_i, y_i) + l2/2·|w|²

`fit_logistic` and `fit_softmax` take hard or soft labels. `fit_one_margin` fits a support-vector machine by the loss
`SmoothedHinge` and a regression of a bounded target by `Huber`. No fit has a separate intercept: append a constant
feature, which is penalised like the others. The norm bound of the minimiser (`norm_bound`) rests on that. `newton` is
the solver.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from comity.errors import DataError
from comity.learn.newton import Floats, Likelihood, minimise

# Rows of soft labels sum to one within this; they are then divided by their sum.
_SIMPLEX = 1e-9


@dataclass(frozen=True, eq=False)
class Fit:
    """Weights of one party or of a stack of them.

    `gradient_norm` is the norm of the full gradient at `weights`, one number per party. A fit that does not reach `tol`
    is flagged by `converged` and raises nothing: one party's data must not decide whether the others get an answer. A
    method that claims a sensitivity replaces a flagged fit by a neutral value.
    """

    weights: Floats
    gradient_norm: Floats
    tol: float

    @property
    def converged(self) -> NDArray[np.bool_]:
        return np.asarray(self.gradient_norm <= self.tol)


def weigh_records(x: Floats, mask: NDArray[np.bool_] | None) -> tuple[Floats, Floats]:
    """Features (..., n, d), finite and zero in padding, and the weight of each record in its party's mean.

    A weight is 1/n for each of a party's n records and zero for padding.
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


def check_settings(l2: float, tol: float, max_iterations: int) -> None:
    if not (np.isfinite(l2) and l2 > 0):
        raise DataError(f"l2 must be a finite number above 0, found {l2}; without a penalty there may be no minimiser")
    if not (tol > 0 and max_iterations >= 1):
        raise DataError(f"tol must be above 0 and max_iterations at least 1, found {tol} and {max_iterations}")


class OneMargin(Likelihood, Protocol):
    """A loss of one margin per record, for targets that it `accepts`; `expected` is the error for others."""

    target_name: ClassVar[str]
    expected: ClassVar[str]

    def accepts(self, targets: Floats) -> NDArray[np.bool_]: ...


def fit_one_margin(
    x: Floats,
    y: ArrayLike,
    l2: float,
    loss: OneMargin,
    *,
    mask: NDArray[np.bool_] | None = None,
    tol: float = 1e-10,
    max_iterations: int = 200,
) -> Fit:
    """Weights (..., d) for features x (..., n, d) and targets y (..., n); every leading index is a party. `mask` is
    that of `fit_logistic`."""
    check_settings(l2, tol, max_iterations)
    x, weight = weigh_records(x, mask)
    targets = np.asarray(y, np.float64)
    if targets.shape != x.shape[:-1]:
        raise DataError(
            f"{loss.target_name} must have one entry per record, shape {x.shape[:-1]}; found {targets.shape}"
        )
    # Padding is not read.
    targets = np.where(weight > 0, targets, 0.0)
    if not loss.accepts(targets).all():
        raise DataError(loss.expected)
    before, (n, d) = x.shape[:-2], x.shape[-2:]
    parties = prod(before)
    stack = x.reshape(parties, n, d), targets.reshape(parties, n), weight.reshape(parties, n)
    point, norms = minimise(*stack, l2, loss, tol=tol, max_iterations=max_iterations)
    return Fit(point[:, :, 0].reshape(*before, d), norms.reshape(before), tol)


@dataclass(frozen=True)
class Logistic:
    """log(1 + exp(u)) − y·u of the margin u = w·x, for labels y in [0, 1]."""

    width: int = 1
    target_name: ClassVar[str] = "labels"
    expected: ClassVar[str] = (
        "labels of a logistic fit must lie between 0 and 1: use class indices 0/1 or shares of votes"
    )

    def accepts(self, targets: Floats) -> NDArray[np.bool_]:
        return np.asarray((targets >= 0.0) & (targets <= 1.0), np.bool_)

    def evaluate(self, margins: Floats, labels: Floats) -> tuple[Floats, Floats]:
        u = margins[:, :, 0]
        small = np.exp(-np.abs(u))
        loss = np.maximum(u, 0.0) - labels * u + np.log1p(small)
        return loss, np.where(u >= 0, 1.0, small) / (1.0 + small)

    def residual(self, probabilities: Floats, labels: Floats) -> Floats:
        return (probabilities - labels)[:, :, None]

    def curvature(self, probabilities: Floats) -> Floats:
        return (probabilities * (1.0 - probabilities))[:, :, None, None]

    def bend(self, probabilities: Floats, direction: Floats) -> Floats:
        return probabilities * (1.0 - probabilities) * direction[:, :, 0] ** 2


def fit_logistic(
    x: Floats,
    y: ArrayLike,
    l2: float,
    *,
    mask: NDArray[np.bool_] | None = None,
    tol: float = 1e-10,
    max_iterations: int = 100,
) -> Fit:
    """Weights (..., d) for features x (..., n, d) and labels y (..., n) in [0, 1]; every leading index is a party.

    `mask` (..., n) marks the real records of parties padded to one size: padding is not read, and a party without
    records gets w = 0. At |x| <= 1 and l2 >= 1e-9 the gradient norm is below 1e-10.
    """
    return fit_one_margin(x, y, l2, Logistic(), mask=mask, tol=tol, max_iterations=max_iterations)


def contrasts(classes: int) -> Floats:
    """Orthonormal rows (C − 1, C), each summing to zero: the first c classes against the next one."""
    rows = np.tril(np.ones((classes - 1, classes)))
    first = np.arange(1, classes)
    rows[first - 1, first] = -first
    return np.asarray(rows / np.sqrt(first * (first + 1.0))[:, None], np.float64)


@dataclass(frozen=True, eq=False)
class Softmax:
    """Cross-entropy of C classes: log Σ_c exp(W_c·x) − Σ_c y_c·W_c·x, for labels y in the simplex.

    The gradient (p − y) xᵀ has class rows that sum to zero, so the rows of the minimiser do too. The solver works in an
    orthonormal basis of that subspace: C − 1 margins u per record, scores u·basis, the same norm. Noise for W then
    needs (C − 1)·d dimensions only, as long as every y sums to one.
    """

    basis: Floats

    @property
    def width(self) -> int:
        return len(self.basis)

    def evaluate(self, margins: Floats, labels: Floats) -> tuple[Floats, Floats]:
        scores = margins @ self.basis
        scores -= scores.max(-1, keepdims=True)
        grown = np.exp(scores)
        total = grown.sum(-1)
        loss = np.log(total) - (labels * scores).sum(-1)
        return loss, grown / total[:, :, None]

    def residual(self, probabilities: Floats, labels: Floats) -> Floats:
        return (probabilities - labels) @ self.basis.T

    def curvature(self, probabilities: Floats) -> Floats:
        mean = probabilities @ self.basis.T
        second = (probabilities[:, :, None, :] * self.basis) @ self.basis.T
        return np.asarray(second - mean[:, :, :, None] * mean[:, :, None, :], np.float64)

    def bend(self, probabilities: Floats, direction: Floats) -> Floats:
        """The variance of the scores' change under the probabilities."""
        change = direction @ self.basis
        mean = (probabilities * change).sum(-1, keepdims=True)
        return np.asarray((probabilities * (change - mean) ** 2).sum(-1), np.float64)


def fit_softmax(
    x: Floats,
    y: ArrayLike,
    l2: float,
    *,
    classes: int | None = None,
    mask: NDArray[np.bool_] | None = None,
    tol: float = 1e-10,
    max_iterations: int = 100,
) -> Fit:
    """Weights (..., C, d) for features x (..., n, d); every leading index is a party.

    y is (..., n, C), rows in the simplex, or class indices (..., n) together with `classes`. `mask` is that of
    `fit_logistic`.
    """
    check_settings(l2, tol, max_iterations)
    x, weight = weigh_records(x, mask)
    before, (n, d) = x.shape[:-2], x.shape[-2:]
    labels = _simplex_rows(y, classes, weight)
    loss = Softmax(contrasts(labels.shape[-1]))
    parties, count = prod(before), labels.shape[-1]
    stack = x.reshape(parties, n, d), labels.reshape(parties, n, count), weight.reshape(parties, n)
    point, norms = minimise(*stack, l2, loss, tol=tol, max_iterations=max_iterations)
    weights = (point @ loss.basis).swapaxes(-1, -2)
    return Fit(np.ascontiguousarray(weights).reshape(*before, count, d), norms.reshape(before), tol)


def _simplex_rows(y: ArrayLike, classes: int | None, weight: Floats) -> Floats:
    labels = np.asarray(y)
    real = weight > 0
    if classes is not None and labels.shape == weight.shape:
        labels = one_hot(np.where(real, labels, 0), classes)
    if labels.shape[:-1] != weight.shape or labels.shape[-1] < 2 or classes not in (None, labels.shape[-1]):
        raise DataError(
            f"labels must be class indices {weight.shape} with classes=C, or rows (..., C >= 2); "
            f"found shape {labels.shape} and classes={classes}"
        )
    # Padding gets any valid row; its weight is zero.
    rows = np.where(real[..., None], labels, 1.0 / labels.shape[-1]).astype(np.float64)
    if not ((rows >= 0).all() and (np.abs(rows.sum(-1) - 1.0) <= _SIMPLEX).all()):
        raise DataError("every row of soft labels must lie in the simplex: entries >= 0 that sum to 1")
    # Exact sums: a remainder would be a gradient outside the solver's subspace.
    return np.asarray(rows / rows.sum(-1, keepdims=True), np.float64)


@dataclass(frozen=True)
class SmoothedHinge:
    """h(s·w·x) with s = 2·y − 1 for labels y of 0 and 1 (Rennie 2005):

        h(m) = 1/2 − m for m < 0,   (1 − m)²/2 for 0 <= m <= 1,   0 for m > 1

    The slope of h lies in [−1, 0] and its curvature in [0, 1]. `evaluate` returns signed margins in place of
    probabilities.
    """

    width: int = 1
    target_name: ClassVar[str] = "labels"
    expected: ClassVar[str] = "labels of a support-vector machine must be 0 or 1: use class indices"

    def accepts(self, targets: Floats) -> NDArray[np.bool_]:
        return np.asarray((targets == 0.0) | (targets == 1.0), np.bool_)

    def evaluate(self, margins: Floats, labels: Floats) -> tuple[Floats, Floats]:
        signed = (2.0 * labels - 1.0) * margins[:, :, 0]
        short = np.clip(1.0 - signed, 0.0, 1.0)
        # Below zero the line 1/2 − m continues the parabola: short is 1 there.
        return short * short / 2 - np.minimum(signed, 0.0), signed

    def residual(self, probabilities: Floats, labels: Floats) -> Floats:
        return (-(2.0 * labels - 1.0) * np.clip(1.0 - probabilities, 0.0, 1.0))[:, :, None]

    def curvature(self, probabilities: Floats) -> Floats:
        return ((probabilities > 0) & (probabilities < 1)).astype(np.float64)[:, :, None, None]

    def bend(self, probabilities: Floats, direction: Floats) -> Floats:
        return np.asarray(self.curvature(probabilities)[:, :, 0, 0] * direction[:, :, 0] ** 2, np.float64)


@dataclass(frozen=True)
class Huber:
    """q(w·x − y) for targets y in [−1, 1], with q(e) = e²/2 for |e| <= 1 and |e| − 1/2 beyond (Huber 1964).

    Predictions and targets share the range [−1, 1], so a good fit is the least-squares fit. The slope is at most 1 for
    any weights, which bounds what one record contributes to a private gradient. `evaluate` returns distances in place
    of probabilities.
    """

    width: int = 1
    target_name: ClassVar[str] = "targets"
    expected: ClassVar[str] = "targets of a regression must lie between -1 and 1: scale them by the schema's bounds"

    def accepts(self, targets: Floats) -> NDArray[np.bool_]:
        return np.asarray((targets >= -1.0) & (targets <= 1.0), np.bool_)

    def evaluate(self, margins: Floats, labels: Floats) -> tuple[Floats, Floats]:
        distance = margins[:, :, 0] - labels
        near = np.clip(distance, -1.0, 1.0)
        return near * near / 2 + np.abs(distance - near), distance

    def residual(self, probabilities: Floats, labels: Floats) -> Floats:
        return np.clip(probabilities, -1.0, 1.0)[:, :, None]

    def curvature(self, probabilities: Floats) -> Floats:
        return (np.abs(probabilities) < 1).astype(np.float64)[:, :, None, None]

    def bend(self, probabilities: Floats, direction: Floats) -> Floats:
        return np.asarray(self.curvature(probabilities)[:, :, 0, 0] * direction[:, :, 0] ** 2, np.float64)


def one_hot(labels: ArrayLike, classes: int) -> Floats:
    """Rows (..., classes) with a single 1 at the class index: corners of the simplex, sqrt(2) apart."""
    index = np.asarray(labels)
    if not np.issubdtype(index.dtype, np.integer):
        if not (np.isfinite(index).all() and np.array_equal(np.round(index), index)):
            raise DataError("class indices must be whole numbers, found something else")
        index = index.astype(np.int64)
    if index.size and not (index.min() >= 0 and index.max() < classes):
        raise DataError(f"class indices must lie in 0 … {classes - 1}, found {index.min()} … {index.max()}")
    return np.asarray(index[..., None] == np.arange(classes), np.float64)


# Scores count as equal within this share of |w||x|: more than the rounding of any sum of products, in any order of
# adding, and less than the difference of two records that matters.
_EQUAL = 2.0**-40


def hard_votes(weights: Floats, x: Floats, *, multiclass: bool = False) -> NDArray[np.int64]:
    """Class indices (..., N) that each party's classifier gives to the records x (N, d).

    Weights are (..., d), and class 1 is where w·x > 0; or with `multiclass` (..., C, d), and the class is that of the
    largest score, the first of equal ones. Scores that differ only by rounding count as equal: the result does not
    depend on how many parties are computed at once. A party without a classifier (w = 0) abstains in the protocol, not
    here. The scores (..., C, N) are all in memory: call this in blocks for many parties.
    """
    axes = 2 if multiclass else 1
    if weights.ndim < axes or x.ndim != 2 or weights.shape[-1] != x.shape[1]:
        raise DataError(
            f"weights (..., {'C, ' if multiclass else ''}d) and records (N, d) must have equally many "
            f"features, found {weights.shape} and {x.shape}"
        )
    scores = (weights.reshape(-1, x.shape[1]) @ x.T).reshape(*weights.shape[:-1], len(x))
    slack = _EQUAL * np.linalg.norm(weights, axis=-1)[..., None] * np.linalg.norm(x, axis=1)
    if multiclass:
        best = scores.max(-2, keepdims=True) - slack.max(-2, keepdims=True)
        return np.asarray((scores >= best).argmax(-2), np.int64)
    return np.asarray(scores > slack, np.int64)
