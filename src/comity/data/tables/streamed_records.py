"""Records that are read and encoded anew whenever they are looked at, a block at a time: memory stays flat however many
there are.

Whoever sums over records takes `blocks`. What needs all of them at once (a local fit, an alignment, a product of
columns) takes `features`, `labels` or `ids`, and is refused where they would take more memory than was declared.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.data.encoding import Encoding
from comity.data.records import Records
from comity.data.tables.sources import PIECE, Csv, Parquet, Source
from comity.data.tables.sql import Sql
from comity.data.tally import Tally
from comity.errors import DataError
from comity.representation import short_repr

MAX_BYTES_IN_MEMORY = 1 << 30
"""Bytes that the encoded records of one owner may take before they are read in blocks instead."""


@dataclass(frozen=True, eq=False)
class StreamedRecords:
    """Stands where `Records` stand. Made by `scan`, which read every record once: from then on the source has to
    stay as it was, or the next pass over it fails.

    `digest` is of the encoded records, whatever blocks they came in; `tally` is for the owner alone.
    """

    __repr__ = short_repr

    source: Source
    encoding: Encoding
    where: str
    limit: int
    count: int
    digest: str
    tally: Tally = field(repr=False)
    piece: int = PIECE
    _stamp: Any = field(default=None, repr=False)

    @classmethod
    def scan(
        cls,
        source: Source,
        encoding: Encoding,
        *,
        where: str = "the data",
        limit: int = MAX_BYTES_IN_MEMORY,
        piece: int = PIECE,
    ) -> StreamedRecords:
        """Read every record: what the schema refuses is refused now, before anything is reserved."""
        stamp, seen, tally, count = _stamp(source), _Digest(), Tally.start(), 0
        for records, changed in _encoded(source, encoding, where, piece):
            seen.add(records)
            tally += changed
            count += len(records)
        return cls(source, encoding, where, limit, count, seen.value(), tally, piece, stamp)

    def __len__(self) -> int:
        return self.count

    def blocks(self) -> Iterator[Records]:
        """All records in order, in blocks; one without records if there are none. A block's features are overwritten by
        those of the next: whoever wants to keep them makes a copy."""
        self._require_same(_stamp(self.source) == self._stamp)
        found = 0
        for records, _ in _encoded(self.source, self.encoding, self.where, self.piece):
            found += len(records)
            yield records
        self._require_same(found == self.count)

    def _require_same(self, same: bool) -> None:
        if not same:
            raise DataError(
                f"{self.where}: the records changed after they were checked, and a run is about one set of them; leave "
                "the source as it is while a study runs, and start again.",
                key="path",
            )

    @property
    def bytes(self) -> int:
        """What all of them would take in memory."""
        return self.count * row_bytes(self.encoding)

    @property
    def features(self) -> NDArray[np.float64]:
        return self._whole.features

    @property
    def labels(self) -> NDArray[np.int64] | NDArray[np.float64] | None:
        return self._whole.labels

    @property
    def ids(self) -> NDArray[np.object_] | None:
        return self._whole.ids

    def require_memory(self) -> None:
        """Refuse where all records at once would take more than was declared."""
        if self.bytes > self.limit:
            raise DataError(
                f"{self.where}: this method needs all records of an owner at once, which take {_size(self.bytes)} "
                f"where memory allows {_size(self.limit)}; raise memory, or choose a method that sums over records.",
                key="memory",
            )

    @cached_property
    def _whole(self) -> Records:
        self.require_memory()
        parts = [Records(part.features.copy(), part.labels, part.ids) for part in self.blocks()]
        return Records(
            np.concatenate([part.features for part in parts]),
            _together([part.labels for part in parts]),
            _together([part.ids for part in parts]),
        )


LocalRecords = Records | StreamedRecords
"""What an owner holds: records in memory, or read in blocks."""


def fits_in_memory(source: Source, encoding: Encoding, limit: int = MAX_BYTES_IN_MEMORY) -> bool:
    """Whether the encoded records of a source take at most `limit` bytes; no more than that is read to find out."""
    most = limit // max(1, row_bytes(encoding))
    known = source.rows_at_most(len(encoding.reads))
    if known is not None and known <= most:
        return True
    count = 0
    for frame in source.pieces(encoding.reads):
        count += len(frame)
        if count > most:
            return False
    return True


def row_bytes(encoding: Encoding) -> int:
    """Of one encoded record: a number for each feature, label and identifier."""
    return 8 * (encoding.width + (encoding.schema.target is not None) + (encoding.schema.identifier is not None))


def _encoded(source: Source, encoding: Encoding, where: str, piece: int) -> Iterator[tuple[Records, Tally]]:
    """Blocks of records, each with what the schema changed since the block before it.

    Pieces are read as large as suits a reader. The blocks made of one fit a processor's cache and are all written to
    the same place, since memory that is fresh for each would take as long as encoding does.
    """
    first, size = 0, block_rows(encoding)
    place = np.empty((encoding.width, min(size, piece)))
    for frame in source.pieces(encoding.reads, piece):
        found, tally = encoding.conform(frame, where, first=first), Tally.start()
        for start in range(0, max(1, len(frame)), place.shape[1]):
            part = slice(start, min(start + place.shape[1], len(frame)))
            rows = encoding.write_rows(found.columns[part], place[:, : part.stop - start].T)
            labels = None if found.labels is None else found.labels[part]
            ids = None if found.ids is None else found.ids[part]
            yield Records(rows, labels, ids), found.tally if start == 0 else tally
        first += len(frame)


def block_rows(encoding: Encoding) -> int:
    """How many encoded records take about two megabytes."""
    return max(64, min(1 << 13, (1 << 21) // (8 * max(1, encoding.width))))


class _Digest:
    """Of each column by itself, so that it does not matter where blocks begin and end."""

    def __init__(self) -> None:
        self._states: dict[str, Any] = {}

    def add(self, records: Records) -> None:
        for place, column in enumerate(records.features.T):
            self._state(f"feature {place}").update(np.ascontiguousarray(column))
        if records.labels is not None:
            self._state(f"labels {records.labels.dtype.str}").update(np.ascontiguousarray(records.labels))
        if records.ids is not None:
            # Each with its length, so that no two lists read alike.
            self._state("ids").update("".join(f"{len(one)}:{one}" for one in records.ids).encode())

    def _state(self, name: str) -> Any:
        return self._states.setdefault(name, hashlib.sha256())

    def value(self) -> str:
        found = {name: state.hexdigest() for name, state in self._states.items()}
        return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()


def _stamp(source: Source) -> Any:
    """Inodes, sizes and times of the files that a source reads; a server's tables have none. A time of modification is
    kept by `cp -p` and `rsync -t`; the time of change is set by the system."""
    path = source.path if isinstance(source, Csv | Parquet | Sql) else None
    if path is None:
        return None
    if isinstance(source, Parquet):
        from comity.data.tables.parquet_file import files_of

        files = files_of(path)
    else:
        files = [path]
    found = [(str(file), file.stat()) for file in files if file.exists()]
    return [(name, known.st_ino, known.st_size, known.st_mtime_ns, known.st_ctime_ns) for name, known in found]


def _together(parts: list[Any]) -> Any:
    return None if any(part is None for part in parts) else np.concatenate(parts)


def _size(count: int) -> str:
    return f"{count / 1e9:.2g} GB" if count >= 1e8 else f"{count / 1e6:.2g} MB"


def digest_records(value: Any) -> str:
    """SHA-256 of records, arrays, or tables of them: the same for the same content, however it was stored. It tells of
    private records, and stays with whoever holds them."""
    state = hashlib.sha256()
    _feed(state, value)
    return state.hexdigest()


def _feed(state: Any, value: Any) -> None:
    if isinstance(value, Records):
        value = vars(value)
    elif isinstance(value, StreamedRecords):
        # Taken while every record was checked, before the run.
        value = value.digest
    if isinstance(value, Mapping):
        for name, one in value.items():
            state.update(f"{name}:".encode())
            _feed(state, one)
    elif isinstance(value, np.ndarray) and value.dtype != object:
        state.update(f"{value.dtype.str}{value.shape}".encode())
        state.update(np.ascontiguousarray(value).tobytes())
    elif isinstance(value, np.ndarray):
        state.update(json.dumps([str(one) for one in value]).encode())
    else:
        state.update(repr(value).encode())
