"""Ledgers of the first format: counted in one currency from the day they are opened, and sound for what was spent."""

from __future__ import annotations

import contextlib
import io
import json
import sqlite3
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.support.ledgers import reserve

from comity.errors import BudgetExceeded, Refused
from comity.privacy.accounting import zcdp_rho
from comity.privacy.currency import Currency
from comity.privacy.ledger import Ledger, verify_export
from comity.privacy.ledger.chain import FIELDS, next_head
from comity.privacy.loss import GDP, ZCDP, Pure

NONCE = "5a" * 32

FIRST_FORMAT = """
CREATE TABLE ledgers (owner INTEGER PRIMARY KEY, id TEXT NOT NULL, frozen TEXT NOT NULL);
CREATE TABLE entries (
    owner INTEGER NOT NULL, seq INTEGER NOT NULL, kind TEXT NOT NULL, dataset TEXT NOT NULL,
    unit TEXT NOT NULL, neighbours TEXT NOT NULL, mechanism TEXT NOT NULL, sensitivity TEXT NOT NULL,
    loss TEXT NOT NULL, study TEXT NOT NULL, run TEXT NOT NULL, release TEXT NOT NULL, "index" INTEGER,
    step TEXT NOT NULL, time TEXT NOT NULL, note TEXT NOT NULL, head TEXT NOT NULL, PRIMARY KEY (owner, seq)
) WITHOUT ROWID;
CREATE UNIQUE INDEX one_draw ON entries (owner, run, release, "index", kind) WHERE "index" IS NOT NULL;
CREATE INDEX entry_heads ON entries (head);
CREATE INDEX lost_heads ON entries (owner, note) WHERE kind = 'freeze';
CREATE TABLE accounts (
    owner INTEGER NOT NULL, dataset TEXT NOT NULL, unit TEXT NOT NULL, neighbours TEXT NOT NULL,
    granted TEXT NOT NULL, spent TEXT NOT NULL, reserved TEXT NOT NULL, PRIMARY KEY (owner, dataset)
) WITHOUT ROWID;
CREATE TABLE runs (
    owner INTEGER NOT NULL, run TEXT NOT NULL, dataset TEXT NOT NULL, study TEXT NOT NULL,
    state TEXT NOT NULL, PRIMARY KEY (owner, run)
) WITHOUT ROWID;
CREATE TRIGGER entries_stay_for_UPDATE BEFORE UPDATE ON entries
BEGIN SELECT RAISE(ABORT, 'entries of a ledger are never changed or deleted'); END;
CREATE TRIGGER entries_stay_for_DELETE BEFORE DELETE ON entries
BEGIN SELECT RAISE(ABORT, 'entries of a ledger are never changed or deleted'); END;
PRAGMA application_id = 1129270617;
PRAGMA user_version = 1;
PRAGMA journal_mode = WAL;
"""


