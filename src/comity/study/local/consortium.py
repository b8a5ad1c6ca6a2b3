"""A consortium in this process: a host for each party, the channel to them, and the coordinator.

Hosts, policies, seals and masks are those of a deployment. What is simulated is that one person is every participant.
Randomness is fresh, as in a release, or repeatable from a seed, which protects nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from comity.artefacts.artefact import Artefact
from comity.crypto.sealing import Identity
from comity.data import LocalRecords
from comity.entropy import derive, fresh_seed
from comity.errors import Refused, Stopped
from comity.federation.agreement import Agreement
from comity.federation.coordinator.journal import Journal
from comity.federation.coordinator.lifecycle import execute
from comity.federation.coordinator.parties import Parties, Progress
from comity.federation.declare.consortium import COORDINATOR
from comity.federation.declare.policy import SIMULATION, Policy
from comity.federation.messages.received import Received
from comity.federation.owner.host import Host
from comity.federation.owner.store import Store
from comity.learn.local_models import LocalModel
from comity.privacy.ledger import Ledger
from comity.privacy.randomness import NoiseSource, ReleasedNoise, SeededDraws
from comity.study.local.channel import LocalChannel


def noise_source(seed: int | None, owner: str) -> NoiseSource:
    if seed is None:
        return ReleasedNoise()
    return SeededDraws(derive(secret_of(seed), "noise", owner))


def holdout_key_source(seed: int | None, party: str) -> Callable[[], bytes]:
    """How a party gets the key by which it holds records out."""
    return fresh_seed if seed is None else partial(derive, secret_of(seed), "set aside", party)


def secret_of(seed: int | None) -> bytes:
    return fresh_seed() if seed is None else seed.to_bytes(16, "big", signed=True)


def new_run_id(clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> str:
    return f"{clock():%Y-%m-%d}-{fresh_seed()[:4].hex()}"


OpenLedger = Callable[[str], Ledger]
"""How the ledger of a party is opened."""


@dataclass(frozen=True, eq=False)
class LocalConsortium:
    hosts: Mapping[str, Host]
    channel: LocalChannel
    coordinator: Parties

    @classmethod
    def create(
        cls,
        agreement: Agreement,
        records: Mapping[str, LocalRecords],
        *,
        run: str,
        ledgers: OpenLedger,
        seed: int | None = None,
        models: Mapping[str, LocalModel] | None = None,
        policies: Mapping[str, Policy] | None = None,
        journal: Path | None = None,
        progress: Progress | None = None,
    ) -> LocalConsortium:
        """The participants of one run. A party without a policy allows everything."""
        # Derived from the study's hash: a resumed run meets the same participants, whatever keys the study pins.
        names = (COORDINATOR, *agreement.consortium.parties)
        keys = {name: Identity(derive(agreement.study.encode(), "simulated identity", name)) for name in names}
        noise = {name: noise_source(seed, name) for name in names}
        roster = {name: identity.public for name, identity in keys.items()}
        pinned = replace(agreement, consortium=replace(agreement.consortium, roster=roster))
        consortium = pinned.consortium
        hosts = {
            party: Host(
                pinned,
                party,
                records=records[party],
                keys=keys[party],
                store=Store(ledgers(party), unit=consortium.unit, neighbours=consortium.neighbours),
                noise=noise[party],
                policy=(policies or {}).get(party, SIMULATION),
                local=(models or {}).get(party),
                holdout_key=holdout_key_source(seed, party),
            )
            for party in consortium.parties
        }
        channel = LocalChannel(hosts)
        coordinator = Parties(
            pinned,
            run=run,
            channel=channel,
            journal=Journal(journal),
            keys=keys[COORDINATOR],
            noise=noise[COORDINATOR],
            progress=progress,
        )
        return cls(hosts, channel, coordinator)

    def execute(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Run the protocol: what it releases at the end, and what was released on the way. A party's refusal has the
        sentence that its owner reads: here both are one person."""
        try:
            return execute(self.coordinator)
        except (Refused, Stopped) as error:
            if error.party in self.channel.refusals:
                raise self.channel.refusals[error.party] from error
            raise

    def received(self, party: str) -> Received:
        """What a party has of the run after its end."""
        return self.hosts[party].received(self.coordinator.run)

    def present_own(self, parties: Iterable[str] | None = None) -> dict[str, Mapping[str, Artefact]]:
        """What these parties keep at their sites, or all of them: artefacts that nobody else has."""
        agreement = self.coordinator.agreement
        return {
            party: agreement.protocol.present_own(self.received(party).own, agreement.consortium)
            for party in (self.hosts if parties is None else parties)
        }
