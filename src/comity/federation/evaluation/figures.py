"""Figures from the noisy sums of an evaluation, each with an interval that accounts for the noise and for chance.

Every figure is a ratio θ = Σx/n of bounded x over the records (or parties) that were set aside, or made of such. With
noise of known deviation s in the sum and s₀ in the count, and chance of variance at most θ(1 − θ)·n (Bhatia and Davis:
no x in [0, 1] of mean θ varies more), an interval is the set of θ that the sums do not reject,

    (Σx − θn)² <= z² (s² + θ² s₀² + n θ(1 − θ)),

a quadratic in θ (after Fieller 1954 and Wilson 1927): wide where there are few records, inside the figure's range.
The bound on chance makes it cover at least as often as it says where x is not a yes or no. Noise may put Σx below 0 or
above n, where no θ would be left, or one alone: it counts as 0 or n there, which is nearer to θn for every θ. So the
interval is never empty, and never narrow by noise (proof.md, 4).

Intervals come from the noisy sums, best estimates from the nearest sums that records can add up to
(`comity.federation.evaluation.consistency`): so estimates of one evaluation never contradict each other. An interval is
widened to its estimate where that lies outside, which leaves no true value out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import exp, hypot, inf, isfinite, log1p, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from comity.federation.evaluation.consistency import consistent_sums
from comity.federation.evaluation.score_card import CAP, REACH, ScoreCard

Floats = NDArray[np.float64]

Z_GAUSSIAN, Z_LAPLACE = 1.959964, 2.1184
"""95 %, in standard deviations; Laplace noise has the heavier tails."""
_GRID = 2001
_LITTLE = 1e-12
_LEAST_LOSS = log1p(exp(-REACH))
"""Of a probability that counts as the largest one."""


TOO_FEW = "too few records to tell"
_ROOM = 0.025
"""An interval that leaves out less than this of what is known beforehand, at either end, tells nothing."""


@dataclass(frozen=True, eq=False)
class Estimate:
    """A 95 % interval, and the best estimate inside it. `known` is where the figure lies whatever was measured.

    Where the interval is as wide as that, nothing was learned: `told` is False, and neither terminal, page nor JSON
    show an estimate.
    """

    value: float
    low: float
    high: float
    known: tuple[float, float] = (-inf, inf)

    def _said(self) -> tuple[float | None, float, float, tuple[float, float]]:
        return self.value if self.told else None, self.low, self.high, self.known

    def __eq__(self, other: object) -> bool:
        return self._said() == other._said() if isinstance(other, Estimate) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._said())

    @property
    def told(self) -> bool:
        if not (isfinite(self.low) and isfinite(self.high)):
            return False
        low, high = self.known
        if not isfinite(high):
            return True
        if not isfinite(low):
            # R²: a constant has 0, perfect predictions 1. What allows both tells nothing, however far down it goes.
            low = min(0.0, high)
            return self.low > low or self.high < high - _ROOM
        room = _ROOM * (high - low)
        return self.low > low + room or self.high < high - room

    def __str__(self) -> str:
        if not self.told:
            return TOO_FEW
        return f"{self.low:.3f} to {self.high:.3f} (best estimate {self.value:.3f})"

    def as_json(self) -> dict[str, Any]:
        """JSON has no infinity: an end that is open is null, and so is an estimate that nothing was learned of."""
        value, low, high, known = self._said()
        first, last, *ends = (end if isfinite(end) else None for end in (low, high, *known))
        return {"value": value, "low": first, "high": last, "known": ends, "told": self.told}

    @classmethod
    def from_json(cls, page: Mapping[str, Any]) -> Estimate:
        low, high = (_end(page[key], open_) for key, open_ in (("low", -inf), ("high", inf)))
        first, last = page.get("known", (None, None))
        # Nothing was learned where there is no estimate: then any value inside the interval is as good.
        inside = (low + high) / 2 if isfinite(low) and isfinite(high) else min(max(0.0, low), high)
        return cls(_end(page["value"], inside), low, high, (_end(first, -inf), _end(last, inf)))


def _end(value: float | None, missing: float) -> float:
    return missing if value is None else float(value)


@dataclass(frozen=True)
class Bin:
    """Calibration: records whose prediction lies between `low` and `high`, and which share of them was as predicted."""

    low: float
    high: float
    share: Estimate


@dataclass(frozen=True)
class Figures:
    """What was measured. `records` is how many counted (parties, where each weighs the same), as far as noise allows.

    `confusion` has a row for each predicted class, as shares of all that counted; entries carry noise of `noise`. There
    is none where the accuracy is not told.
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
    """θ = total/count in [0, 1]; `chance` times θ(1 − θ) is the variance of one record's part."""
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
    # Not negative but for rounding: `value` itself is never rejected.
    inside = max(0.0, b * b - 4 * a * c)
    low, high = ((-b - sqrt(inside)) / (2 * a), (-b + sqrt(inside)) / (2 * a))
    return Estimate(float(value), float(min(value, max(0.0, low))), float(max(value, min(1.0, high))))


