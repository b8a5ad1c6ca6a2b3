"""Whole runs with one secure sum, from the first ask to the last, and what of them falls on one party and on the
coordinator.

A simulated run plays all parties in one process, which verifies each signature once
(`comity.crypto.sealing`). The figures of a party and of the coordinator are from a second run in which each
verifies for itself, as they would apart from each other: those are what a deployment computes.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from time import perf_counter, process_time, thread_time
from typing import Any

import numpy as np

from comity import Ledger
from comity.crypto.sealing import Identity, signature_memory_disabled
from comity.data import Records
from comity.entropy import derive
from comity.federation.agreement import Agreement
from comity.federation.coordinator.journal import Journal
from comity.federation.coordinator.lifecycle import run
from comity.federation.declare.policy import SIMULATION
from comity.federation.messages.channel import Channel
from comity.federation.owner.host import Answer, Host
from comity.federation.owner.store import Store
from comity.privacy import Approx, Gaussian, Neighbours, NoiseSource, ReleasedNoise, Unit
from comity.protocol import (
    COORDINATOR,
    EVERY_PARTY,
    EVERYONE,
    Array,
    Ball,
    Consortium,
    Declaration,
    Derived,
    Parties,
    Protocol,
    Release,
    Site,
    Summed,
    step,
)
from comity.study.local.channel import LocalChannel
from experiments.bench.growth import growth_row

GROWING_PARTIES = tuple((parties, 1_000) for parties in (10, 30, 60, 100, 104, 300, 1_000))
GROWING_NUMBERS = ((100, 10_000), (100, 100_000))
_WHOSE = {"apart": "all apart", "party": "dearest party", "coordinator": "coordinator"}
_QUICK = ((10, 1_000), (30, 1_000))


@dataclass(frozen=True)
class Cost:
    """CPU seconds, and bytes that crossed: `whole` with everything in one process, the others each on its own,
    `apart` all of those together; `wall` is the time that `whole` took."""

    whole: float
    wall: float
    apart: float
    party: float
    coordinator: float
    noise: float
    crossed: int


@dataclass(frozen=True, kw_only=True)
class OneSum(Protocol):
    """Every party contributes the same vector; its noisy sum is released to all."""

    name = "one sum"
    length: int

    def declare(self, consortium: Consortium) -> Declaration:
        summed = Release(
            name="vectors",
            source=EVERY_PARTY,
            to=COORDINATOR,
            protection=Summed(Gaussian(consortium.loss)),
            form=Array((self.length,), "<i8"),
            bound=Ball(radius=1.0, diameter=2.0),
        )
        result = Release(
            name="result",
            source=COORDINATOR,
            to=EVERYONE,
            protection=Derived("vectors"),
            form=Array((self.length,)),
        )
        adversary = f"a coordinator with up to {consortium.colluders} of {consortium.size} parties"
        return Declaration((summed, result), adversary=adversary)

    def coordinate(self, parties: Parties) -> dict[str, Any]:
        total = parties.sum(self.contribution)
        return {"result": total.value / total.parties}

    @step(sends="vectors")
    def contribution(self, site: Site) -> None:
        site.contribute(np.full(self.length, self.length**-0.5))


class Timed:
    """A host, and how much CPU its answers took."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.seconds = 0.0

    def answer(self, raw: bytes) -> Answer:
        started = thread_time()
        try:
            return self._host.answer(raw)
        finally:
            self.seconds += thread_time() - started


