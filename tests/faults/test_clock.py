"""A clock that jumps, ahead and back: what is paid stays paid, nobody waits for it, and nobody stays shut out."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from comity.errors import Refused
from comity.federation import booking
from comity.federation.booking import Period
from comity.federation.journal import Journal
from comity.federation.parties import whole_run
from comity.privacy import ledger_rows
from comity.privacy.ledger import Draw, Ledger
from comity.privacy.loss import Pure
from comity.privacy.unit import Neighbours, Unit
from comity.runtime.coordinating import coordinator
from comity.runtime.local.channel import LocalChannel
from comity.runtime.nats import relay
from comity.runtime.nats.roster import Roster
from comity.runtime.site.desk import Desk
from tests.faults.checks import lines_of
from tests.runtime.nats.relays import Loopback, needs_server

YEARS = timedelta(days=20 * 365)


class Clock:
    """Stands for `datetime` in a module; `ahead` is by how much it is wrong."""

    def __init__(self):
        self.ahead = timedelta()

    def now(self, zone=UTC):
        return datetime.now(zone) + self.ahead


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    for module in (ledger_rows, booking, relay):
        monkeypatch.setattr(module, "datetime", made)
    return made


def run(place, name, progress=None):
    desks = {party: Desk(place.site(party)) for party in place.parties}
    parties = coordinator(
        place.study,
        run=name,
        channel=LocalChannel(desks),
        journal=Journal(place.journal),
        keys=place.keys,
        progress=progress,
    )
    return whole_run(parties)


def test_a_run_goes_through_a_clock_that_jumps(small, tmp_path, clock):
    place = small.copied(tmp_path / "consortium")
    jumps = iter([YEARS, -2 * YEARS, 2 * YEARS, -YEARS] * 20)

    def jumping(_):
        clock.ahead += next(jumps)

    with place.witnessed():
        run(place, "run-1", jumping)
        ledger = place.ledger("north")
        assert not ledger.verify().frozen
        times = [entry.time for entry in ledger.entries()]
        assert times != sorted(times), "the control: the clock has jumped"
        assert [line.kind for line in lines_of(ledger, "run-1")] == ["reserve", "draw", "close"]


def made_now(folder):
    terms = {"unit": Unit.RECORD, "neighbours": Neighbours.REPLACE}
    return Ledger.create(folder / "ledger", dataset="visits", grant=Pure(100), simulated=True, **terms)


@pytest.mark.parametrize("wrong", [-YEARS, YEARS], ids=["behind", "ahead"])
def test_a_ceiling_for_a_period_counts_what_was_paid_while_the_clock_was_wrong(clock, wrong, tmp_path):
    """Once it is right again, and for as long as it is not known when that was."""
    ledger = made_now(tmp_path)

    def paid(run):
        with ledger.transaction() as transaction:
            draws = [Draw("mean", 0, Pure("0.5"), "laplace", 1.0)]
            terms = {"unit": Unit.RECORD, "neighbours": Neighbours.REPLACE}
            transaction.reserve(study="study", run=run, draws=draws, **terms)
            Period(epsilon=Decimal("0.7"), delta=Decimal(0), days=30, clock=clock.now).check(transaction, None, "study")
        ledger.draw(run=run, release="mean", index=0, step="s")
        ledger.close(run)

    clock.ahead = wrong
    paid("while it was wrong")
    clock.ahead = timedelta()
    with pytest.raises(Refused, match="epsilon_per_period"):
        paid("when it was right again")
    # Also by a clock that is a little behind the ledger's first entry, which is all that shows the jump.
    clock.ahead = timedelta(hours=-1)
    with pytest.raises(Refused, match="epsilon_per_period"):
        paid("an hour back")


def test_a_clock_that_was_ahead_once_does_not_make_later_entries_count_for_ever(clock, tmp_path):
    ledger = made_now(tmp_path)

    def paid(run):
        draws = [Draw("mean", 0, Pure("0.5"), "laplace", 1.0)]
        ledger.reserve(study="study", run=run, draws=draws, unit=Unit.RECORD, neighbours=Neighbours.REPLACE)
        ledger.draw(run=run, release="mean", index=0, step="s")
        ledger.close(run)

    clock.ahead = YEARS
    paid("ahead")
    clock.ahead = timedelta()
    paid("right")
    later = datetime.now(UTC) + timedelta(days=60)
    with ledger.trial() as transaction:
        spent = transaction.spent_since((later - timedelta(days=30)).isoformat(), now=later.isoformat())
    # The one that lies ahead counts until then, the other's period is over.
    assert spent.pure == Decimal("0.5")


@needs_server
def test_a_clock_that_was_ahead_does_not_keep_members_out(tmp_path, clock, monkeypatch):
    """Certificates end by the relay's clock; when it is put right, whoever was cut off is admitted again."""
    loopback = Loopback.make(tmp_path / "members", ["north"])
    given = []
    monkeypatch.setattr(relay, "reload", lambda folder: given.append(set(Roster.load(folder).users(clock.now()))))
    ended = relay._ended(loopback.folder)
    ended = relay._keep_up(loopback.folder, ended)
    assert given == [] and not ended
    clock.ahead = YEARS
    ended = relay._keep_up(loopback.folder, ended)
    assert given == [set()] and ended == {"north", "coordinator"}
    clock.ahead = timedelta()
    ended = relay._keep_up(loopback.folder, ended)
    assert given == [set(), {"north", "coordinator"}] and not ended
    relay._keep_up(loopback.folder, ended)
    assert len(given) == 2
