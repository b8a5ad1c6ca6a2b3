"""Rows that were prepared once are used again only for the same values and records, and are gone after a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from comity import blas
from comity.data import Records
from comity.federation.owner import prepared_rows
from comity.federation.owner.host import Host
from comity.federation.owner.prepared_rows import Preparation, PreparedRows
from comity.methods.averaging import Averaging
from comity.study.simulation.simulate import RunOptions, simulate

ROWS = Records(np.arange(20.0).reshape(10, 2))


class Doubling:
    """Counts how often rows are prepared."""

    def __init__(self, factor: float) -> None:
        self.factor, self.calls, self.kept = factor, 0, list[bool]()

    def compute(self, features: np.ndarray, keep: bool) -> tuple[np.ndarray, ...]:
        self.kept.append(keep)
        self.calls += 1
        return (self.factor * features,)


def one_pass(prepared: PreparedRows, records: Any, doubling: Doubling, at_once: int = 4) -> np.ndarray:
    pieces = prepared.of(records, Preparation(str(doubling.factor).encode(), doubling.compute), at_once)
    places = enumerate(range(0, len(records), at_once))
    found = [pieces.take(records.features[at : at + at_once], place)[0] for place, at in places]
    prepared.keep(records, pieces)
    return np.concatenate(found)


def test_the_same_values_and_records_are_prepared_once() -> None:
    prepared, doubling = PreparedRows(), Doubling(2.0)
    for _ in range(3):
        np.testing.assert_array_equal(one_pass(prepared, ROWS, doubling), 2 * ROWS.features)
    assert doubling.calls == 3 and all(doubling.kept)


def test_other_values_records_or_pieces_are_prepared_again() -> None:
    prepared, other = PreparedRows(), Records(ROWS.features + 100)
    for records, factor, at_once in ((ROWS, 2.0, 4), (ROWS, 3.0, 4), (other, 3.0, 4), (other, 3.0, 3), (ROWS, 2.0, 10)):
        doubling = Doubling(factor)
        found = one_pass(prepared, records, doubling, at_once)
        np.testing.assert_array_equal(found, factor * records.features)
        assert doubling.calls == -(-10 // at_once)


def test_a_pass_that_ended_early_leaves_nothing() -> None:
    prepared, doubling = PreparedRows(), Doubling(2.0)
    prepared.of(ROWS, Preparation(b"2.0", doubling.compute), 4).take(ROWS.features[:4], 0)
    np.testing.assert_array_equal(one_pass(prepared, ROWS, doubling), 2 * ROWS.features)
    assert doubling.calls == 4


def test_what_is_only_worth_keeping_is_not_computed_where_nothing_is_kept() -> None:
    prepared, doubling = PreparedRows(), Doubling(2.0)
    map_of = Preparation(b"2.0", doubling.compute, only_kept=True)
    assert map_of.once(ROWS.features) == () and prepared.of(ROWS, map_of, 4).take(ROWS.features) == ()
    assert doubling.calls == 0 and len(prepared.of(ROWS, map_of, 4).take(ROWS.features[:4], 0)) == 1


def test_large_records_are_prepared_in_every_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared_rows, "MAX_BYTES", ROWS.features.nbytes - 1)
    prepared, doubling = PreparedRows(), Doubling(2.0)
    for _ in range(2):
        one_pass(prepared, ROWS, doubling)
    assert doubling.calls == 6 and prepared._kept is None and not any(doubling.kept)


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Host]]:
    made: list[Host] = []
    begin = Host.__init__

    def note(self: Host, *arguments: Any, **named: Any) -> None:
        begin(self, *arguments, **named)
        made.append(self)

    monkeypatch.setattr(Host, "__init__", note)
    yield made


def test_a_run_prepares_rows_once_and_forgets_them(hosts: list[Host], monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[bool] = []
    keep = PreparedRows.keep

    def note(self: PreparedRows, records: Any, pieces: Any) -> None:
        kept.append(pieces.made is not None)
        keep(self, records, pieces)

    monkeypatch.setattr(PreparedRows, "keep", note)
    generator = np.random.default_rng(1)
    parties = {
        name: Records(generator.uniform(-0.5, 0.5, (30, 3)), generator.integers(0, 2, 30))
        for name in ("ash", "birch", "elm")
    }
    built = Averaging.over_rows(features=3, sizes=30, solver="gradient")
    options = RunOptions(baselines=False)
    simulate(built, parties=parties, epsilon=1.0, delta=1e-6, unit="record", options=options)
    # For the second moment of whitened rows; the gradients use them again.
    assert kept.count(True) == len(parties)
    assert kept.count(False) >= 19 * len(parties)
    assert len(hosts) == len(parties) and all(host.prepared._kept is None for host in hosts)


def test_blas_has_one_thread_inside_and_as_many_as_before_outside() -> None:
    from threadpoolctl import threadpool_info, threadpool_limits

    def threads() -> set[int]:
        return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}

    with threadpool_limits(2, user_api="blas"):
        with blas.one_thread():
            with blas.one_thread():
                assert threads() == {1}
            assert threads() == {1}
        assert threads() == {2}
        with pytest.raises(ZeroDivisionError), blas.one_thread():
            _ = 1 / 0
        assert threads() == {2}
