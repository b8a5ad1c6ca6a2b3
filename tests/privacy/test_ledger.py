"""The ledger's rules: reserve, draw, close, void, grants, conversions, refusals."""

from __future__ import annotations

import sqlite3
from decimal import Decimal
from pathlib import Path

import pytest
from tests.support.ledgers import RECORD, create_ledger, make_draws, reserve

from comity.errors import BadInput, BudgetExceeded, Malformed, Refused
from comity.privacy.accounting import gdp_square, zcdp_rho
from comity.privacy.ledger import Currency, Draw, Ledger
from comity.privacy.loss import GDP, ZCDP, Approx, Pure
from comity.privacy.unit import Neighbours, Unit


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return create_ledger(tmp_path, Pure(3))


def left(ledger: Ledger) -> Decimal:
    [account] = ledger.summary()
    assert account.left is not None
    return account.left


def test_a_draw_spends_what_was_reserved(ledger: Ledger) -> None:
    reserve(ledger, "r1", 1, 0.25)
    [account] = ledger.summary()
    assert (account.spent.pure, account.reserved.pure, account.left) == (Decimal(0), Decimal("1.25"), Decimal("1.75"))
    permit = ledger.draw(run="r1", release="votes", index=0, step="vote")
    [account] = ledger.summary()
    assert (account.spent.pure, account.reserved.pure, account.left) == (Decimal(1), Decimal("0.25"), Decimal("1.75"))
    assert (permit.release, permit.index) == ("votes", 0)
    permit.use()
    with pytest.raises(Refused):
        permit.use()
    assert [entry.kind for entry in ledger.entries()] == ["create", "reserve", "reserve", "draw"]
    debit = ledger.entries()[-1]
    assert (debit.study, debit.run, debit.release, debit.index, debit.step) == ("readmission", "r1", "votes", 0, "vote")
    assert (debit.loss, debit.mechanism, debit.sensitivity) == ("pure:1", "discrete laplace", "1.0")
    assert debit.time.endswith("+00:00")
    assert ledger.verify().entries == 4


def test_the_account_reads_as_its_owner_expects(ledger: Ledger) -> None:
    reserve(ledger, "r1", 1.25)
    ledger.draw(run="r1", release="votes", index=0, step="vote")
    [account] = ledger.summary()
    sums = "granted eps 3.00, spent 1.25, reserved 0.00, left 1.75, counted in pure eps"
    assert str(account) == f"patients · record, replace    {sums}"


def test_an_account_says_that_gaussian_losses_add_as_squares(tmp_path: Path) -> None:
    ledger = create_ledger(tmp_path, Approx(3, 1e-5))
    assert "squares" not in str(ledger.summary()[0]), "nothing is spent yet"
    ledger.write_off(Approx(1, 1e-5), "a test")
    [account] = ledger.summary()
    assert account.left is not None and account.left > 2
    assert "(losses add as squares, so what is left is more than the difference)" in str(account)
    ledger.write_off("all", "a test")
    assert "squares" not in str(ledger.summary()[0]), "nothing is left"


@pytest.mark.parametrize(
    ("release", "index", "code"), [("votes", 0, "drawn"), ("votes", 2, "unreserved"), ("other", 1, "unreserved")]
)
def test_only_reserved_draws_once(ledger: Ledger, release: str, index: int, code: str) -> None:
    reserve(ledger, "r1", 1, 1)
    ledger.draw(run="r1", release="votes", index=0, step="vote")
    before = ledger.head()
    with pytest.raises(Refused) as refusal:
        ledger.draw(run="r1", release=release, index=index, step="vote")
    assert refusal.value.code == code
    assert ledger.head() == before


def test_no_draw_without_a_reservation(ledger: Ledger) -> None:
    with pytest.raises(Refused, match="nothing is reserved for run r9"):
        ledger.draw(run="r9", release="votes", index=0, step="vote")


@pytest.mark.parametrize("end", ["void", "close"])
def test_an_ended_run_gives_back_only_what_was_never_drawn(ledger: Ledger, end: str) -> None:
    reserve(ledger, "r1", 1, 0.5, 0.25)
    ledger.draw(run="r1", release="votes", index=1, step="vote")
    getattr(ledger, end)("r1")
    [account] = ledger.summary()
    assert (account.spent.pure, account.reserved.pure) == (Decimal("0.5"), Decimal(0))
    with pytest.raises(Refused, match="can't draw again"):
        ledger.draw(run="r1", release="votes", index=0, step="vote")
    with pytest.raises(Refused, match="can't draw again"):
        reserve(ledger, "r1", 1, 0.5, 0.25)
    entries = ledger.verify().entries
    getattr(ledger, end)("r1")
    assert ledger.verify().entries == entries


