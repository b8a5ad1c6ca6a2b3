"""Encoded records in a file without a name, so that a run reads its source once instead of once for each sum.

The file holds an owner's records, in the folder that the owner chose. It has no name from the start: no other user can
open it, and the system deletes it when the last process that has it open ends, however it ends. So nothing is left to
sweep after a kill or a loss of power. Its blocks on the disk are not overwritten; an owner whose disk is not encrypted
can do without it.
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
    """Takes blocks of encoded records in their order. It gives up where there is no room, or the file can't be
    written: a run without a cache reads its source again, and is only slower."""

    __repr__ = short_repr

    limit: int
    _file: Any
    _written: int = 0
    _blocks: list[tuple[int, int]] = field(default_factory=list)
    _kind: np.dtype[Any] | None = None
    _width: int = 0

    @classmethod
    def open(cls, place: CachePlace) -> CacheWriter:
        try:
            space = os.statvfs(place.folder)
            limit = min(place.limit, space.f_bavail * space.f_frsize // 2)
            # Without a buffer, which would hold records twice. Mode 0600, and no name.
            file = tempfile.TemporaryFile(dir=place.folder, buffering=0) if limit > 0 else None  # noqa: SIM115
        except OSError:
            limit, file = 0, None
        return cls(limit, file)

    def add(self, records: Records) -> None:
        if self._file is None:
            return
        size = records.features.nbytes + (0 if records.labels is None else records.labels.nbytes)
        if records.ids is not None or self._written + size > self.limit:
            # Identifiers are texts of any length.
            self._give_up()
            return
        self._width = records.features.shape[1]
        parts: list[NDArray[Any]] = [np.ascontiguousarray(records.features.T)]
        if records.labels is not None:
            self._kind = records.labels.dtype
            parts.append(np.ascontiguousarray(records.labels))
        self._blocks.append((self._written, len(records)))
        try:
            for part in parts:
                self._write(part.data.cast("B") if part.size else memoryview(b""))
        except OSError:
            self._give_up()

    def finish(self) -> EncodedCache | None:
        """The cache of all blocks, or None if there is none."""
        if self._file is None:
            return None
        return EncodedCache(self._file, self._width, self._kind, tuple(self._blocks))

    def _write(self, data: memoryview) -> None:
        while data:
            written = self._file.write(data)
            self._written += written
            data = data[written:]

    def _give_up(self) -> None:
        self._file.close()
        self._file = None


@dataclass(frozen=True, eq=False)
class EncodedCache:
    """Blocks of encoded records. The file is deleted when this object is."""

    __repr__ = short_repr

    _file: Any
    _width: int
    _kind: np.dtype[Any] | None
    _blocks: tuple[tuple[int, int], ...]
    _memory: threading.local = field(default_factory=threading.local)

    def loaders(self) -> list[Callable[[], Records]]:
        """A function for each block, as it was written: with the bits and the layout in memory that it had. The next
        block that a thread loads overwrites a block's features."""
        return [partial(self._load, start, count) for start, count in self._blocks]

    def _load(self, start: int, count: int) -> Records:
        memory = getattr(self._memory, "rows", None)
        if memory is None:
            # Fresh memory for each block would take as long as reading does.
            memory = self._memory.rows = np.empty((self._width, max(count for _, count in self._blocks)))
        rows = memory[:, :count]
        whole = count == memory.shape[1]
        position = self._read([memory.reshape(-1)] if whole else list(rows), start)
        labels = None
        if self._kind is not None:
            labels = np.empty(count, self._kind)
            self._read([labels], position)
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
