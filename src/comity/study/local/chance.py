"""The chance of a simulation: fresh, as in a release, or repeatable from a seed, which protects nobody."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

from comity.entropy import derive, fresh_seed
from comity.privacy.randomness import NoiseSource, ReleasedNoise, SeededDraws


def noise_source(seed: int | None, owner: str) -> NoiseSource:
    if seed is None:
        return ReleasedNoise()
    return SeededDraws(derive(secret_of(seed), "noise", owner))


def setting_aside(seed: int | None, party: str) -> Callable[[], bytes]:
    """How a party gets the key by which it sets records aside."""
    return fresh_seed if seed is None else partial(derive, secret_of(seed), "set aside", party)


def secret_of(seed: int | None) -> bytes:
    return fresh_seed() if seed is None else seed.to_bytes(16, "big", signed=True)


def new_run_id(clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> str:
    return f"{clock():%Y-%m-%d}-{fresh_seed()[:4].hex()}"
