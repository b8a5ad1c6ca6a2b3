"""`Rounds`, a small protocol whose sums depend on earlier ones, and runs of any protocol over hosts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from comity.federation.agreement import Agreement
from comity.federation.coordinator.parties import Parties
from comity.federation.declare.bounds import Ball
from comity.federation.declare.consortium import COORDINATOR, EVERY_PARTY, EVERYONE, Consortium
from comity.federation.declare.declaration import Declaration, Release
from comity.federation.declare.policy import SIMULATION, Policy
from comity.federation.declare.protection import Derived, Noised, Summed
from comity.federation.declare.release import Array
from comity.federation.owner.host import Host
from comity.federation.owner.site import Site
from comity.federation.protocol import Protocol, step
from comity.privacy.loss import ZCDP
from comity.privacy.mechanisms.gaussian import Gaussian

from .asks import ask_and_decode
from .consortia import RUN, STUDY, make_consortium, make_host, make_ledger, make_parties, make_records


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


def host_party(
    protocol: Protocol,
    consortium: Consortium,
    name: str,
    folder: Path | None = None,
    *,
    noise: Any = None,
    policy: Policy = SIMULATION,
    epsilon: float = 5.0,
) -> Host:
    """A host of one party, with records and a ledger of its own name."""
    agreement = Agreement(STUDY, protocol, consortium)
    losses = [release.loss for release in agreement.declaration.paid_by(name, consortium) if release.times]
    ledger = make_ledger(folder, name, epsilon, losses)
    return make_host(agreement, name, make_records(name), ledger, noise=noise, policy=policy)


def begin_host(
    protocol: Protocol | None = None, consortium: Consortium | None = None, folder: Path | None = None, **options: Any
) -> Host:
    """The host of ash, where a run has begun; by default of `Rounds` with noise at the site."""
    host = host_party(protocol or Rounds(protection=Noised), consortium or make_consortium(), "ash", folder, **options)
    assert "ok" in ask_and_decode(host, "run.begin[0]")
    return host


def set_up_run(
    protocol: Protocol | None = None,
    consortium: Consortium | None = None,
    folder: Path | None = None,
    *,
    lose: Iterable[tuple[str, str]] = (),
    noise: Any = None,
    run: str = RUN,
    epsilon: float = 5.0,
    hosts: dict[str, Host] | None = None,
) -> tuple[Parties, dict[str, Host]]:
    """A coordinator and the hosts of all parties, by default of `Rounds` and five parties."""
    protocol, consortium = protocol or Rounds(), consortium or make_consortium()
    if hosts is None:
        hosts = {
            name: host_party(protocol, consortium, name, folder, noise=noise, epsilon=epsilon)
            for name in consortium.parties
        }
    agreement = Agreement(STUDY, protocol, consortium)
    return make_parties(agreement, hosts, folder, lose=lose, noise=noise, run=run), hosts
