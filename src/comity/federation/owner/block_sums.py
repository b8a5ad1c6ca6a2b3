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
from itertools import count
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
    from comity.data import LocalRecords, StreamedRecords

Floats = NDArray[np.float64]
Part = ExactSum | Floats
_Found = TypeVar("_Found")

_AHEAD = 2
"""Tasks for each thread that are begun before their results are taken."""

_TOGETHER = 8
"""Blocks that a task takes at most, which share what it costs to put their sums on the grid."""

_TASKS = 16
"""Tasks of a thread at least, where there are enough blocks: the last ones end at about one time."""

_MAX_WAITING = 1 << 16
"""Numbers of parts that wait to be put on the grid together."""


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

    def of_pieces(self, pieces: Iterable[tuple[Rows, int | None]], kept: Pieces | None = None) -> list[Part]:
        """The parts of some pieces, each with its number among all of the owner's where it is known; one part for all
        of them where the sum is exact."""
        found: list[Part] = []
        waiting: list[Floats] = []

        def put_on_grid() -> None:
            found.append(ExactSum.of_all(np.stack(waiting)))
            waiting.clear()

        for rows, place in pieces:
            # A copy: `part` may return the block itself, which the next block overwrites.
            part = np.array(self._part_of(rows, place, kept), np.float64 if self.exact else None)
            if not self.exact:
                found.append(part)
                continue
            if waiting and (part.shape != waiting[0].shape or part.size * len(waiting) > _MAX_WAITING):
                put_on_grid()
            waiting.append(part)
        if waiting:
            put_on_grid()
        return [ExactSum.total(_exact(found))] if self.exact else found

    def of_block(self, block: Records) -> list[Part]:
        return self.of_pieces((rows, None) for rows in split_block(block, self.every, self.at_once))

    def exactly_of_block(self, block: Records) -> list[ExactSum]:
        return list(_exact(self.of_block(block)))

    def _part_of(self, rows: Rows, place: int | None, kept: Pieces | None) -> Floats:
        if kept is not None:
            rows = replace(rows, prepared=kept.take(rows.features, place))
        elif self.prepare is not None:
            rows = replace(rows, prepared=self.prepare.once(rows.features))
        return self.part(rows)

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
        rows = list(zip(split_block(records, work.every, work.at_once), count()))
        for found in map_in_order([partial(work.of_pieces, some, pieces) for some in _together(rows)]):
            yield from found
        return
    if isinstance(records, EngineRecords):
        if not work.exact:
            raise Refused(
                "a step needs an owner's records themselves, and those of an engine stay there", code="stopped"
            )
        with reading():
            yield from records.add_up(work.exactly_of_block)
        return
    yield from _read_blocks(records, work, reading)


def _read_blocks(
    records: StreamedRecords, work: BlockSum, reading: Callable[[], AbstractContextManager[None]]
) -> Iterator[Part]:
    loaders = records.loaders()
    if loaders is None:
        blocks = records.blocks()
        while True:
            with reading():
                block = next(blocks, None)
            if block is None:
                return
            yield from work.of_block(block)

    def read(some: list[Callable[[], Records]]) -> Iterator[tuple[Rows, int | None]]:
        for load in some:
            with reading():
                block = load()
            for rows in split_block(block, work.every, work.at_once):
                yield rows, None

    def parts_of(some: list[Callable[[], Records]]) -> list[Part]:
        return work.of_pieces(read(some))

    for found in map_in_order([partial(parts_of, some) for some in _together(loaders)]):
        yield from found


def _together(blocks: list[_Found]) -> list[list[_Found]]:
    """Neighbouring blocks, as many as a task takes."""
    each = max(1, min(_TOGETHER, len(blocks) // (_TASKS * count_processors())))
    return [blocks[start : start + each] for start in range(0, len(blocks), each)]


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
