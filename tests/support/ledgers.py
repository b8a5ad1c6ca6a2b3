"""Ledgers of the tests, which mostly protect a record that may be replaced: made, spent, exported and restored."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import sqlite3
from pathlib import Path
from typing import Any

from comity.privacy.ledger import Draw, Ledger
from comity.privacy.ledger.chain import FIELDS, next_head
from comity.privacy.loss import Approx, Loss, Pure
from comity.privacy.permit import Permit
from comity.privacy.unit import Neighbours, Unit

RECORD: dict[str, Any] = {"unit": Unit.RECORD, "neighbours": Neighbours.REPLACE}


def create_ledger(folder: Path, grant: Pure | Approx, **options: Any) -> Ledger:
    """A ledger of the dataset `patients` in a file."""
    return Ledger.create(folder / "north.ledger", dataset="patients", grant=grant, **RECORD, **options)


def make_draws(*losses: Loss | float | str, release: str = "votes") -> list[Draw]:
    """One draw for each loss; a number is a pure ε."""
    stated = [loss if isinstance(loss, Loss) else Pure(loss) for loss in losses]
    return [Draw(release, index, loss, "discrete laplace", 1.0) for index, loss in enumerate(stated)]


def reserve(ledger: Ledger, run: str, *losses: Loss | float | str, **changed: Any) -> None:
    ledger.reserve(**{"study": "readmission", "run": run, "draws": make_draws(*losses), **RECORD, **changed})


def spend(ledger: Ledger, run: str, loss: float | str = "0.1", *, count: int = 1, dataset: str | None = None) -> Permit:
    """Reserve `count` draws and make the first one."""
    reserve(ledger, run, *[loss] * count, study="s", dataset=dataset)
    return ledger.draw(run=run, release="votes", index=0, step="vote")


def export_document(ledger: Ledger) -> dict[str, Any]:
    text = io.StringIO()
    ledger.export(text)
    document: dict[str, Any] = json.loads(text.getvalue())
    return document


def rechain(document: dict[str, Any]) -> dict[str, Any]:
    """The export with numbers and heads computed anew, as an owner who rewrites the whole file would."""
    forged = copy.deepcopy(document)
    head = forged["entries"][0]["note"]
    for seq, entry in enumerate(forged["entries"], start=1):
        entry["seq"] = seq
        entry["head"] = head = next_head(head, tuple(entry[name] for name in FIELDS[:-1]))
    return {**forged, "head": head}


def back_up(path: Path, to: Path) -> None:
    """Copy by SQLite, as owners do: the file's bytes would miss what is still in the log."""
    to.unlink(missing_ok=True)
    with contextlib.closing(sqlite3.connect(path)) as one, contextlib.closing(sqlite3.connect(to)) as other:
        one.backup(other)


def restore(backup: Path, path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    back_up(backup, path)
