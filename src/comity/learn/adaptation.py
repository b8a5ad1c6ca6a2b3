"""Adapt a joint linear model to one owner's records, for that owner alone.

A joint model describes all owners at once. An owner whose classes are more or less frequent than elsewhere, or whose
columns relate to the target in another way, may be better off alone. What the joint model lacks there is fitted on the
owner's records:

    score(x) = a·joint(x) + b + v·x,    b ~ N(0, INTERCEPT²),  v ~ N(0, τ²·I)

with a from a short list (0 leaves the joint model out, 1 keeps it) and τ from another (0 leaves v out). Each pair
(a, τ) is a candidate; an intercept alone is (1, 0), the own model (0, τ). Candidates are fitted on all folds of the
records but one, and judged by their likelihood on that one. The adapted model averages their scores, each weighted by
its likelihood (Yao, Vehtari, Simpson and Gelman 2018 compare such weights). Few records leave the weight with
candidates of few parameters, many move it to what the records support.

Nothing here has noise. A fit and its scores are exact functions of one owner's records: they belong to that owner and
must not be sent, published, or stored with anything that is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from comity.learn.fits import Logistic, Softmax, contrasts, one_hot
from comity.learn.newton import Floats, minimise
from comity.representation import short_repr
from comity.special import logsumexp, softmax

FOLDS: Final = 5
"""Parts of the records: each is scored by fits on the others."""
MIN_RECORDS: Final = 10
"""With fewer records nothing is adapted: a fold would have one record. Not tuned on data."""
MAX_RECORDS: Final = 20_000
"""Of larger owners so many records are used, evenly spaced: they determine far more numbers than a linear model has."""
INTERCEPT = 3.0
"""Deviation of an intercept before records are seen: odds of 20 to 1 either way. Not tuned on data."""
# Chosen on records of hospitals, occupations, levels of education and states, leaving out one of these at a time
# (`python -m experiments choose adaptation`): training rows of Adult, credit defaults and CPS, and other splits of
# heart disease than the reported ones. Without heart disease the best slopes are 0.5, 0.71, 1 and 1.41, worth 0.003
# less there; the others stay.
SLOPES = (0.5, 1.0)
"""Shares of the joint score in candidates without own weights."""
SHIFTS = (1.0, 3.0, 10.0)
"""Deviations of own weights, for rows in the unit ball."""
ALONE = (1.0, 3.0, 10.0, 30.0)
"""Deviations of the weights of the owner's own model."""

# Unknowns up to which Newton's matrices are cheaper than many gradients.
_NARROW = 400
_TOLERANCE = 1e-5
_ITERATIONS = 100
# Candidates below this share of the weight are not worth their arithmetic.
_NEGLIGIBLE = 1e-3


@dataclass(frozen=True)
class Candidate:
    """`share` of the joint score, an `intercept` or none, and the deviation `shift` of own weights."""

    share: float
    intercept: bool
    shift: float

    @property
    def is_alone(self) -> bool:
        return self.share == 0.0


def candidates() -> tuple[Candidate, ...]:
    """The joint model as it is, then with an intercept and a slope, then with own weights, then own weights alone."""
    return (
        Candidate(1.0, intercept=False, shift=0.0),
        *(Candidate(slope, intercept=True, shift=0.0) for slope in SLOPES),
        *(Candidate(1.0, intercept=True, shift=shift) for shift in SHIFTS),
        *(Candidate(0.0, intercept=True, shift=shift) for shift in ALONE),
    )


@dataclass(frozen=True, eq=False)
class OwnFit:
    """The adapted model: `share` of the joint one, own `weights` (k, p) and `intercept` (k,) of the entry. The scores
    (n, k) are of records that no fit behind them has seen, except for `joint`: the joint model has seen these records
    through noise. None of it may leave the owner, so its `repr` has no figure."""

    share: float = field(repr=False)
    weights: Floats = field(repr=False)
    intercept: Floats = field(repr=False)
    joint: Floats = field(repr=False)
    alone: Floats = field(repr=False)
    adapted: Floats = field(repr=False)


