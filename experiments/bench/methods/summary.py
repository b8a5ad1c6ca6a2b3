"""A summary of a thousand records from a million at ten owners: time and memory of a whole run in the local runtime.

Ours is everything that a run does: hosts, ledgers, masks, noise, moments, ratio, the choice at every owner. The anchor
is the greedy choice that sees everything, by as many random features in one place: a few of its rounds, times p, in the
same run. Seconds are of the processor.
"""

from __future__ import annotations

import resource
from time import process_time
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from comity.data import Records
from comity.entropy import Stream
from comity.methods.summary import FourierFeatures, OneShotSummary, Summary, gamma_of_records, herd_features, mmd2
from comity.protocol import RunOptions, Terms, simulate
from experiments.bench.growth import growth_row

RECORDS, OWNERS, COLUMNS, FEATURES, CHOSEN, WISHED = 1_000_000, 10, 140, 140, 1000, 2000
# Rounds of the anchor that are timed.
ROUNDS = 5
EPSILON, DELTA = 1.0, 1e-5


def measure(*, quick: bool = False) -> list[dict[str, Any]]:
    """Rows: processor seconds with 140 features and with as many as the rule says, the peak memory, and how the seconds
    grow with records."""
    records = RECORDS // 20 if quick else RECORDS
    with threadpool_limits(1, user_api="blas"):
        return _measured(records, CHOSEN // 10 if quick else CHOSEN)


def _measured(records: int, chosen: int) -> list[dict[str, Any]]:
    held = generated(records)
    gamma = gamma_of_records(_cloud("public", 150, 0.0))
    runs = [_run(held, gamma, dimensions, chosen) for dimensions in (FEATURES, "auto")]
    # Before the anchors, which hold the features of all records.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    rows = []
    for seconds, found, features in runs:
        anchor = _greedy(held, gamma, features, chosen)
        rows.append(
            {
                "case": f"summary {records}x{COLUMNS}, {features} features, p={chosen}",
                "ours": seconds,
                "anchor": anchor,
                "ratio": seconds / anchor,
                "unit": "CPU s",
                "repeats": 1,
                "spread": 0.0,
                "better": "lower",
                "note": f"anchor: {ROUNDS} rounds of greedy choice in one place, times p; MMD² {found:.4f}",
            }
        )
    own = sum(one.features.nbytes for one in held.values()) / 2**20
    memory = {"case": f"memory {records}x{COLUMNS}", "ours": peak, "anchor": own, "ratio": peak / own, "unit": "MB"}
    note = "peak of the process after both runs; anchor: the encoded records alone"
    few = records // 8
    fewer, _, _ = _run(generated(few), gamma, FEATURES, chosen)
    growth = growth_row(
        f"records {few} to {records}", [few, records], [fewer, runs[0][0]], f"{FEATURES} features, the whole run"
    )
    return [*rows, {**memory, "repeats": 1, "spread": 0.0, "better": "lower", "note": note}, growth]


def _run(held: dict[str, Records], gamma: float, dimensions: int | str, chosen: int) -> tuple[float, float, int]:
    """Processor seconds of a run, MMD² of its summary to the consumer's records, and how many features it had."""
    built = Summary.over_rows(
        columns=COLUMNS,
        gamma=gamma,
        sizes={party: len(one) for party, one in held.items()},
        records=chosen,
        dimensions=dimensions,
    )
    assert isinstance(built, OneShotSummary)
    started = process_time()
    outcome = simulate(
        built,
        parties=held,
        epsilon=EPSILON,
        delta=DELTA,
        unit="record",
        terms=Terms(roles={"owner": tuple(list(held)[:-1]), "consumer": ("buyer",)}),
        options=RunOptions(results=False),
    )
    seconds = process_time() - started
    return seconds, mmd2(outcome.presented.rows, held["buyer"].features, gamma), built.width(outcome.consortium)


def generated(records: int) -> dict[str, Records]:
    """A tenth of every owner's records lies where the consumer's do."""
    each = records // OWNERS
    found = {}
    for place in range(OWNERS):
        wanted, others = _cloud(f"wanted {place}", each // 10, 0.3), _cloud(f"others {place}", each - each // 10, -0.1)
        found[f"owner-{place}"] = Records(np.concatenate([wanted, others]))
    return {**found, "buyer": Records(_cloud("consumer", WISHED, 0.3))}


def _cloud(label: str, count: int, centre: float) -> Any:
    stream = Stream.public("bench", "summary", label)
    # Few directions matter in most tables.
    mixing = Stream.public("bench", "summary", "mixing").normal((10, COLUMNS))
    return centre + 0.3 * stream.normal((count, 10)) @ mixing / np.sqrt(10)


def _greedy(held: dict[str, Records], gamma: float, dimensions: int, chosen: int) -> float:
    """Seconds of the greedy choice: its features once, and p rounds by the time of a few."""
    started = process_time()
    features = FourierFeatures.draw(COLUMNS, dimensions, gamma, Stream.public("bench", "summary", "features"))
    owners = [one.features for name, one in held.items() if name != "buyer"]
    mapped = np.concatenate([features(rows).astype(np.float32) for rows in owners])
    mean = features(held["buyer"].features).mean(axis=0)
    once = process_time() - started
    started = process_time()
    herd_features(mapped, mean.astype(np.float32), ROUNDS)
    return once + (process_time() - started) / ROUNDS * chosen
