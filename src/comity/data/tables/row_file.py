"""Rows of 64-bit words in files without a name: by position, or scattered to buckets. Memory holds a few megabytes.

The files are an owner's, in the folder that it chose, and follow the rules of `encoded_cache`: mode 0600, no name from
the start, bounded, deleted with the process. Reading is by position and never moves one, so threads may share a file.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.data.records import Records
from comity.data.tables.encoded_cache import CachePlace
from comity.errors import DataError
from comity.representation import short_repr

Words = NDArray[np.uint64]

_BUCKET_BYTES = 1 << 24
"""What is put in order in memory at once."""


@dataclass(eq=False)
class UnnamedFile:
    """A file without a name that takes at most `limit` bytes, and never more than half of the free space."""

    __repr__ = short_repr

    place: CachePlace
    limit: int
    _file: Any
    _written: int = 0

    @classmethod
    def open(cls, place: CachePlace) -> UnnamedFile:
        try:
            space = os.statvfs(place.folder)
            limit = min(place.limit, space.f_bavail * space.f_frsize // 2)
            # Mode 0600, and no name.
            file = tempfile.TemporaryFile(dir=place.folder, buffering=0)  # noqa: SIM115
        except OSError:
            raise _no_room(place, "no file can be made there") from None
        return cls(place, limit, file)

    def append(self, array: NDArray[Any]) -> int:
        """Write an array at the end; where it begins."""
        start, data = self._written, np.ascontiguousarray(array).data.cast("B") if array.size else memoryview(b"")
        if start + len(data) > self.limit:
            raise _no_room(self.place, f"more than {self.limit / 1e9:.2g} GB are needed there")
        try:
            while data:
                written = os.pwrite(self._file.fileno(), data, self._written)
                self._written += written
                data = data[written:]
        except OSError:
            raise _no_room(self.place, "the disk is full or failed") from None
        return start

    def fill(self, array: NDArray[Any], position: int) -> None:
        """Read a contiguous array from a position on."""
        data = array.data.cast("B") if array.size else memoryview(b"")
        while data:
            found = os.preadv(self._file.fileno(), [data], position)
            if not found:
                raise DataError("a file of encoded records ended early; start again.", key="cache")
            position += found
            data = data[found:]


def _no_room(place: CachePlace, why: str) -> DataError:
    return DataError(
        f"records that do not fit into memory are put in order on disk, in {place.folder}, and {why}; free some space, "
        "raise cache, or raise memory so that they are not read in blocks.",
        key="cache",
    )


@dataclass(frozen=True, eq=False)
class Scatter:
    """Rows (n, words) by bucket, each bucket in the order in which its rows came: in a file, or in memory without."""

    __repr__ = short_repr

    buckets: int
    words: int
    file: UnnamedFile | None = None
    _chunks: list[list[tuple[int, int]]] = field(default_factory=list)
    _held: list[list[Words]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for lists in (self._chunks, self._held):
            lists.extend([] for _ in range(self.buckets))

    def add(self, bucket: NDArray[Any], rows: Words) -> None:
        """Rows, and the bucket of each."""
        if not len(rows):
            return
        if self.buckets > 1:
            order = np.argsort(bucket.astype(np.uint32), kind="stable")
            rows, bucket = rows.take(order, axis=0), bucket.take(order)
        ends = np.searchsorted(bucket, np.arange(self.buckets + 1)) if self.buckets > 1 else np.array([0, len(rows)])
        for one, (start, stop) in enumerate(zip(ends[:-1].tolist(), ends[1:].tolist())):
            if start == stop:
                continue
            if self.file is None:
                self._held[one].append(rows[start:stop].copy())
            else:
                self._chunks[one].append((self.file.append(rows[start:stop]), stop - start))

    def rows(self, bucket: int) -> Words:
        """All rows of a bucket."""
        if self.file is None:
            return np.concatenate([np.empty((0, self.words), np.uint64), *self._held[bucket]])
        chunks = self._chunks[bucket]
        out, at = np.empty((sum(count for _, count in chunks), self.words), np.uint64), 0
        for position, count in chunks:
            self.file.fill(out[at : at + count], position)
            at += count
        return out


@dataclass(eq=False)
class RowWriter:
    """Takes encoded records in their order."""

    __repr__ = short_repr

    width: int
    file: UnnamedFile
    _count: int = 0
    _kind: np.dtype[Any] | None = None

    @classmethod
    def open(cls, place: CachePlace, width: int) -> RowWriter:
        return cls(width, UnnamedFile.open(place))

    def add(self, records: Records) -> None:
        rows = np.empty((len(records), self.width + (records.labels is not None)), np.uint64)
        rows[:, : self.width] = np.ascontiguousarray(records.features).view(np.uint64)
        if records.labels is not None:
            self._kind = records.labels.dtype
            rows[:, -1] = np.ascontiguousarray(records.labels).view(np.uint64)
        self.file.append(rows)
        self._count += len(rows)

    def finish(self) -> RowFile:
        return RowFile(self.file, self._count, self.width, self._kind)


@dataclass(frozen=True, eq=False)
class RowFile:
    """Encoded records by position: `width` features and, where there is a `kind`, a label. The file is deleted when
    this object is."""

    __repr__ = short_repr

    file: UnnamedFile
    count: int
    width: int
    kind: np.dtype[Any] | None

    def __len__(self) -> int:
        return self.count

    @property
    def words(self) -> int:
        return self.width + (self.kind is not None)

    def read(self, part: slice) -> Records:
        """These records, in memory of their own."""
        rows = self._rows(part)
        labels = None if self.kind is None else rows[:, -1].copy().view(self.kind)
        return Records(rows[:, : self.width].view(np.float64), labels)

    def _rows(self, part: slice) -> Words:
        start, stop, _ = part.indices(self.count)
        rows = np.empty((max(0, stop - start), self.words), np.uint64)
        if rows.size:
            self.file.fill(rows, 8 * self.words * start)
        return rows

    def reordered(self, order: Iterable[NDArray[np.int64]], place: CachePlace) -> RowFile:
        """The records at these positions, one after the other, in another file. `order` comes in parts and names no
        record twice. Two passes through buckets: every file is read and written in order."""
        span = max(1, _BUCKET_BYTES // (8 * (self.words + 1)))
        spans = max(1, -(-self.count // span))
        wanted, count = Scatter(spans, 2, UnnamedFile.open(place)), 0
        for part in order:
            places = np.arange(count, count + len(part))
            wanted.add(part // span, np.stack([part, places], axis=1).view(np.uint64))
            count += len(part)
        targets = Scatter(max(1, -(-count // span)), 1 + self.words, UnnamedFile.open(place))
        for number in range(spans):
            start = number * span
            here = wanted.rows(number)
            # In the order of this file: what lies in memory together is read together.
            rows = self._rows(slice(start, start + span)).take(here[:, 0].astype(np.int64) - start, axis=0)
            targets.add(here[:, 1].astype(np.int64) // span, np.concatenate([here[:, 1:], rows], axis=1))
        out = UnnamedFile.open(place)
        for number in range(targets.buckets):
            found = targets.rows(number)
            rows = np.empty((len(found), self.words), np.uint64)
            rows[found[:, 0].astype(np.int64) - number * span] = found[:, 1:]
            out.append(rows)
        return RowFile(out, count, self.width, self.kind)