@dataclass(frozen=True, eq=False)
class Rows:
    """Features (n, p), and the entry of each row that an intercept multiplies: ones, or zeros if there is none."""

    __repr__ = short_repr

    features: Floats
    entry: Floats

    def __len__(self) -> int:
        return len(self.features)

    @property
    def width(self) -> int:
        return int(self.features.shape[1])

    @property
    def unit(self) -> float:
        """What an intercept's deviation is multiplied by, so that it is that of a score."""
        return INTERCEPT / (float(np.mean(np.abs(self.entry))) or 1.0)

    def scores(self, weights: Floats, intercept: Floats, of: NDArray[np.bool_]) -> Floats:
        return np.asarray(self.features[of] @ weights.T + self.entry[of, None] * intercept, np.float64)


def adapt_classes(rows: Rows, joint: Floats, labels: NDArray[np.int64]) -> OwnFit:
    """Adapt scores `joint` to class indices `labels`: (n, 1) in favour of the second of two classes, (n, C) of more."""
    classes, truth = max(2, joint.shape[1]), np.arange(len(labels))
    two = joint.shape[1] == 1
    # Scores of more classes are fitted without their mean, which decides nothing.
    basis = np.ones((1, 1)) if two else contrasts(classes)
    likelihood = _Offset(Logistic() if two else Softmax(basis))
    targets = (labels > 0)[:, None].astype(np.float64) if two else one_hot(labels, classes)
    penalty = 1.0 / max(1, len(rows))

    def fit(one: Candidate, weight: Floats) -> tuple[Floats, Floats]:
        design = _design(rows, one)
        given = np.hstack([targets, one.share * (joint @ basis.T)])
        if min(design.shape) * len(basis) > _NARROW:
            point = np.stack([_descend(design, given, own, penalty, likelihood) for own in weight])
        else:
            stack, labelled = (np.broadcast_to(part, (len(weight), *part.shape)) for part in (design, given))
            point, _ = minimise(
                stack, labelled, weight, penalty, likelihood, tol=_TOLERANCE, max_iterations=_ITERATIONS
            )
        return _undesign(point @ basis, one, rows)

    def loss(scores: Floats) -> Floats:
        if two:
            return np.asarray(np.logaddexp(0.0, np.where(labels > 0, -scores[:, 0], scores[:, 0])), np.float64)
        return np.asarray(logsumexp(scores, axis=1) - scores[truth, labels], np.float64)

    return _adapt(rows, joint, _folds(labels), fit, loss)


def adapt_numbers(rows: Rows, joint: Floats, targets: Floats) -> OwnFit:
    """Adapt predictions `joint` (n,) of numbers on [−1, 1]."""
    before = joint[:, None]
    # The residuals' variance: what a target tells about a weight, beside the weight's own deviation.
    noise = max(1e-6, float(np.var(targets - joint)))

    def fit(one: Candidate, weight: Floats) -> tuple[Floats, Floats]:
        design, count = _design(rows, one), len(rows)
        left = targets - one.share * joint
        ridge = noise * np.eye(design.shape[1])
        point = [
            np.linalg.solve((design.T * own) @ design * count + ridge, design.T @ (own * left) * count)
            for own in weight
        ]
        return _undesign(np.stack(point)[..., None], one, rows)

    def loss(scores: Floats) -> Floats:
        return np.asarray((scores[:, 0] - targets) ** 2 / (2 * noise), np.float64)

    return _adapt(rows, before, _folds(targets), fit, loss)


def spread_evenly(count: int) -> NDArray[np.int64]:
    """Which of `count` records are used: all, or `MAX_RECORDS` evenly spaced ones."""
    if count <= MAX_RECORDS:
        return np.arange(count)
    return np.asarray(np.linspace(0, count - 1, MAX_RECORDS).round(), np.int64)


_Fit = Callable[[Candidate, Floats], tuple[Floats, Floats]]


def _adapt(rows: Rows, joint: Floats, fold: NDArray[np.int64], fit: _Fit, loss: Callable[[Floats], Floats]) -> OwnFit:
    """Fit every candidate without each fold in turn and on all records, and average by likelihood."""
    count, tried = len(rows), candidates()
    # The last fit has all records.
    used = np.vstack([fold != part for part in range(FOLDS)] + [np.ones(count, bool)])
    weight = used / used.sum(axis=1, keepdims=True)
    left_out, losses, finals = [], [], []
    for one in tried:
        weights, intercepts = fit(one, weight) if one.intercept else _nothing(len(weight), joint, rows)
        scores = one.share * joint
        for part in range(FOLDS):
            own = fold == part
            scores[own] += rows.scores(weights[part], intercepts[part], own)
        left_out.append(scores)
        losses.append(loss(scores))
        finals.append((weights[-1], intercepts[-1]))
    every, lost = np.stack(left_out), np.stack(losses)
    alone = np.array([one.is_alone for one in tried])
    final = _shares(lost.sum(axis=1))
    return OwnFit(
        share=float(sum(share * one.share for share, one in zip(final, tried))),
        weights=np.asarray(sum(share * one[0] for share, one in zip(final, finals)), np.float64),
        intercept=np.asarray(sum(share * one[1] for share, one in zip(final, finals)), np.float64),
        joint=joint,
        alone=_average(every[alone], lost[alone], fold),
        adapted=_average(every, lost, fold),
    )


