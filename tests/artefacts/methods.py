"""Methods of a few lines that present what is no model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from comity.artefacts.artefact import Artefact
from comity.artefacts.dataset import Dataset
from comity.artefacts.section import Bar, Bars, Grid, Section
from comity.artefacts.table import Table
from comity.data import Categorical, Numeric, Records, Schema
from comity.federation.declare.bounds import Ball
from comity.federation.declare.consortium import COORDINATOR, EVERY_PARTY, EVERYONE
from comity.federation.declare.declaration import Declaration, Release
from comity.federation.declare.protection import Derived, Noised, Summed
from comity.federation.declare.release import Array
from comity.federation.evaluation.assessment import Assessment, Figure
from comity.federation.protocol import Protocol, step
from comity.privacy.accounting import gaussian_budget
from comity.privacy.mechanisms.gaussian import Gaussian

SCHEMA = Schema((Numeric("age", 0, 100), Categorical("sex", ("f", "m"))))


@dataclass(frozen=True, kw_only=True)
class Drawn(Protocol):
    """A mean, and records drawn around it: as much of a dataset as fits on a screen."""

    name = "drawn"
    as_table: bool = False

    def declare(self, consortium: Any) -> Declaration:
        noise = Gaussian(gaussian_budget(consortium.loss))
        return Declaration(
            (
                Release(
                    name="total",
                    source=EVERY_PARTY,
                    to=COORDINATOR,
                    protection=Summed(noise),
                    form=Array((2,), "<i8"),
                    bound=Ball(radius=1.0),
                ),
                Release(name="mean", source=COORDINATOR, to=EVERYONE, protection=Derived("total"), form=Array((2,))),
            ),
            adversary="an honest-but-curious coordinator",
        )

    def coordinate(self, parties: Any) -> Any:
        total = parties.sum(self.add)
        return {"mean": total.value / total.parties}

    @step(sends="total", stacked=True)
    def add(self, site: Any) -> None:
        site.contribute(site.features.mean(axis=-2))

    def present(self, released: Any, consortium: Any) -> Artefact:
        mean = float(np.clip(released["mean"][0], 0, 1))
        if self.as_table:
            return Table(("column", "mean"), (("age", mean), ("sex", None)), "Means of the columns")
        ages = [round(100 * mean), round(50 * mean)]
        return Dataset(pd.DataFrame({"age": ages, "sex": ["f", "m"]}), SCHEMA)

    def assess(self, presented: Any, train: Any, test: Any) -> Assessment:
        found = float(np.mean(presented.frame["age"])) if isinstance(presented, Dataset) else 0.0
        return Assessment(
            figures=(Figure("mean age", found, "in years"),),
            sections=(
                Section(
                    "Fidelity <of> the dataset",
                    ("Marginals agree.",),
                    (Bars("Distances", "total variation", (Bar("age", 0.1), Bar("sex", 0.2, ours=True))),),
                    (Grid(("column", "distance"), (("age", 0.1), ("sex", None)), "Smaller is better."),),
                ),
            ),
        )


@dataclass(frozen=True, kw_only=True)
class Leaving(Drawn):
    """Leaves each party its own mean."""

    @step(sends="total")
    def add(self, site: Any) -> None:
        site.deliver("own-mean", site.features.mean(axis=-2))
        site.contribute(site.features.mean(axis=-2))


@dataclass(frozen=True, kw_only=True)
class Entrusting(Drawn):
    """Without a secure sum, for many hosts in a moment."""

    def declare(self, consortium: Any) -> Any:
        declared = super().declare(consortium)
        total, mean = declared.releases
        assert total.noise is not None
        return replace(declared, releases=(replace(total, protection=Noised(total.noise)), mean))


def records(count: int, rows: int = 4) -> dict[str, Records]:
    return {f"p{k}": Records(np.full((rows, 2), (k + 1) / (2 * count))) for k in range(count)}
