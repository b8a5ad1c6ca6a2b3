"""How a step's sum over records is computed: block by block, by as many threads as there are processors.

An exact sum (`comity.data.exact_sums`) does not depend on the blocks. Any other is added in the order of the blocks,
however many threads compute them.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from comity.data.exact_sums import MAX_BLOCK_ROWS, ExactSum
from comity.data.records import Records
from comity.data.tables.engine_records import EngineRecords
from comity.errors import Refused
from comity.federation.owner.prepared_rows import Pieces, Preparation
from comity.federation.owner.rows import Rows, split_block

if TYPE_CHECKING:
    from comity.data import LocalRecords

Floats = NDArray[np.float64]
Part = ExactSum | Floats
_Found = TypeVar("_Found")

_AHEAD = 2
"""Blocks for each thread that are begun before their results are taken."""


@dataclass(frozen=True, eq=False)
class BlockSum:
    """Σ `part(rows)` over `every` records of an owner, in blocks of at most `at_once`."""

    part: Callable[[Rows], Floats]
    every: int
    at_once: int | None = None
    prepare: Preparation | None = None
    exact: bool = False

    def __post_init__(self) -> None:
        if self.exact:
            object.__setattr__(self, "at_once", min(self.at_once or MAX_BLOCK_ROWS, MAX_BLOCK_ROWS))

    def of_rows(self, rows: Rows, place: int | None = None, pieces: Pieces | None = None) -> Part:
        """The part of one piece; `place` is its number among all of the owner's, where it is known."""
        if pieces is not None:
            rows = replace(rows, prepared=pieces.take(rows.features, place))
        elif self.prepare is not None:
            rows = replace(rows, prepared=self.prepare.once(rows.features))
        found = self.part(rows)
        # A copy: `part` may return the block itself, which the next block overwrites.
        return ExactSum.of(found) if self.exact else np.array(found)

    def of_block(self, block: Records) -> list[Part]:
        parts = [self.of_rows(rows) for rows in split_block(block, self.every, self.at_once)]
        return [ExactSum.total(_exact(parts))] if self.exact else parts

    def exactly_of_block(self, block: Records) -> list[ExactSum]:
        return list(_exact(self.of_block(block)))

    def add(self, parts: Iterable[Part]) -> Floats:
        """The sum of parts in their order."""
        if self.exact:
            return ExactSum.total(_exact(parts)).value()
        found: Floats | None = None
        for one in parts:
            assert isinstance(one, np.ndarray)
            found = one if found is None else np.add(found, one, out=found)
        assert found is not None
        return found


def read_parts(
    records: LocalRecords,
    work: BlockSum,
    pieces: Pieces | None,
    reading: Callable[[], AbstractContextManager[None]],
) -> Iterator[Part]:
    """The parts of a sum in the order of the records. `reading` translates the errors of a source."""
    if isinstance(records, Records):
        # In memory: a thread gets a piece.
        rows = list(split_block(records, work.every, work.at_once))
        yield from map_in_order([partial(work.of_rows, one, at, pieces) for at, one in enumerate(rows)])
        return
    if isinstance(records, EngineRecords):
        if not work.exact:
            raise Refused(
                "a step needs an owner's records themselves, and those of an engine stay there", code="stopped"
            )
        with reading():
            yield from records.add_up(work.exactly_of_block)
        return
    loaders = records.loaders()
    if loaders is None:
        blocks = records.blocks()
        while True:
            with reading():
                block = next(blocks, None)
            if block is None:
                return
            yield from work.of_block(block)

    def read(load: Callable[[], Records]) -> list[Part]:
        with reading():
            block = load()
        return work.of_block(block)

    for found in map_in_order([partial(read, load) for load in loaders or ()]):
        yield from found


def map_in_order(tasks: list[Callable[[], _Found]]) -> Iterator[_Found]:
    """What tasks return, in their order."""
    pool, threads = _pool(), count_processors()
    if threads < 2 or len(tasks) < 2:
        for task in tasks:
            yield task()
        return
    running: deque[Future[_Found]] = deque()
    try:
        for task in tasks:
            running.append(pool.submit(task))
            if len(running) >= _AHEAD * threads:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
    finally:
        # After an error: no thread reads on for a step that has stopped.
        for left in running:
            left.cancel()


def count_processors() -> int:
    """The processors that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


@cache
def _pool() -> ThreadPoolExecutor:
    """One for the process: parties that compute at once share the processors."""
    return ThreadPoolExecutor(count_processors(), thread_name_prefix="comity-block")


# A forked process has none of the threads.
os.register_at_fork(after_in_child=_pool.cache_clear)


def _exact(parts: Iterable[Part]) -> Iterator[ExactSum]:
    for part in parts:
        assert isinstance(part, ExactSum)
        yield part
