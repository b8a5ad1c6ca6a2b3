"""The strongest test between two neighbours, and what it proves about the loss.

The test is fixed before anything is drawn, so no draw is spent on choosing it. A group of k records that change
together loses at most k times the loss of one (k·μ or k·ε), so what is measured for the group is divided by k. That is
still a lower bound for one record, and a sharper one: few draws tell distributions apart that are far apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from comity.audit.bound import epsilon_of_event, gaussian_epsilon, mu_of_test
from comity.audit.shift import HONEST, Drawn, Shift, Twin, design_epsilon, design_mu
from comity.errors import StudyError
from comity.privacy.randomness import NoiseSource

_CURVE = 41
_BATCH = 2_000_000
_ROUNDING_MISS = 1e-12


@dataclass(frozen=True, eq=False)
class Measured:
    """`epsilon` is at least lost, with the stated confidence; `design` is what the pair could show with endless draws.

    `curve` is the attack as people know it: how many neighbours are recognised (second column) at how many false alarms
    (first column), for the whole group.
    """

    epsilon: float
    design: float
    draws: int
    curve: NDArray[np.float64] = field(repr=False)


def attack(
    shifts: Sequence[Shift],
    source: NoiseSource,
    *,
    delta: float,
    group: int = 1,
    draws: int,
    confidence: float,
    twins: Sequence[Twin] = (),
) -> tuple[Measured, ...]:
    """Tell two neighbours apart by everything that a run opens, and bound the loss of one record from below: for the
    noise as it is, and then for each of its broken `twins`.

    `delta` is the δ at which the loss is stated; pure noise has none.
    """
    if not shifts:
        raise StudyError("an audit needs a release that neighbours change, found none")
    moving = [shift for shift in shifts if shift.units.any()]
    tried = (HONEST, *twins)
    if all(shift.gaussian for shift in shifts):
        scores = [_linear_scores(moving, source, draws) for _ in range(2)]
        return tuple(_test_gaussian(moving, scores, delta, group, draws, confidence, twin) for twin in tried)
    if any(shift.gaussian for shift in shifts):
        raise StudyError("an audit takes releases with Gaussian noise or with pure noise, found both in one run")
    drawn = [[shift.draw(source, draws) for _ in range(2)] for shift in moving]
    return tuple(_test_pure(moving, drawn, group, draws, confidence, twin) for twin in tried)


def _linear_scores(shifts: Sequence[Shift], source: NoiseSource, draws: int) -> Drawn:
    """The likelihood ratio of two Gaussians is linear: Σ ⟨z, s⟩/σ² over all releases."""
    total = Drawn(np.zeros(draws), np.zeros(draws))
    for shift in shifts:
        weights = shift.weights / (shift.scale.part**2 * shift.parts)
        step = max(1, _BATCH // len(weights))
        pieces = [shift.draw(source, min(step, draws - start)) @ weights for start in range(0, draws, step)]
        total += Drawn(np.concatenate([one.rest for one in pieces]), np.concatenate([one.last for one in pieces]))
    return total


def rounding_margin(shifts: Sequence[Shift]) -> float:
    """How far a score lies at most from that of parts which are drawn and rounded one by one, but for
    `_ROUNDING_MISS`."""
    each = _ROUNDING_MISS / len(shifts)
    return sum(shift.rounding(each) / (shift.scale.part**2 * shift.parts) for shift in shifts)


def _test_gaussian(
    shifts: Sequence[Shift],
    scores: Sequence[Drawn],
    delta: float,
    group: int,
    draws: int,
    confidence: float,
    twin: Twin,
) -> Measured:
    """Under the neighbours the score is N(0, m²) and N(m², m²) for the design's m; m²/2 makes both errors equal.

    A score so close to the middle that rounding could have moved it across counts as an error under either neighbour,
    and `_ROUNDING_MISS` is added to both errors: the bound then holds for parts that are rounded one by one, although
    merged parts were drawn.
    """
    whole = design_mu(shifts)
    first, second = scores[0].under(twin), scores[1].under(twin) + whole**2
    middle, margin = whole**2 / 2, rounding_margin(shifts)
    mu = mu_of_test(
        missed=int((second < middle + margin).sum()),
        false=int((first >= middle - margin).sum()),
        draws=draws,
        confidence=confidence,
        slack=_ROUNDING_MISS if margin else 0.0,
    )
    return Measured(
        gaussian_epsilon(mu / group, delta), gaussian_epsilon(whole / group, delta), draws, attack_curve(first, second)
    )


def _test_pure(
    shifts: Sequence[Shift],
    drawn: Sequence[Sequence[Drawn]],
    group: int,
    draws: int,
    confidence: float,
    twin: Twin,
) -> Measured:
    """Independent coordinates are attacked one by one: the probability of an event in each of them is the product of
    theirs, so lower bounds of the log ratios add up, each at its part of the confidence.

    The event of a coordinate is that the output lies beyond the second neighbour's value, as seen from the first. Under
    Laplace noise its probabilities differ by the whole factor e^(s/b).
    """
    levels = sum(len(np.unique(shift.epsilons)) for shift in shifts)
    each = 1 - (1 - confidence) / max(1, levels)
    total, scores = 0.0, [np.zeros(draws), np.zeros(draws)]
    for shift, noise in zip(shifts, drawn, strict=True):
        steps = shift.units.astype(np.float64)
        views = [noise[0].under(twin), noise[1].under(twin) + steps]
        if len(shift.epsilons) < len(shift.units):
            # Several coordinates under one radius: the difference of distances to the two values.
            ways = [(np.linalg.norm(view, axis=1) - np.linalg.norm(view - steps, axis=1))[:, None] for view in views]
            reach = np.array([np.linalg.norm(steps)]) * (1 - 1e-3)
        else:
            ways = [view * np.sign(steps) for view in views]
            reach = np.abs(steps)
        far, near = ((way >= reach).sum(axis=0) for way in ways)
        for size in np.unique(reach):
            # Coordinates that move equally far have one distribution, so their draws count together.
            alike = reach == size
            count = int(alike.sum())
            total += count * epsilon_of_event(
                hits=int(near[alike].sum()), hits_other=int(far[alike].sum()), draws=draws * count, confidence=each
            )
        for score, view in zip(scores, views, strict=True):
            score += (np.abs(view) - np.abs(view - steps)).sum(axis=1) / shift.scale.total
    return Measured(total / group, design_epsilon(shifts) / group, draws, attack_curve(*scores))


def attack_curve(first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
    """Points of the ROC: thresholds in even steps of the false alarms."""
    ranks = np.linspace(0, 1, _CURVE)
    thresholds = np.quantile(first, 1 - ranks)
    found = [(float((first >= t).mean()), float((second >= t).mean())) for t in thresholds]
    return np.array([(0.0, 0.0), *found, (1.0, 1.0)])


def sharpest_group(loss_of_one: float, *, largest: int) -> int:
    """How many records to change together: enough that the group's distributions are apart by 4 (deviations, or ε by
    coordinate), where a bound from some ten thousand draws is closest to the truth; at most `largest`."""
    if loss_of_one <= 0:
        return 1
    return max(1, min(largest, math.ceil(4.0 / loss_of_one)))