def scale_estimate(figure: Estimate, factor: float) -> Estimate:
    low, high = figure.known
    return Estimate(figure.value * factor, figure.low * factor, figure.high * factor, (low * factor, high * factor))


def widen_to_estimate(figure: Estimate, value: float, known: tuple[float, float] = (-inf, inf)) -> Estimate:
    """An interval with an estimate of its own, to which it is widened."""
    value = min(known[1], max(known[0], value))
    return Estimate(value, max(known[0], min(figure.low, value)), min(known[1], max(figure.high, value)), known)


UNIT = (0.0, 1.0)


def estimate_auc(table: Floats, deviation: float, z: float) -> tuple[Estimate, float]:
    """AUC from (bins, 2) noisy counts of negatives and positives, and how much of it the bins leave open.

    Inside a bin the order of records is not known: half of the pairs count as right, and the true area is off by at
    most half of the share of such pairs, by which the interval is widened. The rest is test inversion: an area A is
    rejected where Σ (w − A) q p lies further from zero than noise and chance explain; chance of at most
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
    # Var of Σ(w − A)(p + e)(q + f): the squares of both gradients times the variance. With the noisy p and q in them
    # they count the product of the two noises as well.
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
    """From an opened score card, in the units of its entries; `deviation` is that of the noise in each."""
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
    notes = [
        f"log loss: probabilities count as at least {expit(-REACH):.3f}, so that no record counts more than {CAP:.2f}"
    ]
    first = 0 if card.binary else card.task.classes**2
    table, fitted = (values[first:at].reshape(card.bins, 2) for values in (opened, together))
    if card.binary:
        found, open_ = estimate_auc(table, deviation, z)
        figures["AUC"] = widen_to_estimate(found, estimate_auc(fitted, 0.0, z)[0].value, UNIT)
        notes.append(f"AUC: the order inside {card.bins} bins of the score is not known; that is +-{open_:.3f} of it")
        confusion = np.stack([fitted[: card.bins // 2].sum(0), fitted[card.bins // 2 :].sum(0)])
    else:
        confusion = together[:first].reshape(card.task.classes, -1)
        notes.append("squared error: half of the sum over classes, so that it lies between 0 and 1")
    return Figures(
        figures=figures,
        records=records,
        of=of,
        noise=deviation,
        notes=tuple(notes),
        calibration=_calibration(card, table, fitted, deviation, z),
        # Its diagonal is the accuracy, of which nothing may have been learned.
        confusion=tuple(tuple(float(value) / n for value in row) for row in confusion)
        if figures["accuracy"].told
        else (),
    )


def _calibration(card: ScoreCard, table: Floats, fitted: Floats, deviation: float, z: float) -> tuple[Bin, ...]:
    edges = card.edges
    ends = expit(np.concatenate([[-np.inf], edges, [np.inf]])) if card.binary else None
    if ends is None:
        ends = np.concatenate([[1 / card.task.classes], edges, [1.0]])
    out = []
    for number, (other, as_predicted) in enumerate(table):
        # The count of a bin is the sum of two noisy cells: its noise and that of the second cell belong together, which
        # the interval counts as if they did not.
        held = NoisySum(float(other + as_predicted), sqrt(2) * deviation)
        found = estimate_share(NoisySum(float(as_predicted), deviation), held, z)
        inside = float(fitted[number].sum())
        value = float(fitted[number, 1]) / inside if inside > 0 else 0.5
        out.append(Bin(float(ends[number]), float(ends[number + 1]), widen_to_estimate(found, value, UNIT)))
    return tuple(out)


def estimate_ratio(above: NoisySum, below: NoisySum, z: float) -> Estimate:
    """A ratio of a number to a variance, which both have an error; without an end where the variance may be zero."""
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
    """Squared error in the target's own units; the share of its variance that is explained; the slope of the target on
    the prediction, 1 where predictions are neither too bold nor too timid. `means` and `records` are consistent ones.

    Deviations of moments around a mean: their own noise, that of the means, and chance, each product being at most its
    second factor's square times the largest first one.
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
    """R² from the interval of what is `left` of the variance; its estimate from a consistent error and variance. Where
    the latter is nothing there is no R²."""
    if variance <= _LITTLE:
        return Estimate(0.0, -inf, 1.0, (-inf, 1.0))
    return widen_to_estimate(
        Estimate(1 - left.value, 1 - left.high, min(1.0, 1 - left.low)), 1 - error / variance, (-inf, 1.0)
    )


def estimate_slope(interval: Estimate, covariance: float, variance: float) -> Estimate:
    """The slope with its estimate from consistent moments. There is none where predictions do not vary."""
    return Estimate(0.0, -inf, inf) if variance <= _LITTLE else widen_to_estimate(interval, covariance / variance)


def _variance(means: Mapping[str, float], name: str) -> float:
    return means[f"{name}²"] - means[name] ** 2
