"""Claims of the mechanisms alone: one number that moves by its whole sensitivity, under noise as releases draw it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from comity.audit.bound import epsilon_of_event, gaussian_epsilon, mu_of_test
from comity.audit.claim import Effort, measure_claim
from comity.audit.row import Check, Claim
from comity.audit.shift import Shift
from comity.privacy.loss import Approx, Pure
from comity.privacy.mechanisms import Noise, NoisyMax
from comity.privacy.mechanisms.gaussian import Gaussian
from comity.privacy.mechanisms.laplace import Laplace
from comity.privacy.mechanisms.prefix_sums import PrefixSums, coefficients
from comity.privacy.mechanisms.spherical import Spherical
from comity.privacy.permit import simulated_permit
from comity.privacy.randomness import ReleasedNoise

EPSILON, DELTA = 1.0, 1e-6
_VIEW = "someone who sees the noisy number and none of the parts of its noise"


@dataclass(frozen=True)
class _Kind:
    name: str
    noise: Noise
    delta: float
    parts: int
    group: int


_KINDS = (
    _Kind("Gaussian noise", Gaussian(Approx(EPSILON, DELTA)), DELTA, 1, 17),
    _Kind("Gaussian noise in 3 parts", Gaussian(Approx(EPSILON, DELTA)), DELTA, 3, 17),
    _Kind("Laplace noise", Laplace(Pure(EPSILON)), 0.0, 1, 4),
    _Kind("Laplace noise in 3 parts", Laplace(Pure(EPSILON)), 0.0, 3, 4),
    _Kind("spherical noise", Spherical(Pure(EPSILON)), 0.0, 1, 2),
    _Kind("spherical noise in 2 parts", Spherical(Pure(EPSILON)), 0.0, 2, 2),
)
NUMBER = len(_KINDS) + 2


def mechanism_claims(effort: Effort, confidence: float) -> Iterator[Claim]:
    """Each at this confidence."""
    for kind in _KINDS:
        scale = kind.noise.scale(sensitivity=1.0, shape=(1,), parts=kind.parts)
        units = np.array([kind.group * int(1 / scale.grid)], np.int64)
        yield measure_claim(
            kind.name,
            [Shift(kind.name, kind.noise, scale, kind.parts, 1, units)],
            claimed=EPSILON,
            delta=kind.delta,
            group=kind.group,
            view=_VIEW,
            pair=f"{kind.group} units that each move the number by all of its sensitivity",
            effort=effort,
            confidence=confidence,
        )
    yield _noisy_max(effort, confidence)
    yield _prefix_sums(effort, confidence)


def _noisy_max(effort: Effort, confidence: float) -> Claim:
    """Two scores that change places: the choice of the first has a probability that moves by the factor e^ε."""
    started, group = time.perf_counter(), 4
    mechanism = NoisyMax(loss=Pure(EPSILON), sensitivity=1.0)
    draws = effort.pure_draws
    pair = (np.array([[0.0, 2.0 * group]]), np.array([[group, group]], np.float64))
    chosen = [
        mechanism.run(ReleasedNoise(), np.repeat(scores, draws, axis=0), permit=simulated_permit("choice"))
        for scores in pair
    ]
    rare = [int((one == 0).sum()) for one in chosen]
    lost = epsilon_of_event(hits=rare[1], hits_other=rare[0], draws=draws, confidence=confidence) / group
    return Claim(
        name="noisy max",
        claimed=EPSILON,
        measured=lost,
        # P[first] = e^(−gap/b)/2 under permute-and-flip of two, with b = 2Δ/ε: the factor is e^ε for each unit.
        design=EPSILON,
        delta=0.0,
        view="someone who learns the choice",
        pair=f"{group} units that each raise one score and lower the other by all of their sensitivity",
        group=group,
        draws=draws,
        seconds=time.perf_counter() - started,
    )


def _prefix_sums(effort: Effort, confidence: float) -> Claim:
    """A unit in the first of several rounds, seen by someone who undoes the correlation of the noise."""
    started, group, rounds = time.perf_counter(), 17, 4
    noise = PrefixSums(loss=Approx(EPSILON, DELTA), rounds=rounds)
    scale = noise.scale(sensitivity=1.0, shape=(1,))
    draws, step = effort.draws, group * int(1 / scale.grid)
    # The noise is C z for a triangular C whose first column is c; a unit of the first round moves C⁻¹ of all sums by c.
    first_column = coefficients(rounds)
    undo = np.linalg.inv([[first_column[t - k] if k <= t else 0.0 for k in range(rounds)] for t in range(rounds)])
    scores = []
    for moved in (0, step):
        # As many independent sequences as draws, side by side.
        drawn = noise.noise(noise.begin(ReleasedNoise(), permit=simulated_permit("running")), scale, (draws,))
        seen = np.array([drawn.of(number) + moved for number in range(rounds)], np.float64)
        scores.append(first_column @ (undo @ seen))
    middle = step * float(first_column @ first_column) / 2
    mu = mu_of_test(
        missed=int((scores[1] < middle).sum()),
        false=int((scores[0] >= middle).sum()),
        draws=draws,
        confidence=confidence,
    )
    return Claim(
        name="noise of running sums",
        claimed=EPSILON,
        measured=gaussian_epsilon(mu / group, DELTA),
        design=EPSILON,
        delta=DELTA,
        view="someone who sees every noisy sum",
        pair=f"{group} units of the first round",
        group=group,
        draws=draws,
        seconds=time.perf_counter() - started,
    )


def lattice_checks() -> Iterator[Check]:
    """That noisy values lie on a grid that no record chooses: a power of two, and whole multiples of it. Noise that
    leaves the grid shows in its last bits which value it was added to."""
    for kind in _KINDS:
        scale = kind.noise.scale(sensitivity=1.0, shape=(1,), parts=kind.parts)
        mantissa, _ = math.frexp(scale.grid)
        drawn = kind.noise.draw(ReleasedNoise(), scale, (1,), permit=simulated_permit("lattice"), part=kind.parts > 1)
        held = mantissa == 0.5 and drawn.dtype == np.int64
        yield Check(f"{kind.name}: integers on a grid of a power of two", held, f"grid {scale.grid:g}, {drawn.dtype}")