def _nothing(fits: int, joint: Floats, rows: Rows) -> tuple[Floats, Floats]:
    return np.zeros((fits, joint.shape[1], rows.width)), np.zeros((fits, joint.shape[1]))


def _average(scores: Floats, losses: Floats, fold: NDArray[np.int64]) -> Floats:
    """Scores of each fold, averaged by the likelihoods of the other folds: no record weighs what scores it."""
    found = np.zeros(scores.shape[1:])
    for part in range(FOLDS):
        own = fold == part
        shares = _shares(losses[:, ~own].sum(axis=1))
        found[own] = np.tensordot(shares, scores[:, own], axes=1)
    return found


def _shares(losses: Floats) -> Floats:
    shares = np.asarray(softmax(-losses), np.float64)
    shares[shares < _NEGLIGIBLE] = 0.0
    return np.asarray(shares / shares.sum(), np.float64)


def _folds(values: NDArray[np.int64] | Floats) -> NDArray[np.int64]:
    """A fold for each record, by its rank among the targets: every fold has about the same of each class."""
    ranks = np.empty(len(values), np.int64)
    ranks[np.argsort(values, kind="stable")] = np.arange(len(values))
    return ranks % FOLDS


def _design(rows: Rows, one: Candidate) -> Floats:
    """Columns whose weights have deviation one before records are seen, the intercept's first."""
    entry = rows.unit * rows.entry[:, None]
    return np.hstack([entry, one.shift * rows.features]) if one.shift else entry


def _undesign(point: Floats, one: Candidate, rows: Rows) -> tuple[Floats, Floats]:
    """Weights (fits, k, p) and intercepts (fits, k) from the weights (fits, columns, k) of a design."""
    fits, _, outputs = point.shape
    weights = one.shift * point[:, 1:].swapaxes(1, 2) if one.shift else np.zeros((fits, outputs, rows.width))
    return weights, rows.unit * point[:, 0]


@dataclass(frozen=True, eq=False)
class _Offset:
    """A likelihood of margins to which known offsets (..., n, k) are added: labels have these after their own
    columns."""

    of: Logistic | Softmax

    @property
    def width(self) -> int:
        return self.of.width

    def _split(self, labels: Floats) -> tuple[Floats, Floats]:
        own = labels[..., : -self.width]
        return (own[..., 0] if isinstance(self.of, Logistic) else own), labels[..., -self.width :]

    def evaluate(self, margins: Floats, labels: Floats) -> tuple[Floats, Floats]:
        own, offsets = self._split(labels)
        return self.of.evaluate(margins + offsets, own)

    def residual(self, probabilities: Floats, labels: Floats) -> Floats:
        return self.of.residual(probabilities, self._split(labels)[0])

    def curvature(self, probabilities: Floats) -> Floats:
        return self.of.curvature(probabilities)

    def bend(self, probabilities: Floats, direction: Floats) -> Floats:
        return self.of.bend(probabilities, direction)


def _descend(design: Floats, labels: Floats, weight: Floats, l2: float, of: _Offset) -> Floats:
    """The same minimum by gradients, for more unknowns than Newton's matrices are made for."""
    # It takes longer to import than most studies to compute.
    from scipy.optimize import minimize

    shape = (design.shape[1], of.width)

    def value(flat: Floats) -> tuple[float, Floats]:
        point = flat.reshape(shape)
        losses, probabilities = of.evaluate((design @ point)[None], labels[None])
        residual = weight[:, None] * of.residual(probabilities, labels[None])[0]
        gradient = design.T @ residual + l2 * point
        return float(weight @ losses[0] + l2 / 2 * np.vdot(point, point)), gradient.ravel()

    found = minimize(
        value, np.zeros(shape[0] * shape[1]), jac=True, method="L-BFGS-B", options={"maxiter": _ITERATIONS}
    )
    return np.asarray(found.x, np.float64).reshape(shape)
