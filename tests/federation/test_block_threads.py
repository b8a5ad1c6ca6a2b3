"""A step's sum is the same on any number of threads, and an error stops it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from comity.data import Frame, StreamedRecords
from comity.data.exact_sums import round_factor
from comity.data.tables.encoded_cache import CachePlace
from comity.errors import Refused
from comity.federation.owner import block_sums
from comity.federation.owner.rows import Rows
from tests.federation.test_total import ENCODING, _Site, frame


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    def use(count: int) -> None:
        monkeypatch.setattr(block_sums, "count_processors", lambda: count)
        block_sums._pool.cache_clear()

    return use


def products(rows: Rows) -> np.ndarray:
    factors = round_factor(rows.features / 3)
    return np.asarray(factors.T @ factors)


def plain(rows: Rows) -> np.ndarray:
    return np.asarray((rows.features / 3).T @ (rows.features / 7))


@pytest.mark.parametrize(("part", "exact"), [(products, True), (plain, False)])
def test_the_number_of_threads_changes_no_bit(
    part: Callable[[Rows], np.ndarray], exact: bool, tmp_path: Path, threads: Callable[[int], None]
) -> None:
    table, found = frame(5000), set()
    whole = ENCODING.encode(table).records
    cached = StreamedRecords.scan(Frame(table), ENCODING, piece=70, limit=1, cache=CachePlace(tmp_path))
    assert cached.cache is not None
    for count in (1, 2, 5):
        threads(count)
        for records in (whole, cached):
            found.add((records is whole, _Site(records).total(part, at_once=40, exact=exact).tobytes()))
    # Exact sums do not depend on the blocks either, which a cache cuts elsewhere.
    assert len({value for _, value in found}) == (1 if exact else 2) and len(found) == 2


def test_blocks_are_computed_at_once_and_an_error_stops_the_rest(threads: Callable[[int], None]) -> None:
    threads(2)
    both, begun = threading.Barrier(2, timeout=20), []

    def wait(rows: Rows) -> np.ndarray:
        both.wait()
        return np.zeros(1)

    records = ENCODING.encode(frame(80)).records
    assert _Site(records).total(wait, at_once=40) == [0.0]

    def fail(rows: Rows) -> np.ndarray:
        begun.append(1)
        time.sleep(0.01)
        raise Refused("no", code="stopped")

    with pytest.raises(Refused, match="no"):
        _Site(records).total(fail, at_once=1)
    time.sleep(0.1)
    assert len(begun) <= 8
