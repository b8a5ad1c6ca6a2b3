"""Parties of chosen sizes around the published average, with keys made once and every draw on record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any, cast

import numpy as np

from comity.crypto.paillier.cryptosystem import PrivateKey
from comity.crypto.sealing import Identity
from comity.data import Records
from comity.entropy import derive
from comity.federation.agreement import Agreement
from comity.federation.coordinator.journal import Journal
from comity.federation.coordinator.parties import Parties
from comity.federation.declare.consortium import COORDINATOR, Consortium
from comity.federation.declare.policy import SIMULATION, Policy
from comity.federation.messages.channel import Channel
from comity.federation.owner.host import Host
from comity.federation.owner.store import Store
from comity.methods.averaging.published.method import PublishedAveraging
from comity.privacy.ledger import Ledger
from comity.privacy.loss import Pure
from comity.privacy.randomness import SeededDraws
from comity.privacy.unit import Neighbours, Unit
from comity.study.local.channel import LocalChannel
from tests.support.channels import WholeLocal
from tests.support.consortia import WatchedJournal

STUDY = "a" * 64
NAMES = ("ash", "birch", "cedar", "doum", "elm")
_turns = count()


@lru_cache(maxsize=2)
def key_of_tests(which: int) -> bytes:
    return PrivateKey.generate(2048).to_bytes()


class QuickKeys(PublishedAveraging):
    """With two keys that serve all tests: the tables of a key cost more than the rest of a small run."""

    def _new_key(self) -> bytes:
        return key_of_tests(next(_turns) % 2)


class Recorded:
    """A party's seeded noise, with every draw kept."""

    seeded = True

    def __init__(self, party: str) -> None:
        self._source = SeededDraws(derive(b"published tests", party))
        self.drawn: list[np.ndarray] = []
        self.scales: list[float] = []

    def spherical(self, beta: float, shape: Any, *, permit: Any) -> np.ndarray:
        return self._keep(beta, self._source.spherical(beta, shape, permit=permit))

    def discrete_laplace(self, scale: float, shape: Any, *, permit: Any) -> np.ndarray:
        return self._keep(scale, self._source.discrete_laplace(scale, shape, permit=permit))

    def _keep(self, scale: float, drawn: np.ndarray) -> np.ndarray:
        self.scales.append(scale)
        self.drawn.append(drawn)
        return drawn


class Interrupted(Exception):
    """The coordinator's process ends here."""


class Mortal(WholeLocal):
    """Ends the coordinator before the ask of this number, or after it, when its replies are lost."""

    def __init__(self, hosts: Mapping[str, Host], die_at: int | None = None, *, after: bool = False) -> None:
        super().__init__(hosts)
        self.calibrations, self.die_at, self.after = 0, die_at, after

    def carry(self, messages: Mapping[str, bytes]) -> dict[str, bytes]:
        self.calibrations += 1
        dies = self.calibrations - 1 == self.die_at
        if dies and not self.after:
            raise Interrupted
        replies = super().carry(messages)
        if dies:
            raise Interrupted
        return replies


def records(size: int, width: int, seed: int) -> Records:
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(size, width))
    x /= np.maximum(1.0, np.linalg.norm(x, axis=1, keepdims=True))
    return Records(x, (x[:, 0] + 0.1 * generator.normal(size=size) > 0).astype(np.int64))


def make_consortium(size: int, epsilon: float = 1.0, **changes: Any) -> Consortium:
    names = NAMES[:size]
    terms: dict[str, Any] = {
        "loss": Pure(epsilon),
        "unit": Unit.RECORD,
        "neighbours": Neighbours.REPLACE,
        "colluders": 0,
        "roster": {name: identity(name).public for name in (COORDINATOR, *names)},
    }
    return Consortium(parties=names, **{**terms, **changes})


def identity(name: str) -> Identity:
    return Identity(derive(b"published tests", name))


@dataclass
class Meeting:
    """A consortium whose coordinator can be ended and begun again."""

    protocol: PublishedAveraging
    sizes: tuple[int, ...]
    epsilon: float = 1.0
    policy: Policy = SIMULATION
    folder: Path | None = None
    consortium: Consortium = field(init=False)
    noises: dict[str, Recorded] = field(init=False)
    hosts: dict[str, Host] = field(init=False)
    journal: Journal = field(init=False)

    def __post_init__(self) -> None:
        self.consortium = make_consortium(len(self.sizes), self.epsilon)
        self.noises = {name: Recorded(name) for name in self.consortium.parties}
        self.journal = WatchedJournal(None if self.folder is None else self.folder / "journal")
        self.open_sites()

    @property
    def agreement(self) -> Agreement:
        return Agreement(STUDY, self.protocol, self.consortium)

    def open_sites(self) -> None:
        self.hosts = {
            name: Host(
                self.agreement,
                name,
                records=records(size, self.protocol.width, place),
                keys=identity(name),
                store=Store(self._ledger(name), unit=self.consortium.unit, neighbours=self.consortium.neighbours),
                noise=cast(Any, self.noises[name]),
                policy=self.policy,
            )
            for place, (name, size) in enumerate(zip(self.consortium.parties, self.sizes, strict=True))
        }

    def _ledger(self, name: str) -> Ledger:
        terms: dict[str, Any] = {
            "unit": self.consortium.unit,
            "neighbours": self.consortium.neighbours,
            "grant": Pure(5),
        }
        if self.folder is None:
            return Ledger.in_memory(dataset=name, **terms)
        path = self.folder / f"{name}.ledger"
        return Ledger(path) if path.exists() else Ledger.create(path, dataset=name, **terms)

    def parties(self, channel: Channel | None = None, run: str = "run-1") -> Parties:
        return Parties(
            self.agreement,
            run=run,
            channel=channel or LocalChannel(self.hosts),
            journal=self.journal,
            keys=identity(COORDINATOR),
        )

    def spent(self, name: str) -> float:
        return float(self.hosts[name].store.ledger.summary()[0].spent.pure)

    def exact(self) -> np.ndarray:
        """The sum of the local models on the grid, computed in one place."""
        grid = self.protocol.noise_for(self.consortium).grid
        models = [
            self.protocol._fit(host.records.features, cast(Any, host.records.labels)) for host in self.hosts.values()
        ]
        found: np.ndarray = np.sum([np.rint(model / grid).astype(np.int64) for model in models], axis=0)
        return found


def observed(kind: type[PublishedAveraging], seen: Callable[[int], None]) -> type[PublishedAveraging]:
    """The same protocol, telling the test what the curator learns from stage 1, and ending there."""

    class Observed(kind):  # type: ignore[misc, valid-type]
        def select_noise(self, parties: Parties, place: int) -> np.ndarray:
            seen(place)
            raise Interrupted

    return Observed
