"""Calibration of a model's probabilities: one factor on all weights, estimated from a few sums after the last round.

Clipped residuals and noise in the weights make scores too long, short steps make them too short; no public figure tells
which of it a table has. At weights W a record with scores u = Wx contributes two numbers,

    h·r  and  h·Qu    with    h = u / max(1, |u|)

where r is its residual, not clipped, and Q the second derivative of its loss by u. Summed over records the first is 0
where the scores have the right length, and the second is its derivative by the logarithm of a factor on W. Each is
clipped to an interval: for any weights that a coordinator sends, a record moves both together by at most the diagonal
of a rectangle (proof.md, 8), which holds every record of two classes. Scores are exact (`Objective.scores`), so a
record changes no other record's part. With several classes u is the vector of all C scores, which sum to zero: r, Q and
all lengths are the same in these coordinates as in C − 1 orthonormal ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import exp, hypot, log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.data.exact_sums import round_term
from comity.data.row_products import Weights as RowWeights
from comity.data.row_products import row_norms, row_sums, softmax_rows
from comity.methods.averaging.objectives import Objective
from comity.methods.averaging.row_kernels import single_columns, sum_calibrations

Floats = NDArray[np.float64]

CALIBRATIONS = 2
"""How many sums are opened. Of 0, 1, 2 and 3 the best over Adult, credit defaults, KDD-99 and HAR, and without any but
HAR, in the units of `descent`, six runs of a case (of two runs 1 was the best, by .0002); without HAR 1 is, which costs
HAR .0003. Over all 2 is worth .0009 more than 0: .0019 on credit defaults, .0008 on HAR, .0007 on KDD-99, .0003 on
Adult. By ε it costs where noise is large: .0015 on HAR at 1, .0005 on KDD-99 and Adult with 223 features at 0.1. The
limit of 1 on |h| was chosen in a sketch on the same training rows, no dataset left out: 0.01 and 2 are as good, 4 is
worse."""

PRIOR_DEVIATION = 0.3
"""Deviation of the logarithm of the factor before any sum is opened. Of 0.2, 0.3 and 0.5 the best over all, six runs of
a case; without Adult or KDD-99 0.5 is, which costs KDD-99 .0002 and Adult nothing."""

# A factor lies between a quarter and 4, and changes by at most 2 at a time: not tuned on data.
_MAX_LOG, _MAX_STEP = log(4.0), log(2.0)


def count_calibrations(objective: Objective) -> int:
    """None for models without probabilities."""
    return CALIBRATIONS if objective.kind in ("logistic", "softmax") else 0


@dataclass(frozen=True)
class Limits:
    """The rectangle: h·r between `least` and `most`, h·Qu between 0 and `growth`. It contains (0, 0)."""

    least: float
    most: float
    growth: float

    def clip(self, pull: Floats, growth: Floats) -> Floats:
        pairs = [np.clip(pull, self.least, self.most), np.clip(growth, 0.0, self.growth)]
        return np.asarray(np.stack(pairs, axis=-1), np.float64)

    def sensitivity(self, *, replaced: bool) -> float:
        """How far a record moves a sum of the pairs."""
        return hypot(self.most - self.least, self.growth) if replaced else hypot(self.most, self.growth)


def limits_of(objective: Objective) -> Limits:
    """For a logistic loss h·r is at least −σ(−1) = −0.269, where a score of 1 is right, and h·Qu at most 0.224. For
    several classes both reach further: for six −0.69, where the right class is ahead of five equal ones."""
    return Limits(-0.3, 1.0, 0.25) if objective.kind == "logistic" else Limits(-0.8, 1.2, 0.5)


def calibration_sums(
    objective: Objective, weights: Floats | RowWeights, x: Floats, y: Floats, filled: NDArray[np.bool_]
) -> Floats:
    """The sums of both numbers over records (..., n, d): (..., 2).

    No weights turn a sum into NaN: they are clipped before they meet a record, so scores are finite. Each record's
    numbers are on the grid of exact sums.
    """
    scores = objective.scores(weights, x)
    length = np.maximum(1.0, row_norms(scores))
    pull = row_sums(objective.score_residual(scores, y) * scores) / length
    growth = _score_variance(objective.by_class(scores)) / length
    both = limits_of(objective).clip(pull, growth)
    return np.asarray(round_term(np.where(filled[..., None], both, 0.0)).sum(-2), np.float64)


def logistic_sums(
    weights: Floats, x: Floats | NDArray[np.float32], y: NDArray[Any], filled: NDArray[np.bool_], limits: Limits
) -> Floats:
    """`calibration_sums` of a logistic loss at `Objective.clip_coefficients` in one pass, for rows that are not too
    wide. The last digits of a score are others than there."""
    found = np.empty((*x.shape[:-2], 2))
    lines = np.ascontiguousarray(y.reshape(-1)), np.ascontiguousarray(filled.reshape(-1))
    ends = np.array([limits.least, limits.most, limits.growth])
    sum_calibrations(single_columns(x), weights[0], *lines, ends, found.reshape(-1, 2))
    return found


def _score_variance(scores: Floats) -> Floats:
    """The variance of the classes' scores under their softmax probabilities: u·Qu."""
    shares = softmax_rows(scores)
    around = scores - row_sums(shares * scores)[..., None]
    return row_sums(shares * around * around)


@dataclass(frozen=True)
class FactorEstimate:
    """The posterior of the factor's logarithm: mean and variance."""

    log: float = 0.0
    variance: float = field(default_factory=lambda: PRIOR_DEVIATION**2)

    @property
    def factor(self) -> float:
        return exp(self.log)

    def update(self, opened: Floats, deviation: float) -> FactorEstimate:
        """With one more sum, opened at this factor; `deviation` is that of the noise on each of its numbers.

        The posterior mean where the first number is linear in the logarithm. The noise of the second, its slope, counts
        as noise of the first times how far the logarithm may yet be off: an answer of noise alone changes nothing.
        """
        pull, growth = float(opened[0]), max(0.0, float(opened[1]))
        noise = deviation**2 * (1 + self.variance)
        gain = self.variance * growth / (self.variance * growth**2 + noise)
        step = min(_MAX_STEP, max(-_MAX_STEP, -gain * pull))
        mean = min(_MAX_LOG, max(-_MAX_LOG, self.log + step))
        return FactorEstimate(mean, self.variance * (1 - gain * growth))
