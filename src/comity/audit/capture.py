"""What a run would open of given records without noise: by real hosts, steps, bounds, grids and secure sums.

An audit needs the exact values under the noise. It runs the hosts of a deployment with a source of noise that draws
zeros; nothing else is replaced. Such a run protects nobody, which is why its noise lives here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from comity.audit.shift import Shift
from comity.crypto.sealing import Identity
from comity.data import LocalRecords
from comity.entropy import derive, fresh_seed
from comity.errors import StudyError
from comity.federation.agreement import Agreement
from comity.federation.coordinator.journal import Journal
from comity.federation.coordinator.lifecycle import begin, ready, release_values
from comity.federation.coordinator.parties import Parties
from comity.federation.coordinator.released import Total
from comity.federation.coordinator.replies import PartyValues
from comity.federation.declare.consortium import COORDINATOR, Consortium
from comity.federation.declare.policy import SIMULATION
from comity.federation.declare.protection import Noised, Summed
from comity.federation.declare.release import Release
from comity.federation.messages.ask import Ask
from comity.federation.owner.host import Host
from comity.federation.owner.store import Store
from comity.federation.part import EVALUATION, spec_of
from comity.privacy.currency import Grant
from comity.privacy.ledger import Ledger
from comity.privacy.permit import Permit
from comity.privacy.randomness import Integers, NoiseSource, Shape
from comity.study.local.channel import LocalChannel

RUN = "audit"
"""The name of every captured run."""

Coordinate = Callable[[Parties], Any]
"""What a coordinator does in a run: a method's own way, or that of a hostile one."""


class NoNoise:
    """Draws zeros. A choice that should be private takes the largest score."""

    seeded = True

    def discrete_laplace(self, scale: float, shape: Shape, *, permit: Permit) -> Integers:
        permit.use()
        return np.zeros(shape, np.int64)

    def rounded_gaussian(self, sigma: float, shape: Shape, *, permit: Permit) -> Integers:
        return self.discrete_laplace(sigma, shape, permit=permit)

    def spherical(self, beta: float, shape: Shape, *, permit: Permit) -> Integers:
        return self.discrete_laplace(beta, shape, permit=permit)

    def laplace_part(self, scale: float, parts: int, shape: Shape, *, permit: Permit) -> Integers:
        return self.discrete_laplace(scale, shape, permit=permit)

    def spherical_part(self, beta: float, parts: int, shape: Shape, *, permit: Permit) -> Integers:
        return self.discrete_laplace(beta, shape, permit=permit)

    def noisy_max(self, scores: Integers, scale: float, *, permit: Permit) -> Integers:
        permit.use()
        return np.asarray(np.argmax(scores, axis=-1), np.int64)

    def exponential_choice(self, scores: Integers, scale: float, *, permit: Permit) -> Integers:
        return self.noisy_max(scores, scale, permit=permit)

    def seed(self, *, permit: Permit) -> bytes:
        permit.use()
        return bytes(32)


@dataclass(frozen=True, eq=False)
class Opened:
    """One value that a run opened: of which release, in grid units, and as the coordinator had it. `party` sent it,
    where it is no sum."""

    release: Release
    units: NDArray[np.int64]
    value: Any
    party: str = ""


class Watching(Parties):
    """A coordinator that notes what it opens. With `replay` it goes on as if it had opened those values instead: every
    message of this run is then that of the run which they come from."""

    opened: list[Opened]
    received: list[float]
    replay: Sequence[Opened] | None

    def sum(self, step: Callable[..., Any], **values: Any) -> Total:
        total = super().sum(step, **values)
        release = self.declaration[spec_of(step, self.consortium).sends or ""]
        if not isinstance(release.protection, Summed):
            # Noised at the sites: noted by party, as their replies came.
            return total
        return cast(Total, self._note(release, total.value / release.spacing(self.consortium), total))

    def ask(self, step: Callable[..., Any] | str, **options: Any) -> dict[str, PartyValues]:
        replies = super().ask(step, **options)
        if self._mount in ("", EVALUATION):
            self.received.extend(number for party in sorted(replies) for number in numbers_in(replies[party]))
        noised = {one.name: one for one in self.declaration.releases if isinstance(one.protection, Noised)}
        for party, values in replies.items():
            for name in noised.keys() & values.keys():
                values[name] = self._note(noised[name], values[name], values[name], party)
        return replies

    def perturb(self, name: str, value: NDArray[np.float64]) -> NDArray[np.float64]:
        noisy = super().perturb(name, value)
        release = self.declaration[name]
        return cast(NDArray[np.float64], self._note(release, noisy / release.scale(self.consortium).grid, noisy))

    def _note(self, release: Release, units: NDArray[Any], value: Any, party: str = "") -> Any:
        self.opened.append(Opened(release, np.rint(units).astype(np.int64), value, party))
        if not party:
            self.received.extend(numbers_in(units))
        if self.replay is None:
            return value
        known = self.replay[len(self.opened) - 1]
        if (known.release.name, known.party) != (release.name, party):
            raise StudyError(f"a replayed run opened {known.release.name} where this one opens {release.name}")
        return known.value


