"""Descent: how the coordinator computes weights from the opened sums, on released values alone.

A round opens r = Σ u (s(z) − y + ½) at its weights w, with u the whitened and clipped features of a record. With J = Σ
u xᵀσ'(z) the equation r(w*) = 0 is, to first order around w, J w* = J w − r: every round is a noisy observation of J
w*. The observations are averaged, each weighted by its noise and by the distance of its weights from the latest ones,
where J may differ. The next weights are the posterior mean of w* given the average. The prior is normal, with one
variance for all weights, around a constant and a multiple of each party's part of the quadratic's weights; the
constant, the multiples (themselves around 1) and the variance are estimated from the average itself (empirical Bayes).
Sampling counts as noise too: without noise of privacy the rounds still end in a fit that few rows support. Directions
that the noise hides stay at the moments' solution, or near zero where the moments saw nothing; where noise is small
none do.

`FeatureDistribution` holds what noisy moments tell about rows of features: mean and covariance, and from these the
curvature of the logistic loss and the matrix with which each party whitens its own columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import sqrt

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from numpy.polynomial.legendre import leggauss
from numpy.typing import NDArray

from comity.learn.quadratic import solve, spectral_norm
from comity.methods.vertical.curves import CURVES, shortest_curve
from comity.methods.vertical.design import PLACES
from comity.methods.vertical.moments import MomentEntries, classifier_ridge, shrink_to_constant
from comity.methods.vertical.rounds import (
    Rounds,
    Whitening,
    constant_units,
    emphasise_score,
)
from comity.special import expit

Floats = NDArray[np.float64]

_LEAST = 1e-4
"""The least curvature of a direction over the number of rows. Not tuned on data."""

_DOUBT = 0.5
"""The assumed relative error of the curvature. Not tuned on data."""

_VARIANCES = np.exp(np.linspace(-6.0, 10.0, 65))
"""Candidate variances of a weight, whitened by the geometric mean of all directions. The smallest matters: it is chosen
where noise is large. On training rows of Adult, credit defaults, KDD-99 and HAR at ε = 1, of −12, −6 and −4 for its
exponent, −6 is the best on each."""

MULTIPLES = 2.0
"""Deviation of the multiples around 1 before rounds are seen. On 500 and 3,000 training rows of Adult, credit defaults
and KDD-99 at ε = 1 and 10, of 2 and none, 2 lowers Adult's log loss by up to 0.25 where scores ran away round by round;
the other two are equal up to chance. Set by hand: no run left a dataset out."""

DEVIATIONS = 2.5
"""A round takes the shortest curve that reaches so many deviations of all parts of the score together, beyond their
means. Set for cost: on training rows of Adult, credit defaults, KDD-99 and HAR at ε = 1 and 10, two draws, 2, 2.5, 3
and the widest curve for every round are equal up to 0.0009 on Adult at ε = 10, where the widest is best, and up to
0.0004 elsewhere, whichever is left out."""

_ON_THE_WAY = [((1 + at) / 2, mass / 2) for at, mass in zip(*leggauss(7))]
"""Places between two weights, and their masses: seven integrate a polynomial of degree 13 exactly."""

_NODES, _MASSES = hermegauss(61)
_MASSES = _MASSES / _MASSES.sum()

WHITENED_FROM = 1.0
"""Directions with less variance than this share of the noise's norm are not stretched further. On training rows of
Adult, credit defaults, KDD-99 and HAR (`experiments/choose`), 1 is the best of 0.25, 1 and 4 whichever dataset is left
out, by 0.005 over all."""


@dataclass(frozen=True, eq=False)
class FeatureDistribution:
    """Mean and covariance of rows of features, the constant last where there is one.

    `spread` is the covariance without eigenvalues below a quarter of the noise's norm; `seen` is the covariance as
    opened, noisy and unbiased; `floor` is the noise's norm in both.
    """

    rows: int
    mean: Floats
    spread: Floats
    seen: Floats
    floor: float

    @classmethod
    def of(cls, gram: Floats, variances: Floats, rows: int, constant: float) -> FeatureDistribution:
        """From noisy sums of products of features and constant; without a constant (0) the mean is zero."""
        norm = spectral_norm(variances)
        values, vectors = np.linalg.eigh((gram + gram.T) / 2)
        kept = (vectors * np.maximum(values, norm / 4)) @ vectors.T / rows
        mean = gram[-1] / (rows * constant) if constant else np.zeros(len(gram))
        values, vectors = np.linalg.eigh(kept - np.outer(mean, mean))
        spread = (vectors * np.maximum(values, 0.0)) @ vectors.T
        return cls(rows, mean, spread, (gram + gram.T) / (2 * rows) - np.outer(mean, mean), norm / rows)

    def deviation(self, weights: Floats) -> float:
        """Deviation of the scores under these weights."""
        return sqrt(max(float(weights @ self.spread @ weights), 0.0))

    def size(self, weights: Floats) -> float:
        """Root mean square of the scores."""
        return sqrt(self.deviation(weights) ** 2 + float(self.mean @ weights) ** 2)

    def curvature(self, weights: Floats) -> Floats:
        """Σ σ'(z) x xᵀ for normal rows with this mean and covariance. By Stein's identity it is a combination of the
        covariance and two outer products, with means of σ' over normal scores as factors. Real rows are not normal; the
        curvature sets the length of steps, and no fixed point depends on it."""
        deviation = max(self.deviation(weights), 1e-4)
        chance = expit(float(self.mean @ weights) + deviation * _NODES)
        slope = _MASSES * chance * (1 - chance)
        even, odd = slope.sum(), slope @ _NODES / deviation
        bend = slope @ (_NODES**2 - 1) / deviation**2
        across = self.spread @ weights
        mixed = np.outer(self.mean, across)
        found = even * (self.spread + np.outer(self.mean, self.mean)) + odd * (mixed + mixed.T)
        return np.asarray(self.rows * (found + bend * np.outer(across, across)), np.float64)

    def whitening(self, places: Mapping[str, slice]) -> dict[str, Floats]:
        """A symmetric matrix W for the features of each party: W(x − mean) has as large a squared norm as it has
        features, on average, and the same variance in all directions that the moments tell apart.

        The norm is that of the covariance as opened: raised eigenvalues keep directions stable but add up to more than
        the rows have, and instruments scaled by them would stay far below the norm that the noise is scaled for.
        Directions that the noise hides share the mean of their variances, because chance decides which of them looks
        small, and small ones are stretched. That mean counts as at least its own noise.
        """
        found = {}
        for party, own in places.items():
            values, vectors = np.linalg.eigh(self.spread[own, own])
            scale = max(float(values[-1]), 1e-12) if len(values) else 1.0
            stretched = np.maximum(values, 0.0) + WHITENED_FROM * self.floor + 1e-9 * scale
            matrix = (vectors / np.sqrt(stretched)) @ vectors.T
            looks = np.einsum("ij,ik,kj->j", vectors, self.seen[own, own], vectors)
            hidden = values < self.floor
            if hidden.any():
                noise = self.floor / (2 * sqrt(len(self.mean) * int(hidden.sum())))
                looks[hidden] = max(float(looks[hidden].mean()), noise)
            found[party] = matrix * sqrt(len(values) / max(float(np.sum(looks / stretched)), 1e-6))
        return found

    def needed_reach(self, weights: Floats, places: Mapping[str, slice], label_at: str) -> float:
        """How far a curve should reach for scores under these weights."""
        centres, widths = self._parts(weights, places, label_at)
        return abs(sum(centres)) + DEVIATIONS * sum(widths)

    def _parts(self, weights: Floats, places: Mapping[str, slice], label_at: str) -> tuple[list[float], list[float]]:
        """Mean and deviation of each party's partial scores; the constant is the label's holder's."""
        centres, widths = [], []
        for party, own in places.items():
            holds = np.zeros(len(weights))
            holds[own] = weights[own]
            if party == label_at:
                beyond = max(place.stop for place in places.values())
                holds[beyond:] = weights[beyond:]
            centres.append(float(self.mean @ holds))
            widths.append(max(self.deviation(holds), 1e-3))
        return centres, widths

    def intervals(self, weights: Floats, places: Mapping[str, slice], label_at: str, reach: float) -> Floats:
        """A line per party: the mean of its partial scores (the constant at the label's holder), and the half-width of
        their interval. All intervals together stay within the reach."""
        centres, widths = self._parts(weights, places, label_at)
        room = max(reach - abs(sum(centres)), reach / 4)
        return np.column_stack([centres, room * np.array(widths) / sum(widths)])


