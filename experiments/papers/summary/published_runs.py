"""Whole runs of the published method with the paper's constants, with unseeded noise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from comity.data import Records
from comity.methods.summary import Summary
from comity.protocol import Protocol, RunOptions, Terms, simulate
from experiments.papers.summary.tasks import Task

CONSUMER = "consumer-0"
PAPER_DELTA = 0.01
"""The δ of the paper's claim for the consumer; the noise is by its constants and does not depend on it."""


def laid_out(one: Task, count: int) -> dict[str, Any]:
    parties = {**one.owners, CONSUMER: one.consumer}
    sizes = {party: len(records) for party, records in parties.items()}
    return {"columns": one.consumer.features.shape[1], "gamma": one.gamma, "sizes": sizes, "records": count}


def run_published(one: Task, count: int, *, results: bool = False, **options: Any) -> Any:
    """`results` keeps what each party received."""
    protocol = Summary.over_rows(**laid_out(one, count), labels="<i8", variant="published", seeds=one.seeds, **options)
    return run_over(protocol, one.owners, one.consumer, results=results)


def run_over(protocol: Protocol, owners: Mapping[str, Records], consumer: Records, *, results: bool = False) -> Any:
    return simulate(
        protocol,
        parties={**owners, CONSUMER: consumer},
        epsilon=1.5,
        delta=PAPER_DELTA,
        unit="record",
        terms=Terms(roles={"owner": tuple(owners), "consumer": (CONSUMER,)}),
        options=RunOptions(results=results),
    )
