"""Several processes and threads at one ledger, copies of the object, and kills at any moment."""

from __future__ import annotations

import copy
import gc
import itertools
import multiprocessing
import os
import pickle
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.ledgers import RECORD, create_ledger, spend

from comity import forks
from comity.errors import BudgetExceeded, ComityError, Refused
from comity.federation.coordinator.journal import Journal
from comity.forks import GATE
from comity.privacy.ledger import Draw, Ledger, storage
from comity.privacy.loss import Pure


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return create_ledger(tmp_path, Pure(3))


def spend_until_refused(ledger: Ledger, name: str) -> int:
    for count in range(1000):
        try:
            spend(ledger, f"{name}-{count}").use()
        except BudgetExceeded:
            return count
    raise AssertionError("the budget never ended")


def race(path: str, name: str, results: multiprocessing.Queue[int]) -> None:
    results.put(spend_until_refused(Ledger(path), name))


def spent(ledger: Ledger) -> Decimal:
    return ledger.summary()[0].spent.pure


@pytest.mark.parametrize(("method", "processes"), [("fork", 8), ("spawn", 2)])
def test_racing_processes_never_exceed_the_budget(ledger: Ledger, method: str, processes: int) -> None:
    context: Any = multiprocessing.get_context(method)
    results: multiprocessing.Queue[int] = context.Queue()
    racers = [context.Process(target=race, args=(str(ledger.path), f"p{i}", results)) for i in range(processes)]
    for racer in racers:
        racer.start()
    wins = [results.get(timeout=120) for _ in racers]
    for racer in racers:
        racer.join()
    assert sum(wins) == 30
    assert spent(ledger) == 3
    assert ledger.verify().frozen == ""


def test_one_draw_has_one_winner_among_processes(ledger: Ledger) -> None:
    draw = Draw("votes", 0, Pure(1), "discrete laplace", 1)
    ledger.reserve(study="s", run="r1", draws=[draw], **RECORD)
    context = multiprocessing.get_context("fork")
    codes: multiprocessing.Queue[str] = context.Queue()

    def attempt() -> None:
        try:
            ledger.draw(run="r1", release="votes", index=0, step="vote")
            codes.put("won")
        except Refused as refusal:
            codes.put(refusal.code)

    racers = [context.Process(target=attempt) for _ in range(6)]
    for racer in racers:
        racer.start()
    assert sorted(codes.get(timeout=60) for _ in racers) == ["drawn"] * 5 + ["won"]
    assert spent(ledger) == 1


