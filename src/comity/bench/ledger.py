"""Durable debits per second of one owner's ledger, beside plain durable inserts into SQLite on the same disk.

A debit is a whole transaction: the reservation is looked up, the sums move, the entry joins the hash chain, SQLite
syncs its log, and the witness is replaced. The anchor is what the disk allows: one row of the same size, the same sync.
"""

from __future__ import annotations

import os
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from comity.privacy.ledger import Draw, Ledger
from comity.privacy.loss import Pure
from comity.privacy.unit import Neighbours, Unit

_REPEATS = 5
_DEBITS = 300
_PARTIES = 20_000


def measure() -> list[dict[str, Any]]:
    """One row for debits in a file, one for making and first writing the ledgers of simulated parties."""
    with tempfile.TemporaryDirectory() as folder, _home(folder):
        # Ours and the anchor take turns, so that a busy moment of the machine meets both.
        pairs = [(_rate(_debits(Path(folder), i)), _rate(_inserts(Path(folder), i))) for i in range(_REPEATS)]
    ours, anchor = (statistics.median(column) for column in zip(*pairs, strict=True))
    spread = statistics.stdev(debits for debits, _ in pairs)
    return [
        {
            "case": "durable debits",
            "ours": ours,
            "spread": spread,
            "repeats": _REPEATS,
            "unit": "debits/s",
            "anchor": anchor,
            "anchor_name": "sqlite inserts, synchronous=FULL",
            "ratio": ours / anchor,
            "better": "higher",
        },
        _simulated(),
    ]


def _simulated() -> dict[str, Any]:
    record: dict[str, Any] = {"unit": Unit.PARTY, "neighbours": Neighbours.REPLACE}
    draws = [Draw("votes", 0, Pure(1), "discrete laplace", 1)]
    started = time.perf_counter()
    ledgers = [Ledger.in_memory(**record) for _ in range(_PARTIES)]
    made = time.perf_counter() - started
    for ledger in ledgers:
        ledger.reserve(study="bench", run="run", draws=draws, **record)
    written = time.perf_counter() - started
    return {
        "case": f"in memory M={_PARTIES} made and reserved",
        "ours": written,
        "spread": 0.0,
        "repeats": 1,
        "unit": "s",
        "made": made,
        "better": "lower",
        "anchor": None,
        "ratio": None,
        "note": "made: seconds to make them, before any is written to; simulated parties have no other to compare with",
    }


def _rate(once: Callable[[int], object]) -> float:
    started = time.perf_counter()
    for i in range(_DEBITS):
        once(i)
    return _DEBITS / (time.perf_counter() - started)


def _debits(folder: Path, repeat: int) -> Callable[[int], object]:
    record: dict[str, Any] = {"unit": Unit.RECORD, "neighbours": Neighbours.REPLACE}
    ledger = Ledger.create(folder / f"{repeat}.ledger", dataset="bench", grant=Pure(_DEBITS), **record)
    draws = [Draw("votes", i, Pure(1), "discrete laplace", 1) for i in range(_DEBITS)]
    ledger.reserve(study="bench", run="run", draws=draws, **record)
    return lambda i: ledger.draw(run="run", release="votes", index=i, step="vote")


def _inserts(folder: Path, repeat: int) -> Callable[[int], object]:
    connection = sqlite3.connect(folder / f"{repeat}.sqlite", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE rows (i INTEGER PRIMARY KEY, text TEXT)")
    return lambda i: connection.execute("INSERT INTO rows VALUES (?, ?)", (i, "x" * 300))


@contextmanager
def _home(folder: str) -> Iterator[None]:
    """Witnesses of a measurement stay in its own folder."""
    before = os.environ.get("COMITY_HOME")
    os.environ["COMITY_HOME"] = folder
    try:
        yield
    finally:
        if before is None:
            del os.environ["COMITY_HOME"]
        else:
            os.environ["COMITY_HOME"] = before
