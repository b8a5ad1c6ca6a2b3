"""Consortia in one process: identities, hosts with stores and ledgers, and a coordinator over them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from comity.crypto.sealing import Identity, PublicIdentity
from comity.data import LocalRecords, Records
from comity.entropy import derive
from comity.federation.agreement import Agreement
from comity.federation.coordinator.journal import Exchange, Journal
from comity.federation.coordinator.parties import Parties
from comity.federation.declare.consortium import COORDINATOR, Consortium
from comity.federation.declare.policy import SIMULATION, Policy
from comity.federation.messages.channel import Channel
from comity.federation.owner.host import Host
from comity.federation.owner.store import Store
from comity.privacy.currency import Currency
from comity.privacy.ledger import Ledger, currency_for
from comity.privacy.loss import ZCDP, Approx, Loss, Pure
from comity.privacy.randomness import ReleasedNoise
from comity.privacy.unit import Neighbours, Unit

from .channels import LossyChannel

STUDY = "5" * 64
RUN = "run-1"
NAMES = ("ash", "birch", "cedar", "doum", "elm")


def make_identity(name: str) -> Identity:
    return Identity(derive(b"test identity", name))


def make_roster(names: Iterable[str]) -> dict[str, PublicIdentity]:
    """The pinned keys of these parties and of the coordinator."""
    return {name: make_identity(name).public for name in (COORDINATOR, *names)}


def make_consortium(
    parties: int | Sequence[str] = 5,
    loss: Loss | None = None,
    *,
    unit: Unit = Unit.RECORD,
    neighbours: Neighbours = Neighbours.REPLACE,
    dropouts: int = 1,
    colluders: int = 1,
) -> Consortium:
    """A consortium of these parties, or of so many, whose keys are pinned."""
    names = NAMES[:parties] if isinstance(parties, int) else tuple(parties)
    return Consortium(
        parties=names,
        loss=loss or ZCDP(0.15),
        unit=unit,
        neighbours=neighbours,
        colluders=colluders,
        dropouts=dropouts,
        roster=make_roster(names),
    )


def make_records(name: str, columns: int = 3) -> Records:
    generator = np.random.default_rng(sum(map(ord, name)))
    return Records(generator.uniform(-1, 1, (20, columns)), generator.integers(0, 2, 20))


def make_ledger(folder: Path | None, name: str, epsilon: float = 5.0, losses: Sequence[Any] = ()) -> Ledger:
    """A ledger with a grant of ε, in a file of the folder or in memory. A file that is there is opened."""
    grant: Pure | Approx = Approx(epsilon, 1e-6)
    terms: dict[str, Any] = {"dataset": name, "unit": Unit.RECORD, "neighbours": Neighbours.REPLACE}
    if losses:
        terms["currency"] = currency_for(losses, grant)
        grant = Pure(epsilon) if terms["currency"] is Currency.PURE else grant
    if folder is None:
        return Ledger.in_memory(grant=grant, **terms)
    path = folder / f"{name}.ledger"
    return Ledger(path) if path.exists() else Ledger.create(path, grant=grant, **terms)


def make_open_ledger(name: str, consortium: Consortium) -> Ledger:
    """A ledger in memory that has no limit."""
    return Ledger.in_memory(dataset=name, unit=consortium.unit, neighbours=consortium.neighbours)


def make_host(
    agreement: Agreement,
    name: str,
    records: LocalRecords | Callable[[], LocalRecords],
    ledger: Ledger,
    *,
    noise: Any = None,
    policy: Policy = SIMULATION,
    local: Callable[..., Any] | None = None,
) -> Host:
    consortium = agreement.consortium
    return Host(
        agreement,
        name,
        records=records,
        keys=make_identity(name),
        store=Store(ledger, unit=consortium.unit, neighbours=consortium.neighbours),
        noise=noise or ReleasedNoise(),
        policy=policy,
        local=local,
    )


def make_hosts(
    agreement: Agreement,
    records: Mapping[str, LocalRecords],
    *,
    noise: Any = None,
    liars: Mapping[str, Agreement] | None = None,
) -> dict[str, Host]:
    """A host of each party, with a ledger that has no limit. `liars` have another agreement than the study says."""
    return {
        name: make_host(
            (liars or {}).get(name, agreement),
            name,
            records[name],
            make_open_ledger(name, agreement.consortium),
            noise=noise,
        )
        for name in agreement.consortium.parties
    }


def make_parties(
    agreement: Agreement,
    hosts: Mapping[str, Host],
    folder: Path | None = None,
    *,
    lose: Iterable[tuple[str, str]] = (),
    noise: Any = None,
    run: str = RUN,
    channel: Channel | None = None,
) -> Parties:
    """The coordinator's side of a run over these hosts. Its journal keeps what crossed."""
    return Parties(
        agreement,
        run=run,
        channel=channel or LossyChannel(hosts, lose),
        journal=WatchedJournal(None if folder is None else folder / "journal"),
        keys=make_identity(COORDINATOR),
        noise=noise,
    )


class WatchedJournal(Journal):
    """A journal that shows what crossed after the run is over, when the product's journal has deleted it."""

    def __init__(self, path: Path | str | None = None) -> None:
        super().__init__(path)
        self.crossed: dict[str, dict[str, dict[str, Exchange]]] = {}

    def settle(self, study: str, run: str, *, keeping: Iterable[str] = ()) -> None:
        self.crossed.setdefault(run, {}).update(super().traffic(study, run))
        super().settle(study, run, keeping=keeping)

    def traffic(self, study: str, run: str) -> Iterable[tuple[str, dict[str, Exchange]]]:
        return list({**self.crossed.get(run, {}), **dict(super().traffic(study, run))}.items())


def list_draws(host: Host) -> list[tuple[str, int | None]]:
    """Release and index of everything that a site has drawn, which is what its ledger was debited for."""
    return [(entry.release, entry.index) for entry in host.store.ledger.entries() if entry.kind == "draw"]


def summarise_accounts(hosts: Mapping[str, Host]) -> dict[str, list[str]]:
    """The accounts of each party's ledger, as text."""
    return {name: [str(one) for one in host.store.ledger.summary()] for name, host in hosts.items()}