def old_ledger(path: Path, home: Path, granted: str, drawn: list[str], open_ones: list[str] | None = None) -> Path:
    """A file as the first format wrote it: one closed run of these losses, one open one with its first loss drawn."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript(FIRST_FORMAT)
        head, seq = NONCE, 0

        def append(kind: str, **fields: Any) -> None:
            nonlocal head, seq
            seq += 1
            values = {"dataset": "patients", "unit": "record", "neighbours": "replace", "time": "then", **fields}
            row = (seq, kind, *(values.get(name, None if name == "index" else "") for name in FIELDS[2:-1]))
            head = next_head(head, row)
            marks = ", ".join("?" * (len(FIELDS) + 1))
            connection.execute(f"INSERT INTO entries VALUES ({marks})", (1, *row, head))

        append("create", loss=granted, note=NONCE)
        for run, losses, last in (("old", drawn, len(drawn)), ("open", open_ones or [], 1)):
            what = {"study": "s", "run": run, "release": "v", "mechanism": "m", "sensitivity": "1"}
            for index, loss in enumerate(losses):
                append("reserve", loss=loss, index=index, **what)
            for index, loss in enumerate(losses[:last]):
                append("draw", loss=loss, index=index, **what)
            if losses:
                state = "closed" if run == "old" else "open"
                connection.execute("INSERT INTO runs VALUES (1, ?, 'patients', 's', ?)", (run, state))
                if run == "old":
                    append("close", study="s", run=run)
        connection.execute("INSERT INTO ledgers VALUES (1, ?, '')", (NONCE,))
        sums = (granted, "0 0 0 0", "0 0 0 0")
        connection.execute("INSERT INTO accounts VALUES (1, 'patients', 'record', 'replace', ?, ?, ?)", sums)
    (home / "heads").mkdir(parents=True)
    (home / "heads" / f"{NONCE}.json").write_text(json.dumps({"seq": seq, "head": head}))
    return path


def test_a_grant_with_a_delta_is_counted_in_concentrated_dp(tmp_path: Path, home: Path) -> None:
    path = old_ledger(
        tmp_path / "a", home, "approx:2,0.00001", ["zcdp:0.01", "pure:0.2", "pure:0.1"], ["pure:0.3", "zcdp:0.002"]
    )
    ledger = Ledger(path)
    [account] = ledger.summary()
    assert account.currency is Currency.CONCENTRATED
    # Σρ + Σε²/2, of each draw.
    assert account.spent.rho == Decimal("0.01") + Decimal("0.02") + Decimal("0.005") + Decimal("0.045")
    assert (account.reserved.rho, account.frozen) == (Decimal("0.002"), "")
    last = ledger.entries()[-1]
    assert (last.kind, last.mechanism, last.loss) == ("currency", "concentrated", "approx:2,0.00001")
    ledger.verify()
    # What was reserved before is drawn or given back in the new currency; new losses enter as they do there.
    ledger.draw(run="open", release="v", index=1, step="s")
    ledger.close("open")
    reserve(ledger, "new", GDP("0.1"), Pure("0.1"))
    [account] = ledger.summary()
    assert Decimal("0.01") < account.reserved.rho < Decimal("0.0100001")
    assert account.spent.rho == Decimal("0.082")
    room = Decimal(zcdp_rho(2, 1e-5)) - Decimal("0.092")
    with pytest.raises(BudgetExceeded):
        reserve(ledger, "more", ZCDP(room + Decimal("1e-9")))
    reserve(ledger, "more", ZCDP(room - Decimal("1e-9")))
    again = Ledger(path)
    assert again.verify().entries == len(ledger.entries())
    text = io.StringIO()
    again.export(text)
    assert verify_export(json.loads(text.getvalue())).head == again.head()
    assert [entry.kind for entry in again.entries()].count("currency") == 1


def test_what_no_longer_fits_leaves_nothing(tmp_path: Path, home: Path) -> None:
    """Pure losses close to the whole ε: allowed by the old sum, dear in ρ."""
    ledger = Ledger(old_ledger(tmp_path / "a", home, "approx:2,0.00001", ["pure:1.9"]))
    [account] = ledger.summary()
    assert account.left == 0 and account.spent.rho == Decimal("1.805")
    with pytest.raises(BudgetExceeded):
        reserve(ledger, "r1", ZCDP("1e-9"))
    ledger.verify()


def test_a_pure_grant_stays_as_it_is(tmp_path: Path, home: Path) -> None:
    ledger = Ledger(old_ledger(tmp_path / "a", home, "pure:2", ["pure:0.5", "approx:0.25,0"], ["pure:0.1", "pure:0.2"]))
    [account] = ledger.summary()
    assert (account.currency, account.spent.pure) == (Currency.PURE, Decimal("0.85"))
    assert (account.reserved.pure, account.left) == (Decimal("0.2"), Decimal("0.95"))
    ledger.draw(run="open", release="v", index=1, step="s")
    ledger.verify()


def test_losses_with_a_delta_of_their_own_are_counted_by_themselves(tmp_path: Path, home: Path) -> None:
    path = old_ledger(tmp_path / "a", home, "approx:2,0.00001", ["approx:0.5,0.000001", "pure:0.25"])
    ledger = Ledger(path)
    [account] = ledger.summary()
    assert account.currency is Currency.APPROX
    assert (account.spent.approx_epsilon, account.spent.delta) == (Decimal("0.75"), Decimal("0.000001"))
    ledger.verify()


def test_a_mixture_that_no_currency_takes_has_nothing_left(tmp_path: Path, home: Path) -> None:
    drawn = ["approx:0.5,0.000001", "zcdp:0.001"]
    ledger = Ledger(old_ledger(tmp_path / "a", home, "approx:2,0.00001", drawn, ["zcdp:0.001", "zcdp:0.001"]))
    [account] = ledger.summary()
    assert (account.currency, account.left) == (Currency.APPROX, Decimal(0))
    with pytest.raises(Refused, match="written off"):
        ledger.draw(run="open", release="v", index=1, step="s")
    with pytest.raises(BudgetExceeded):
        reserve(ledger, "r1", Pure("1e-9"))
    ledger.verify()


def test_a_restored_old_ledger_is_found_too(tmp_path: Path, home: Path) -> None:
    path = old_ledger(tmp_path / "a", home, "approx:2,0.00001", ["zcdp:0.01"])
    witness = home / "heads" / f"{NONCE}.json"
    honest = witness.read_text()
    witness.write_text(json.dumps({"seq": 40, "head": "cd" * 32}))
    with pytest.raises(Refused, match="is frozen"):
        reserve(Ledger(path), "r1", ZCDP("0.001"))
    witness.write_text(honest)
    reserve(Ledger(path), "r1", ZCDP("0.001"))
    assert set(json.loads(witness.read_text())) == {"count", "head"}


def test_an_old_ledger_without_its_witness_is_frozen(tmp_path: Path, home: Path) -> None:
    path = old_ledger(tmp_path / "a", home, "approx:2,0.00001", ["zcdp:0.01"])
    (home / "heads" / f"{NONCE}.json").unlink()
    with pytest.raises(Refused, match="has no witness"):
        reserve(Ledger(path), "r1", ZCDP("0.001"))


def test_an_unused_old_ledger_with_an_emptied_witness_is_frozen(tmp_path: Path, home: Path) -> None:
    """Its witness was made with the first use: the file is older than that."""
    path = old_ledger(tmp_path / "a", home, "approx:2,0.00001", [])
    (home / "heads" / f"{NONCE}.json").write_bytes(b"")
    with pytest.raises(Refused, match="is frozen"):
        reserve(Ledger(path), "r1", ZCDP("0.001"))


def test_an_old_ledger_that_does_not_verify_is_not_migrated(tmp_path: Path, home: Path) -> None:
    path = old_ledger(tmp_path / "a", home, "approx:2,0.00001", ["zcdp:0.01"])
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("DROP TRIGGER entries_stay_for_UPDATE")
        connection.execute("UPDATE entries SET loss = 'zcdp:0.001' WHERE kind = 'draw'")
    with pytest.raises(Refused):
        Ledger(path)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)