@pytest.mark.parametrize("where", ["file", "memory"])
def test_threads_share_a_ledger(ledger: Ledger, where: str) -> None:
    shared = ledger if where == "file" else Ledger.in_memory(grant=Pure(3), **RECORD)
    wins: list[int] = []
    threads = [threading.Thread(target=lambda i=i: wins.append(spend_until_refused(shared, f"t{i}"))) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(wins) == 30 and len(wins) == 6
    assert spent(shared) == 3
    shared.verify()


def test_copies_are_the_same_ledger(ledger: Ledger, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    relative = Ledger("north.ledger")
    for i, copied in enumerate([copy.copy(ledger), copy.deepcopy(ledger), pickle.loads(pickle.dumps(relative))]):
        monkeypatch.chdir("/")
        spend(copied, f"r{i}", "0.5").use()
    assert spent(ledger) == Decimal("1.5")
    memory = Ledger.in_memory(**RECORD)
    assert copy.copy(memory) is memory and copy.deepcopy([memory])[0] is memory
    with pytest.raises(Refused, match="in memory and can't be sent to another process"):
        pickle.dumps(memory)


@contextmanager
def fresh_workers() -> Iterator[None]:
    """Processes that an earlier test left have that test's home and no witness of this ledger. Later tests have another
    home too."""
    executor = import_module("joblib.externals.loky").get_reusable_executor
    executor().shutdown(wait=True)
    try:
        yield
    finally:
        executor().shutdown(wait=True)


def test_cross_validation_is_debited_for_every_fit(ledger: Ledger) -> None:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.model_selection import cross_val_score

    class Spending(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
        """An estimator bound to a ledger, as users write them."""

        def __init__(self, ledger: Ledger | None = None) -> None:
            self.ledger = ledger

        def fit(self, features: object, labels: object) -> object:
            assert self.ledger is not None
            spend(self.ledger, f"fit-{os.getpid()}-{time.time_ns()}", "0.1").use()
            self.classes_ = np.array([0, 1])
            return self

        def predict(self, features: np.ndarray) -> np.ndarray:
            return np.zeros(len(features))

    features, labels = np.zeros((40, 2)), np.tile([0, 1], 20)
    with fresh_workers():
        cross_val_score(Spending(ledger), features, labels, cv=6, n_jobs=2, error_score="raise")
    assert spent(ledger) == Decimal("0.6")


def test_looking_while_others_spend_never_looks_rolled_back(ledger: Ledger) -> None:
    ledger.grant_more(Pure(7), "enough")
    thread = threading.Thread(target=spend_until_refused, args=(Ledger(ledger.path or ""), "thread"))
    thread.start()
    looks = 0
    while thread.is_alive():
        assert ledger.summary()[0].frozen == ""
        assert ledger.verify().frozen == ""
        looks += 1
    thread.join()
    assert looks > 0
    assert spent(ledger) == 10


def in_a_fork(act: Callable[[], object], *, seconds: float = 60) -> int:
    """The exit code of a forked process that acts: 0, or 1 after an error of ours, or 2 after another one. One that
    waits for ever is ended, and its code is that of the signal."""
    pid = os.fork()
    if pid == 0:
        code = 2
        try:
            act()
            code = 0
        except ComityError:
            code = 1
        finally:
            os._exit(code)
    until = time.monotonic() + seconds
    while (found := os.waitpid(pid, os.WNOHANG))[0] == 0:
        if time.monotonic() > until:
            os.kill(pid, signal.SIGKILL)
            found = os.waitpid(pid, 0)
            break
        time.sleep(0.001)
    return os.waitstatus_to_exitcode(found[1])


def test_a_fork_waits_for_the_transactions_of_other_threads(ledger: Ledger) -> None:
    """SQLite has locks of the whole process: a child of a process in which a thread holds one waits for ever."""
    inside, forked = threading.Event(), threading.Event()

    def hold() -> None:
        with ledger.transaction() as transaction:
            transaction.grant_more(Pure(1), "while another thread forks")
            inside.set()
            forked.wait(0.3)

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait()
    assert in_a_fork(lambda: spend(ledger, "child").use()) == 0
    forked.set()
    thread.join()
    assert [entry.kind for entry in ledger.entries()] == ["create", "grant", "reserve", "draw"]
    ledger.verify()


def test_a_fork_opens_the_file_again(ledger: Ledger) -> None:
    spend(ledger, "r1").use()

    def collect_and_spend() -> None:
        gc.collect()
        spend(ledger, "child").use()

    assert in_a_fork(collect_and_spend) == 0
    spend(ledger, "r2").use()
    assert spent(ledger) == Decimal("0.3")
    ledger.verify()


def test_a_fork_inside_a_transaction_can_not_use_the_ledger(ledger: Ledger) -> None:
    started = time.monotonic()
    with ledger.transaction() as transaction:
        transaction.grant_more(Pure(1), "while forking")
        assert in_a_fork(lambda: (gc.collect(), transaction.connection)) == 0
        assert in_a_fork(lambda: spend(Ledger(ledger.path or ""), "child").use()) == 1
        assert in_a_fork(lambda: spend(ledger, "child").use()) == 1
    assert time.monotonic() - started < 30
    assert in_a_fork(lambda: spend(ledger, "child").use()) == 0
    assert [entry.kind for entry in ledger.entries()] == ["create", "grant", "reserve", "draw"]
    ledger.verify()


def test_forks_while_threads_spend(ledger: Ledger) -> None:
    thread = threading.Thread(target=spend_until_refused, args=(ledger, "thread"))
    thread.start()
    codes = [in_a_fork(lambda i=i: spend(ledger, f"fork-{i}", "0.01").use()) for i in range(10)]  # type: ignore[misc]
    thread.join()
    assert set(codes) <= {0, 1}
    assert spent(ledger) <= 3
    assert sum(entry.kind == "draw" and entry.run.startswith("fork") for entry in ledger.entries()) == codes.count(0)
    ledger.verify()


def test_a_connection_dropped_while_another_thread_forks_is_closed_later(ledger: Ledger) -> None:
    """Closing takes locks of SQLite, and a thread's connection is dropped when the thread ends, at whatever moment."""
    dropped = [storage._Handle(ledger.path or Path())]
    with GATE:
        connection = dropped[0].connect()
    # Not known to the fork, as where the last reference went a moment before.
    storage._handles.discard(dropped[0])
    GATE._begin_fork()
    try:
        thread = threading.Thread(target=dropped.clear)
        thread.start()
        thread.join(10)
        assert not thread.is_alive() and not dropped
        connection.execute("SELECT 1")
    finally:
        GATE._end_in_parent()
    spend(ledger, "after").use()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.execute("SELECT 1")


@pytest.mark.parametrize("use", ["ledger in memory", "journal"])
def test_a_fork_waits_for_whoever_else_is_inside_sqlite(ledger: Ledger, use: str) -> None:
    inside, order = threading.Event(), []
    memory, journal = Ledger.in_memory(grant=Pure(1), **RECORD), Journal()

    def hold() -> None:
        with memory.transaction() if use == "ledger in memory" else journal._lock:
            inside.set()
            time.sleep(0.3)
            order.append("thread")

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait()
    assert in_a_fork(lambda: spend(ledger, "child").use()) == 0
    order.append("forked")
    thread.join()
    assert order == ["thread", "forked"]


def test_nobody_enters_sqlite_while_a_fork_waits(ledger: Ledger) -> None:
    first, over = threading.Event(), threading.Event()

    def hold() -> None:
        with GATE:
            first.set()
            time.sleep(0.3)

    def come_later() -> None:
        first.wait()
        time.sleep(0.1)
        with GATE:
            over.wait(30)

    threads = [threading.Thread(target=hold), threading.Thread(target=come_later)]
    for thread in threads:
        thread.start()
    first.wait()
    code = in_a_fork(lambda: spend(ledger, "child").use(), seconds=10)
    over.set()
    for thread in threads:
        thread.join()
    assert code == 0


def test_a_child_that_was_forked_beside_a_long_transaction_is_refused(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It can't tell whether the other thread was inside SQLite, so it uses no ledger at all rather than hang."""
    monkeypatch.setattr(forks, "MAX_WAIT_SECONDS", 0.1)
    other = Ledger.create(tmp_path / "other.ledger", dataset="visits", grant=Pure(1), **RECORD)
    inside, over = threading.Event(), threading.Event()

    def hold() -> None:
        with ledger.transaction() as transaction:
            transaction.grant_more(Pure(1), "for long")
            inside.set()
            over.wait()

    acts: list[Callable[[], object]] = [
        lambda: spend(ledger, "child").use(),
        lambda: spend(other, "child").use(),
        lambda: Ledger.in_memory(grant=Pure(1), **RECORD).summary(),
        Journal,
    ]
    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait()
    codes = [in_a_fork(act, seconds=10) for act in acts]
    over.set()
    thread.join()
    assert codes == [1, 1, 1, 1]
    assert in_a_fork(lambda: spend(other, "child").use()) == 0
    assert spent(other) == Decimal("0.1") and spent(ledger) == 0
    ledger.verify()


def test_a_ledger_in_memory_does_not_cross_a_fork() -> None:
    memory = Ledger.in_memory(grant=Pure(1), **RECORD)
    spend(memory, "r1").use()
    pid = os.fork()
    if pid == 0:
        try:
            spend(memory, "r2").use()
        except Refused as refusal:
            os._exit(0 if "would spend a copy" in str(refusal) else 2)
        os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    fresh = Ledger.in_memory(**RECORD)
    spend(fresh, "r1").use()


def test_a_fork_closes_no_ledger_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing takes a lock of SQLite, which a thread of the parent may have held when the process was forked."""
    read, write = os.pipe()
    monkeypatch.setattr(storage, "_newest", None)
    memory: Ledger | None = Ledger.in_memory(**RECORD)
    assert memory is not None
    spend(memory, "r1").use()
    parent = os.getpid()
    monkeypatch.setattr(storage.Database, "__del__", lambda self: os.getpid() == parent or os.write(write, b"closed"))
    pid = os.fork()
    if pid == 0:
        memory = None
        gc.collect()
        os._exit(0)
    os.waitpid(pid, 0)
    os.close(write)
    assert os.read(read, 100) == b""
    os.close(read)


def spend_for_ever(path: Path, log: Path) -> None:
    ledger, told = Ledger(path), os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for count in itertools.count():
        run = f"{os.getpid()}-{count}"
        draws = [Draw("votes", i, Pure("0.001"), "discrete laplace", 1) for i in range(3)]
        ledger.reserve(study="s", run=run, draws=draws, **RECORD)
        for i in range(2):
            with ledger.transaction() as transaction:
                transaction.draw(run=run, release="votes", index=i, step="vote")
                transaction.connection.execute("INSERT INTO sent VALUES (?, ?)", (run, i))
            os.write(told, f"{run} {i}\n".encode())
        ledger.close(run)


def kill_often(ledger: Ledger, kills: int, log: Path) -> None:
    """Two spenders; the older is killed at a random moment and replaced, over and over."""
    with ledger.transaction() as transaction:
        transaction.connection.execute("CREATE TABLE sent (run TEXT, i INTEGER)")
    context, moments = multiprocessing.get_context("fork"), np.random.default_rng(5)
    spenders: list[multiprocessing.process.BaseProcess] = []
    for kill in range(kills + 2):
        if kill < kills:
            spenders.append(context.Process(target=spend_for_ever, args=(ledger.path, log)))
            spenders[-1].start()
            time.sleep(moments.uniform(0.02, 0.1))
        if len(spenders) == 2 or (kill >= kills and spenders):
            victim = spenders.pop(0)
            assert victim.is_alive()
            victim.kill()
            victim.join()


def check_after_kills(path: Path, log: Path) -> None:
    ledger = Ledger(path)
    assert ledger.verify().frozen == ""
    entries = ledger.entries()
    reserved = {(entry.run, entry.index) for entry in entries if entry.kind == "reserve"}
    drawn = [(entry.run, entry.index) for entry in entries if entry.kind == "draw"]
    assert len(drawn) == len(set(drawn)) > 0
    assert set(drawn) <= reserved
    with ledger.reading() as connection:
        sent = connection.execute("SELECT run, i FROM sent").fetchall()
    assert sorted(sent) == sorted(drawn)
    told = {(run, int(i)) for run, i in (line.split() for line in log.read_text().splitlines())}
    assert told <= set(drawn)
    assert ledger.summary()[0].spent.pure == Decimal("0.001") * len(drawn)


def test_kills_leave_a_chain_that_verifies(ledger: Ledger, tmp_path: Path) -> None:
    ledger.grant_more(Pure(10**6), "for the test")
    kill_often(ledger, 15, tmp_path / "log")
    assert ledger.path is not None
    check_after_kills(ledger.path, tmp_path / "log")


@pytest.mark.long
def test_many_kills(ledger: Ledger, tmp_path: Path) -> None:
    ledger.grant_more(Pure(10**6), "for the test")
    kill_often(ledger, 200, tmp_path / "log")
    assert ledger.path is not None
    check_after_kills(ledger.path, tmp_path / "log")