def test_ending_an_unknown_run_is_refused(ledger: Ledger) -> None:
    with pytest.raises(Refused, match="nothing is reserved for run typo"):
        ledger.void("typo")


def test_a_reservation_is_fixed_by_its_first_list(ledger: Ledger) -> None:
    reserve(ledger, "r1", 1, 0.5)
    head = ledger.head()
    reserve(ledger, "r1", 1, 0.5)
    assert ledger.head() == head
    for changed in (
        {"draws": make_draws(1)},
        {"draws": make_draws(1, 0.5, 0.1)},
        {"draws": make_draws(1, 0.25)},
        {"study": "other"},
    ):
        with pytest.raises(Refused, match="another list of draws"):
            reserve(ledger, "r1", **changed)
    assert ledger.head() == head


def test_an_empty_reservation_is_a_list_too(ledger: Ledger) -> None:
    reserve(ledger, "r1")
    reserve(ledger, "r1")
    with pytest.raises(Refused, match="another list"):
        reserve(ledger, "r1", 1)
    ledger.close("r1")
    assert [entry.kind for entry in ledger.entries()] == ["create", "open", "close"]
    ledger.verify()


def test_a_list_names_each_draw_once(ledger: Ledger) -> None:
    with pytest.raises(Refused, match="twice"):
        reserve(ledger, "r1", draws=make_draws(1) + make_draws(1))


def test_refusal_names_requested_remaining_difference_and_remedy(ledger: Ledger) -> None:
    reserve(ledger, "r1", 1.25)
    head = ledger.head()
    with pytest.raises(BudgetExceeded) as refusal:
        reserve(ledger, "r2", 1, 1)
    assert str(refusal.value) == (
        "refused: readmission asks eps 2.00 of patients, 1.75 is left (0.25 short). Lower privacy.epsilon to 1.75, "
        f'or grant more: comity ledger grant {ledger.path} --dataset patients --why "..." --epsilon 0.25'
    )
    said = (refusal.value.requested, refusal.value.remaining, refusal.value.difference)
    assert said == ("2.00", "1.75", "0.25")
    assert ledger.head() == head
    reserve(ledger, "r2", 1.75)


def test_the_granted_remedy_suffices(tmp_path: Path) -> None:
    ledger = create_ledger(tmp_path, Approx(1, "1e-5"))
    reserve(ledger, "r1", GDP.squared(gdp_square(0.7, 1e-5)))
    with pytest.raises(BudgetExceeded) as refusal:
        reserve(ledger, "r2", GDP("0.22"), 0.1111)
    ledger.grant_more(Pure(refusal.value.difference), "as the refusal said")
    reserve(ledger, "r2", GDP("0.22"), 0.1111)


def test_a_refusal_names_the_epsilon_that_is_left_at_the_granted_delta(tmp_path: Path) -> None:
    ledger = create_ledger(tmp_path, Approx(2, "1e-5"))
    reserve(ledger, "r1", GDP.squared(gdp_square(1.5, 1e-5)))
    with pytest.raises(
        BudgetExceeded, match=r"asks eps 1\.50 at delta 1e-5 of patients, .*Lower privacy.epsilon to"
    ) as no:
        reserve(ledger, "r2", GDP.squared(gdp_square(1.5, 1e-5)))
    assert 1 < float(no.value.remaining) < 1.5
    reserve(ledger, "r2", GDP.squared(gdp_square(float(no.value.remaining), 1e-5)))


def test_delta_is_a_budget_too(tmp_path: Path) -> None:
    ledger = create_ledger(tmp_path, Approx(3, "1e-5"), currency=Currency.APPROX)
    with pytest.raises(BudgetExceeded, match=r"asks delta 2e-5 of patients, 1e-5 is left \(1e-5 short\)"):
        reserve(ledger, "r1", Approx(1, "2e-5"))
    reserve(ledger, "r1", Approx(1, "1e-5"))


def test_decimals_are_exact(tmp_path: Path) -> None:
    ledger = create_ledger(tmp_path, Pure(1))
    for run in range(10):
        reserve(ledger, f"r{run}", 0.1)
        ledger.draw(run=f"r{run}", release="votes", index=0, step="vote")
    assert left(ledger) == 0
    assert ledger.summary()[0].spent.pure == 1
    with pytest.raises(BudgetExceeded):
        reserve(ledger, "more", Pure("1e-30"))


