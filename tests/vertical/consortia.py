"""Small vertical consortia: two to four owners of columns of the same generated people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from comity.crypto.sealing import Identity
from comity.data import Bounded, Categorical, Classes, Numeric, Records, Schema
from comity.entropy import derive
from comity.federation.agreement import Agreement
from comity.federation.coordinator.parties import Parties
from comity.federation.declare.consortium import COORDINATOR, Consortium
from comity.federation.declare.policy import SIMULATION
from comity.federation.owner.host import Host
from comity.federation.owner.store import Store
from comity.methods.vertical import Vertical, VerticalRegression
from comity.methods.vertical.published.protocol import PublishedVertical
from comity.privacy.ledger import Ledger
from comity.privacy.loss import Approx, Loss, Pure
from comity.privacy.unit import Neighbours, Unit
from comity.study.local.channel import LocalChannel
from tests.federation.toy import STUDY, Watched

HELD = {
    2: {"ash": ("age", "sick"), "birch": ("place", "dose", "sex")},
    3: {"ash": ("age", "place"), "birch": ("sick", "sex"), "cedar": ("dose",)},
    4: {"ash": ("age",), "birch": ("place",), "cedar": ("dose", "sick"), "doum": ("sex",)},
}


def schema(*, linear: bool = False, identifier: bool = False) -> Schema:
    target = Bounded("sick", 0, 10) if linear else Classes("sick", ("no", "yes"))
    return Schema(
        (
            Numeric("age", 0, 100),
            Categorical("place", ("town", "farm", "sea")),
            Numeric("dose", -1, 1),
            Categorical("sex", ("f", "m")),
        ),
        target,
        "person" if identifier else None,
    )


def people(rows: int, *, seed: int = 0, linear: bool = False) -> pd.DataFrame:
    generator = np.random.default_rng(seed)
    age, dose = generator.uniform(0, 100, rows), generator.uniform(-1, 1, rows)
    place, sex = generator.integers(0, 3, rows), generator.integers(0, 2, rows)
    score = 0.04 * (age - 50) - dose + (place == 1) - 0.5 * sex + 0.7 * generator.normal(size=rows)
    return pd.DataFrame(
        {
            "person": [f"id{number}" for number in range(rows)],
            "age": age,
            "place": np.array(["town", "farm", "sea"])[place],
            "dose": dose,
            "sex": np.array(["f", "m"])[sex],
            "sick": np.clip(5 + score, 0, 10) if linear else np.where(score > 0, "yes", "no"),
        }
    )


def protocol(parties: int = 2, *, linear: bool = False, identifier: bool = False, **options: Any) -> VerticalRegression:
    given = {"solver": "quadratic", "max_rows": 1 << 14, **options}
    return Vertical.over_columns(schema=schema(linear=linear, identifier=identifier), columns=HELD[parties], **given)


def build_published(of: Schema, columns: Mapping[str, tuple[str, ...]], *, max_rows: int) -> PublishedVertical:
    method = Vertical(of, columns=columns, variant="published", max_rows=max_rows)
    built = method.study(list(columns), epsilon=1).protocol
    assert isinstance(built, PublishedVertical)
    return built


def make_consortium(tried: Any, loss: Loss | None = None, *, colluders: int = 1) -> Consortium:
    names = tuple(tried.columns)
    pure = getattr(tried, "pure", True)
    return Consortium(
        parties=names,
        loss=loss or (Pure(1) if pure else Approx(1, 1e-5)),
        unit=Unit.RECORD,
        neighbours=Neighbours.REPLACE,
        colluders=colluders,
        roster={name: Identity(derive(b"test identity", name)).public for name in (*names, COORDINATOR)},
    )


def parts(tried: Any, frame: pd.DataFrame) -> dict[str, Records]:
    return {party: tried.encoding_of(party).encode(frame).records for party in tried.columns}


def hosted(
    tried: Any, records: dict[str, Records], consortium: Consortium, noise: Any
) -> tuple[Parties, dict[str, Host]]:
    agreement = Agreement(STUDY, tried, consortium)
    hosts = {
        name: Host(
            agreement,
            name,
            records=records[name],
            keys=Identity(derive(b"test identity", name)),
            store=Store(
                Ledger.in_memory(dataset=name, unit=consortium.unit, neighbours=consortium.neighbours),
                unit=consortium.unit,
                neighbours=consortium.neighbours,
            ),
            noise=noise,
            policy=SIMULATION,
        )
        for name in consortium.parties
    }
    parties = Parties(
        agreement,
        run="run-1",
        channel=LocalChannel(hosts),
        journal=Watched(),
        keys=Identity(derive(b"test identity", COORDINATOR)),
        noise=noise,
    )
    return parties, hosts
