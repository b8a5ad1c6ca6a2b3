"""Small owners and a consumer under covariate shift: two clouds, of which the consumer's records are one."""

from __future__ import annotations

from typing import Any

import numpy as np

from comity.data import Records
from comity.federation.declare.consortium import Consortium
from comity.methods.summary import OneShotSummary
from comity.privacy.loss import Approx, Loss
from comity.privacy.unit import Neighbours, Unit

OWNERS = ("ash", "birch", "cedar")
CONSUMER = "elm"
ROLES = {"owner": OWNERS, "consumer": (CONSUMER,)}
COLUMNS = 4


def cloud(count: int, centre: float, seed: int, label: int) -> Records:
    chance = np.random.default_rng(seed)
    rows = np.clip(0.5 + centre * np.array([1, 1, -1, 0]) + 0.12 * chance.normal(size=(count, COLUMNS)), 0, 1)
    return Records(rows, (label + (chance.random(count) < 0.5)).astype(np.int64))


def joined(*parts: Records) -> Records:
    labels: list[Any] = [one.labels for one in parts if one.labels is not None]
    return Records(np.concatenate([one.features for one in parts]), np.concatenate(labels))


def held(scale: int = 1) -> dict[str, Records]:
    """ash has records like the consumer's beside others, birch and cedar have others alone."""
    return {
        "ash": joined(cloud(150 * scale, 0.25, 1, 0), cloud(150 * scale, -0.25, 2, 2)),
        "birch": cloud(250 * scale, -0.25, 3, 2),
        "cedar": cloud(250 * scale, -0.2, 4, 2),
        "elm": cloud(120 * scale, 0.25, 5, 0),
    }


def summary(own: dict[str, Records] | None = None, **more: Any) -> OneShotSummary:
    known: dict[str, Any] = {
        "columns": COLUMNS,
        "gamma": 3.0,
        "sizes": {name: len(one) for name, one in (own or held()).items()},
        "records": 20,
        "labels": "<i8",
        "dimensions": 40,
    }
    return OneShotSummary(**{**known, **more})


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