class TimedNoise(ReleasedNoise):
    """Released noise, and how much CPU it took; the figures of other mechanisms are elsewhere."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name.startswith("_") or name == "seconds" or not callable(found):
            return found

        def timed(*args: Any, **options: Any) -> Any:
            started = thread_time()
            try:
                return found(*args, **options)
            finally:
                self.seconds += thread_time() - started

        return timed


def measure_runs(*, quick: bool) -> list[dict[str, Any]]:
    """A row per run, one for its dearest party, one for its coordinator, one for all of them apart; then growth."""
    rows, costs = [], {}
    for parties, length in _QUICK if quick else (*GROWING_PARTIES, *GROWING_NUMBERS):
        cost = run_once(parties, length)
        case = f"run {parties}x{length}"
        crossed = f"{cost.crossed / 1e6:.1f} MB crossed"
        noise = f"{cost.noise:.2f} s of it noise"
        rows.append(
            _row(case, cost.whole, f"all parties in one process, unseeded, 1 colluder; {noise}; {crossed}")
            | {"wall": cost.wall}
        )
        rows.append(_row(f"{case}, dearest party", cost.party, "verifies every signature itself"))
        rows.append(_row(f"{case}, coordinator", cost.coordinator, "verifies every signature itself"))
        apart = "all parties and the coordinator, each verifies every signature itself"
        rows.append(_row(f"{case}, apart", cost.apart, f"{apart}; no relay"))
        costs[parties, length] = cost
    return [*rows, *_growth(costs)]


def _growth(costs: Mapping[tuple[int, int], Cost]) -> list[dict[str, Any]]:
    """Exponents along each axis on which there are several sizes."""
    rows = []
    for place, axis in enumerate(("parties", "numbers")):
        fixed = max((size[1 - place] for size in costs), key=[size[1 - place] for size in costs].count)
        along = {size[place]: cost for size, cost in costs.items() if size[1 - place] == fixed}
        if len(along) < 2:
            continue
        other = f"{fixed:,} {'numbers' if axis == 'parties' else 'parties'}"
        for whose in ("apart", "party", "coordinator"):
            seconds = [getattr(cost, whose) for cost in along.values()]
            if min(seconds) > 0:
                rows.append(growth_row(f"{axis}, {_WHOSE[whose]}", list(along), seconds, other))
    return rows


def run_once(parties: int, length: int) -> Cost:
    began = perf_counter()
    whole, _, noise, crossed = _measured(parties, length, alone=False)
    wall = perf_counter() - began
    apart, hosts, _, _ = _measured(parties, length, alone=True)
    return Cost(whole, wall, apart, max(hosts), max(apart - sum(hosts), 0.0), noise, crossed)


def _measured(parties: int, length: int, *, alone: bool) -> tuple[float, list[float], float, int]:
    """CPU seconds of a run, of its hosts, of their noise, and bytes that crossed."""
    agreement, noise = one_sum(parties, length), TimedNoise()
    hosts = {name: Timed(host_of(agreement, name, noise)) for name in agreement.consortium.parties}
    coordinator = coordinator_of(agreement, LocalChannel(hosts))
    started = process_time()
    with signature_memory_disabled() if alone else nullcontext():
        run(coordinator)
    seconds = process_time() - started
    crossed = sum(line.bytes for line in coordinator.transcript.lines)
    return seconds, [host.seconds for host in hosts.values()], noise.seconds, crossed


def one_sum(parties: int, length: int) -> Agreement:
    """A run of so many parties, whose keys anybody can derive."""
    names = tuple(f"p{k:04}" for k in range(parties))
    consortium = Consortium(
        parties=names,
        loss=Approx(1, 1e-6),
        unit=Unit.PARTY,
        neighbours=Neighbours.REPLACE,
        roster={name: keys_of(name).public for name in (COORDINATOR, *names)},
    )
    return Agreement("5" * 64, OneSum(length=length), consortium)


def keys_of(name: str) -> Identity:
    return Identity(derive(b"bench", "securesum", name))


def host_of(agreement: Agreement, name: str, noise: NoiseSource) -> Host:
    """A party with a ledger in memory."""
    unit, neighbours = agreement.consortium.unit, agreement.consortium.neighbours
    ledger = Ledger.in_memory(dataset=name, unit=unit, neighbours=neighbours)
    return Host(
        agreement,
        name,
        records=Records(np.zeros((1, 1))),
        keys=keys_of(name),
        store=Store(ledger, unit=unit, neighbours=neighbours),
        noise=noise,
        policy=SIMULATION,
    )


def coordinator_of(agreement: Agreement, channel: Channel, *, run: str = "bench") -> Parties:
    return Parties(agreement, run=run, channel=channel, journal=Journal(None), keys=keys_of(COORDINATOR))


def _row(case: str, seconds: float, note: str) -> dict[str, Any]:
    return {
        "case": case,
        "ours": seconds,
        "anchor": None,
        "ratio": None,
        "unit": "s",
        "repeats": 1,
        "spread": 0.0,
        "better": "lower",
        "note": f"{note}; CPU seconds",
    }
