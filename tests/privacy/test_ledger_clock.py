"""What was spent since a moment, in a ledger whose clock was wrong for a while."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.support.ledgers import RECORD

from comity.privacy.ledger import Draw, Ledger, tables
from comity.privacy.loss import Pure

YEARS = timedelta(days=20 * 365)


class Clock:
    """Stands for `datetime`; `ahead` is by how much it is wrong."""

    ahead = timedelta()

    def now(self, zone: Any = UTC) -> Any:
        return datetime.now(zone) + self.ahead


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(tables, "datetime", made)
    return made


@pytest.fixture
def ledger(clock: Any, tmp_path: Path) -> Ledger:
    """Made while the clock is right."""
    return Ledger.create(tmp_path / "ledger", dataset="visits", grant=Pure(100), simulated=True, **RECORD)


def pay(ledger: Any, run: Any) -> None:
    ledger.reserve(study="study", run=run, draws=[Draw("mean", 0, Pure("0.5"), "laplace", 1.0)], **RECORD)
    ledger.draw(run=run, release="mean", index=0, step="s")
    ledger.close(run)


def spent(ledger: Any, *, days: int = 30, **later: Any) -> Any:
    """What counts in a period that ends so much later than now."""
    now = datetime.now(UTC) + timedelta(**later)
    with ledger.trial() as transaction:
        since = now - timedelta(days=days)
        return transaction.spent_since(since.isoformat(), now=now.isoformat()).pure


@pytest.mark.parametrize("wrong", [-YEARS, YEARS], ids=["behind", "ahead"])
def test_what_was_paid_while_the_clock_was_wrong_counts(ledger: Any, clock: Any, wrong: Any) -> None:
    clock.ahead = wrong
    pay(ledger, "while it was wrong")
    clock.ahead = timedelta()
    assert spent(ledger) == Decimal("0.5")
    # When it was is not known, so that it counts in later periods too; a write-off of that time as well.
    assert spent(ledger, days=1, hours=26) == Decimal("0.5")
    # By a clock that is a little behind the ledger's first entry, which is all that shows the jump.
    assert spent(ledger, hours=-1) == Decimal("0.5")
    clock.ahead = wrong
    ledger.write_off(Pure("0.25"), "restored")
    assert spent(ledger) == Decimal("0.75")


def test_a_clock_that_was_ahead_once_does_not_make_later_entries_count_for_ever(ledger: Any, clock: Any) -> None:
    clock.ahead = YEARS
    pay(ledger, "ahead")
    clock.ahead = timedelta()
    pay(ledger, "right")
    assert spent(ledger) == Decimal("1.0")
    assert spent(ledger, days=30, hours=60 * 24) == Decimal("0.5")


def test_a_clock_that_is_set_back_a_little_changes_nothing(ledger: Any, clock: Any) -> None:
    clock.ahead = -timedelta(hours=1)
    pay(ledger, "an hour back")
    assert spent(ledger) == Decimal("0.5")
    assert spent(ledger, hours=60 * 24) == Decimal("0")
