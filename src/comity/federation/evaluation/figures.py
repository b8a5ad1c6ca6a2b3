"""Figures from the noisy sums of an evaluation, each with an interval for noise and sampling error.

Every figure is a ratio θ = Σx/n of bounded x over the held-out records (or parties), or is made from such ratios. The
noise has a known deviation, s in the sum and s₀ in the count. Sampling adds a variance of at most θ(1 − θ)·n (Bhatia
and Davis: no x in [0, 1] of mean θ varies more). The interval is the set of θ that the sums do not reject,

    (Σx − θn)² <= z² (s² + θ² s₀² + n θ(1 − θ)),

a quadratic in θ (after Fieller 1954 and Wilson 1927). It is wide with few records and stays inside the figure's range.
Where x is not a yes or no, the bound on the variance makes it cover at least as often as it claims. Noise may put Σx
below 0 or above n, where no θ or a single one would be left. Σx then counts as 0 or n, which is nearer to θn for every
θ. So the interval is never empty, and noise never makes it narrow (proof.md, 4).

Intervals come from the noisy sums, best estimates from the nearest sums that records can add up to (`consistency`), so
the estimates of one evaluation never contradict each other. Where an estimate lies outside its interval, the interval
is widened to it, which excludes no true value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import exp, hypot, inf, isfinite, log1p, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.federation.evaluation.consistency import consistent_sums
from comity.federation.evaluation.score_card import CAP, REACH, ScoreCard
from comity.representation import html_table
from comity.special import expit

Floats = NDArray[np.float64]

Z_GAUSSIAN, Z_LAPLACE = 1.959964, 2.1184
"""95 % quantiles in standard deviations; Laplace noise has the heavier tails."""
_GRID = 2001
_LITTLE = 1e-12
_LEAST_LOSS = log1p(exp(-REACH))
"""The log loss of the largest probability that counts."""


TOO_FEW = "too few records to tell"
_ROOM = 0.025
"""An interval that excludes less than this share of the possible range at either end says nothing."""


@dataclass(frozen=True, eq=False)
class Estimate:
    """A 95 % interval and the best estimate inside it. `known` is the range in which the figure lies in any case.

    Where the interval is as wide as that range, nothing was learned: `is_informative` is False, and terminal, page and
    JSON show no estimate.
    """

    value: float
    low: float
    high: float
    known: tuple[float, float] = (-inf, inf)

    def _shown(self) -> tuple[float | None, float, float, tuple[float, float]]:
        return self.value if self.is_informative else None, self.low, self.high, self.known

    def __eq__(self, other: object) -> bool:
        return self._shown() == other._shown() if isinstance(other, Estimate) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._shown())

    @property
    def is_informative(self) -> bool:
        if not (isfinite(self.low) and isfinite(self.high)):
            return False
        low, high = self.known
        if not isfinite(high):
            return True
        if not isfinite(low):
            # R²: a constant has 0, perfect predictions have 1. An interval with both says nothing.
            low = min(0.0, high)
            return self.low > low or self.high < high - _ROOM
        room = _ROOM * (high - low)
        return self.low > low + room or self.high < high - room

    def __str__(self) -> str:
        if not self.is_informative:
            return TOO_FEW
        return f"{self.low:.3f} to {self.high:.3f} (best estimate {self.value:.3f})"

    def as_json(self) -> dict[str, Any]:
        """JSON has no infinity: an open end is null, and so is the estimate where nothing was learned."""
        value, low, high, known = self._shown()
        first, last, *ends = (end if isfinite(end) else None for end in (low, high, *known))
        return {"value": value, "low": first, "high": last, "known": ends, "told": self.is_informative}

    @classmethod
    def from_json(cls, page: Mapping[str, Any]) -> Estimate:
        low, high = (_end(page[key], open_) for key, open_ in (("low", -inf), ("high", inf)))
        first, last = page.get("known", (None, None))
        # Without an estimate nothing was learned: any value inside the interval will do.
        inside = (low + high) / 2 if isfinite(low) and isfinite(high) else min(max(0.0, low), high)
        return cls(_end(page["value"], inside), low, high, (_end(first, -inf), _end(last, inf)))


def _end(value: float | None, missing: float) -> float:
    return missing if value is None else float(value)


@dataclass(frozen=True)
class Bin:
    """Calibration: of the records whose prediction lies between `low` and `high`, the share that was as predicted."""

    low: float
    high: float
    share: Estimate


@dataclass(frozen=True)
class Figures:
    """The figures of an evaluation. `records` estimates the number of held-out records (of parties, where each weighs
    the same).

    `confusion` has a row for each predicted class, in shares of all records. `noise` is the deviation of the noise in
    an entry. `confusion` is empty where the accuracy is not informative.
    """

    figures: Mapping[str, Estimate]
    records: float
    of: str
    noise: float
    notes: tuple[str, ...] = ()
    calibration: tuple[Bin, ...] = ()
    confusion: tuple[tuple[float, ...], ...] = ()

    def __getitem__(self, name: str) -> Estimate:
        return self.figures[name]

    def _repr_html_(self) -> str:
        """The figures with their intervals, for a notebook."""
        rows = [(name, str(figure)) for name, figure in self.figures.items()]
        return html_table(f"Evaluation on about {self.records:,.0f} {self.of}", ("", ""), rows, self.notes)

    def as_json(self) -> dict[str, Any]:
        page = asdict(self)
        page["figures"] = {name: figure.as_json() for name, figure in self.figures.items()}
        page["calibration"] = [
            {"low": one.low, "high": one.high, "share": one.share.as_json()} for one in self.calibration
        ]
        return page

    @classmethod
    def from_json(cls, page: Mapping[str, Any]) -> Figures:
        return cls(
            figures={name: Estimate.from_json(one) for name, one in page["figures"].items()},
            records=float(page["records"]),
            of=str(page["of"]),
            noise=float(page["noise"]),
            notes=tuple(page["notes"]),
            calibration=tuple(
                Bin(one["low"], one["high"], Estimate.from_json(one["share"])) for one in page["calibration"]
            ),
            confusion=tuple(tuple(map(float, row)) for row in page["confusion"]),
        )


@dataclass(frozen=True)
class NoisySum:
    """A sum and the deviation of its noise."""

    value: float
    deviation: float


def estimate_share(total: NoisySum, count: NoisySum, z: float, chance: float = 1.0) -> Estimate:
    """Estimate θ = total/count in [0, 1]; one record's value has the variance `chance` times θ(1 − θ)."""
    if count.value <= 0:
        return Estimate(0.5, 0.0, 1.0)
    n = count.value
    above = min(n, max(0.0, total.value))
    value = above / n
    a = n**2 - z**2 * count.deviation**2 + z**2 * n * chance
    b = -2 * above * n - z**2 * n * chance
    c = above**2 - z**2 * total.deviation**2
    if a <= 0:
        return Estimate(0.5, 0.0, 1.0)
    # Negative by rounding only: `value` itself is never rejected.
    inside = max(0.0, b * b - 4 * a * c)
    low, high = ((-b - sqrt(inside)) / (2 * a), (-b + sqrt(inside)) / (2 * a))
    return Estimate(float(value), float(min(value, max(0.0, low))), float(max(value, min(1.0, high))))