def test_zcdp_composes_better_than_its_parts(tmp_path: Path) -> None:
    ledger = create_ledger(tmp_path, Approx(1, "1e-6"), currency=Currency.CONCENTRATED)
    part = zcdp_rho(1, 1e-6) / 50
    reserve(ledger, "r1", *[ZCDP(part)] * 50)
    assert left(ledger) < Decimal("0.001")
    with pytest.raises(BudgetExceeded):
        reserve(ledger, "r2", ZCDP(part))


@pytest.mark.parametrize(
    ("unit", "neighbours", "spent"),
    [
        (Unit.PARTY, Neighbours.REPLACE, "0.5"),
        (Unit.PERSON, Neighbours.REPLACE, "0.5"),
        (Unit.RECORD, Neighbours.ADD_REMOVE, "1"),
        (Unit.PARTY, Neighbours.ADD_REMOVE, "1"),
    ],
)
def test_losses_are_converted_upwards(ledger: Ledger, unit: Unit, neighbours: Neighbours, spent: str) -> None:
    for _ in range(2):
        reserve(ledger, "r1", 0.5, unit=unit, neighbours=neighbours)
    [account] = ledger.summary()
    assert account.reserved.pure == Decimal(spent)
    ledger.draw(run="r1", release="votes", index=0, step="vote")
    entry = ledger.entries()[-1]
    assert (entry.unit, entry.neighbours) == ("record", "replace")


def test_the_advice_speaks_the_studys_relation(ledger: Ledger) -> None:
    with pytest.raises(BudgetExceeded, match=r"asks eps 4\.00 of patients, 3\.00 is left .*epsilon to 1\.5") as short:
        reserve(ledger, "r1", 2, neighbours=Neighbours.ADD_REMOVE)
    assert short.value.difference == "1.00"
    reserve(ledger, "r1", 1.5, neighbours=Neighbours.ADD_REMOVE)


def test_losses_are_never_converted_downwards(tmp_path: Path) -> None:
    ledger = Ledger.create(
        tmp_path / "a", dataset="d", grant=Pure(9), unit=Unit.PARTY, neighbours=Neighbours.ADD_REMOVE
    )
    with pytest.raises(Refused):
        reserve(ledger, "r1", 1, unit=Unit.RECORD, neighbours=Neighbours.ADD_REMOVE)
    with pytest.raises(Refused):
        reserve(ledger, "r1", 1, unit=Unit.PARTY, neighbours=Neighbours.REPLACE)
    assert ledger.verify().entries == 1


def test_a_ledger_holds_several_datasets(ledger: Ledger) -> None:
    ledger.add_dataset(dataset="staff", grant=Pure(1), unit=Unit.PARTY, neighbours=Neighbours.REPLACE)
    with pytest.raises(BadInput, match="patients, staff: name one"):
        reserve(ledger, "r1", 1)
    with pytest.raises(BadInput, match="has no dataset pets"):
        reserve(ledger, "r1", 1, dataset="pets")
    with pytest.raises(BadInput, match="already"):
        ledger.add_dataset(dataset="staff", grant=Pure(1), **RECORD)
    reserve(ledger, "r1", 1, dataset="staff", unit=Unit.PARTY)
    with pytest.raises(BudgetExceeded):
        reserve(ledger, "r2", 0.1, dataset="staff", unit=Unit.PARTY)
    assert {account.dataset: account.left for account in ledger.summary()} == {"patients": 3, "staff": 0}
    ledger.verify()


def test_grants_add_up(ledger: Ledger) -> None:
    ledger.grant_more(Approx(1, "1e-6"), "approved by the board")
    [account] = ledger.summary()
    assert account.granted == Approx(4, "1e-6")
    assert ledger.entries()[-1].note == "approved by the board"
    with pytest.raises(BadInput, match="a grant is an epsilon"):
        ledger.grant_more(ZCDP(1), "no")  # type: ignore[arg-type]
    ledger.verify()