def numbers_in(value: Any) -> Iterator[float]:
    """The numbers of a received value, in a fixed order. What has no numbers counts by its length."""
    if isinstance(value, Mapping):
        for name in sorted(value, key=str):
            yield from numbers_in(value[name])
    elif isinstance(value, list | tuple):
        yield float(len(value))
        for one in value:
            yield from numbers_in(one)
    elif isinstance(value, np.ndarray):
        yield from value.astype(np.float64).ravel()
    elif isinstance(value, bool | int | float | np.integer | np.floating):
        yield float(value)
    elif isinstance(value, bytes | str):
        yield float(len(value))


@dataclass(frozen=True, eq=False)
class Run:
    """A run that ended: what it opened, and what each party's ledger was charged. `received` are all numbers that the
    coordinator got from steps of the study's own protocol and of its evaluation, or by opening sums."""

    consortium: Consortium
    opened: tuple[Opened, ...]
    ledgers: Mapping[str, Ledger]
    hosted: HostedParties | None = None
    received: tuple[float, ...] = ()


def capture(
    agreement: Agreement,
    records: Mapping[str, LocalRecords],
    *,
    coordinate: Coordinate | None = None,
    replay: Sequence[Opened] | None = None,
    noise: Callable[[], NoiseSource] = NoNoise,
    local: Mapping[str, Any] | None = None,
    listen: Sequence[str] = (),
) -> Run:
    """Run the method over these records with real hosts, and note everything that is opened.

    `coordinate` takes the place of the method's own coordinator. `noise` makes each participant's source. What is asked
    of the parties in `listen` is kept, for `rerun.with_other_records`.
    """
    hosted = host_parties(agreement, records, noise=noise, local=local, listen=listen)
    parties = hosted.coordinator(RUN, replay=replay)
    with without_warnings():
        ready(parties)
        begin(parties)
        (coordinate or release_values)(parties)
    return Run(hosted.agreement.consortium, tuple(parties.opened), hosted.ledgers, hosted, tuple(parties.received))


class ListeningHost(Host):
    """A host that keeps what it was asked."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.asks: list[Ask] = []

    def _step(self, ask: Ask, digest: bytes) -> tuple[bytes, bytes | None]:
        self.asks.append(ask)
        return super()._step(ask, digest)


@dataclass(frozen=True, eq=False)
class HostedParties:
    """Real hosts over given records, and the coordinator's keys: several runs may be made over them."""

    agreement: Agreement
    keys: Identity
    hosts: Mapping[str, Host]
    ledgers: Mapping[str, Ledger]
    noise: Callable[[], NoiseSource]
    make_host: Callable[[str, LocalRecords, Store], Host]

    def coordinator(self, run: str, replay: Sequence[Opened] | None = None) -> Watching:
        channel, journal = LocalChannel(self.hosts), Journal(None)
        parties = Watching(
            self.agreement, run=run, channel=channel, journal=journal, keys=self.keys, noise=self.noise()
        )
        parties.opened, parties.received, parties.replay = [], [], replay
        return parties


def holdout_key(party: str) -> bytes:
    """What decides which records this party holds out. It is the same in every run: neighbours hold out the same
    places."""
    return derive(b"audit", party)


def host_parties(
    agreement: Agreement,
    records: Mapping[str, LocalRecords],
    *,
    grant: Grant | None = None,
    noise: Callable[[], NoiseSource] = NoNoise,
    local: Mapping[str, Any] | None = None,
    listen: Sequence[str] = (),
) -> HostedParties:
    """Hosts with ledgers in memory, which count, or refuse what exceeds a `grant`."""
    names = (COORDINATOR, *agreement.consortium.parties)
    keys = {name: Identity(fresh_seed()) for name in names}
    roster = {name: identity.public for name, identity in keys.items()}
    pinned = replace(agreement, consortium=replace(agreement.consortium, roster=roster))
    consortium = pinned.consortium
    ledgers = {
        party: Ledger.in_memory(dataset=party, unit=consortium.unit, neighbours=consortium.neighbours, grant=grant)
        for party in consortium.parties
    }

    def make_host(party: str, held: LocalRecords, store: Store) -> Host:
        return (ListeningHost if party in listen else Host)(
            pinned,
            party,
            records=held,
            keys=keys[party],
            store=store,
            noise=noise(),
            policy=SIMULATION,
            local=(local or {}).get(party),
            holdout_key=partial(holdout_key, party),
        )

    def make_store(party: str) -> Store:
        return Store(ledgers[party], unit=consortium.unit, neighbours=consortium.neighbours)

    hosts = {party: make_host(party, records[party], make_store(party)) for party in consortium.parties}
    return HostedParties(pinned, keys[COORDINATOR], hosts, ledgers, noise, make_host)


@contextmanager
def without_warnings() -> Iterator[None]:
    """Sites warn their owners of records that are not as declared. Here they never are, and nobody is to be warned."""
    log = logging.getLogger("comity.site")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)


def shifts_between(consortium: Consortium, first: Sequence[Opened], second: Sequence[Opened]) -> list[Shift]:
    """How far each opened value moves between two runs with the same messages."""
    return [
        Shift.between(one.release, consortium, one.units, other.units)
        for one, other in zip(first, second, strict=True)
        if one.release.noise is not None
    ]
