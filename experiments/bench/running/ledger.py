"""Durable debits per second of one owner's ledger, beside plain durable inserts into SQLite on the same disk.

A debit is a whole transaction: the reservation is looked up, the sums move, the entry joins the hash chain, SQLite
syncs its log, and the witness is replaced. The anchor is what the disk allows: one row of the same size, the same sync.
`growth` is what a run (reserve, draw, close) costs in a ledger of a million entries, against one of a thousand.
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

from comity import Ledger
from comity.privacy import Draw, Neighbours, Pure, Unit

_RECORD: dict[str, Any] = {"unit": Unit.RECORD, "neighbours": Neighbours.REPLACE}
_REPEATS = 5
_DEBITS = 300
_PARTIES = 20_000
_SHORT, _LONG = 1_000, 1_000_000
_RUNS = 200


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
        *_growth(),
    ]


def _growth() -> list[dict[str, Any]]:
    """A short and a long ledger take turns at the same work; then the long one is verified and exported."""
    with tempfile.TemporaryDirectory() as folder, _home(folder):
        short, long = _filled(Path(folder) / "short", _SHORT), _filled(Path(folder) / "long", _LONG)
        pairs = [(_run(short, i), _run(long, i)) for i in range(_RUNS)]
        few, many = (statistics.median(column) for column in zip(*pairs, strict=True))
        started = time.perf_counter()
        entries = long.verify().entries
        verified = time.perf_counter() - started
        started = time.perf_counter()
        long.export(Path(folder) / "long.json")
        exported = time.perf_counter() - started
    note = "a run: reserve ten draws, draw one, close; medians of runs that take turns"
    common = {"spread": 0.0, "better": "lower", "anchor": None, "ratio": None}
    return [
        {
            **common,
            "case": f"growth {_LONG}",
            "ours": many * 1e3,
            "repeats": _RUNS,
            "unit": "ms",
            "anchor": few * 1e3,
            "anchor_name": f"the same at {_SHORT} entries",
            "ratio": many / few,
            "note": note,
        },
        {**common, "case": f"verify {entries} entries", "ours": verified, "repeats": 1, "unit": "s"},
        {**common, "case": f"export {entries} entries", "ours": exported, "repeats": 1, "unit": "s"},
    ]


def _filled(path: Path, entries: int) -> Ledger:
    """A ledger of so many entries, in runs of a hundred draws, each of them closed."""
    ledger = Ledger.create(path, dataset="bench", grant=Pure(10**9), **_RECORD)
    draws = [Draw("votes", i, Pure(1), "discrete laplace", 1) for i in range(100)]
    for first in range(0, entries, 201 * 20):
        with ledger.transaction() as transaction:
            for start in range(first, min(first + 201 * 20, entries), 201):
                run = f"{start * 2654435761 % 2**32:08x}"
                transaction.reserve(study="bench", run=run, draws=draws, **_RECORD)
                for draw in draws:
                    transaction.draw(run=run, release=draw.release, index=draw.index, step="vote")
                transaction.close(run)
    return ledger


def _run(ledger: Ledger, number: int) -> float:
    draws = [Draw("votes", i, Pure(1), "discrete laplace", 1) for i in range(10)]
    started = time.perf_counter()
    ledger.reserve(study="bench", run=f"run {number}", draws=draws, **_RECORD)
    ledger.draw(run=f"run {number}", release="votes", index=3, step="vote")
    ledger.close(f"run {number}")
    return time.perf_counter() - started


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