def test_what_fails_inside_a_transaction_leaves_nothing(ledger: Ledger) -> None:
    head = ledger.head()
    with pytest.raises(KeyError), ledger.transaction() as transaction:
        transaction.connection.execute("CREATE TABLE reply (body BLOB)")
        transaction.reserve(study="s", run="r1", draws=make_draws(1), **RECORD)
        permit = transaction.draw(run="r1", release="votes", index=0, step="vote")
        raise KeyError
    assert ledger.head() == head
    with pytest.raises(Refused):
        permit.use()
    with pytest.raises(Refused, match="the transaction is over"):
        transaction.grant_more(Pure(1), "late")
    with ledger.reading() as connection:
        assert connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'reply'").fetchone() == (0,)


def test_a_refusal_caught_inside_leaves_the_rest_of_the_transaction(ledger: Ledger) -> None:
    with ledger.transaction() as transaction:
        with pytest.raises(BudgetExceeded):
            transaction.reserve(study="s", run="r1", draws=make_draws(1, 2.5), **RECORD)
        transaction.reserve(study="s", run="r2", draws=make_draws(1), **RECORD)
    assert [entry.run for entry in ledger.entries()] == ["", "r2"]
    ledger.verify()


def test_others_tables_commit_with_the_debit(ledger: Ledger) -> None:
    reserve(ledger, "r1", 1)
    with ledger.transaction() as transaction:
        transaction.connection.execute("CREATE TABLE reply (owner TEXT, body BLOB)")
        transaction.draw(run="r1", release="votes", index=0, step="vote")
        transaction.connection.execute("INSERT INTO reply VALUES (?, ?)", (transaction.owner, b"reply"))
    with Ledger(ledger.path or "").reading() as connection:
        assert connection.execute("SELECT * FROM reply").fetchone() == (ledger.owner, b"reply")
    ledger.verify()


def test_transactions_of_one_thread_do_not_nest(ledger: Ledger) -> None:
    for one in (ledger, Ledger.in_memory(**RECORD)):
        with one.transaction(), pytest.raises(Refused, match="a transaction of this thread is open"):
            one.grant_more(Pure(1), "nested")


def test_a_transaction_can_be_looked_at_from_inside(ledger: Ledger) -> None:
    for one in (ledger, Ledger.in_memory(grant=Pure(3), **RECORD)):
        with one.transaction() as transaction:
            transaction.reserve(study="s", run="r1", draws=make_draws(1), **RECORD)
            assert left(one) == 2
        assert left(one) == 2


def test_in_memory_ledgers_are_separate_and_count_without_a_limit() -> None:
    one, other = Ledger.in_memory(**RECORD), Ledger.in_memory(grant=Pure(1), dataset="clinic", **RECORD)
    reserve(one, "r1", 100, ZCDP(5))
    one.draw(run="r1", release="votes", index=1, step="vote")
    with pytest.raises(BudgetExceeded, match=r"asks eps 1\.50 of clinic, 1\.00 is left"):
        reserve(other, "r1", 1.5)
    reserve(other, "r1", 1)
    assert (len(one.entries()), len(other.entries())) == (4, 2)
    assert one.verify().head != other.verify().head
    assert "no limit" in str(one.summary()[0]) and one.summary()[0].left is None
    assert one.owner != other.owner


def test_many_in_memory_ledgers_are_cheap() -> None:
    many = [Ledger.in_memory(**RECORD) for _ in range(600)]
    for ledger in many:
        reserve(ledger, "r1", 1)
    assert all(len(ledger.entries()) == 2 for ledger in many)
    places = {id(ledger._storage._require_slot()[0]) for ledger in many}  # type: ignore[union-attr]
    assert 3 <= len(places) <= 4


@pytest.mark.parametrize("bad", ["", "a\nb", "\x00", "x" * 501, "\ud800", 7])
def test_texts_are_single_lines(ledger: Ledger, bad: object) -> None:
    with pytest.raises(Malformed):
        reserve(ledger, bad, 1)  # type: ignore[arg-type]
    reserve(ledger, "r1", 1)
    with pytest.raises(Malformed):
        ledger.draw(run="r1", release="votes", index=0, step=bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [-1, 2**60, True, 0.0])
def test_indices_are_whole_numbers(ledger: Ledger, bad: object) -> None:
    with pytest.raises(Malformed):
        reserve(ledger, "r1", draws=[Draw("votes", bad, Pure(1), "laplace", 1)])  # type: ignore[arg-type]


def test_entries_cannot_be_changed_by_accident(ledger: Ledger) -> None:
    for statement in ("DELETE FROM entries", "UPDATE entries SET loss = 'pure:0'"):
        with pytest.raises(sqlite3.IntegrityError), ledger.transaction() as transaction:
            transaction.connection.execute(statement)
