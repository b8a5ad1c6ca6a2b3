"""Small protocols and a consortium around them, for tests of the core."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from comity.crypto.sealing import Identity
from comity.data import Records
from comity.entropy import derive
from comity.errors import ComityError
from comity.federation.agreement import Agreement
from comity.federation.coordinator.journal import Exchange, Journal
from comity.federation.coordinator.lifecycle import begin, run
from comity.federation.coordinator.parties import Parties
from comity.federation.declare.bounds import Ball
from comity.federation.declare.consortium import COORDINATOR, EVERY_PARTY, EVERYONE, Consortium
from comity.federation.declare.declaration import Declaration, Release
from comity.federation.declare.policy import SIMULATION, Policy
from comity.federation.declare.protection import Derived, Noised, Summed
from comity.federation.declare.release import Array
from comity.federation.messages.codec import decode, encode
from comity.federation.messages.signatures import SIGNATURE_BYTES, sign_value, verify_reply
from comity.federation.owner.host import Host
from comity.federation.owner.site import Site
from comity.federation.owner.store import Store
from comity.federation.protocol import Protocol, step
from comity.privacy.currency import Currency
from comity.privacy.ledger import Ledger, currency_for
from comity.privacy.loss import ZCDP, Approx, Pure
from comity.privacy.mechanisms.gaussian import Gaussian
from comity.privacy.randomness import ReleasedNoise
from comity.privacy.unit import Neighbours, Unit
from tests.support.asks import sign_ask

from .channels import Whole

STUDY = "5" * 64
NONCE = bytes(32)


@dataclass(frozen=True)
class Rounds(Protocol):
    """A noisy mean, then steps towards the median: sums that depend on earlier ones."""

    name = "rounds"
    columns: int = 3
    rounds: int = 2
    protection: type = Summed

    def declare(self, consortium: Consortium) -> Declaration:
        noise = Gaussian(ZCDP(0.05))
        bound = Ball(float(np.sqrt(self.columns)))
        shape = (self.columns,)

        def part(name: str, times: int) -> Release:
            return Release(
                name=name,
                source=EVERY_PARTY,
                to=COORDINATOR,
                protection=self.protection(noise),
                form=Array(shape, "<i8"),
                bound=bound,
                times=times,
            )

        return Declaration(
            (
                part("mean", 1),
                Release(
                    name="centre", source=COORDINATOR, to=EVERY_PARTY, protection=Derived("mean"), form=Array(shape)
                ),
                part("slope", self.rounds),
                Release(name="result", source=COORDINATOR, to=EVERYONE, protection=Derived("slope"), form=Array(shape)),
            ),
            adversary=f"an honest-but-curious coordinator with up to {consortium.colluders} parties",
        )

    def coordinate(self, parties: Parties) -> dict[str, Any]:
        first = parties.sum(self.average)
        centre = first.value / first.parties
        for _ in range(self.rounds):
            slope = parties.sum(self.lean, centre=centre)
            centre = centre + 0.1 * slope.value / slope.parties
        return {"result": centre}

    @step(sends="mean", stacked=True)
    def average(self, site: Site) -> None:
        site.contribute(site.features.mean(axis=-2))

    @step(sends="slope", stacked=True)
    def lean(self, site: Site, centre: np.ndarray) -> None:
        site.contribute(np.sign(site.features - centre).mean(axis=-2))


class LossyChannel(Whole):
    """Loses a party for good when a chosen step is asked of it."""

    def __init__(self, hosts: Mapping[str, Host], lose: Iterable[tuple[str, str]] = ()) -> None:
        self.hosts = hosts
        self.lose = set(lose)
        self.lost: set[str] = set()
        self.asked: list[tuple[str, bytes]] = []
        self.refusals: dict[str, ComityError] = {}

    def carry(self, messages: Mapping[str, bytes]) -> dict[str, bytes]:
        replies = {}
        for party, message in messages.items():
            self.asked.append((party, message))
            if (party, path_of(message)) in self.lose:
                self.lost.add(party)
            if party not in self.lost:
                answer = self.hosts[party].answer(message)
                replies[party] = answer.reply
                if answer.refusal is not None:
                    self.refusals[party] = answer.refusal
        return replies


class Watched(Journal):
    """A journal that shows what crossed after the run is over, when the one of the product has deleted it."""

    def __init__(self, path: Path | str | None = None) -> None:
        super().__init__(path)
        self.crossed: dict[str, dict[str, dict[str, Exchange]]] = {}

    def settle(self, study: str, run: str, *, keeping: Iterable[str] = ()) -> None:
        self.crossed.setdefault(run, {}).update(super().traffic(study, run))
        super().settle(study, run, keeping=keeping)

    def traffic(self, study: str, run: str) -> Iterable[tuple[str, dict[str, Exchange]]]:
        return list({**self.crossed.get(run, {}), **dict(super().traffic(study, run))}.items())


NAMES = ("ash", "birch", "cedar", "doum", "elm")


def make_consortium(size: int = 5, *, dropouts: int = 1, colluders: int = 1) -> Consortium:
    names = NAMES[:size]
    return Consortium(
        parties=names,
        loss=ZCDP(0.15),
        unit=Unit.RECORD,
        neighbours=Neighbours.REPLACE,
        colluders=colluders,
        dropouts=dropouts,
        roster={name: identity(name).public for name in (COORDINATOR, *names)},
    )


def identity(name: str) -> Identity:
    return Identity(derive(b"test identity", name))


def path_of(message: bytes) -> str:
    """Which step a signed message asks for."""
    return str(decode(message[:-SIGNATURE_BYTES])[2])


def answer(host: Host, ask: bytes) -> bytes:
    """The reply of a site to an ask that the coordinator signs."""
    raw = sign_ask(identity(COORDINATOR), host.party, ask)
    return verify_reply(identity(host.party).public, host.party, raw, host.answer(raw).reply)


def signature(name: str, path: str, value: Any, *, study: str = STUDY, run: str = "run-1") -> bytes:
    """The coordinator's signature on a value that it releases."""
    return sign_value(identity(COORDINATOR), study, run, name, path, encode(value))


