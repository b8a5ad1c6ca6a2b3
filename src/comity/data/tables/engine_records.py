"""Records that stay on an owner's engine: sums over them run there, and only integers come back.

Every task encodes the records of a partition and adds exact sums (`comity.data.exact_sums`), so a step's sum is the
same to the last bit whatever the partitions, and whichever task was lost and repeated. A pass also adds up a digest of
each record. It depends on the set of records and not on their order: a pass over other records than the first one's
stops the step before anything is contributed.

What is sent to the engine are functions, pickled. They stay in the owner's own zone: the engine is the owner's, it
holds the records anyway, and nothing that another participant sends is unpickled.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from comity.data.exact_sums import ExactSum
from comity.data.records import Records
from comity.data.tables.source import PIECE_ROWS, Columns, Source
from comity.data.tables.table import Batch
from comity.data.tables.translation import TranslatedSource
from comity.errors import ComityError, DataError
from comity.representation import short_repr

if TYPE_CHECKING:
    import pandas as pd

    from comity.data.encoding import Encoding
    from comity.data.tables.spark import SparkTable
    from comity.data.tables.table import Table

Part = Callable[[Records], list[ExactSum]]
_SEEDS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F)


def engine_of(source: Source) -> SparkTable | None:
    """The engine's table behind a source, if it is one."""
    from comity.data.tables.spark import SparkTable

    inner = source.inner if isinstance(source, TranslatedSource) else source
    return inner if isinstance(inner, SparkTable) else None


@dataclass(frozen=True, eq=False)
class EngineRecords:
    """Takes the place of `Records` where every step sums over records. `scan` makes it, and reads every record once."""

    __repr__ = short_repr

    source: Source
    encoding: Encoding
    where: str
    count: int
    digest: str = field(repr=False)

    @classmethod
    def scan(cls, source: Source, encoding: Encoding, *, where: str = "the data") -> EngineRecords:
        """Encode every record on the engine. Records that the schema refuses are refused now."""
        _, count, digest = _pass_over(source, encoding, where, None)
        if not count:
            raise DataError(f"{where}: the engine's table holds no records; check query or table.", key="engine")
        return cls(source, encoding, where, count, digest)

    def __len__(self) -> int:
        return self.count

    def add_up(self, part: Part) -> list[ExactSum]:
        """The sum of `part` over all records, computed on the engine: a sum for each partition."""
        sums, count, digest = _pass_over(self.source, self.encoding, self.where, part)
        if (count, digest) != (self.count, self.digest):
            raise DataError(
                f"{self.where}: the records changed after they were checked, and a run is about one set of them; let "
                "query name a snapshot of the table, and start again.",
                key="engine",
            )
        return sums

    def loaders(self) -> None:
        """None: its blocks are nowhere but on the engine."""

    def blocks(self) -> Iterator[Records]:
        self.require_memory()

    @property
    def features(self) -> NDArray[np.float64]:
        self.require_memory()

    @property
    def labels(self) -> NDArray[np.int64] | NDArray[np.float64] | None:
        self.require_memory()

    @property
    def ids(self) -> NDArray[np.object_] | None:
        self.require_memory()

    def require_memory(self) -> NoReturn:
        raise needs_records(self.where)


def needs_records(where: str, what: str = "this method") -> DataError:
    return DataError(
        f"{where}: {what} needs an owner's records themselves, and those of an engine stay there; choose averaging by "
        "gradients or moments, or synthetic data, without [evaluation], or read the records without engine.",
        key="engine",
    )


def sum_partition(task: tuple[Source | None, Encoding, str, Part | None, list[str]], batches: Iterator[Any]) -> Any:
    """What a task of the engine returns of its partition: sums, or the sentence of an error, as a batch of one row."""
    from comity.blas import one_thread
    from comity.data.tables.streamed_records import encode_blocks

    translated, encoding, where, part, _ = task
    arrived = _Arrived(batches)
    source = replace(translated, inner=arrived) if isinstance(translated, TranslatedSource) else arrived
    found: ExactSum | None = None
    count, digest = 0, np.zeros(len(_SEEDS), np.uint64)
    try:
        with one_thread():
            for records, _ in encode_blocks(source, encoding, where, PIECE_ROWS):
                count += len(records)
                digest += _digest(records)
                if part is not None:
                    for one in part(records):
                        found = one if found is None else ExactSum.total([found, one])
    except ComityError as error:
        return _row(error=f"{error.key}\n{error}")
    return _row(count, digest, found)


