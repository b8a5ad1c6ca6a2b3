"""A ledger that was edited or damaged does not spend: one clear error, whatever the damage and whoever asks."""

from __future__ import annotations

import contextlib
import copy
import random
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.support import ledgers
from tests.support.ledgers import RECORD, create_ledger, export_document, make_draws, rechain

from comity.errors import BadInput, ComityError, Refused
from comity.privacy.ledger import Draw, Ledger, verification, verify_export
from comity.privacy.loss import GDP, Approx, Pure

NOTHING = "0 0 0 0 0"

spend = partial(ledgers.spend, count=2, dataset="patients")


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """A ledger in use, with an open run."""
    made = create_ledger(tmp_path, Pure(3))
    made.add_dataset(dataset="staff", grant=Approx(1, "1e-6"), **RECORD)
    for run in ("r1", "r2", "r3"):
        spend(made, run)
    made.close("r1")
    return made


def edit(path: Path | None, *statements: str) -> None:
    """What somebody with a database tool does, while the ledger is in use or not."""
    assert path is not None
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


EDITS = [
    f"UPDATE accounts SET spent = '{NOTHING}' WHERE dataset = 'patients'",
    "UPDATE accounts SET spent = '0.1 0 0 0 0' WHERE dataset = 'patients'",
    f"UPDATE accounts SET reserved = '{NOTHING}' WHERE dataset = 'patients'",
    "UPDATE accounts SET granted = 'pure:99', ceiling = 'pure:99' WHERE dataset = 'patients'",
    "UPDATE accounts SET ceiling = 'pure:99' WHERE dataset = 'patients'",
    "UPDATE accounts SET currency = 'approx' WHERE dataset = 'staff'",
    "UPDATE accounts SET unit = 'party' WHERE dataset = 'patients'",
    "DELETE FROM accounts WHERE dataset = 'staff'",
    "UPDATE ledgers SET simulated = 1",
    "UPDATE ledgers SET id = '" + "ab" * 32 + "'",
    "UPDATE accounts SET spent = 7 WHERE dataset = 'patients'",
    "UPDATE accounts SET spent = x'00ff' WHERE dataset = 'patients'",
    "DELETE FROM commits",
    "DELETE FROM commits WHERE count = (SELECT max(count) FROM commits)",
    "UPDATE commits SET head = zeroblob(32) WHERE count = (SELECT max(count) FROM commits)",
]


@pytest.mark.parametrize("statement", EDITS)
def test_edited_sums_are_found_before_the_next_reservation_and_draw(ledger: Ledger, statement: str) -> None:
    """Both by the ledger that is open meanwhile, and by one that is opened afterwards."""
    edit(ledger.path, statement)
    acts: list[Callable[[], object]] = [
        lambda: spend(ledger, "r9"),
        lambda: ledger.draw(run="r3", release="votes", index=1, step="vote"),
        lambda: ledger.close("r3"),
        lambda: ledger.grant_more(Pure(1), "more", dataset="patients"),
        lambda: ledger.verify(),
        lambda: spend(Ledger(ledger.path or ""), "r9"),
    ]
    for act in acts:
        with pytest.raises(Refused) as refusal:
            act()
        assert refusal.value.code in ("chain", "damaged")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE runs SET state = 'open' WHERE run = 'r1'",
        "UPDATE runs SET state = 'closed' WHERE run = 'r3'",
        "DELETE FROM runs WHERE run = 'r1'",
    ],
)
def test_an_ended_run_is_not_opened_again_by_an_edit(ledger: Ledger, statement: str) -> None:
    run = "r3" if "r3" in statement else "r1"
    edit(ledger.path, statement)
    for act in (
        lambda: ledger.draw(run=run, release="votes", index=1, step="vote"),
        lambda: ledger.reserve(study="s", run=run, draws=make_draws("0.1", "0.1"), dataset="patients", **RECORD),
        lambda: ledger.close(run),
    ):
        with pytest.raises(Refused) as refusal:
            act()
        assert refusal.value.code == "damaged"


def test_a_forgotten_run_is_not_reserved_anew(ledger: Ledger) -> None:
    """Its row is deleted, its entries are there: the same draws under the same names are no new ones."""
    edit(ledger.path, "DELETE FROM runs WHERE run = 'r3'")
    with pytest.raises(Refused):
        ledger.reserve(study="s", run="r3", draws=make_draws("0.1", "0.1"), dataset="patients", **RECORD)
    with pytest.raises(Refused):
        Ledger(ledger.path or "")


def test_a_frozen_ledger_is_not_unfrozen_by_an_edit(ledger: Ledger) -> None:
    ledger.remember_commit(ledger.commit_head().ledger, 99, "ab" * 32)
    edit(ledger.path, "UPDATE ledgers SET frozen = ''")
    with pytest.raises(Refused, match="other than Comity"):
        spend(ledger, "r9")


# A chain that was written anew from the first entry to the last still has to follow the rules.


def test_a_grant_that_was_raised_and_set_back_is_found(tmp_path: Path) -> None:
    """Forty were spent of a grant of three, and every head is right."""
    ledger = Ledger.create(tmp_path / "a", dataset="patients", grant=Pure(40), **RECORD)
    ledger.reserve(study="s", run="r1", draws=make_draws("20", "20"), **RECORD)
    honest = export_document(ledger)
    assert verify_export(rechain(honest)).entries == 3
    for loss, most in (("pure:3", "pure:3"), ("pure:3", "pure:40"), ("pure:40", "pure:41")):
        lie = copy.deepcopy(honest)
        lie["entries"][0] |= {"loss": loss, "sensitivity": most}
        with pytest.raises(Refused, match="does not follow"):
            verify_export(rechain(lie))


