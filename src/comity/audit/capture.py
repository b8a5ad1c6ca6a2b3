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
from comity.federation.owner.host import Host
from comity.federation.owner.store import Store
from comity.federation.part import spec_of
from comity.privacy.currency import Grant
from comity.privacy.ledger import Ledger
from comity.privacy.permit import Permit
from comity.privacy.randomness import Integers, NoiseSource, Shape
from comity.study.local.channel import LocalChannel

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
        if self.replay is None:
            return value
        known = self.replay[len(self.opened) - 1]
        if (known.release.name, known.party) != (release.name, party):
            raise StudyError(f"a replayed run opened {known.release.name} where this one opens {release.name}")
        return known.value


@dataclass(frozen=True, eq=False)
class Run:
    """A run that ended: what it opened, and what each party's ledger was charged."""

    consortium: Consortium
    opened: tuple[Opened, ...]
    ledgers: Mapping[str, Ledger]


def capture(
    agreement: Agreement,
    records: Mapping[str, LocalRecords],
    *,
    coordinate: Coordinate | None = None,
    replay: Sequence[Opened] | None = None,
    noise: Callable[[], NoiseSource] = NoNoise,
    local: Mapping[str, Any] | None = None,
) -> Run:
    """Run the method over these records with real hosts, and note everything that is opened.

    `coordinate` takes the place of the method's own coordinator. `noise` makes each participant's source.
    """
    hosted = host_parties(agreement, records, noise=noise, local=local)
    parties = hosted.coordinator("audit", replay=replay)
    with without_warnings():
        ready(parties)
        begin(parties)
        (coordinate or release_values)(parties)
    return Run(hosted.agreement.consortium, tuple(parties.opened), hosted.ledgers)


@dataclass(frozen=True, eq=False)
class HostedParties:
    """Real hosts over given records, and the coordinator's keys: several runs may be made over them."""

    agreement: Agreement
    keys: Identity
    hosts: Mapping[str, Host]
    ledgers: Mapping[str, Ledger]
    noise: Callable[[], NoiseSource]

    def coordinator(self, run: str, replay: Sequence[Opened] | None = None) -> Watching:
        channel, journal = LocalChannel(self.hosts), Journal(None)
        parties = Watching(
            self.agreement, run=run, channel=channel, journal=journal, keys=self.keys, noise=self.noise()
        )
        parties.opened, parties.replay = [], replay
        return parties


def host_parties(
    agreement: Agreement,
    records: Mapping[str, LocalRecords],
    *,
    grant: Grant | None = None,
    noise: Callable[[], NoiseSource] = NoNoise,
    local: Mapping[str, Any] | None = None,
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
    hosts = {
        party: Host(
            pinned,
            party,
            records=records[party],
            keys=keys[party],
            store=Store(ledgers[party], unit=consortium.unit, neighbours=consortium.neighbours),
            noise=noise(),
            policy=SIMULATION,
            local=(local or {}).get(party),
            # The same in every run: neighbours hold out the same places.
            holdout_key=partial(derive, b"audit", party),
        )
        for party in consortium.parties
    }
    return HostedParties(pinned, keys[COORDINATOR], hosts, ledgers, noise)


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
