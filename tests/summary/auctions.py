"""The two auctions on the small consortium of these tests."""

from __future__ import annotations

from typing import Any

import numpy as np

from comity.data import Records
from comity.methods.summary.auction.method import AuctionSummary
from comity.methods.summary.published.method import PublishedSummary
from comity.study.results.result import Result
from tests.support.protocols import simulate_with

from .consortia import COLUMNS, ROLES, build_summary, make_records

SEEDS = np.random.default_rng(0).random((30, COLUMNS))


SMALL = {"records": 8, "dimensions": 20}


def build_auction(own: dict[str, Records] | None = None, **options: Any) -> AuctionSummary:
    built = build_summary(own, **{**SMALL, "selection": "auction", **options})
    assert isinstance(built, AuctionSummary)
    return built


def build_published(own: dict[str, Records] | None = None, **options: Any) -> PublishedSummary:
    built = build_summary(own, **{**SMALL, "variant": "published", "seeds": SEEDS, **options})
    assert isinstance(built, PublishedSummary)
    return built


def run_seeded(protocol: Any, records: dict[str, Records] | None = None, **more: Any) -> Result:
    """A simulated run; the same seed, study and run give the same one."""
    known: dict[str, Any] = {
        "epsilon": 4.0,
        "delta": 1e-5,
        "unit": "record",
        "roles": ROLES,
        "seed": 3,
        "hash": "00" * 32,
        "run_id": "run",
    }
    return simulate_with(protocol, parties=records or make_records(), **{**known, **more})
