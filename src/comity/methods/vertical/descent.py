"""From what the rounds open to weights: the maths of the coordinator, on released values alone.

A round opens r = Σ u (s(z) − y + ½) at its weights w, u the whitened and cut features of a record. With J = Σ u xᵀσ'(z)
the equation r(w*) = 0 is, to first order around w, J w* = J w − r: every round is a noisy look at J w*. All of them are
averaged, each weighed by its noise and by how far its weights are from the latest ones, where J may be another; and
what is taken from their average is the mean of w* given it, if weights were normal, all with one variance, around a
constant and a multiple of each party's part of the quadratic's, with the constant, the multiples and the variance that
the average itself suggests (empirical Bayes). So directions that the noise hides stay where the moments saw them, or
near zero if these saw nothing, and none do where it is small.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from comity.methods.vertical.landscape import Landscape

Floats = NDArray[np.float64]

_LEAST = 1e-4
"""Of a direction's curvature over the number of rows: below it a step is not to be trusted. Not tuned on data."""

_DOUBT = 0.5
"""How far the curvature may be off, as a part of itself. Not tuned on data."""

_VARIANCES = np.exp(np.linspace(-6.0, 10.0, 65))
"""Tried ones of a weight, whitened by the geometric mean of all directions. The least matters: it is taken where the
noise is large. By training rows of Adult, credit defaults, KDD-99 and HAR at ε = 1, of −12, −6 and −4 the second is the
best on each."""


@dataclass(frozen=True, eq=False)
class Descent:
    """`whitened` turns a row of features (the constant last) into the means of what a round multiplies responses with;
    `deviation` is that of the noise in a round's opened sum in the same units; `past` has the weights of every round
    so far and what it opened; `free` has the directions that weights lie around, one a column."""

    landscape: Landscape
    whitened: Floats
    deviation: float
    weights: Floats
    free: Floats
    past: tuple[tuple[Floats, Floats], ...] = ()

    def step(self, opened: Floats) -> Descent:
        """The weights of the next round, from the sums that this one opened."""
        past = (*self.past, (self.weights, opened))
        nearest = self._nearest(past)
        if nearest is not None:
            # The last step went too far: halfway back.
            return replace(self, weights=(nearest + self.weights) / 2, past=past)
        curvature = self.whitened @ self.landscape.curvature(self.weights) @ self.whitened.T
        values, axes = np.linalg.eigh((curvature + curvature.T) / 2)
        values = np.maximum(values, _LEAST * self.landscape.rows)
        at = values * np.stack([axes.T @ np.linalg.solve(self.whitened.T, weights) for weights, _ in past])
        share = 1 / (self.deviation**2 + (_DOUBT * (at - at[-1])) ** 2).mean(axis=1)
        share /= share.sum()
        look = share @ (at - np.stack([axes.T @ found for _, found in past]))
        noise = self.deviation**2 * float(share @ share)
        free = values[:, None] * (axes.T @ np.linalg.solve(self.whitened.T, self.free))
        sizes = self._sizes(axes)
        multiples, variance = likeliest(look, free, values, noise, sizes)
        kept = values * sizes / (values**2 * sizes + noise / variance)
        centre = free @ multiples
        aim = self.whitened.T @ (axes @ (centre / values + kept * (look - centre)))
        return replace(self, weights=self._towards(aim), past=past)

    def _sizes(self, axes: Floats) -> Floats:
        """Variances of whitened weights along these axes, if those of weights are all the same; 1 in geometric mean."""
        alike = np.linalg.inv(self.whitened @ self.whitened.T)
        found = ((alike @ axes) * axes).sum(axis=0)
        return np.asarray(found / np.exp(np.log(found).mean()), np.float64)

    def _nearest(self, past: tuple[tuple[Floats, Floats], ...]) -> Floats | None:
        """The weights of an earlier round that were clearly nearer to the solution than the latest: what they opened is
        smaller by more than noise explains."""
        squares = [float(found @ found) for _, found in past]
        best = int(np.argmin(squares))
        expected = len(self.weights) * self.deviation**2
        return past[best][0] if squares[-1] > 1.5 * squares[best] + 2 * expected else None

    def _towards(self, aim: Floats) -> Floats:
        """No step changes scores by more than half of their own deviation, or 1: further away the curvature is another,
        and where classes can be separated it is much less than it looks from here."""
        change = aim - self.weights
        size, most = self.landscape.size(change), max(1.0, self.landscape.deviation(self.weights) / 2)
        return np.asarray(self.weights + change * min(1.0, most / max(size, 1e-12)), np.float64)


def around(weights: Floats, places: Iterable[slice], constant: bool) -> Floats:
    """Directions of weights that nothing is known about beforehand, one a column: each party's part of these, and the
    constant, the last of the weights."""
    parts = []
    for own in places:
        part = np.zeros(len(weights))
        part[own] = weights[own]
        parts.append(part)
    return np.column_stack([*parts, np.eye(len(weights))[-1]] if constant else parts)


def likeliest(look: Floats, free: Floats, values: Floats, noise: float, sizes: Floats) -> tuple[Floats, float]:
    """The multiples m and the variance v that explain `look` best: values·w and noise of that variance, with values·w
    normal around free·m and w of variance v·sizes. Nothing is known of m before, so that what its own estimate takes
    from the likelihood is counted (restricted maximum likelihood)."""
    found = []
    for variance in _VARIANCES:
        spread = np.maximum(values**2 * sizes * variance + noise, 1e-300)
        scaled = free / spread[:, None]
        precision = free.T @ scaled
        multiples = np.linalg.lstsq(precision, scaled.T @ look, rcond=1e-10)[0]
        rest = look - free @ multiples
        known = np.linalg.slogdet(precision + 1e-12 * np.eye(len(precision)))[1]
        found.append((float((np.log(spread) + rest**2 / spread).sum() + known), multiples, float(variance)))
    _, multiples, variance = min(found, key=lambda one: one[0])
    return np.asarray(multiples, np.float64), variance
