"""A ceiling for all studies of a dataset within some days, counted where runs are reserved."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from comity.errors import Refused
from comity.federation.declare.policy import Period, Policy, Reservation
from comity.federation.declare.protection import Noised
from comity.federation.messages.codec import decode
from comity.federation.owner.store import Store
from comity.privacy.accounting import Spent
from comity.privacy.ledger import Draw, Ledger
from comity.privacy.loss import GDP, Approx, Pure
from tests.support.asks import answer_ask, write_ask
from tests.support.children import at_once
from tests.support.consortia import STUDY, make_consortium
from tests.support.ledgers import RECORD
from tests.support.rounds import Rounds, host_party

DELTA = Decimal("1e-6")
NEVER = "9999-01-01"
LONG_AGO = "2000-01-01T00:00:00.000+00:00"


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMITY_HOME", str(tmp_path / "home"))


def pure(epsilon: str = "0.5", count: int = 2) -> list[Any]:
    return [Draw(f"r{i}", 0, Pure(epsilon), "laplace", 1.0) for i in range(count)]


def store(grant: str = "10") -> Store:
    return Store(Ledger.in_memory(dataset="patients", grant=Pure(grant), **RECORD), **RECORD)


def period(epsilon: Any, days: int = 30, *, ahead: int = 0) -> Period:
    """By a clock that is so many days ahead of the ledger's."""
    return Period(
        epsilon=Decimal(epsilon), delta=DELTA, days=days, clock=lambda: datetime.now(UTC) + timedelta(days=ahead)
    )


def since(ledger: Any, moment: Any = LONG_AGO) -> Any:
    with ledger.trial() as transaction:
        return transaction.spent_since(moment, now=NEVER)


def reserve(one: Any, run: Any, *, ceiling: Any = None, draws: Any = None) -> None:
    booking = Reservation(study=STUDY, title="triage", draws=tuple(draws or pure()), period=ceiling)
    with one.ledger.transaction() as transaction:
        one._reserve(transaction, booking, run)


def test_open_runs_count_whole_and_ended_ones_what_they_drew() -> None:
    one = store()
    reserve(one, "open")
    reserve(one, "ended")
    assert since(one.ledger).pure == Decimal("2.0")
    one.ledger.draw(run="ended", release="r0", index=0, step="s")
    one.ledger.close("ended")
    assert since(one.ledger).pure == Decimal("1.5")
    one.ledger.abandon("open")
    assert since(one.ledger).pure == Decimal("0.5") == one.ledger.summary()[0].spent.pure


def test_what_was_written_off_counts_with_the_runs_that_it_ended() -> None:
    one = store()
    reserve(one, "open")
    one.ledger.write_off(Pure("0.25"), "restored")
    assert since(one.ledger).pure == Decimal("1.25") == one.ledger.summary()[0].spent.pure


def test_what_came_before_does_not_count_and_a_run_that_goes_on_counts_whole() -> None:
    one = store()
    reserve(one, "run")
    one.ledger.draw(run="run", release="r0", index=0, step="s")
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat(timespec="milliseconds")
    assert since(one.ledger, tomorrow).pure == Decimal("1.0"), "it is open: the rest may be drawn at any time"
    one.ledger.close("run")
    assert since(one.ledger, tomorrow) == Spent.zero()
    assert since(one.ledger).pure == Decimal("0.5")


def test_gaussian_losses_compose_as_in_the_ledger() -> None:
    ledger = Ledger.in_memory(dataset="patients", grant=Approx(9, 1e-6), **RECORD)
    one = Store(ledger, **RECORD)
    for run in ("a", "b"):
        reserve(one, run, draws=[Draw("votes", i, GDP("0.1"), "gaussian", 1.0) for i in range(3)])
    assert since(ledger) == Spent.zero().add(GDP("0.1"), 6)
    assert since(ledger).epsilon_at(DELTA) < 2 * Spent.zero().add(GDP("0.1"), 3).epsilon_at(DELTA)


def test_each_dataset_has_a_ceiling_of_its_own() -> None:
    ledger = Ledger.in_memory(dataset="patients", grant=Pure(9), **RECORD)
    ledger.add_dataset(dataset="visits", grant=Pure(9), **RECORD)
    stores = {name: Store(ledger, dataset=name, **RECORD) for name in ("patients", "visits")}
    for name, one in stores.items():
        reserve(one, name, ceiling=period("1.0"))
    with pytest.raises(Refused, match="cost visits eps"):
        reserve(stores["visits"], "more", ceiling=period("1.0"))


@pytest.mark.parametrize("ceiling, allowed", [("2.0", 2), ("1.9999", 1), ("0.9999", 0), ("1.0", 1)])
def test_the_ceiling_is_met_exactly_and_no_further(ceiling: str, allowed: int) -> None:
    one = store()
    for place in range(allowed):
        reserve(one, f"run-{place}", ceiling=period(ceiling))
    before = one.ledger.commit_head()
    with pytest.raises(Refused, match=r"policy\.epsilon_per_period") as refusal:
        reserve(one, "more", ceiling=period(ceiling))
    assert (refusal.value.code, refusal.value.key) == ("policy", "epsilon_per_period")
    assert one.ledger.commit_head() == before, "nothing was reserved"


def test_after_the_period_there_is_room_again() -> None:
    one = store()
    reserve(one, "first", ceiling=period("1.0"))
    for name in ("r0", "r1"):
        one.ledger.draw(run="first", release=name, index=0, step="s")
    one.ledger.close("first")
    for ahead in (0, 29):
        with pytest.raises(Refused):
            reserve(one, f"at {ahead}", ceiling=period("1.0", ahead=ahead))
    reserve(one, "later", ceiling=period("1.0", ahead=31))


def test_a_site_asks_before_it_promises_and_tells_nobody_the_figures() -> None:
    terms = Policy(approved={STUDY: 9}, period=Period(epsilon=Decimal("3"), delta=DELTA, days=365))
    one = host_party(Rounds(protection=Noised), make_consortium(), "ash", policy=terms, epsilon=50.0)
    assert "ok" in decode(answer_ask(one, write_ask("run.begin[0]")))
    for path in ("run.ready[0]", "run.begin[0]"):
        reply = decode(answer_ask(one, write_ask(path, run="run-2")))
        assert reply == {"refused": "policy", "key": "epsilon_per_period"}
    # Control: the study's own ceiling and the ledger would pay.
    one.policy = Policy(approved={STUDY: 9})
    assert "ok" in decode(answer_ask(one, write_ask("run.ready[0]", run="run-2")))


def test_runs_that_begin_at_once_share_one_period(tmp_path: Path) -> None:
    terms = Policy(approved=None, period=Period(epsilon=Decimal("3"), delta=DELTA, days=365))
    hosts = [host_party(Rounds(), make_consortium(), "ash", tmp_path, policy=terms, epsilon=50.0) for _ in range(4)]
    replies = at_once(
        *(lambda k=k: decode(answer_ask(hosts[k], write_ask("run.begin[0]", run=f"r{k}"))) for k in range(4))
    )
    assert sum("ok" in reply for reply in replies) == 1