@dataclass(frozen=True, eq=False)
class Descent:
    """The coordinator's state before a round.

    `whitened` maps a row of features (the constant last) to √D times its expected instruments; `deviation` is that of
    the noise in a round's opened sum, in the same units; `past` has the weights of every round so far and what it
    opened; the columns of `free` are the directions with multiples that are estimated; `final` moves the last weights
    towards a constant, where noise asks for it.
    """

    rounds: Rounds
    distribution: FeatureDistribution
    whitened: Floats
    deviation: float
    weights: Floats
    free: Floats
    final: Callable[[Floats], Floats]
    past: tuple[tuple[Floats, Floats], ...] = ()

    @classmethod
    def start(
        cls,
        rounds: Rounds,
        entries: MomentEntries,
        opened: Floats,
        rows: int,
        *,
        moments: float,
        gradient: float,
        trusted: float = 1.0,
    ) -> Descent:
        """From opened moments of so many rows: the weights are the quadratic's. `moments` and `gradient` are the
        deviations of the noise in one opened entry, and in one opened sum of a round; `trusted` is the share of the
        last weights to keep (`trusted_share`)."""
        design = rounds.design
        gram, moment, _ = entries.split(entries.assemble(opened, rows))
        variances, moment_variances, _ = entries.split(entries.variances(moments))
        # The label column is ±label for y = 1 and 0.
        label = float(np.abs(design.label.table).max())
        found = solve(gram, moment, classifier_ridge(gram, spectral_norm(variances)))
        weights = 2 * found.weights / label
        distribution = FeatureDistribution.of(gram, variances, rows, design.constant)
        noise = gradient * sqrt(rounds.size)
        whitened = whiten(rounds, distribution, weights, noise / rows)
        free = free_directions(weights, rounds.places.values(), design.intercept)

        def final(found: Floats) -> Floats:
            return shrink_to_constant(found, design, gram, moment, moment_variances, trusted)

        return cls(rounds, distribution, whitened, noise, weights, free, final)

    @property
    def whitening(self) -> dict[str, Floats]:
        """The whitening matrix of each party."""
        size, mean = self.rounds.size, self.distribution.mean
        return {
            party: Whitening.of(self.whitened[own, own], mean[own], size).matrix
            for party, own in self.rounds.places.items()
        }

    @property
    def curve(self) -> int:
        """The number of the curve for the scores under these weights."""
        rounds = self.rounds
        return shortest_curve(self.distribution.needed_reach(self.weights, rounds.places, rounds.design.label_at))

    @property
    def intervals(self) -> Floats:
        """A line per party: the interval to which it clips its partial scores."""
        rounds, reach = self.rounds, CURVES[self.curve].reach
        return self.distribution.intervals(self.weights, rounds.places, rounds.design.label_at, reach)

    @property
    def coefficients(self) -> Floats:
        """Coefficients of encoded rows."""
        return np.asarray(self.rounds.design.mapping @ self.final(self.weights), np.float64)

    def step(self, opened: Floats) -> Descent:
        """The weights of the next round, from the sums that this one opened."""
        past = (*self.past, (self.weights, np.asarray(opened * sqrt(self.rounds.size), np.float64)))
        nearest = self._find_nearest(past)
        if nearest is not None:
            # The last step went too far: go halfway back.
            return replace(self, weights=(nearest + self.weights) / 2, past=past)
        curvature = self.whitened @ self.distribution.curvature(self.weights) @ self.whitened.T
        values, axes = np.linalg.eigh((curvature + curvature.T) / 2)
        values = np.maximum(values, _LEAST * self.distribution.rows)
        here = np.linalg.solve(self.whitened.T, self.weights)
        changes = axes.T @ np.column_stack([self._change_of_sums(weights) for weights, _ in past])
        share = 1 / (self.deviation**2 + (_DOUBT * changes) ** 2).mean(axis=0)
        share /= share.sum()
        look = values * (axes.T @ here) - (changes + axes.T @ np.column_stack([found for _, found in past])) @ share
        # Of all rounds together: their own noise, and that of sampling, which is the same in all of them and has the
        # curvature as its covariance.
        noise = self.deviation**2 * float(share @ share) + values
        free = values[:, None] * (axes.T @ np.linalg.solve(self.whitened.T, self.free))
        sizes = self._prior_sizes(axes)
        multiples, variance = fit_prior(look, free, values, noise, sizes, self.rounds.design.intercept)
        kept = values * sizes / (values**2 * sizes + noise / variance)
        centre = free @ multiples
        aim = self.whitened.T @ (axes @ (centre / values + kept * (look - centre)))
        return replace(self, weights=self._limit_step(aim), past=past)

    def _change_of_sums(self, weights: Floats) -> Floats:
        """How much larger the sums are here than at earlier weights: the integral of the curvature on the way. With the
        latest curvature alone, which is the smallest where scores have grown, earlier sums would ask for ever larger
        scores; with the mean of both ends, which is above that on the way, for too small ones."""
        change = self.weights - weights
        if not change.any():
            return np.zeros(len(change))
        steps = (mass * (self.distribution.curvature(weights + at * change) @ change) for at, mass in _ON_THE_WAY)
        return np.asarray(self.whitened @ sum(steps), np.float64)

    def _prior_sizes(self, axes: Floats) -> Floats:
        """Variances of whitened weights along these axes if all weights have one variance; their geometric mean is
        1."""
        alike = np.linalg.inv(self.whitened @ self.whitened.T)
        found = ((alike @ axes) * axes).sum(axis=0)
        return np.asarray(found / np.exp(np.log(found).mean()), np.float64)

    def _find_nearest(self, past: tuple[tuple[Floats, Floats], ...]) -> Floats | None:
        """The weights of an earlier round that were clearly closer to the solution than the latest: it opened a smaller
        sum, by more than noise explains."""
        squares = [float(found @ found) for _, found in past]
        best = int(np.argmin(squares))
        expected = len(self.weights) * self.deviation**2
        return past[best][0] if squares[-1] > 1.5 * squares[best] + 2 * expected else None

    def _limit_step(self, aim: Floats) -> Floats:
        """Limit a step to a change of scores by half of their deviation, or 1: further away the curvature differs, and
        where classes can be separated it is much smaller."""
        change = aim - self.weights
        size, limit = self.distribution.size(change), max(1.0, self.distribution.deviation(self.weights) / 2)
        return np.asarray(self.weights + change * min(1.0, limit / max(size, 1e-12)), np.float64)


