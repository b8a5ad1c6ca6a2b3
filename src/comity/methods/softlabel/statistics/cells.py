"""Cells: which labels a party has seen in each cluster of the public rows. For noise too large for class sums."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import sqrt
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit
from scipy.special import softmax as normalise

from comity.entropy import Stream
from comity.federation.declare.bounds import Ball
from comity.federation.owner.rows import Rows
from comity.learn.feature_map import FeatureMap, pca, self_training_map
from comity.learn.fits import one_hot
from comity.methods.softlabel.self_training import discriminant, find_clusters, nearest_centre
from comity.methods.softlabel.statistics.statistic import RecordTotal

Floats = NDArray[np.float64]

# What follows was compared on training rows of HAR, MNIST, KDD-99 by kind of attack, Adult by state of marriage and
# rentals of bicycles by number, parties of 20 records, mostly 80 or 100 of them at ε = 1, by six to eighteen draws.
#
# That a cell says one label, rather than counts or their roots, is the best of these whichever table is left out.
#
# The part that the likeliest label of a cell has beside the labels in proportion, from 0 to 1. Of 0.5 and 1, without
# MNIST, ε from 0.3 to 10: accuracies are level within .02; the log loss of 1 is up to twice as much on KDD-99 and at
# best .14 less on HAR. No table was left out.
_DECIDED = 0.5
# Directions of the encoded rows that clusters are found in. Of eleven ways to place cells (50 or 2C directions, as they
# are, whitened by halves or altogether, of length one or of features of deviation one, by k-means or by Ward's trees)
# the best by .003, and without KDD-99, MNIST or rentals. Without HAR rows of length one are .007 better; without Adult
# trees of rows whitened by halves are .029 better, which on Adult lose .3. Graphs of neighbours were tried on HAR and
# KDD-99 and were no better; other numbers of directions were not tried.
_PLACED = 50
# The square of what cells differ by where half of the parties agree about each, and the belief, before anything is
# opened, that they differ by as much rather than by nothing. On training rows, 24 to 100 parties, ε from 0.1 to 3, 24
# draws, cells of rentals differ by .02 to .06 and of the four others by .2 to .6. Of squares of 0.25, 0.35 and 0.45 and
# beliefs of 0.5, 0.8 and 0.9, by accuracy less a fifth of the log loss, 0.25 and 0.8 are the best by .0011, without
# KDD-99 or MNIST too. Without Adult 0.35 and 0.8, without HAR 0.25 and 0.5, without rentals 0.25 and 0.9 are, by .0003
# to .0009.
_AGREED = 0.25
_DIFFER = 0.8
# Exact counts decide a cell at once.
_LEAST_DEVIATION = 1e-6


@dataclass(frozen=True, eq=False, kw_only=True)
class Cells(RecordTotal):
    """Contributes the most frequent label of each cell in which it has records, (C, k), scaled to length one; without
    records, zero.

    Sensitivity  √2: two vectors of length one at most without negative entries have an inner product of zero at least.
    """

    name: ClassVar[str] = "cells"
    pure: ClassVar[bool] = True

    rows: Floats = field(repr=False)
    places: FeatureMap = field(repr=False)
    centres: Floats = field(repr=False)
    member: NDArray[np.int64] = field(repr=False)

    @classmethod
    def on(cls, auxiliary: Floats, classes: int, *, cells: int) -> Cells:
        """Clusters of the encoded rows, which differ most in what they were measured to differ in. The self-training
        map, in which the model is made, evens these differences out."""
        found = replace(self_training_map(auxiliary), constant=True)
        places = pca(auxiliary, _PLACED)
        placed = places(auxiliary)
        centres = find_clusters(placed, cells, Stream.public("softlabel cells"))
        return cls(
            classes=classes,
            map=found,
            rows=found(auxiliary)[:, :-1],
            places=places,
            centres=centres,
            member=nearest_centre(placed, centres),
        )

    @property
    def shape(self) -> tuple[int, ...]:
        return self.classes, len(self.centres)

    @property
    def bound(self) -> Ball:
        # No contribution has negative entries, so that the set is smaller than the ball.
        return Ball(1.0, diameter=sqrt(2))

    @property
    def signal(self) -> float:
        return 1.0

    def part(self, rows: Rows) -> Floats:
        """Counts, which are exact in whatever blocks."""
        cell = one_hot(nearest_centre(self.places(rows.features), self.centres), len(self.centres))
        label = one_hot(np.where(rows.filled, rows.labels, 0), self.classes) * rows.filled[..., None]
        return np.asarray(label.swapaxes(-1, -2) @ cell, np.float64)

    def of_total(self, total: Floats) -> Floats:
        """A cell says its most frequent label, ties in equal parts, however many records it has: the sum is to tell
        which label a cell has, and counts would leave next to nothing of the party's vote to cells with few."""
        named = (total == total.max(axis=-2, keepdims=True)) & (total > 0)
        total = named / np.maximum(1, named.sum(axis=-2, keepdims=True))
        length = np.sqrt((total**2).sum(axis=(-2, -1), keepdims=True))
        return np.asarray(total / np.where(length > 0, length, 1.0), np.float64)

    def model(self, mean: Floats, deviation: float) -> Floats:
        """The discriminant of the auxiliary rows, each with the shares of labels that its cell has.

        By one reading the shares grow with the count in units of the noise: a lead of one standard deviation is worth
        a factor e, so that a cell that noise alone decided says little, and one that it did not says its most frequent
        label. By the other they are the counts themselves, none negative and each uncertain by half a deviation. Their
        geometric mean is taken. Guessing again from the discriminant's own posteriors would make these surer than the
        counts are.
        """
        unit = max(deviation, _LEAST_DEVIATION)
        likely = standing_out(mean, unit)
        counted = np.maximum(likely, 0.0) + 0.5 * unit
        shares = normalise(_DECIDED * likely / unit + (1 - _DECIDED) * np.log(counted), axis=0).T
        return discriminant(self.rows, shares[self.member])


def standing_out(mean: Floats, deviation: float) -> Floats:
    """Cells (C, k) as far as they are believed to differ, and otherwise all as their mean, which says how frequent the
    classes are.

    The square of what cells differ by, less (k − 1)·C squared deviations of noise, is `_AGREED` in the mean where they
    differ and zero where they do not, with a variance of 2(k − 1)C·deviation⁴ and 4·deviation² times it. The posterior
    odds of the one against the other are what is kept of the differences: as noise grows they return to `_DIFFER`.
    """
    classes, cells = mean.shape
    numbers = (cells - 1) * classes
    if not numbers:
        return mean
    middle = mean.mean(axis=1, keepdims=True)
    apart = mean - middle
    excess = float((apart**2).sum()) - numbers * deviation**2
    variance = 2 * numbers * deviation**4 + 2 * _AGREED * deviation**2
    believed = float(expit(logit(_DIFFER) + _AGREED * (excess - _AGREED / 2) / variance))
    return np.asarray(middle + believed * apart, np.float64)
