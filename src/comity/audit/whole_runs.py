"""A study attacked by whole runs, where the likelihood of what it opens is not known.

A user's mechanism may choose, sort or grow a tree: no shift under known noise describes it. Real hosts then run many
times on each of two neighbours with released noise, and a classifier tells apart what the coordinator received.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

from comity.audit.attack import Measured
from comity.audit.capture import Coordinate, NoNoise, capture
from comity.audit.outputs import attack_outputs
from comity.audit.row import Claim, Control
from comity.data import LocalRecords
from comity.federation.agreement import Agreement
from comity.federation.declare.payers import spent_by
from comity.privacy.mechanisms.gaussian import Gaussian
from comity.privacy.randomness import NoiseSource, ReleasedNoise

Floats = NDArray[np.float64]
Records = Mapping[str, LocalRecords]


def has_likelihood(agreement: Agreement, party: str) -> bool:
    """Whether everything that this party pays for is opened under additive noise of one kind."""
    kinds = {
        None if release.noise is None else isinstance(release.noise, Gaussian)
        for release in agreement.declaration.paid_by(party, agreement.consortium)
    }
    return len(kinds) == 1 and None not in kinds


def attack_runs(
    name: str,
    agreement: Agreement,
    party: str,
    neighbours: tuple[Records, Records],
    *,
    delta: float,
    runs: int,
    confidence: float,
    pair: str,
    group: int = 1,
    coordinate: Coordinate | None = None,
) -> Claim:
    """Tell two neighbours apart by what so many runs on each of them give to the coordinator.

    The control runs without noise: it is left out where so many runs could not show that it loses more than is claimed.
    """
    started = time.perf_counter()
    claimed = float(spent_by(agreement.declaration, party, agreement.consortium).epsilon_at(Decimal(str(delta))))

    def measure(noise: Callable[[], NoiseSource], made: int) -> Measured:
        # Runs without noise are all equal: one stands for as many.
        seen = [runs // made * _outputs(agreement, records, noise, made, coordinate) for records in neighbours]
        width = max(len(one) for outputs in seen for one in outputs)
        first, second = (np.array([np.pad(one, (0, width - len(one))) for one in outputs]) for outputs in seen)
        return attack_outputs(first, second, claimed=claimed, delta=delta, group=group, confidence=confidence)

    honest = measure(ReleasedNoise, runs)
    bare = measure(NoNoise, 1) if claimed < _provable(runs, delta, group, confidence) else None
    control = () if bare is None else (Control(f"{name}: no noise", bare.epsilon > claimed, bare.epsilon, claimed),)
    return Claim(
        name=name,
        claimed=claimed,
        measured=honest.epsilon,
        design=honest.design,
        delta=delta,
        view=agreement.declaration.adversary,
        pair=pair,
        group=group,
        draws=runs,
        controls=control,
        curve=honest.curve,
        seconds=time.perf_counter() - started,
    )


def _outputs(
    agreement: Agreement,
    records: Records,
    noise: Callable[[], NoiseSource],
    runs: int,
    coordinate: Coordinate | None,
) -> list[Floats]:
    return [
        np.fromiter(capture(agreement, records, noise=noise, coordinate=coordinate).received, np.float64)
        for _ in range(runs)
    ]


def _provable(runs: int, delta: float, group: int, confidence: float) -> float:
    """The loss that runs show which are told apart every time."""
    apart = np.zeros((runs, 1)), np.ones((runs, 1))
    return attack_outputs(*apart, claimed=0.0, delta=delta, group=group, confidence=confidence).epsilon