def _pass_over(source: Source, encoding: Encoding, where: str, part: Part | None) -> tuple[list[ExactSum], int, str]:
    table = engine_of(source)
    assert table is not None
    translated = source if isinstance(source, TranslatedSource) else None
    columns = list(encoding.reads) if translated is None else translated.own_columns(encoding.reads)
    # The inner source holds the engine's address and the file of its token: tasks need neither.
    bare = None if translated is None else replace(translated, inner=_Arrived(iter(())))
    sums, count, digest = [], 0, np.zeros(len(_SEEDS), np.uint64)
    for row in table.run((bare, encoding, where, part, columns or []), columns or []):
        if row["error"]:
            key, _, sentence = row["error"].partition("\n")
            raise DataError(sentence, key=key)
        count += row["records"]
        digest += np.frombuffer(row["digest"], np.uint64)
        if row["shape"] != "none":
            shape = tuple(int(one) for one in row["shape"].split(",") if one)
            words = [np.frombuffer(row[name], np.int64).reshape(shape).copy() for name in ("high", "low")]
            sums.append(ExactSum(*words))
    return sums, count, f"{count}:{digest.tobytes().hex()}"


RESULT = "records long, digest binary, high binary, low binary, shape string, error string"


def _row(count: int = 0, digest: Any = b"", found: ExactSum | None = None, error: str = "") -> Any:
    import pyarrow as pa

    words = (b"", b"") if found is None else (found.high.tobytes(), found.low.tobytes())
    shape = "none" if found is None else ",".join(map(str, found.high.shape))
    digest = digest if isinstance(digest, bytes) else digest.tobytes()
    arrays = [
        pa.array([count], pa.int64()),
        *(pa.array([one], pa.binary()) for one in (digest, *words)),
        *(pa.array([one], pa.string()) for one in (shape, error)),
    ]
    return pa.RecordBatch.from_arrays(arrays, [one.split()[0] for one in RESULT.split(", ")])


@dataclass(frozen=True, eq=False)
class _Arrived(Source):
    """The batches of a partition, as a task gets them."""

    given: Iterator[Any]

    def __reduce__(self) -> tuple[Any, ...]:
        return _no_batches, ()

    def read(self, columns: Columns = None) -> pd.DataFrame:
        raise NotImplementedError("a partition is read in batches")

    def batches(self, columns: Columns = None, rows: int = 100_000) -> Iterator[pd.DataFrame]:
        raise NotImplementedError("a partition is read in batches")

    def pieces(self, columns: Columns = None, rows: int = PIECE_ROWS) -> Iterator[Table]:
        for batch in self.given:
            if batch.num_rows:
                yield Batch(batch)


def _no_batches() -> _Arrived:
    return _Arrived(iter(()))


def _digest(records: Records) -> NDArray[np.uint64]:
    """The sum of a mixed value of each record, in two words. It finds changes of a table, not forgeries."""
    columns = [np.ascontiguousarray(column).view(np.uint64) for column in records.features.T]
    if records.labels is not None:
        columns.append(np.ascontiguousarray(records.labels).view(np.uint64))
    if records.ids is not None:
        hashed = (hashlib.sha256(str(one).encode(errors="surrogatepass")).digest()[:8] for one in records.ids)
        columns.append(np.array([int.from_bytes(one, "big") for one in hashed], np.uint64))
    found = np.zeros(len(_SEEDS), np.uint64)
    for place, seed in enumerate(_SEEDS):
        mixed = np.full(len(records), seed, np.uint64)
        for column in columns:
            mixed ^= column
            mixed *= np.uint64(0xFF51AFD7ED558CCD)
            mixed ^= mixed >> np.uint64(32)
            mixed *= np.uint64(seed | 1)
        mixed ^= mixed >> np.uint64(29)
        found[place] = mixed.sum(dtype=np.uint64)
    return found
