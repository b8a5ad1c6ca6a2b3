"""A consortium in a folder: each owner has a site file, keys, a ledger and records."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from comity.crypto import key_file
from comity.crypto.sealing import Identity
from comity.data import clinic_schema, clinics
from comity.federation.coordinator.journal import Journal
from comity.federation.coordinator.lifecycle import execute
from comity.federation.coordinator.parties import Parties
from comity.privacy.ledger import Ledger
from comity.privacy.loss import Approx
from comity.privacy.unit import Neighbours, Unit
from comity.relay.deployment import connect_parties
from comity.site.approval import choose_dataset, preview_approval
from comity.site.inbox import Arrival
from comity.site.pack import pack as pack_study
from comity.site.service import SiteService
from comity.study.local.channel import LocalChannel
from comity.study.study import Study

NAMES = ("north", "south")
RECORDS = 40

STUDY = """\
[study]
name = "readmission"
protocol = "averaging"
schema = "schema.toml"

[privacy]
unit = "record"
epsilon = {epsilon}
delta = 1e-6

[averaging]
{table}

[simulation]
data = "/private/of/the/author.csv"
"""

SITE = """\
party = "{party}"
ledger = "{party}.ledger"
keys = "{party}.keys"
{top}
[data.patients]
source = "csv"
path = "patients.csv"

[policy]
protocols = ["averaging", "softlabel"]
variants = ["default"]
epsilon_per_study = 1.0
delta_per_study = 1e-5
submitters = ["coordinator"]
{policy}

[pinned.coordinator]
{pinned}
"""

TABLE = f'model = "logistic"\nsolver = "gradient"\nrounds = 1\nrows = "normalised"\nsizes = {RECORDS}'


@cache
def relay_certificate() -> str:
    """The certificate of a relay that nobody runs."""
    from comity.relay.certificate import create_certificate

    with tempfile.TemporaryDirectory() as folder:
        return create_certificate(Path(folder), "127.0.0.1")


def write_invitation(folder: Path, address: str = "tls://127.0.0.1:4222") -> str:
    """Write an invitation of that relay, at any address; returns the line of a site file that names it."""
    from comity.relay.invitation import INVITATION, Invitation

    (folder / INVITATION).write_text(Invitation(address, relay_certificate()).to_toml())
    return f'invitation = "{INVITATION}"\n'


def keys_table(identity: Identity) -> str:
    return "\n".join(f'{name} = "{text}"' for name, text in identity.public.to_texts().items())


@dataclass
class Sites:
    """All members' folders; `folder / NAME / site.toml` is an owner's site file."""

    folder: Path
    coordinator: Identity

    @classmethod
    def make(cls, folder: Path, *, grant: float = 3.0, names: tuple[str, ...] = NAMES, **written: Any) -> Sites:
        made = cls(folder, key_file.create(folder / "coordinator.key"))
        visits = clinics(len(names), RECORDS, "sites")
        for name, frame in zip(names, visits.values()):
            home = made.home(name)
            home.mkdir()
            key_file.create(home / f"{name}.keys")
            Ledger.create(
                home / f"{name}.ledger",
                dataset="patients",
                grant=Approx(grant, 1e-5),
                unit=Unit.RECORD,
                neighbours=Neighbours.REPLACE,
            )
            frame.to_csv(home / "patients.csv", index=False)
            made.write(name, **written)
        return made

    @classmethod
    def load(cls, folder: Path) -> Sites:
        return cls(folder, key_file.load(folder / "coordinator.key"))

    def home(self, name: str) -> Path:
        return self.folder / name

    def site(self, name: str) -> Path:
        return self.home(name) / "site.toml"

    def write(self, name: str, *, policy: str = "", top: str = "", submitter: Identity | None = None) -> None:
        pinned = keys_table(submitter or self.coordinator)
        self.site(name).write_text(SITE.format(party=name, policy=policy, top=top, pinned=pinned))

    def identity(self, name: str) -> Identity:
        return key_file.load(self.home(name) / f"{name}.keys")

    def study(
        self,
        *,
        epsilon: float = 0.9,
        table: str = TABLE,
        coordinator: Identity | None = None,
        names: tuple[str, ...] = NAMES,
        text: str = STUDY,
        at: str = "study",
    ) -> Study:
        folder = self.folder / at
        folder.mkdir(exist_ok=True)
        (folder / "schema.toml").write_text(clinic_schema("readmitted").to_toml())
        lines = [text.format(epsilon=epsilon, table=table)]
        lines += [f"[parties.{name}.keys]\n{keys_table(self.identity(name))}\n" for name in names]
        lines.append(f"[coordinator.keys]\n{keys_table(coordinator or self.coordinator)}\n")
        (folder / "study.toml").write_text("\n".join(lines))
        return Study.load(folder / "study.toml")

    def pack(self, study: Study, *, keys: Identity | None = None) -> bytes:
        return pack_study(study, keys or self.coordinator)

    def services(self, names: tuple[str, ...] = NAMES) -> dict[str, SiteService]:
        return {name: SiteService(self.site(name)) for name in names}


def approve(service: SiteService, arrival: Arrival, *, runs: int = 1, dataset: str | None = None) -> None:
    """Approve a study as `comity site approve` does after the owner answered yes."""
    name = choose_dataset(service.site, dataset)
    preview_approval(service.site, service.site.owner(), service.inbox.study(arrival.study), dataset=name, runs=runs)
    service.inbox.approve(arrival.study, dataset=name, runs=runs)


def connect_services(
    study: Study, services: Any, keys: Identity, *, run: str = "run-1", journal: Journal | None = None, **more: Any
) -> Parties:
    """Connect a coordinator to services in this process; `execute` then runs the study."""
    channel = LocalChannel(services)
    return connect_parties(study, run=run, channel=channel, journal=journal or Journal(), keys=keys, **more)


__all__ = ["NAMES", "STUDY", "TABLE", "Sites", "approve", "connect_services", "execute", "keys_table"]
