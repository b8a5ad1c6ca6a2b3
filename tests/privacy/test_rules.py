"""Rules of the ledger and of shared noise for which weaker ones might pass: each test fails when its rule is weaker."""

from __future__ import annotations

import math
import sqlite3
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.support.ledgers import RECORD, export_document, rechain

from comity.errors import ComityError, Refused, StudyError
from comity.privacy.accounting import NUMERICAL, convert, gaussian_budget
from comity.privacy.ledger import Draw, Ledger, verify_export
from comity.privacy.loss import GDP, ZCDP, Approx, Loss, Pure
from comity.privacy.mechanisms import gaussian
from comity.privacy.mechanisms.gaussian import Gaussian, unevenness
from comity.privacy.unit import Neighbours, Unit


@pytest.mark.parametrize(("field", "value"), [("loss", "pure:0.01"), ("release", "other"), ("index", 1), ("run", "r2")])
def test_a_debit_is_of_what_was_reserved(tmp_path: Path, field: str, value: object) -> None:
    ledger = Ledger.create(tmp_path / "a.ledger", dataset="patients", grant=Pure(3), **RECORD)
    ledger.reserve(study="s", run="r1", draws=[Draw("votes", 0, Pure("0.5"), "discrete laplace", 1)], **RECORD)
    ledger.draw(run="r1", release="votes", index=0, step="vote")
    exported = export_document(ledger)
    verify_export(rechain(export_document(ledger)))
    (debit,) = (entry for entry in exported["entries"] if entry["kind"] == "draw")
    debit[field] = value
    with pytest.raises(Refused, match="does not follow"):
        verify_export(rechain(exported))


def forged(ledger: Ledger, **changes: str) -> dict[str, Any]:
    """The export of a ledger with another first entry, and a chain that fits it."""
    exported = export_document(ledger)
    verify_export(rechain(export_document(ledger)))
    exported["entries"][0].update(changes)
    return rechain(exported)


def test_no_reservation_is_replayed_beyond_what_was_granted_before_it(tmp_path: Path) -> None:
    """Else a grant that was raised, spent and set back would leave no trace."""
    ledger = Ledger.create(tmp_path / "a.ledger", dataset="patients", grant=Pure(3), **RECORD)
    ledger.reserve(study="s", run="r1", draws=[Draw("votes", 0, Pure("0.5"), "discrete laplace", 1)], **RECORD)
    ledger.draw(run="r1", release="votes", index=0, step="vote")
    verify_export(forged(ledger, loss="pure:0.5", sensitivity="pure:0.5"))
    with pytest.raises(Refused, match="does not follow"):
        verify_export(forged(ledger, loss="pure:0.49", sensitivity="pure:0.49"))


def test_no_ceiling_is_replayed_above_what_its_grant_buys(tmp_path: Path) -> None:
    grant = Approx(1, "1e-6")
    most = gaussian_budget(grant)
    ledger = Ledger.create(tmp_path / "a.ledger", dataset="patients", grant=grant, **RECORD)
    less, more = (GDP.squared(most.square * Decimal(times)).as_text() for times in ("0.99", "1.02"))
    verify_export(forged(ledger, sensitivity=less))
    with pytest.raises(Refused, match="does not follow"):
        verify_export(forged(ledger, sensitivity=more))


@pytest.mark.parametrize("column", ["notes", "state", "head"])
@pytest.mark.parametrize("count", [2, 3])
def test_a_commit_that_was_altered_anywhere_is_found(tmp_path: Path, column: str, count: int) -> None:
    """Not the last one alone: whoever saw an earlier head must find it as it was."""
    path = tmp_path / "a.ledger"
    ledger = Ledger.create(path, dataset="patients", grant=Pure(3), **RECORD)
    for number in range(5):
        with ledger.transaction() as transaction:
            transaction.note(bytes([number]) * 32)
    ledger.verify()
    connection = sqlite3.connect(path)
    for (trigger,) in connection.execute("select name from sqlite_master where type = 'trigger'").fetchall():
        connection.execute(f"drop trigger {trigger}")
    changed = connection.execute(f"update commits set {column} = ? where count = ?", (b"x" * 32, count)).rowcount
    connection.commit()
    connection.close()
    assert changed == 1
    with pytest.raises(ComityError):
        Ledger(path).verify()


@pytest.mark.parametrize(
    ("loss", "twice"),
    [
        (Pure("0.3"), Pure("0.6")),
        (GDP("0.3"), GDP("0.6")),
        (ZCDP("0.3"), ZCDP("1.2")),
        (Approx("0.3", 0), Approx("0.6", 0)),
    ],
    ids=["pure", "Gaussian", "zCDP", "approximate"],
)
def test_a_replacement_is_a_removal_and_an_addition(loss: Loss, twice: Loss) -> None:
    """Of Gaussian noise: twice as far is four times the rho, as (2Δ)²/2σ² = 4·Δ²/2σ²."""
    add, replace = Neighbours.ADD_REMOVE, Neighbours.REPLACE
    assert convert(loss, Unit.RECORD, add, Unit.RECORD, replace) == twice
    assert convert(loss, Unit.PARTY, add, Unit.RECORD, add) == twice
    assert convert(loss, Unit.PARTY, replace, Unit.RECORD, replace) == loss


@pytest.mark.parametrize(("width", "refused"), [(1.8, True), (1.9, True), (1.99, True), (2.01, False), (2.1, False)])
def test_parts_a_little_below_two_units_are_refused(width: float, refused: bool) -> None:
    """Nine parts of that width: σ = 3·width units."""
    sensitivity, parts = 6 * width, 9
    mu = (sensitivity + 1) / (math.sqrt(parts) * width)
    noise = Gaussian(GDP(mu))
    if refused:
        with pytest.raises(StudyError, match="at least 2 are needed"):
            noise.scale(sensitivity=sensitivity, shape=(1,), parts=parts, grid=1.0)
    else:
        assert noise.scale(sensitivity=sensitivity, shape=(1,), parts=parts, grid=1.0).part == pytest.approx(width)


def test_a_sum_of_parts_too_far_from_a_gaussian_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """From two units on that takes very many numbers; the rule holds for any width, so narrower parts show it."""
    monkeypatch.setattr(gaussian, "MIN_PART", 1.0)
    for width, refused in ((1.2, True), (1.6, True), (2.4, False)):
        mu = 13 / (3 * width)
        assert (unevenness(1, width, 9) > NUMERICAL * mu**2) == refused
        noise = Gaussian(GDP(mu))
        if refused:
            with pytest.raises(StudyError, match="too far from Gaussian noise"):
                noise.scale(sensitivity=12.0, shape=(1,), parts=9, grid=1.0)
        else:
            noise.scale(sensitivity=12.0, shape=(1,), parts=9, grid=1.0)