def test_a_ceiling_follows_from_its_grant(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "a", dataset="patients", grant=Approx(1, "1e-6"), **RECORD)
    ledger.reserve(study="s", run="r1", draws=[Draw("v", 0, GDP("0.2"), "m", 1)], **RECORD)
    ledger.grant_more(Pure(1), "more")
    honest = export_document(ledger)
    assert verify_export(honest).entries == 3
    for place in (0, 2):
        lie = copy.deepcopy(honest)
        square = GDP.squared(lie["entries"][place]["sensitivity"].removeprefix("gdp:")).square
        lie["entries"][place]["sensitivity"] = GDP.squared(square + square / 10**9).as_text()
        with pytest.raises(Refused, match="does not follow"):
            verify_export(rechain(lie))
    lie = copy.deepcopy(honest)
    lie["entries"][2] |= {"mechanism": "concentrated", "sensitivity": "zcdp:0.01"}
    with pytest.raises(Refused, match="does not follow"):
        verify_export(rechain(lie))


def test_nothing_is_drawn_from_a_frozen_chain(ledger: Ledger) -> None:
    honest = export_document(ledger)
    freeze = {**honest["entries"][-1], "kind": "freeze", "note": "ab" * 32, "run": "", "dataset": ""}
    lie = {**honest, "entries": [*honest["entries"][:-2], freeze, *honest["entries"][-2:]]}
    with pytest.raises(Refused, match="does not follow"):
        verify_export(rechain(lie))


# Random damage


def built(folder: Path) -> tuple[bytes, str]:
    path = folder / "whole.ledger"
    ledger = Ledger.create(path, dataset="patients", grant=Pure(3), **RECORD)
    for run in range(12):
        spend(ledger, f"run-{run}", "0.01")
        if run % 3:
            ledger.close(f"run-{run}")
    ledger.truncate_log()
    del ledger
    return path.read_bytes(), "run-9"


def survives(path: Path, run: str) -> dict[str, str]:
    """What each of the three acts comes to: "fine", or the code of an error of ours. Anything else is raised."""
    found = {}
    acts: dict[str, Callable[[], Any]] = {
        "verify": lambda: Ledger(path).verify(),
        "reserve": lambda: Ledger(path).reserve(study="s", run="new", draws=make_draws("0.01", "0.01"), **RECORD),
        "draw": lambda: Ledger(path).draw(run=run, release="votes", index=1, step="vote"),
        "verify again": lambda: Ledger(path).verify(),
    }
    for name, act in acts.items():
        try:
            act()
            found[name] = "fine"
        except ComityError as error:
            found[name] = error.code
    return found


@pytest.mark.parametrize("seed", range(3))
def test_a_damaged_file_behaves_or_is_refused_throughout(tmp_path: Path, seed: int) -> None:
    whole, run = built(tmp_path)
    chance = random.Random(seed)
    path = tmp_path / "damaged.ledger"
    [witness] = (tmp_path / "home" / "heads").glob("*.json")
    seen, outcomes = witness.read_bytes(), []
    for trial in range(100):
        data = bytearray(whole)
        for _ in range(1 if trial % 2 else 8):
            place = chance.randrange(100 if trial % 5 == 0 else len(data)) if trial % 5 else chance.randrange(100)
            data[place] ^= 1 << chance.randrange(8)
        for suffix in ("-wal", "-shm"):
            Path(f"{path}{suffix}").unlink(missing_ok=True)
        path.write_bytes(data)
        witness.write_bytes(seen)
        found = survives(path, run)
        outcomes.append(set(found.values()))
        assert set(found.values()) == {"fine"} or "fine" not in found.values(), (trial, found)
    assert {"fine"} in outcomes and sum("fine" not in one for one in outcomes) > 20


def test_torn_and_truncated_files_are_refused(tmp_path: Path) -> None:
    whole, run = built(tmp_path)
    path = tmp_path / "torn.ledger"
    for data in (whole[:-4096], whole[: len(whole) // 2], whole[:4096] + bytes(len(whole) - 4096), whole[:100]):
        path.write_bytes(data)
        assert "fine" not in survives(path, run).values()


def test_of_a_long_ledger_the_end_is_checked_when_it_is_opened(
    tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verification, "FULL_CHECK_ENTRIES", 4)
    edit(ledger.path, "DROP TRIGGER entries_stay_for_UPDATE", "UPDATE entries SET note = 'x' WHERE seq = 9")
    with pytest.raises(Refused, match="entry 9"):
        Ledger(ledger.path or "")
    edit(ledger.path, "UPDATE entries SET note = '' WHERE seq = 9", "UPDATE entries SET note = 'x' WHERE seq = 3")
    with pytest.raises(Refused, match="entry 3"):
        Ledger(ledger.path or "").verify()


def test_what_is_no_ledger_stays_bad_input(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"SQLite format 3\x00" + bytes(4000))
    with pytest.raises(ComityError):
        Ledger(tmp_path / "x")
    with pytest.raises(BadInput):
        Ledger(tmp_path / "none")
