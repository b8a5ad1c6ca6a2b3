"""One claim, attacked: as it is, and with the broken twins that the same attack has to catch."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from comity.audit.attack import attack
from comity.audit.bound import epsilon_of_event, gaussian_epsilon, mu_of_test
from comity.audit.row import Claim, Control
from comity.audit.shift import Shift, Twin, design_mu
from comity.errors import StudyError
from comity.privacy.mechanisms.spherical import Spherical
from comity.privacy.randomness import NoiseSource, ReleasedNoise

CONFIDENCE = 0.999
"""Of a whole audit, however many claims it has."""

TWINS = (
    Twin("noise / 1.2", shrink=1.2),
    Twin("noise for half the sensitivity", shrink=2.0),
    Twin("one honest part missing", missing_part=True),
)

_SURE = 3
"""A twin is a control where the attack would catch it even at this power of the chance that its bound may miss: then an
unlucky draw does not let it pass."""


@dataclass(frozen=True)
class Effort:
    """How hard an audit tries: draws for each input of a claim, and candidates for the strongest pair. `numbers` limits
    the Gaussian numbers that are drawn for one input, where a run opens many of them. `runs` and `run_seconds` limit
    whole runs, where no likelihood is known; `illustration_seconds` those of membership inference."""

    draws: int = 100_000
    numbers: int = 200_000_000
    pure_draws: int = 1_500_000
    spherical_draws: int = 150_000
    corners: int = 24
    runs: int = 4_000
    run_seconds: float = 600.0
    illustration_seconds: float = 20.0

    def draws_for(self, shifts: Sequence[Shift]) -> int:
        if all(shift.gaussian for shift in shifts):
            drawn = sum(shift.drawn_numbers for shift in shifts)
            return max(10_000, min(self.draws, self.numbers // max(1, drawn)))
        numbers = sum(len(shift.units) for shift in shifts)
        if any(isinstance(shift.noise, Spherical) for shift in shifts):
            # Drawn vector by vector, part by part.
            return max(2000, self.spherical_draws // max(shift.parts for shift in shifts))
        return max(2000, self.pure_draws // max(1, numbers))


THOROUGH = Effort()
QUICK = Effort(
    draws=40_000,
    numbers=32_000_000,
    pure_draws=600_000,
    spherical_draws=100_000,
    corners=12,
    runs=400,
    run_seconds=40.0,
)


def measure_claim(
    name: str,
    shifts: Sequence[Shift],
    *,
    claimed: float,
    delta: float,
    group: int,
    view: str,
    pair: str,
    effort: Effort,
    confidence: float,
    source: NoiseSource | None = None,
) -> Claim:
    """Attack neighbours that lie these shifts apart. Noise comes from `source`, by default as releases draw it.

    Twins that lose too little more for this pair and so many draws to show it surely are left out.
    """
    started, draws = time.perf_counter(), effort.draws_for(shifts)
    if not any(len(shift.units) for shift in shifts):
        raise StudyError(f"{name}: no tried neighbour changes what is opened, so the audit would show nothing")
    strict = 1 - (1 - confidence) ** _SURE
    twins = [twin for twin in TWINS if _expected_under(twin, shifts, delta, group, draws, strict) > claimed]
    honest, *broken = attack(
        shifts,
        source or ReleasedNoise(),
        delta=delta,
        group=group,
        draws=draws,
        confidence=confidence,
        twins=twins,
    )
    controls = tuple(
        Control(f"{name}: {twin.name}", seen.epsilon > claimed, seen.epsilon, claimed)
        for twin, seen in zip(twins, broken, strict=True)
    )
    return Claim(
        name=name,
        claimed=claimed,
        measured=honest.epsilon,
        design=honest.design,
        delta=delta,
        view=view,
        pair=pair,
        group=group,
        draws=draws,
        controls=controls,
        curve=honest.curve,
        seconds=time.perf_counter() - started,
    )


def _expected_under(
    twin: Twin, shifts: Sequence[Shift], delta: float, group: int, draws: int, confidence: float
) -> float:
    """What the attack on a twin would show if every count were as often as expected."""
    parts = min(shift.parts for shift in shifts)
    if twin.missing_part and parts < 2:
        return 0.0
    narrower = twin.shrink * (math.sqrt(parts / (parts - 1)) if twin.missing_part else 1.0)
    if all(shift.gaussian for shift in shifts):
        errors = round(draws * NormalDist().cdf(-narrower * design_mu(shifts) / 2))
        return gaussian_epsilon(
            mu_of_test(missed=errors, false=errors, draws=draws, confidence=confidence) / group, delta
        )
    total = 0.0
    for shift in shifts:
        for loss, count in zip(*np.unique(shift.epsilons, return_counts=True), strict=True):
            tried = int(draws * count)
            rare = round(tried / 2 * math.exp(-narrower * loss))
            total += count * epsilon_of_event(hits=tried // 2, hits_other=rare, draws=tried, confidence=confidence)
    return float(total) / group
