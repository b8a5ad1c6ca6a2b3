"""Descent: how the coordinator computes weights from the opened sums, on released values alone.

A round opens r = Σ u (s(z) − y + ½) at its weights w, with u the whitened and clipped features of a record. With J = Σ
u xᵀσ'(z) the equation r(w*) = 0 is, to first order around w, J w* = J w − r: every round is a noisy observation of J
w*. The observations are averaged, each weighted by its noise and by the distance of its weights from the latest ones,
where J may differ. The next weights are the posterior mean of w* given the average. The prior is normal, with one
variance for all weights, around a constant and a multiple of each party's part of the moments' weights (`posterior`).
The constant and the multiples are known as well as the moments know them; the variance is averaged over, by how likely
each value makes what was opened. Sampling counts as noise too: without noise of privacy the rounds still end in a fit
that few rows support. Directions that the noise hides stay at the moments' solution, which is a constant where the
moments saw nothing; where noise is small none do.

`FeatureDistribution` holds what noisy moments tell about rows of features: mean and covariance, and from these the
curvature of the logistic loss and the matrix with which each party whitens its own columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import sqrt

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from numpy.polynomial.legendre import leggauss
from numpy.typing import NDArray

from comity.learn.quadratic import spectral_norm
from comity.methods.vertical.curves import CURVES, shortest_curve
from comity.methods.vertical.design import PLACES
from comity.methods.vertical.moments import MomentEntries, OpenedMoments
from comity.methods.vertical.posterior import Posterior
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

MULTIPLES, CONSTANT = 0.5, 0.3
"""How far logistic weights may differ from the moments' whatever the noise: deviations of the multiples around 1, and
of the constant in units of the score. On 500 to 4,000 training rows of adult-20, rentals, news, heart disease and four
generated tables, ε 0.1 to 10, 8 draws, (0.25, 0.2), (0.5, 0.3) and (1, 0.5) have mean accuracies within 0.001 of each
other, and log losses within 0.001. Set by hand."""

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
    opened; `free` are the directions with multiples of their own.
    """

    rounds: Rounds
    distribution: FeatureDistribution
    whitened: Floats
    deviation: float
    weights: Floats
    free: FreeDirections
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
    ) -> Descent:
        """From opened moments of so many rows: the weights are those of `posterior`. `moments` and `gradient` are the
        deviations of the noise in one opened entry, and in one opened sum of a round."""
        found = OpenedMoments.of(entries, opened, rows, moments)
        posterior, constant = found.posterior(), rounds.design.constant
        distribution = FeatureDistribution.of(found.gram, found.variances, rows, constant)
        noise = gradient * sqrt(rounds.size)
        whitened = whiten(rounds, distribution, posterior.weights, noise / rows)
        free = FreeDirections.of(posterior, rounds.places.values(), distribution.mean, constant)
        return cls(rounds, distribution, whitened, noise, posterior.weights, free)

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
        return np.asarray(self.rounds.design.mapping @ self.weights, np.float64)

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
        free = values[:, None] * (axes.T @ np.linalg.solve(self.whitened.T, self.free.columns))
        aim = weigh_priors(look, self.free.along(free), values, noise, self._prior_sizes(axes))
        aim = self.whitened.T @ (axes @ aim)
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


@dataclass(frozen=True, eq=False)
class FreeDirections:
    """Directions (columns) with multiples of their own: what these are expected to be, and one over the variance."""

    columns: Floats
    expected: Floats
    precisions: Floats

    @classmethod
    def of(cls, posterior: Posterior, places: Iterable[slice], mean: Floats, constant: float) -> FreeDirections:
        """Each party's part of these weights, with as much of the constant (the last weight) as leaves the score of an
        average row where it is; and the constant."""
        weights, parts = posterior.weights, []
        for own in places:
            part = np.zeros(len(weights))
            part[own] = weights[own]
            if constant:
                part[-1] = -float(mean @ part) / constant
            parts.append(part)
        columns, expected = np.column_stack(parts), np.ones(len(parts))
        precisions = np.full(len(parts), 1 / (MULTIPLES**2 + posterior.slope**2))
        if constant:
            columns = np.column_stack([columns, np.eye(len(weights))[-1]])
            expected = np.append(expected, weights[-1] - columns[-1, :-1].sum())
            precisions = np.append(precisions, constant**2 / (CONSTANT**2 + posterior.intercept**2))
        return cls(columns, expected, precisions)

    def along(self, columns: Floats) -> FreeDirections:
        """The same multiples of other columns."""
        return replace(self, columns=columns)


def weigh_priors(look: Floats, free: FreeDirections, values: Floats, noise: Floats, sizes: Floats) -> Floats:
    """The posterior mean of w for `look`, which is values·w plus noise of variances `noise`, with values·w normal
    around a combination of the free columns and w of variance v·sizes: the mean over candidates for v, by the
    restricted likelihood of each."""
    known, columns, likelihoods, found = free.precisions, free.columns, [], []
    for variance in _VARIANCES:
        spread = np.maximum(values**2 * sizes * variance + noise, 1e-300)
        scaled = columns / spread[:, None]
        precision = columns.T @ scaled + np.diag(known)
        multiples = np.linalg.lstsq(precision, scaled.T @ look + known * free.expected, rcond=1e-10)[0]
        centre = columns @ multiples
        rest = look - centre
        freedom = np.linalg.slogdet(precision + 1e-12 * np.eye(len(precision)))[1]
        far = float(known @ (multiples - free.expected) ** 2)
        likelihoods.append(-0.5 * (float((np.log(spread) + rest**2 / spread).sum()) + freedom + far))
        kept = values * sizes / (values**2 * sizes + noise / variance)
        found.append(centre / values + kept * rest)
    chance = np.exp(np.array(likelihoods) - max(likelihoods))
    return np.asarray(chance @ np.array(found) / chance.sum(), np.float64)
