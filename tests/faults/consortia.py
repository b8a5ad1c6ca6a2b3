"""One small consortium per method: site files, keys, ledgers, records and an approved study, in folders.

A consortium is made once and copied for every run, because a run uses up approvals and ledgers.
"""

from __future__ import annotations

import shutil
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from comity.crypto import key_file
from comity.crypto.sealing import Identity
from comity.data import clinic_schema, clinics, public_cohort
from comity.privacy.ledger import Ledger
from comity.privacy.loss import Approx
from comity.privacy.unit import Neighbours, Unit
from comity.relay.sandbox import Loopback
from comity.site.pack import pack
from comity.site.service import SiteService
from comity.study.study import Study
from tests.report.small_studies import HOSPITAL, SURGERY
from tests.support.sites import approve, keys_table
from tests.support.witnesses import witnesses_in

RUN = "run-1"
COORDINATOR = "coordinator"
RECORDS = 12
_EPSILON, _GRANT = 2.0, 2000.0


@dataclass(frozen=True)
class Method:
    """The part of the study that depends on the method, and each party's columns if they differ."""

    protocol: str
    table: str
    parties: tuple[str, ...] = ("north", "south", "east")
    unit: Unit = Unit.RECORD
    dropouts: int = 0
    said_of: tuple[tuple[str, str], ...] = ()
    columns: tuple[tuple[str, ...], ...] = ()


_FOUR = ("north", "south", "east", "west")
_SUMMARY = (
    'auxiliary = "public.csv"\nrecords = 4\ndimensions = 20\n'
    f"sizes = {{ {', '.join(f'{name} = {RECORDS}' for name in _FOUR)} }}\n"
)
_ROLES = (*((name, 'role = "owner"\n') for name in _FOUR[:3]), (_FOUR[3], 'role = "consumer"\n'))

METHODS = {
    "averaging": Method(
        "averaging",
        f'model = "logistic"\nsolver = "gradient"\nrounds = 2\nrows = "normalised"\nsizes = {RECORDS}\n',
        parties=_FOUR,
        dropouts=1,
    ),
    "vertical": Method(
        "vertical",
        'solver = "quadratic"\nmax_rows = 256\n',
        parties=("north", "south"),
        said_of=(("north", f"columns = {list(HOSPITAL)}\n"), ("south", f"columns = {list(SURGERY)}\n")),
        columns=(HOSPITAL, SURGERY),
    ),
    "softlabel": Method(
        "softlabel",
        f'auxiliary = "public.csv"\nscaling = "normalised"\nsizes = {RECORDS}\n',
        unit=Unit.PARTY,
    ),
    "synthetic": Method("synthetic", "rows = 50\n"),
    "summary": Method("summary", _SUMMARY, parties=_FOUR, said_of=_ROLES),
    "auction": Method("summary", _SUMMARY + 'selection = "auction"\n', parties=_FOUR, said_of=_ROLES, dropouts=1),
}

_STUDY = """\
[study]
name = "{name}"
protocol = "{protocol}"
schema = "schema.toml"
[privacy]
unit = "{unit}"
neighbours = "replace"
epsilon = {epsilon}
delta = 1e-6
colluders = 1
dropouts = {dropouts}
[{protocol}]
{table}
"""
_SITE = """\
party = "{party}"
ledger = "{party}.ledger"
keys = "{party}.keys"
invitation = "{invitation}"
[data.visits]
source = "csv"
path = "visits.csv"
[policy]
protocols = ["{protocol}"]
epsilon_per_study = {epsilon}
delta_per_study = 1e-5
submitters = ["coordinator"]
sizes_may_leave = true
records_may_leave = true
[pinned.coordinator]
{pinned}
"""


@dataclass(frozen=True)
class Folder:
    """A consortium in a folder: `folder / NAME` is an owner's, `folder / "coordinator"` has the study."""

    folder: Path
    method: str

    @property
    def parties(self) -> tuple[str, ...]:
        return METHODS[self.method].parties

    @property
    def study(self) -> Study:
        return Study.load(self.study_file)

    @property
    def study_file(self) -> Path:
        return self.folder / COORDINATOR / "study.toml"

    @property
    def key_file(self) -> Path:
        return self.folder / COORDINATOR / "coordinator.key"

    @property
    def keys(self) -> Identity:
        return key_file.load(self.key_file)

    @property
    def journal(self) -> Path:
        return self.folder / COORDINATOR / "journal.sqlite"

    @property
    def loopback(self) -> Loopback:
        return Loopback(self.folder)

    def site(self, party: str) -> Path:
        return self.folder / party / "site.toml"

    def ledger(self, party: str) -> Ledger:
        return Ledger(self.folder / party / f"{party}.ledger")

    def copied(self, to: Path) -> Folder:
        shutil.copytree(self.folder, to)
        return Folder(to, self.method)

    def witnessed(self) -> AbstractContextManager[None]:
        """Keep what this machine remembers of the ledgers beside them, to copy both together."""
        return witnesses_in(self.folder / "home")


def _keys(path: Path) -> Identity:
    return key_file.load(path) if path.exists() else key_file.create(path)


def make(folder: Path, name: str, *, runs: int = 1, deployed: bool = False) -> Folder:
    """Make a consortium whose owners have approved so many runs of the study; admitted to a relay on loopback
    if it is to be deployed."""
    method, made = METHODS[name], Folder(folder, name)
    if deployed:
        Loopback.make(folder, method.parties)
    for member in (COORDINATOR, *method.parties):
        (folder / member).mkdir(parents=True, exist_ok=True)
    keys = _keys(made.key_file)
    pinned = [f"[coordinator.keys]\n{keys_table(keys)}"]
    said = dict(method.said_of)
    with made.witnessed():
        for party, records in _records(method).items():
            place = folder / party
            records.to_csv(place / "visits.csv", index=False)
            identity = _keys(place / f"{party}.keys")
            pinned.append(f"[parties.{party}]\n{said.get(party, '')}[parties.{party}.keys]\n{keys_table(identity)}")
            Ledger.create(
                place / f"{party}.ledger",
                dataset="visits",
                grant=Approx(_GRANT, 1e-5),
                unit=method.unit,
                neighbours=Neighbours.REPLACE,
            )
            text = _SITE.format(
                party=party,
                invitation=made.loopback.invitation if deployed else "consortium.toml",
                protocol=method.protocol,
                epsilon=_GRANT,
                pinned=keys_table(keys),
            )
            made.site(party).write_text(text)
        study = folder / COORDINATOR
        (study / "schema.toml").write_text(clinic_schema("readmitted").to_toml())
        public_cohort(20, "faults").to_csv(study / "public.csv", index=False)
        head = _STUDY.format(
            name=name,
            protocol=method.protocol,
            unit=method.unit,
            epsilon=_EPSILON,
            dropouts=method.dropouts,
            table=method.table,
        )
        made.study_file.write_text(head + "\n\n".join(pinned) + "\n")
        packed = pack(made.study, keys)
        for party in method.parties:
            service = SiteService(made.site(party))
            approve(service, service.take_in(packed), runs=runs)
    return made


def _records(method: Method) -> dict[str, pd.DataFrame]:
    visits = clinics(len(method.parties), RECORDS, "faults").values()
    if not method.columns:
        return dict(zip(method.parties, visits))
    together = pd.concat(visits, ignore_index=True)
    together["patient"] = [f"P{number:03d}" for number in range(len(together))]
    return {party: together[["patient", *columns]] for party, columns in zip(method.parties, method.columns)}
