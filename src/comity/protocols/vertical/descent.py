"""From what the rounds open to weights: the maths of the coordinator, on released values alone.

A round opens r = Σ u (s(z) − y + ½) at its weights w, u the whitened and cut features of a record. With J = Σ u xᵀσ'(z)
the equation r(w*) = 0 is, to first order around w, J w* = J w − r: every round is a noisy look at J w*. All of them are
averaged, each weighed by its noise and by how far its weights are from the latest ones, where J may be another; and
what is taken from their average is the mean of w* given it (`shrinkage`), around a multiple of the quadratic's. So
columns that the noise hides stay where the moments saw them, or near zero if these saw nothing, and none do where it is
small.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from comity.protocols.vertical.landscape import Landscape
from comity.protocols.vertical.shrinkage import Shrinkage

Floats = NDArray[np.float64]

_DOUBT = 0.5
"""How far the curvature may be off, as a part of itself. Not tuned on data."""


@dataclass(frozen=True, eq=False)
class Descent:
    """`whitened` turns a row of features (the constant last) into the means of what a round multiplies responses with;
    `deviation` is that of the noise in a round's opened sum in the same units; `columns` says of each weight
    which column it belongs to, `past` has the weights of every round so far and what it opened."""

    landscape: Landscape
    whitened: Floats
    deviation: float
    weights: Floats
    columns: NDArray[np.int64]
    past: tuple[tuple[Floats, Floats], ...] = ()

    def step(self, opened: Floats) -> Descent:
        """The weights of the next round, from the sums that this one opened."""
        past = (*self.past, (self.weights, opened))
        nearest = self._nearest(past)
        if nearest is not None:
            # The last step went too far: halfway back.
            return replace(self, weights=(nearest + self.weights) / 2, past=past)
        slopes = self.whitened @ self.landscape.curvature(self.weights)
        at = np.stack([slopes @ weights for weights, _ in past])
        share = 1 / (self.deviation**2 + (_DOUBT * (at - at[-1])) ** 2).mean(axis=1)
        share /= share.sum()
        look = share @ (at - np.stack([found for _, found in past]))
        noise = self.deviation**2 * float(share @ share)
        _, aim = Shrinkage.fitted(self.columns, slopes, look, past[0][0], noise)
        return replace(self, weights=self._towards(aim), past=past)

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
