"""Owners of different columns of the same people: their sites, a study that trains a model, and new people to score."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from comity.crypto import key_file
from comity.privacy.ledger import Ledger
from comity.privacy.loss import Approx
from comity.privacy.unit import Neighbours, Unit
from comity.site.service import SiteService
from comity.study.prediction import write_prediction
from comity.study.study import Study
from tests.support.sites import Sites, approve, connect_services, execute, keys_table
from tests.support.vertical import make_people, make_schema

HELD = {"north": ["age", "sick"], "south": ["place", "sex"], "west": ["dose"]}
NEW = 40
RUN = "trained-1"

STUDY = """\
[study]
name = "sickness"
protocol = "vertical"
schema = "schema.toml"

[privacy]
unit = "record"
epsilon = 2.0
delta = 1e-5

[vertical]
solver = "quadratic"
products = "dealer"
max_rows = 4096
"""

SITE = """\
party = "{party}"
ledger = "{party}.ledger"
keys = "{party}.keys"
{relay}
[data.patients]
source = "csv"
path = "patients.csv"

[data.new]
source = "csv"
path = "new.csv"

[policy]
protocols = ["vertical"]
epsilon_per_study = 2.1
delta_per_study = 1e-5
submitters = ["coordinator"]
sizes_may_leave = true
joint_predictions = {allowed}
{more}
[pinned.coordinator]
{pinned}
"""


@dataclass
class ColumnSites(Sites):
    """`new` are the new people. Each owner has its columns of them, in another order."""

    names: tuple[str, ...] = tuple(HELD)

    @classmethod
    def make_columns(cls, folder: Path, names: tuple[str, ...] = tuple(HELD)) -> ColumnSites:
        folder.mkdir(exist_ok=True)
        made = cls(folder, key_file.create(folder / "coordinator.key"), names)
        for place, name in enumerate(names):
            home = made.home(name)
            home.mkdir(exist_ok=True)
            key_file.create(home / f"{name}.keys")
            kept: dict[str, Any] = {"unit": Unit.RECORD, "neighbours": Neighbours.REPLACE}
            ledger = Ledger.create(home / f"{name}.ledger", dataset="patients", grant=Approx(9.0, 1e-5), **kept)
            ledger.add_dataset(dataset="new", grant=Approx(0.1, 1e-5), **kept)
            held = ["person", *made.held(name)]
            make_people(300)[held].to_csv(home / "patients.csv", index=False)
            fresh = made.new.drop(columns="sick").sample(frac=1, random_state=place)
            fresh[[column for column in held if column != "sick"]].to_csv(home / "new.csv", index=False)
            made.terms(name)
        return made

    @property
    def new(self) -> Any:
        return make_people(NEW, seed=9)

    def held(self, name: str) -> list[str]:
        """With two owners, the second one holds what a third would."""
        mine = HELD[name]
        return mine if len(self.names) > 2 or name == "north" else [*mine, *HELD["west"]]

    def terms(self, name: str, *, allowed: int = NEW, more: str = "", relay: str = "") -> None:
        pinned = keys_table(self.coordinator)
        text = SITE.format(party=name, allowed=allowed, more=more, pinned=pinned, relay=relay)
        self.site(name).write_text(text)

    def training_study(self) -> Study:
        folder = self.folder / "study"
        folder.mkdir(exist_ok=True)
        (folder / "schema.toml").write_text(make_schema(identifier=True).to_toml())
        lines = [STUDY]
        for name in self.names:
            lines += [f"[parties.{name}]", f"columns = {self.held(name)!r}".replace("'", '"')]
            lines += [f"[parties.{name}.keys]", keys_table(self.identity(name)), ""]
        lines += ["[coordinator.keys]", keys_table(self.coordinator), ""]
        (folder / "study.toml").write_text("\n".join(lines))
        return Study.load(folder / "study.toml")

    def train(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Run that study between services in this process, and return the released weights."""
        study, services = self.training_study(), self.services()
        for service in services.values():
            approve(service, service.take_in(self.pack(study)), dataset="patients")
        return np.asarray(execute(connect_services(study, services, self.coordinator, run=RUN))[0]["model"])

    def prediction(self, coef: Any, *, records: int = NEW, receiver: str | None = "north", run: str = RUN) -> Study:
        named = {"run": run, "coef": coef, "records": records, "receiver": receiver}
        return Study.load(
            write_prediction(self.training_study(), **named, folder=self.folder / f"predict-{records}-{receiver}")
        )

    def services(self, names: tuple[str, ...] = ()) -> dict[str, SiteService]:
        return super().services(names or self.names)
