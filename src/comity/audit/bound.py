"""Lower bounds of ε from samples: how private a mechanism is at most, with a stated confidence.

Someone who sees a score of the output guesses which of two neighbouring inputs it came from. (ε, δ)-DP bounds
how good the guess can be: P[score ∈ S | first] <= e^ε P[score ∈ S | second] + δ for every event S, and the
other way round. An event is chosen on one half of the samples; its probabilities are bounded on the other
half, which the choice never saw, by Clopper–Pearson intervals. With the stated confidence the true ε is at
least what is returned; a value above the claimed ε refutes the claim, a value below it proves nothing.

Scores of one array must be independent draws of the same mechanism on the same input.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv, log_ndtr, ndtri

from comity.errors import DataError, StudyError

_CANDIDATES = 1000
_CAUTION = 1e-4
"""While an event is chosen, intervals miss this much less often: the best of many events is partly luck."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class _Events:
    """How many of `size` and `size_other` scores fell into each of several events."""

    hits: Floats
    size: int
    hits_other: Floats
    size_other: int

    def swapped(self) -> _Events:
        return _Events(self.hits_other, self.size_other, self.hits, self.size)


_Bound = Callable[[_Events, float], Floats]
"""One value per event, from intervals that each miss with at most the given probability."""


def epsilon_lower_bound(
    scores: ArrayLike, scores_neighbour: ArrayLike, *, delta: float = 0.0, confidence: float = 0.95
) -> float:
    """An ε such that, with this confidence, the mechanism is (ε', δ)-DP for no ε' below it.

    ε >= ln((p − δ)/q) for the probabilities p and q of any event under either input; p is replaced by a lower
    and q by an upper bound, each wrong with at most half of what the confidence leaves.
    """
    _check_levels(delta, confidence)

    def excess(events: _Events, miss: float) -> Floats:
        return _log_ratio(events, delta, miss)

    return max(0.0, _bound_on_fresh_samples(scores, scores_neighbour, excess, (1 - confidence) / 2))


def gdp_lower_bound(scores: ArrayLike, scores_neighbour: ArrayLike, *, delta: float, confidence: float = 0.95) -> float:
    """As `epsilon_lower_bound`, for mechanisms that claim Gaussian differential privacy; tighter for these.

    The claim of μ-GDP says more than one (ε, δ): every test between the neighbours errs at least as a test
    between N(0, 1) and N(μ, 1) does. So one test bounds μ, and μ gives the ε at δ that a mechanism with such
    a claim has at least.
    """
    if not 0 < delta < 1:
        raise StudyError(f"the Gaussian form needs a delta between 0 and 1, found {delta}")
    return gaussian_epsilon(mu_lower_bound(scores, scores_neighbour, confidence=confidence), delta)


def mu_lower_bound(scores: ArrayLike, scores_neighbour: ArrayLike, *, confidence: float = 0.95) -> float:
    """A μ such that, with this confidence, the mechanism is μ'-GDP for no μ' below it.

    μ >= −Φ⁻¹(a) − Φ⁻¹(b) for the two error probabilities a and b of any test; both are replaced by upper
    bounds, each wrong with at most half of what the confidence leaves.
    """
    _check_levels(0.0, confidence)

    def separation(events: _Events, miss: float) -> Floats:
        missed = _upper(events.size - events.hits, events.size, miss)
        false = _upper(events.hits_other, events.size_other, miss)
        # Both errors may be bounded by 1 alone: −∞, which no maximum takes.
        return np.asarray(-ndtri(missed) - ndtri(false), np.float64)

    return max(0.0, _bound_on_fresh_samples(scores, scores_neighbour, separation, (1 - confidence) / 2))


def mu_of_test(*, missed: int, false: int, draws: int, confidence: float, slack: float = 0.0) -> float:
    """`mu_lower_bound` of one test that was fixed before the draws, and needs none of them to choose it.

    Of `draws` draws under each input, `missed` of the first and `false` of the second were taken for the other. `slack`
    is added to both errors, where the draws stand for others that differ with at most that probability.
    """
    _check_levels(0.0, confidence)
    miss = (1 - confidence) / 2
    errors = np.minimum(1.0, _upper(np.array([missed, false], np.float64), draws, miss) + slack)
    return max(0.0, float(-ndtri(errors).sum()))