def scale_estimate(figure: Estimate, factor: float) -> Estimate:
    low, high = figure.known
    return Estimate(figure.value * factor, figure.low * factor, figure.high * factor, (low * factor, high * factor))


def widen_to_estimate(figure: Estimate, value: float, known: tuple[float, float] = (-inf, inf)) -> Estimate:
    """The interval with another estimate, widened to it where necessary."""
    value = min(known[1], max(known[0], value))
    return Estimate(value, max(known[0], min(figure.low, value)), min(known[1], max(figure.high, value)), known)


UNIT = (0.0, 1.0)


def estimate_auc(table: Floats, deviation: float, z: float) -> tuple[Estimate, float]:
    """Estimate the AUC from (bins, 2) noisy counts of negatives and positives, and by how much the bins leave it open.

    Inside a bin the order of records is unknown. Half of the pairs there count as right, so the true area is off by at
    most half the share of such pairs, and the interval is widened by that. The rest is test inversion: an area A is
    rejected if Σ (w − A) q p is further from zero than noise and sampling explain. The sampling variance is at most
    A(1 − A)/min(P, N) (Birnbaum and Klose 1957).
    """
    q, p = table[:, 0], table[:, 1]
    total_q, total_p = float(q.sum()), float(p.sum())
    if min(total_q, total_p) <= 0:
        return Estimate(0.5, 0.0, 1.0), 0.5
    w = np.tril(np.ones((len(p), len(p))), -1) + np.eye(len(p)) / 2
    pairs = total_q * total_p
    ordered = min(pairs, max(0.0, float(p @ w @ q)))
    value = ordered / pairs
    areas = np.linspace(0.0, 1.0, _GRID)
    off = ordered - areas * pairs
    # The variance of Σ(w − A)(p + e)(q + f): the squares of both gradients times the variance of the noise. At the
    # noisy p and q they also cover the product of the two noises.
    by_p = ((w @ q)[None, :] - areas[:, None] * total_q) ** 2
    by_q = ((p @ w)[None, :] - areas[:, None] * total_p) ** 2
    noise = deviation**2 * (by_p.sum(1) + by_q.sum(1))
    chance = pairs**2 * areas * (1 - areas) / min(total_q, total_p)
    kept = areas[off**2 <= z**2 * (noise + chance)]
    low, high = (kept[0], kept[-1]) if len(kept) else (value, value)
    tied = min(1.0, float((np.maximum(p, 0) * np.maximum(q, 0)).sum()) / pairs)
    found = Estimate(value, max(0.0, min(value, float(low)) - tied / 2), min(1.0, max(value, float(high)) + tied / 2))
    return found, tied / 2


