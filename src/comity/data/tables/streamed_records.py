"""Records that are read in blocks for each pass over them: memory does not grow with their number.

They are encoded once where the owner's disk has room for a cache, and otherwise again for each pass.

A sum over records uses `blocks`. Steps whose parties hold different columns of the same records read them by position,
with `rows`, and their identifiers with `id_blocks`. A step that needs all of them at once (a local fit) uses
`features`, `labels` or `ids`, and is refused where they would take more memory than was declared.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.data.encoding import Encoding
from comity.data.records import Records
from comity.data.schemas.conforming import Tally
from comity.data.schemas.reading import read_ids
from comity.data.tables.encoded_cache import CachePlace, CacheWriter, EncodedCache
from comity.data.tables.engine_records import EngineRecords
from comity.data.tables.row_file import RowFile, RowWriter, UnnamedFile
from comity.data.tables.source import PIECE_ROWS, Source
from comity.data.tables.table import column_of
from comity.errors import DataError
from comity.representation import short_repr

MAX_BYTES_IN_MEMORY = 1 << 30
"""Encoded records of one owner that take more are read in blocks."""


@dataclass(frozen=True, eq=False)
class StreamedRecords:
    """Takes the place of `Records`. `scan` makes it and reads every record once. If the source changes afterwards, the
    next pass over it fails.

    `digest` depends on the encoded records and not on their blocks. `tally` is for the owner only.
    """

    __repr__ = short_repr

    source: Source
    encoding: Encoding
    where: str
    limit: int
    count: int
    digest: str
    tally: Tally = field(repr=False)
    piece: int = PIECE_ROWS
    _stamp: Any = field(default=None, repr=False)
    cache: EncodedCache | None = field(default=None, repr=False)
    by_position: RowsOnDisk | None = field(default=None, repr=False)

    @classmethod
    def scan(
        cls,
        source: Source,
        encoding: Encoding,
        *,
        where: str = "the data",
        limit: int = MAX_BYTES_IN_MEMORY,
        piece: int = PIECE_ROWS,
        cache: CachePlace | None = None,
        positions: CachePlace | None = None,
        singles: bool = False,
    ) -> StreamedRecords:
        """Read every record. Records that the schema refuses are refused now, before anything is reserved. With a place
        for a cache and room there, they are not read again; its features are `singles` for a method that rounds all
        features to single floats (`comity.data.singles`). A place for `positions` takes them without identifiers, to
        be read by position; without room there they are refused."""
        stamp, digest, tally, count = _stamp(source), _Digest(), Tally.start(), 0
        writer = None if cache is None else CacheWriter.open(cache, singles=singles)
        rows = None if positions is None else RowWriter.open(positions, encoding.width)
        for records, changed in encode_blocks(source, encoding, where, piece):
            digest.add(records)
            for one in (writer, rows):
                if one is not None:
                    one.add(records)
            tally += changed
            count += len(records)
        cached = None if writer is None else writer.finish()
        known = None
        if rows is not None and positions is not None:
            known = RowsOnDisk(rows.finish(), digest.of_ids(), positions)
        return cls(source, encoding, where, limit, count, digest.value(), tally, piece, stamp, cached, known)

    def __len__(self) -> int:
        return self.count

    def blocks(self) -> Iterator[Records]:
        """All records in order, in blocks; one empty block if there are none. The next block overwrites a block's
        features: copy them to keep them."""
        self._require_same(_stamp(self.source) == self._stamp)
        # A cache has no identifiers.
        if self.cache is not None and self.encoding.schema.identifier is None:
            for load in self.cache.loaders():
                block = load()
                yield replace(block, features=block.features.astype(np.float64, copy=False))
            return
        count = 0
        for records, _ in encode_blocks(self.source, self.encoding, self.where, self.piece):
            count += len(records)
            yield records
        self._require_same(count == self.count)

    def loaders(self) -> list[Callable[[], Records]] | None:
        """A function for each block, without identifiers, for several threads, where blocks can be read in any order.
        The next block that a thread loads overwrites a block's features, which are single floats where the cache has
        those."""
        if self.cache is None:
            return None
        self._require_same(_stamp(self.source) == self._stamp)
        return self.cache.loaders()

    def rows(self, part: slice) -> Records:
        """These records, without identifiers."""
        return self._rows_on_disk.file.read(part)

    def reordered(self, order: Iterable[NDArray[np.int64]]) -> RowFile:
        """The records at these positions, which come in parts, in a file of their own."""
        on_disk = self._rows_on_disk
        return on_disk.file.reordered(order, on_disk.place)

    def open_file(self) -> UnnamedFile:
        """A file without a name beside those of the records."""
        return UnnamedFile.open(self._rows_on_disk.place)

    @property
    def _rows_on_disk(self) -> RowsOnDisk:
        self._require_same(_stamp(self.source) == self._stamp)
        if self.by_position is None:
            raise DataError(
                f"{self.where}: these records were read for sums over them, not by position; raise memory.",
                key="memory",
            )
        return self.by_position

    def id_blocks(self) -> Iterator[NDArray[np.object_]]:
        """All identifiers in the order of the records, read again from the source: none is written anywhere. They are
        compared with those of `scan` after the last block."""
        name, digest, on_disk = self.encoding.schema.identifier, hashlib.sha256(), self._rows_on_disk
        if name is None:
            raise DataError(f"{self.where}: the schema names no identifier", key="identifier")
        for table in self.source.pieces([name], self.piece):
            ids, _ = read_ids(column_of(table, name, self.where))
            digest.update(_spell_ids(ids))
            yield ids
        self._require_same(digest.hexdigest() == on_disk.ids_digest)

    def _require_same(self, same: bool) -> None:
        if not same:
            raise DataError(
                f"{self.where}: the records changed after they were checked, and a run is about one set of them; leave "
                "the source as it is while a study runs, and start again.",
                key="path",
            )

    @property
    def bytes(self) -> int:
        """The memory that all of them would take."""
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
        """Refuse if all records at once would take more memory than was declared."""
        if self.bytes > self.limit:
            raise DataError(
                f"{self.where}: this method needs all records of an owner at once, which take "
                f"{_show_bytes(self.bytes)} where memory allows {_show_bytes(self.limit)}; raise memory, or choose a "
                "method that sums over records.",
                key="memory",
            )

    @cached_property
    def _whole(self) -> Records:
        self.require_memory()
        parts = [Records(part.features.copy(), part.labels, part.ids) for part in self.blocks()]
        return Records(
            np.concatenate([part.features for part in parts]),
            _concatenate([part.labels for part in parts]),
            _concatenate([part.ids for part in parts]),
        )


@dataclass(frozen=True, eq=False)
class RowsOnDisk:
    """Encoded records by position, the digest of their identifiers, and where further files may lie."""

    __repr__ = short_repr

    file: RowFile
    ids_digest: str
    place: CachePlace


LocalRecords = Records | StreamedRecords | EngineRecords
"""An owner's records: in memory, read in blocks, or on the owner's engine."""


def fits_in_memory(source: Source, encoding: Encoding, limit: int = MAX_BYTES_IN_MEMORY) -> bool:
    """Whether the encoded records of a source take at most `limit` bytes. Reading stops beyond the limit."""
    max_rows = limit // max(1, row_bytes(encoding))
    known = source.row_count()
    if known is not None:
        return known <= max_rows
    bound = source.rows_at_most(len(encoding.reads))
    if bound is not None and bound <= max_rows:
        return True
    count = 0
    for frame in source.pieces(encoding.reads):
        count += len(frame)
        if count > max_rows:
            return False
    return True


def row_bytes(encoding: Encoding) -> int:
    """Bytes of one encoded record: a number for each feature, label and identifier."""
    return 8 * (encoding.width + (encoding.schema.target is not None) + (encoding.schema.identifier is not None))


def encode_blocks(source: Source, encoding: Encoding, where: str, piece: int) -> Iterator[tuple[Records, Tally]]:
    """Blocks of records, each with the tally of what the schema changed since the block before it.

    A piece has the size that suits a reader. Its blocks fit a processor's cache. All are written to the same memory,
    since fresh memory for each would take as long as encoding does.
    """
    first, size = 0, min(block_rows(encoding), piece)
    memory = np.empty((encoding.width, size))
    for table in source.pieces(encoding.reads, piece):
        conformed = encoding.conform(table, where, first=first)
        for start in range(0, max(1, len(table)), size):
            part = slice(start, min(start + size, len(table)))
            rows = encoding.write_rows(conformed.columns[part], memory[:, : part.stop - start].T)
            labels = None if conformed.labels is None else conformed.labels[part]
            ids = None if conformed.ids is None else conformed.ids[part]
            yield Records(rows, labels, ids), conformed.tally if start == 0 else Tally.start()
        first += len(table)


def block_rows(encoding: Encoding) -> int:
    """How many encoded records take about two megabytes."""
    return max(64, min(1 << 13, (1 << 21) // (8 * max(1, encoding.width))))


_IDS = "ids"


class _Digest:
    """A digest of each column separately: it does not depend on where blocks begin and end."""

    def __init__(self) -> None:
        self._states: dict[str, Any] = {}

    def add(self, records: Records) -> None:
        for place, column in enumerate(records.features.T):
            self._state(f"feature {place}").update(np.ascontiguousarray(column))
        if records.labels is not None:
            self._state(f"labels {records.labels.dtype.str}").update(np.ascontiguousarray(records.labels))
        if records.ids is not None:
            self._state(_IDS).update(_spell_ids(records.ids))

    def _state(self, name: str) -> Any:
        return self._states.setdefault(name, hashlib.sha256())

    def of_ids(self) -> str:
        return str(self._state(_IDS).hexdigest()) if _IDS in self._states else ""

    def value(self) -> str:
        digests = {name: state.hexdigest() for name, state in self._states.items()}
        return hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest()


def _spell_ids(ids: NDArray[np.object_]) -> bytes:
    """With their lengths: different lists have different texts."""
    return "".join(f"{len(one)}:{one}" for one in ids).encode()


def _stamp(source: Source) -> list[tuple[Any, ...]]:
    """Inodes, sizes and times of a source's files; a server's tables have none. `cp -p` and `rsync -t` keep the time of
    modification, but the system sets the time of change."""
    known = [(str(file), file.stat()) for file in source.files() if file.exists()]
    return [(name, one.st_ino, one.st_size, one.st_mtime_ns, one.st_ctime_ns) for name, one in known]


def _concatenate(parts: list[Any]) -> Any:
    return None if any(part is None for part in parts) else np.concatenate(parts)


def _show_bytes(count: int) -> str:
    return f"{count / 1e9:.2g} GB" if count >= 1e8 else f"{count / 1e6:.2g} MB"


def digest_records(value: Any) -> str:
    """SHA-256 of records, arrays, or mappings of them, whatever file they came from. A digest depends on private
    records and stays with their owner."""
    state = hashlib.sha256()
    _update_digest(state, value)
    return state.hexdigest()


def _update_digest(state: Any, value: Any) -> None:
    if isinstance(value, Records):
        value = vars(value)
    elif isinstance(value, StreamedRecords | EngineRecords):
        # `scan` computed it before the run.
        value = value.digest
    if isinstance(value, Mapping):
        for name, one in value.items():
            state.update(f"{name}:".encode())
            _update_digest(state, one)
    elif isinstance(value, np.ndarray) and value.dtype != object:
        state.update(f"{value.dtype.str}{value.shape}".encode())
        state.update(np.ascontiguousarray(value).tobytes())
    elif isinstance(value, np.ndarray):
        state.update(json.dumps([str(one) for one in value]).encode())
    else:
        state.update(repr(value).encode())
