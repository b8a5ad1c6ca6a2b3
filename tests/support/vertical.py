"""Small vertical consortia: two to four owners of columns of the same generated people."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from comity.data import Bounded, Categorical, Classes, Numeric, Records, Schema
from comity.federation.agreement import Agreement
from comity.federation.coordinator.parties import Parties
from comity.federation.declare.consortium import Consortium
from comity.federation.owner.host import Host
from comity.methods.vertical import GradientRegression, Vertical, VerticalRegression
from comity.methods.vertical.design import NUMBER, PLACES, Design
from comity.methods.vertical.moments import to_units
from comity.methods.vertical.published.protocol import PublishedVertical
from comity.privacy.loss import Approx, Loss, Pure
from comity.study.local.channel import LocalChannel
from tests.support import consortia as support
from tests.support.consortia import STUDY, make_hosts, make_parties

HELD = {
    2: {"ash": ("age", "sick"), "birch": ("place", "dose", "sex")},
    3: {"ash": ("age", "place"), "birch": ("sick", "sex"), "cedar": ("dose",)},
    4: {"ash": ("age",), "birch": ("place",), "cedar": ("dose", "sick"), "doum": ("sex",)},
}


def make_schema(*, linear: bool = False, identifier: bool = False) -> Schema:
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


def make_people(rows: int, *, seed: int = 0, linear: bool = False) -> pd.DataFrame:
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


def build_regression(
    parties: int = 2, *, linear: bool = False, identifier: bool = False, **options: Any
) -> VerticalRegression:
    given = {"solver": "quadratic", "max_rows": 1 << 14, **options}
    return Vertical.over_columns(
        schema=make_schema(linear=linear, identifier=identifier), columns=HELD[parties], **given
    )


def build_gradients(parties: int = 2, **options: Any) -> GradientRegression:
    built = build_regression(parties, **{"products": "dealer", "solver": "gradient", **options})
    assert isinstance(built, GradientRegression)
    return built


def build_published(
    of: Schema, columns: Mapping[str, tuple[str, ...]], *, max_rows: int, **options: Any
) -> PublishedVertical:
    method = Vertical(of, columns=columns, variant="published", max_rows=max_rows, **options)
    built = method.study(list(columns), epsilon=1).protocol
    assert isinstance(built, PublishedVertical)
    return built


def make_consortium(tried: Any, loss: Loss | None = None, *, colluders: int = 1) -> Consortium:
    names = tuple(tried.columns)
    pure = getattr(tried, "pure", True)
    return support.make_consortium(
        names, loss or (Pure(1) if pure else Approx(1, 1e-5)), colluders=colluders, dropouts=0
    )


def encode_parts(tried: Any, frame: pd.DataFrame) -> dict[str, Records]:
    return {party: tried.encoding_of(party).encode(frame).records for party in tried.columns}


def host_parties(
    tried: Any, records: dict[str, Records], consortium: Consortium, noise: Any
) -> tuple[Parties, dict[str, Host]]:
    agreement = Agreement(STUDY, tried, consortium)
    hosts = make_hosts(agreement, records, noise=noise)
    return make_parties(agreement, hosts, noise=noise, channel=LocalChannel(hosts)), hosts


def make_columns(tried: Any, frame: pd.DataFrame) -> dict[str, np.ndarray]:
    """Each party's columns of the design."""
    return {party: tried.design.matrix(own, party) for party, own in encode_parts(tried, frame).items()}


def enumerate_rows(design: Design, steps: tuple[float, ...] = (-1.0, 0.0, 1.0)) -> np.ndarray:
    """Rows of the design for every combination of categories, with numbers at both ends and in the middle."""
    choices = []
    for piece in design.pieces:
        numeric = piece.kind == NUMBER or len(piece.table) == 1
        choices.append([step * piece.table[0] for step in steps] if numeric else list(piece.table))
    return np.array([np.concatenate(found) for found in product(*choices)])


def compute_single_entries(tried: VerticalRegression) -> np.ndarray:
    """The weighted entries of each single record."""
    rows = to_units(enumerate_rows(tried.design)) * 2.0**-PLACES
    return np.array([tried.entries.exact(row[None]) for row in rows])