def estimate_figures(card: ScoreCard, opened: Floats, deviation: float, *, z: float, of: str) -> Figures:
    """Estimate all figures from an opened score card; `deviation` is that of the noise in each entry."""
    count = NoisySum(float(opened[-1]) / card.count_weight, deviation / card.count_weight)
    at = card.cells
    sums = {
        name: NoisySum(float(value) / weight, deviation / weight)
        for name, value, weight in zip(card.entries, opened[at:-1], card.weights)
    }
    together = consistent_sums(card, opened)
    records = float(together[-1]) / card.count_weight
    n = max(1e-9, records)
    means = {
        name: float(value) / float(weight) / n
        for name, value, weight in zip(card.entries, together[at:-1], card.weights)
    }
    if not card.task.classes:
        return _of_numbers(card, sums, count, means, records, z, of)
    figures = {
        "accuracy": widen_to_estimate(estimate_share(sums["right"], count, z), means["right"], UNIT),
        "log loss": scale_estimate(
            widen_to_estimate(estimate_share(sums["log loss"], count, z), means["log loss"], (_LEAST_LOSS / CAP, 1.0)),
            CAP,
        ),
        "squared error": widen_to_estimate(
            estimate_share(sums["squared error"], count, z), means["squared error"], UNIT
        ),
    }
    notes = [f"log loss: probabilities count as at least {expit(-REACH):.3f}, so no record adds more than {CAP:.2f}"]
    first = 0 if card.binary else card.task.classes**2
    table, fitted = (values[first:at].reshape(card.bins, 2) for values in (opened, together))
    if card.binary:
        found, open_ = estimate_auc(table, deviation, z)
        figures["AUC"] = widen_to_estimate(found, estimate_auc(fitted, 0.0, z)[0].value, UNIT)
        notes.append(
            f"AUC: the order within each of {card.bins} score bins is unknown, which leaves +-{open_:.3f} open"
        )
        confusion = np.stack([fitted[: card.bins // 2].sum(0), fitted[card.bins // 2 :].sum(0)])
    else:
        confusion = together[:first].reshape(card.task.classes, -1)
        notes.append("squared error: half the sum over classes, which lies between 0 and 1")
    return Figures(
        figures=figures,
        records=records,
        of=of,
        noise=deviation,
        notes=tuple(notes),
        calibration=_calibration(card, table, fitted, deviation, z),
        # Its diagonal is the accuracy: it is shown only if the accuracy is.
        confusion=tuple(tuple(float(value) / n for value in row) for row in confusion)
        if figures["accuracy"].is_informative
        else (),
    )


def _calibration(card: ScoreCard, table: Floats, fitted: Floats, deviation: float, z: float) -> tuple[Bin, ...]:
    edges = card.edges
    ends = expit(np.concatenate([[-np.inf], edges, [np.inf]])) if card.binary else None
    if ends is None:
        ends = np.concatenate([[1 / card.task.classes], edges, [1.0]])
    out = []
    for number, (other, as_predicted) in enumerate(table):
        # The count of a bin is the sum of two noisy cells, so its noise is correlated with that of the second cell. The
        # interval treats the two as independent.
        held = NoisySum(float(other + as_predicted), sqrt(2) * deviation)
        found = estimate_share(NoisySum(float(as_predicted), deviation), held, z)
        inside = float(fitted[number].sum())
        value = float(fitted[number, 1]) / inside if inside > 0 else 0.5
        out.append(Bin(float(ends[number]), float(ends[number + 1]), widen_to_estimate(found, value, UNIT)))
    return tuple(out)


def estimate_ratio(above: NoisySum, below: NoisySum, z: float) -> Estimate:
    """Estimate the ratio of a number to a variance, both with an error. The interval is open where the variance may be
    zero."""
    a = below.value**2 - z**2 * below.deviation**2
    value = above.value / below.value if below.value else 0.0
    if a <= 0 or below.value < 0:
        return Estimate(value, -inf, inf)
    b, c = -2 * above.value * below.value, above.value**2 - z**2 * above.deviation**2
    root = sqrt(max(0.0, b * b - 4 * a * c))
    return Estimate(float(value), float((-b - root) / (2 * a)), float((-b + root) / (2 * a)))


def _of_numbers(
    card: ScoreCard,
    sums: Mapping[str, NoisySum],
    count: NoisySum,
    means: Mapping[str, float],
    records: float,
    z: float,
    of: str,
) -> Figures:
    """Squared error in the target's own units; R², the explained share of its variance; and the slope of the target on
    the prediction, which is 1 where predictions are neither too extreme nor too cautious. `means` and `records` are
    consistent ones.

    The deviation of a moment around a mean has three parts: its own noise, the noise of the means, and sampling, for
    which a product is bounded by the square of its second factor times the largest first factor.
    """
    n, width = max(1.0, count.value), card.task.high - card.task.low
    mean = {name: one.value / n for name, one in sums.items()}
    d = {name: one.deviation / n for name, one in sums.items()}
    wrong = estimate_share(sums["squared error"], count, z)
    y, f = mean["target"], mean["prediction"]
    varied, spread = mean["target²"] - y * y, mean["prediction²"] - f * f
    far_y, far_f = max(y, 1 - y) ** 2, max(f, 1 - f) ** 2
    of_target = hypot(d["target²"], 2 * y * d["target"], sqrt(max(varied, 0.0) * far_y / n))
    of_guess = hypot(d["prediction²"], 2 * f * d["prediction"], sqrt(max(spread, 0.0) * far_f / n))
    together = hypot(d["product"], y * d["prediction"], f * d["target"], sqrt(max(spread, 0.0) * far_y / n))
    error = hypot(d["squared error"], sqrt(wrong.value * (1 - wrong.value) / n))
    left = estimate_ratio(NoisySum(max(0.0, mean["squared error"]), error), NoisySum(varied, of_target), z)
    slope = estimate_ratio(NoisySum(mean["product"] - y * f, together), NoisySum(spread, of_guess), z)
    figures = {
        "mean squared error": scale_estimate(widen_to_estimate(wrong, means["squared error"], UNIT), width**2),
        "R²": estimate_r_squared(left, means["squared error"], _variance(means, "target")),
        "slope": estimate_slope(
            slope, means["product"] - means["target"] * means["prediction"], _variance(means, "prediction")
        ),
    }
    noise = sums["squared error"].deviation
    notes = ("predictions outside the target's bounds count as the nearest bound",)
    return Figures(figures=figures, records=records, of=of, noise=noise, notes=notes)


def estimate_r_squared(left: Estimate, error: float, variance: float) -> Estimate:
    """R² from the interval of the unexplained share `left`, with an estimate from consistent sums. There is no R² where
    the variance is zero."""
    if variance <= _LITTLE:
        return Estimate(0.0, -inf, 1.0, (-inf, 1.0))
    return widen_to_estimate(
        Estimate(1 - left.value, 1 - left.high, min(1.0, 1 - left.low)), 1 - error / variance, (-inf, 1.0)
    )


def estimate_slope(interval: Estimate, covariance: float, variance: float) -> Estimate:
    """The slope with an estimate from consistent moments. There is none where predictions do not vary."""
    return Estimate(0.0, -inf, inf) if variance <= _LITTLE else widen_to_estimate(interval, covariance / variance)


def _variance(means: Mapping[str, float], name: str) -> float:
    return means[f"{name}²"] - means[name] ** 2
