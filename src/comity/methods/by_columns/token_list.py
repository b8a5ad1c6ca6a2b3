"""A party's pseudonyms by bucket, each with its row: what an alignment sends, and looks rows up in.

A bucket is a range of pseudonyms. They are uniform, so all buckets of all parties are about as large, and rows in
common are in the same one: the matcher has one bucket in memory. Records in blocks have their lists in a file without a
name (`comity.data.tables.row_file`), which holds pseudonyms under a key of this run and no identifier.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.crypto.psi_keyed import PSEUDONYM_BYTES, Packed, find_repeated, make_pseudonyms
from comity.data import LocalRecords, StreamedRecords
from comity.data.schemas.reading import canonical_id
from comity.data.tables.row_file import Scatter
from comity.errors import DataError

BUCKET_ROWS = 1 << 19
"""Rows of a bucket at the largest party, on average: 8 MB of pseudonyms. Chosen for memory; results are the same with
any."""

KEY = "identifier.name"
_WORDS = PSEUDONYM_BYTES // 8
# Rows whose identifiers are in memory at once.
_AT_ONCE = 1 << 18


@dataclass(frozen=True, eq=False)
class TokenList:
    """Rows of words: a pseudonym, then the number of its record."""

    scatter: Scatter

    @classmethod
    def make(cls, seed: bytes, ids: Iterable[NDArray[np.object_]], scatter: Scatter) -> TokenList:
        """The pseudonyms of all identifiers. One that comes twice is the owner's DataError."""
        first = 0
        for some in _gather(ids):
            made = make_pseudonyms(seed, canonicalise_ids(some, first)).view("<u8").reshape(-1, _WORDS)
            rows = np.arange(first, first + len(some), dtype=np.uint64)[:, None]
            scatter.add(bucket_of(made, scatter.buckets), np.concatenate([made, rows], axis=1))
            first += len(some)
        found = cls(scatter)
        for number in range(scatter.buckets):
            require_distinct(*found.bucket(number), width=PSEUDONYM_BYTES)
        return found

    @staticmethod
    def empty(buckets: int, file: Any = None) -> Scatter:
        return Scatter(buckets, _WORDS + 1, file)

    def bucket(self, number: int) -> tuple[bytes, NDArray[np.int64]]:
        """The pseudonyms of a bucket one after the other, and the row of each."""
        rows = self.scatter.rows(number)
        return rows[:, :_WORDS].astype("<u8").tobytes(), rows[:, _WORDS].astype(np.int64)


def id_blocks(records: LocalRecords) -> Iterator[NDArray[np.object_]]:
    """The identifiers of an owner's records, in blocks where the records are."""
    if isinstance(records, StreamedRecords):
        yield from records.id_blocks()
    elif records.ids is not None:
        yield records.ids


def count_buckets(rows: int) -> int:
    """How many buckets a list of so many rows has; a list of none has one."""
    return max(1, -(-rows // BUCKET_ROWS))


def bucket_of(tokens: NDArray[np.uint64], buckets: int) -> NDArray[np.int64]:
    """The bucket of each pseudonym, by its first word: in the order of the pseudonyms as numbers."""
    return ((tokens[:, 0] >> np.uint64(32)) * np.uint64(buckets) >> np.uint64(32)).astype(np.int64)


def _gather(blocks: Iterable[NDArray[np.object_]]) -> Iterator[NDArray[np.object_]]:
    """Blocks together, so that each is long enough for the compiled hash."""
    waiting: list[NDArray[np.object_]] = []
    count = 0
    for block in blocks:
        for start in range(0, len(block), _AT_ONCE):
            waiting.append(block[start : start + _AT_ONCE])
            count += len(waiting[-1])
            if count >= _AT_ONCE:
                yield np.concatenate(waiting)
                waiting, count = [], 0
    if count:
        yield np.concatenate(waiting)


def canonicalise_ids(ids: Any, before: int = 0) -> Packed:
    """The bytes that are compared: UTF-8 of the composed form (NFC), without surrounding blanks, which databases add.

    An id that is no text, or empty, is the owner's DataError. It counts rows from 1, after the rows `before` these, and
    shows no id: ids enter no log.
    """
    texts = list(ids)
    try:
        together = "\n".join(texts)
    except TypeError:
        row, kind = next((row, type(one).__name__) for row, one in enumerate(texts) if not isinstance(one, str))
        raise DataError(
            f"every row needs a text as its id, row {before + row + 1} has a {kind}; read the identifier column as "
            "text and drop the rows without one",
            key=KEY,
        ) from None
    try:
        packed = _plain(together, len(texts)) or Packed.of([canonical_id(one).encode() for one in texts])
    except UnicodeEncodeError as error:
        raise DataError("an id is no valid Unicode text; read the identifier column again as UTF-8", key=KEY) from error
    empty = np.flatnonzero(packed.sizes == 0)
    if len(empty):
        raise DataError(
            f"every row needs an id, row {before + empty[0] + 1} has an empty one; fill it or drop the row", key=KEY
        )
    return packed


def _plain(together: str, count: int) -> Packed | None:
    """Ids joined by line breaks, if they are ASCII without blanks and so need no normalising; None otherwise."""
    if not count or not together.isascii():
        return None
    letters = np.frombuffer(together.encode(), np.uint8)
    visible = letters > 32
    breaks = np.flatnonzero(~visible)
    if len(breaks) != count - 1:
        return None
    ends = np.append(breaks, len(letters)) - np.arange(count)
    return Packed(letters[visible].tobytes(), ends)


def require_distinct(tokens: bytes, rows: NDArray[np.int64] | None = None, *, width: int) -> bytes:
    """Refuse equal tokens with the owner's DataError: they are a person with two rows."""
    pair = find_repeated(tokens, width)
    if pair is not None:
        first, second = sorted(pair if rows is None else (int(rows[place]) for place in pair))
        raise DataError(
            f"an id stands for one row, rows {first + 1} and {second + 1} have the same; keep one row per person",
            key=KEY,
        )
    return tokens
