"""What noisy moments tell about the rows: their mean and covariance, the curvature of the logistic loss, and how each
party can whiten its own columns. All of it is post-processing of the moments.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from numpy.typing import NDArray
from scipy.special import expit

from comity.learn.quadratic import spectral_norm

Floats = NDArray[np.float64]

_NODES, _MASSES = hermegauss(61)
_MASSES = _MASSES / _MASSES.sum()

WHITENED_FROM = 1.0
"""Directions of a variance below this part of the noise's norm are not stretched further. By training rows of Adult,
credit defaults, KDD-99 and HAR (`experiments/choose`): the best of 0.25, 1 and 4 whichever is left out, by 0.005 over
all."""


@dataclass(frozen=True, eq=False)
class Landscape:
    """Mean and covariance of rows of features, the constant last where there is one.

    `spread` is the covariance as a matrix that has no eigenvalue below a quarter of what noise may have made, `seen` as
    it was opened, with noise and without bias; `floor` is the noise's norm in either.
    """

    rows: int
    mean: Floats
    spread: Floats
    seen: Floats
    floor: float

    @classmethod
    def of(cls, gram: Floats, variances: Floats, rows: int, constant: float) -> Landscape:
        """From noisy sums of products of features and constant; without a constant (0), around zero."""
        norm = spectral_norm(variances)
        values, vectors = np.linalg.eigh((gram + gram.T) / 2)
        kept = (vectors * np.maximum(values, norm / 4)) @ vectors.T / rows
        mean = gram[-1] / (rows * constant) if constant else np.zeros(len(gram))
        values, vectors = np.linalg.eigh(kept - np.outer(mean, mean))
        spread = (vectors * np.maximum(values, 0.0)) @ vectors.T
        return cls(rows, mean, spread, (gram + gram.T) / (2 * rows) - np.outer(mean, mean), norm / rows)

    def deviation(self, weights: Floats) -> float:
        """Of the scores that these weights give."""
        return sqrt(max(float(weights @ self.spread @ weights), 0.0))

    def size(self, weights: Floats) -> float:
        """Root mean square of the scores."""
        return sqrt(self.deviation(weights) ** 2 + float(self.mean @ weights) ** 2)

    def curvature(self, weights: Floats) -> Floats:
        """Σ σ'(z) x xᵀ if rows were normal, with this mean and covariance: by Stein's identity it is a multiple of the
        covariance and of two outer products, with means of σ' over normal scores as factors. Rows are not normal; it
        sets the length of steps, and no fixed point depends on it."""
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
        """For the features of each party a symmetric matrix W, so that W(x − mean) has a squared norm of as many as it
        has features, on average, and in all directions alike where the moments tell them apart.

        The length is read off the covariance as it was seen: raised eigenvalues, which keep directions steady, add up
        to more than the rows have, and instruments sized by them stay far below the norm that the noise is laid out
        for. Directions that the noise hides are seen together, by their mean: which of them looks small is chance, and
        it is the small ones that are stretched. The mean is counted as no less than its own noise.
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

    def intervals(self, weights: Floats, places: Mapping[str, slice], label_at: str, reach: float) -> Floats:
        """A line per party: the mean of its partial scores (the constant with the label's holder), and how far beside
        it they may lie. All of them together stay within the reach."""
        centres, widths = [], []
        for party, own in places.items():
            holds = np.zeros(len(weights))
            holds[own] = weights[own]
            if party == label_at:
                beyond = max(place.stop for place in places.values())
                holds[beyond:] = weights[beyond:]
            centres.append(float(self.mean @ holds))
            widths.append(max(self.deviation(holds), 1e-3))
        room = max(reach - abs(sum(centres)), reach / 4)
        return np.column_stack([centres, room * np.array(widths) / sum(widths)])