def whiten(rounds: Rounds, distribution: FeatureDistribution, weights: Floats, noise: float) -> Floats:
    """Instruments as a matrix over features and constant, √D times what parties compute, before clipping."""
    size, places, design = rounds.size, rounds.places, rounds.design
    found = np.zeros((size, size))
    for party, matrix in distribution.whitening(places).items():
        own = places[party]
        matrix = emphasise_score(matrix, weights[own], noise)
        # On average a row has the largest allowed norm.
        matrix = matrix * rounds.limit(party) * sqrt(size / max(1, len(matrix)))
        found[own, own] = matrix
        if design.intercept:
            found[own, -1] = -matrix @ distribution.mean[own] / design.constant
    if design.intercept:
        found[-1, -1] = np.ldexp(constant_units(size), -PLACES) * sqrt(size) / design.constant
    return found


def free_directions(weights: Floats, places: Iterable[slice], constant: bool) -> Floats:
    """Directions without a prior, one per column: each party's part of these weights, and the constant, the last
    weight."""
    parts = []
    for own in places:
        part = np.zeros(len(weights))
        part[own] = weights[own]
        parts.append(part)
    return np.column_stack([*parts, np.eye(len(weights))[-1]] if constant else parts)


def fit_prior(
    look: Floats, free: Floats, values: Floats, noise: Floats, sizes: Floats, constant: bool
) -> tuple[Floats, float]:
    """The multiples m and the variance v of largest restricted likelihood for `look`, which is values·w plus noise of
    variances `noise`, with values·w normal around free·m and w of variance v·sizes. Multiples are normal around 1; that
    of the `constant`, the last, has no prior."""
    known_multiples = np.full(free.shape[1], MULTIPLES**-2)
    if constant:
        known_multiples[-1] = 0.0
    found = []
    for variance in _VARIANCES:
        spread = np.maximum(values**2 * sizes * variance + noise, 1e-300)
        scaled = free / spread[:, None]
        precision = free.T @ scaled + np.diag(known_multiples)
        multiples = np.linalg.lstsq(precision, scaled.T @ look + known_multiples, rcond=1e-10)[0]
        rest = look - free @ multiples
        known = np.linalg.slogdet(precision + 1e-12 * np.eye(len(precision)))[1]
        far = float(known_multiples @ (multiples - 1) ** 2)
        found.append((float((np.log(spread) + rest**2 / spread).sum()) + known + far, multiples, float(variance)))
    _, multiples, variance = min(found, key=lambda one: one[0])
    return np.asarray(multiples, np.float64), variance