def epsilon_of_event(*, hits: int, hits_other: int, draws: int, delta: float = 0.0, confidence: float) -> float:
    """`epsilon_lower_bound` of one event that was fixed before the draws: it held in `hits` of `draws` draws under one
    input and in `hits_other` of as many under the other."""
    _check_levels(delta, confidence)
    events = _Events(np.array([float(hits)]), draws, np.array([float(hits_other)]), draws)
    return max(0.0, float(_log_ratio(events, delta, (1 - confidence) / 2)[0]))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The ε of μ-GDP at δ: the root of Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ) = δ, rounded down."""
    if mu <= 0:
        return 0.0

    def exceeds(epsilon: float) -> bool:
        above = math.exp(float(log_ndtr(mu / 2 - epsilon / mu)))
        return above - math.exp(epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))) > delta

    if not exceeds(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while exceeds(high):
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if exceeds(middle) else (low, middle)
    return low


@dataclass(frozen=True)
class ChosenEvent:
    """That a score is below a threshold, or not below it. It is more likely under the first input, or with `swap` under
    the second."""

    threshold: float
    below: bool
    swap: bool

    def count(self, scores: Floats, other: Floats) -> _Events:
        events = _count_events(np.sort(scores), np.sort(other), np.array([self.threshold]), self.below)
        return events.swapped() if self.swap else events


def choose_event(scores: ArrayLike, scores_neighbour: ArrayLike, *, delta: float, confidence: float) -> ChosenEvent:
    """The event of `epsilon_lower_bound` that looks best on these scores. Its probabilities have to be bounded on
    others, by `event_bounds`."""
    _check_levels(delta, confidence)
    first, other = _check_scores(scores), _check_scores(scores_neighbour)
    return _best_event(first, other, lambda events, miss: _log_ratio(events, delta, miss), (1 - confidence) / 2)


def event_bounds(
    event: ChosenEvent, scores: ArrayLike, scores_neighbour: ArrayLike, *, confidence: float
) -> tuple[float, float]:
    """A lower bound of the event's probability under the input that makes it likely, and an upper one under the other.
    Both hold with this confidence."""
    events = event.count(_check_scores(scores), _check_scores(scores_neighbour))
    miss = (1 - confidence) / 2
    certain, possible = _lower(events.hits, events.size, miss), _upper(events.hits_other, events.size_other, miss)
    return float(certain[0]), float(possible[0])


def _bound_on_fresh_samples(scores: ArrayLike, scores_neighbour: ArrayLike, bound: _Bound, miss: float) -> float:
    """The bound of the one event that looked best on the even samples, evaluated on the odd ones."""
    first, other = _check_scores(scores), _check_scores(scores_neighbour)
    event = _best_event(first[::2], other[::2], bound, miss)
    return float(bound(event.count(first[1::2], other[1::2]), miss)[0])


def _best_event(scores: Floats, scores_neighbour: Floats, bound: _Bound, miss: float) -> ChosenEvent:
    choosing, choosing_other = np.sort(scores), np.sort(scores_neighbour)
    thresholds = _choose_thresholds(choosing, choosing_other)
    best, chosen = -math.inf, ChosenEvent(float(thresholds[0]), below=False, swap=False)
    for below in (False, True):
        events = _count_events(choosing, choosing_other, thresholds, below)
        for swap in (False, True):
            values = bound(events.swapped() if swap else events, miss * _CAUTION)
            at = int(np.argmax(values))
            if values[at] > best:
                best, chosen = float(values[at]), ChosenEvent(float(thresholds[at]), below=below, swap=swap)
    return chosen


def _count_events(scores: Floats, other: Floats, thresholds: Floats, below: bool) -> _Events:
    """Counts of {score < threshold} or of {score >= threshold}, for sorted scores."""
    less, less_other = np.searchsorted(scores, thresholds), np.searchsorted(other, thresholds)
    if below:
        return _Events(less.astype(float), len(scores), less_other.astype(float), len(other))
    return _Events((len(scores) - less).astype(float), len(scores), (len(other) - less_other).astype(float), len(other))


def _choose_thresholds(scores: Floats, other: Floats) -> Floats:
    pooled = np.unique(np.concatenate([scores, other]))
    if len(pooled) <= _CANDIDATES:
        return pooled
    # Even steps in rank, of each sample by itself: the tails of either may be where they differ.
    ranks = np.linspace(0, 1, _CANDIDATES // 2)
    picked = [sample[(ranks * (len(sample) - 1)).astype(int)] for sample in (scores, other)]
    return np.unique(np.concatenate(picked))


def _log_ratio(events: _Events, delta: float, miss: float) -> Floats:
    certain = _lower(events.hits, events.size, miss) - delta
    possible = _upper(events.hits_other, events.size_other, miss)
    out = np.full(certain.shape, -math.inf)
    np.log(certain / possible, out=out, where=certain > 0)
    return out


def _lower(hits: Floats, size: int, miss: float) -> Floats:
    """Clopper–Pearson, one-sided: above the truth with probability at most `miss`."""
    level = betaincinv(np.maximum(hits, 1), size - hits + 1, miss)
    return np.where(hits == 0, 0.0, level)


def _upper(hits: Floats, size: int, miss: float) -> Floats:
    return 1 - _lower(size - hits, size, miss)


def _check_scores(scores: ArrayLike) -> Floats:
    listed = np.asarray(scores, np.float64)
    if listed.ndim != 1 or len(listed) < 4 or not np.isfinite(listed).all():
        raise DataError(f"an audit needs a list of at least 4 finite scores for each input, found shape {listed.shape}")
    return listed


def _check_levels(delta: float, confidence: float) -> None:
    if not (0 <= delta < 1 and 0 < confidence < 1):
        raise StudyError(f"delta lies in [0, 1) and confidence in (0, 1), found delta {delta}, confidence {confidence}")