def ask_for(
    path: str,
    *,
    study: str = STUDY,
    run: str = "run-1",
    mail: Any = (),
    nonce: bytes = NONCE,
    seen: Any = (),
    own: Any = None,
    **values: Any,
) -> bytes:
    """An ask as the coordinator writes it."""
    if path == "run.begin[0]":
        values = {"coordinator_key": identity(COORDINATOR).public.sealing(), **values}
    if path == "run.end[0]":
        said = values.get("released", {})
        signed = {name: {path: signature(name, path, value, study=study, run=run)} for name, value in said.items()}
        values = {"released": {}, "yours": b"", "signed": signed, **values}
    return encode([study, run, path, encode(values), encode(own or {}), list(mail), nonce, list(seen)])


def records(name: str, columns: int = 3) -> Records:
    generator = np.random.default_rng(sum(map(ord, name)))
    return Records(generator.uniform(-1, 1, (20, columns)), generator.integers(0, 2, 20))


def ledger(folder: Path | None, name: str, epsilon: float = 5.0, losses: Sequence[Any] = ()) -> Ledger:
    grant: Pure | Approx = Approx(epsilon, 1e-6)
    terms: dict[str, Any] = {"dataset": name, "unit": Unit.RECORD, "neighbours": Neighbours.REPLACE}
    if losses:
        terms["currency"] = currency_for(losses, grant)
        grant = Pure(epsilon) if terms["currency"] is Currency.PURE else grant
    if folder is None:
        return Ledger.in_memory(grant=grant, **terms)
    path = folder / f"{name}.ledger"
    return Ledger(path) if path.exists() else Ledger.create(path, grant=grant, **terms)


def host(
    protocol: Protocol,
    consortium: Consortium,
    name: str,
    folder: Path | None = None,
    *,
    noise: Any = None,
    policy: Policy = SIMULATION,
    epsilon: float = 5.0,
) -> Host:
    agreement = Agreement(STUDY, protocol, consortium)
    losses = [release.loss for release in agreement.declaration.paid_by(name, consortium) if release.times]
    return Host(
        agreement,
        name,
        records=records(name),
        keys=identity(name),
        store=Store(ledger(folder, name, epsilon, losses), unit=consortium.unit, neighbours=consortium.neighbours),
        noise=noise or ReleasedNoise(),
        policy=policy,
    )


def setup(
    protocol: Protocol | None = None,
    consortium: Consortium | None = None,
    folder: Path | None = None,
    *,
    lose: Iterable[tuple[str, str]] = (),
    noise: Any = None,
    run: str = "run-1",
    epsilon: float = 5.0,
    hosts: dict[str, Host] | None = None,
) -> tuple[Parties, dict[str, Host]]:
    protocol, consortium = protocol or Rounds(), consortium or make_consortium()
    if hosts is None:
        hosts = {
            name: host(protocol, consortium, name, folder, noise=noise, epsilon=epsilon) for name in consortium.parties
        }
    journal = Watched(None if folder is None else folder / "journal")
    channel = LossyChannel(hosts, lose)
    keys = identity(COORDINATOR)
    agreement = Agreement(STUDY, protocol, consortium)
    return Parties(agreement, run=run, channel=channel, journal=journal, keys=keys, noise=noise), hosts


__all__ = [
    "NAMES",
    "NONCE",
    "STUDY",
    "LossyChannel",
    "Noised",
    "Rounds",
    "Watched",
    "answer",
    "ask_for",
    "begin",
    "host",
    "identity",
    "make_consortium",
    "path_of",
    "run",
    "setup",
]
