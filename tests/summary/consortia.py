"""Small owners and a consumer under covariate shift: two clouds, of which the consumer's records are one."""

from __future__ import annotations

from typing import Any

import numpy as np

from comity.data import Records
from comity.federation.declare.consortium import Consortium
from comity.methods.summary import OneShotSummary, Summary
from comity.privacy.loss import Approx, Loss
from comity.privacy.unit import Neighbours, Unit

OWNERS = ("ash", "birch", "cedar")
CONSUMER = "elm"
ROLES = {"owner": OWNERS, "consumer": (CONSUMER,)}
COLUMNS = 4


def make_cloud(count: int, centre: float, seed: int, label: int) -> Records:
    chance = np.random.default_rng(seed)
    rows = np.clip(0.5 + centre * np.array([1, 1, -1, 0]) + 0.12 * chance.normal(size=(count, COLUMNS)), 0, 1)
    return Records(rows, (label + (chance.random(count) < 0.5)).astype(np.int64))


def join_records(*parts: Records) -> Records:
    labels: list[Any] = [one.labels for one in parts if one.labels is not None]
    return Records(np.concatenate([one.features for one in parts]), np.concatenate(labels))


def make_records(scale: int = 1) -> dict[str, Records]:
    """ash has records like the consumer's beside others, birch and cedar have others alone."""
    return {
        "ash": join_records(make_cloud(150 * scale, 0.25, 1, 0), make_cloud(150 * scale, -0.25, 2, 2)),
        "birch": make_cloud(250 * scale, -0.25, 3, 2),
        "cedar": make_cloud(250 * scale, -0.2, 4, 2),
        "elm": make_cloud(120 * scale, 0.25, 5, 0),
    }


def build_one_shot(own: dict[str, Records] | None = None, **options: Any) -> OneShotSummary:
    built = build_summary(own, **{"records": 20, "dimensions": 40, **options})
    assert isinstance(built, OneShotSummary)
    return built


def build_summary(own: dict[str, Records] | None = None, **options: Any) -> Any:
    """What runs over these parties' rows, by the method's own defaults."""
    sizes = {name: len(one) for name, one in (own or make_records()).items()}
    return Summary.over_rows(**{"columns": COLUMNS, "gamma": 3.0, "labels": "<i8", "sizes": sizes, **options})


def make_consortium(loss: Loss | None = None, **more: Any) -> Consortium:
    known: dict[str, Any] = {
        "parties": (*OWNERS, CONSUMER),
        "loss": loss or Approx(1.0, 1e-5),
        "unit": Unit.RECORD,
        "neighbours": Neighbours.REPLACE,
        "colluders": 1,
        "roles": ROLES,
    }
    return Consortium(**{**known, **more})
