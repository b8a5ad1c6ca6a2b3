"""Encoded records in a file without a name, so that a run reads its source once instead of once for each sum.

The file holds an owner's records, in the folder that the owner chose. It has no name from the start: no other user can
open it, and the system deletes it when the last process that has it open ends, however it ends. So nothing is left to
sweep after a kill or a loss of power. Its blocks on the disk are not overwritten; an owner whose disk is not encrypted
can do without it.

Each pass copies the file from the system's memory, which two processors share: its size decides how fast they are
together. Labels take the shortest integers that hold them. Rows are single floats where all that is summed is computed
of these (`comity.data.singles`).
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.data.records import Records
from comity.data.singles import round_to_singles
from comity.errors import DataError
from comity.representation import short_repr

DEFAULT_CACHE_BYTES = 1 << 34
# Buffers of one system call.
_MAX_BUFFERS = 512


@dataclass(frozen=True)
class CachePlace:
    """The folder of a cache and the bytes that it may take at most. It never takes more than half of the free space."""

    folder: Path
    limit: int = DEFAULT_CACHE_BYTES


@dataclass(eq=False)
class CacheWriter:
    """Takes blocks of encoded records in their order, without identifiers. It gives up where there is no room, or the
    file can't be written: a run without a cache reads its source again, and is only slower."""

    __repr__ = short_repr

    limit: int
    _file: Any
    singles: bool = False
    _written: int = 0
    _blocks: list[_Block] = field(default_factory=list)
    _kind: np.dtype[Any] | None = None
    _width: int = 0
    _gathered: NDArray[np.float32] | None = None
    _labels: list[NDArray[Any]] = field(default_factory=list)
    _count: int = 0

    @classmethod
    def open(cls, place: CachePlace, *, singles: bool = False) -> CacheWriter:
        try:
            space = os.statvfs(place.folder)
            limit = min(place.limit, space.f_bavail * space.f_frsize // 2)
            # Without a buffer, which would hold records twice. Mode 0600, and no name.
            file = tempfile.TemporaryFile(dir=place.folder, buffering=0) if limit > 0 else None  # noqa: SIM115
        except OSError:
            limit, file = 0, None
        return cls(limit, file, singles)

    def add(self, records: Records) -> None:
        """Doubles are written as they come, and single floats in larger blocks."""
        self._width = records.features.shape[1]
        self._kind = None if records.labels is None else records.labels.dtype
        if not self.singles:
            self._put(np.ascontiguousarray(records.features.T), records.labels)
            return
        if self._gathered is None:
            self._gathered = np.empty((self._width, single_rows(self._width)), np.float32)
        start, most = 0, self._gathered.shape[1]
        while start < len(records):
            part = slice(start, min(len(records), start + most - self._count))
            start = part.stop
            stop = self._count + part.stop - part.start
            for column, place in zip(records.features.T, self._gathered):
                round_to_singles(np.ascontiguousarray(column[part])[None], place[None, self._count : stop])
            if records.labels is not None:
                self._labels.append(records.labels[part].copy())
            self._count = stop
            if self._count == most:
                self._put_gathered()

    def finish(self) -> EncodedCache | None:
        """The cache of all blocks, or None if there is none."""
        if self._gathered is not None and (self._count or not self._blocks):
            self._put_gathered()
        if self._file is None:
            return None
        return EncodedCache(self._file, self._width, self._kind, tuple(self._blocks), self.singles)

    def _put_gathered(self) -> None:
        assert self._gathered is not None
        labels = None
        if self._kind is not None:
            labels = np.concatenate([np.empty(0, self._kind), *self._labels])
        self._put(np.ascontiguousarray(self._gathered[:, : self._count]), labels)
        self._count, self._labels = 0, []

    def _put(self, columns: NDArray[Any], labels: NDArray[Any] | None) -> None:
        if self._file is None:
            return
        parts = [columns] if labels is None else [columns, _shortest(labels)]
        if self._written + sum(part.nbytes for part in parts) > self.limit:
            self._give_up()
            return
        self._blocks.append(_Block(self._written, columns.shape[1], None if labels is None else parts[1].dtype))
        try:
            for part in parts:
                self._write(part.data.cast("B") if part.size else memoryview(b""))
        except OSError:
            self._give_up()

    def _write(self, data: memoryview) -> None:
        while data:
            written = self._file.write(data)
            self._written += written
            data = data[written:]

    def _give_up(self) -> None:
        self._file.close()
        self._file = None


def single_rows(width: int) -> int:
    """Rows of a block of single floats: as many as take three megabytes, and no more than 2^15. A call of a kernel for
    fewer costs too much beside them."""
    return max(64, min(1 << 15, (3 << 20) // (4 * max(1, width))))


@dataclass(frozen=True)
class _Block:
    """Where a block begins in the file, and the integers or numbers that its labels are written as."""

    start: int
    count: int
    labels: np.dtype[Any] | None


def _shortest(labels: NDArray[Any]) -> NDArray[Any]:
    """Class indices as the shortest integers that hold them."""
    if labels.dtype.kind != "i" or not labels.size or labels.min() < 0:
        return np.ascontiguousarray(labels)
    return np.ascontiguousarray(labels, np.min_scalar_type(int(labels.max())))


@dataclass(frozen=True, eq=False)
class EncodedCache:
    """Blocks of encoded records. The file is deleted when this object is."""

    __repr__ = short_repr

    _file: Any
    _width: int
    _kind: np.dtype[Any] | None
    _blocks: tuple[_Block, ...]
    singles: bool = False
    _memory: threading.local = field(default_factory=threading.local)

    def loaders(self) -> list[Callable[[], Records]]:
        """A function for each block, as it was written: with the layout in memory and the bits that it had, or with
        features as single floats. The next block that a thread loads overwrites a block's features."""
        return [partial(self._load, block) for block in self._blocks]

    def _load(self, block: _Block) -> Records:
        memory = getattr(self._memory, "rows", None)
        if memory is None:
            # Fresh memory for each block would take as long as reading does.
            shape = self._width, max(one.count for one in self._blocks)
            memory = self._memory.rows = np.empty(shape, np.float32 if self.singles else np.float64)
        rows = memory[:, : block.count]
        whole = block.count == memory.shape[1]
        position = self._read([memory.reshape(-1)] if whole else list(rows), block.start)
        labels = None
        if block.labels is not None:
            labels = np.empty(block.count, block.labels)
            self._read([labels], position)
            labels = labels.astype(self._kind, copy=False)
        return Records(rows.T, labels)

    def _read(self, arrays: list[NDArray[Any]], position: int) -> int:
        """Fill arrays from a position of the file on; the position after them."""
        for first in range(0, len(arrays), _MAX_BUFFERS):
            views = [array.data.cast("B") for array in arrays[first : first + _MAX_BUFFERS] if array.size]
            while views:
                # Without a position of the file's own, which threads and forks would share.
                found = os.preadv(self._file.fileno(), views, position)
                if not found:
                    raise DataError("the cache of encoded records ended early; start again.", key="cache")
                position += found
                while views and found >= len(views[0]):
                    found -= len(views.pop(0))
                if found:
                    views[0] = views[0][found:]
        return position
