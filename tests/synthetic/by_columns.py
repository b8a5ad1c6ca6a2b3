"""Two and three owners of different columns of the same made records; a column follows one that another owner holds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from comity.data import Records, Target
from comity.federation.coordinator.lifecycle import run
from comity.federation.declare.consortium import Consortium
from comity.methods.synthetic import SyntheticColumnsProtocol
from comity.privacy.loss import Approx, Loss
from tests.support.noise import NoNoise
from tests.support.vertical import encode_parts, host_parties, make_consortium

from .consortia import CLASSES, build_as, make_frame, make_schema

HELD = {
    2: {"ash": ("age", "town", "ill"), "birch": ("income", "region", "stage", "seen")},
    3: {"ash": ("age", "stage"), "birch": ("income", "region", "ill"), "cedar": ("town", "seen")},
}


def build_columns(
    parties: int = 2, *, target: Target | None = CLASSES, identifier: bool = False, **options: Any
) -> SyntheticColumnsProtocol:
    held = {
        party: tuple(column if column != "ill" else getattr(target, "name", "") for column in columns)
        for party, columns in HELD[parties].items()
    }
    held = {party: tuple(column for column in columns if column) for party, columns in held.items()}
    given = replace(make_schema(target), identifier="person") if identifier else make_schema(target)
    return build_as(SyntheticColumnsProtocol, schema=given, columns=held, **{"max_rows": 1 << 14, **options})


def make_people(count: int, seed: int = 0, target: Target | None = CLASSES) -> pd.DataFrame:
    return make_frame(count, seed, target).assign(person=[f"id{number}" for number in range(count)])


def make_consortium_of(tried: SyntheticColumnsProtocol, loss: Loss | None = None, *, colluders: int = 1) -> Consortium:
    return make_consortium(tried, loss or Approx(1.0, 1e-6), colluders=colluders)


def count_exactly(tried: SyntheticColumnsProtocol, consortium: Consortium, given: pd.DataFrame) -> np.ndarray:
    """What counting by rows gives of whole records."""
    return tried.counting(consortium).layout.count(tried.encoding.encode(given).records.features)


def run_hosts(
    tried: SyntheticColumnsProtocol,
    consortium: Consortium,
    records: dict[str, Records] | pd.DataFrame,
    noise: Any = None,
) -> dict[str, Any]:
    """What is released by a whole run over hosts."""
    held = encode_parts(tried, records) if isinstance(records, pd.DataFrame) else records
    parties, _ = host_parties(tried, held, consortium, noise or NoNoise())
    found: dict[str, Any] = run(parties)["tables"]
    return found
