"""The holdout: which of an owner's records are held out. A key and a position or identifier decide, never the content.

Replace          by position, a fixed share of the public number n of records. Both sizes are functions of n. A record
                 that replaces another takes its position, and so its part.
Add or remove    an independent coin for each record: with a fixed number, removing one record would move another one to
                 the other part. All records with one identifier share a coin.
Persons          the coin of the identifier, under either relation: all records of a person lie in one part.
By columns       every owner must hold out the same rows, so the key is public (the study's hash). It decides by
                 position or, where rows are aligned, by identifier, which such a study's guarantee holds fixed.

The coins are pseudorandom and do not depend on the records: AES in counter mode at a position, or HMAC-SHA-256 of an
identifier, under keys derived from one that is fresh for each run and site (proof.md, 1).
"""

from __future__ import annotations

import hashlib
import hmac
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from comity.data import Records, StreamedRecords
from comity.data.tables.engine_records import EngineRecords, needs_records
from comity.entropy import Stream, derive
from comity.errors import DataError
from comity.federation.declare.evaluation import Evaluation
from comity.privacy.unit import Neighbours, Unit

if TYPE_CHECKING:
    from comity.data import LocalRecords

Mask = NDArray[np.bool_]


def holdout_mask(
    records: LocalRecords, terms: Evaluation, key: bytes, *, unit: Unit, neighbours: Neighbours, aligned: bool = False
) -> Mask:
    """Which records are held out. `aligned`: several owners find common rows by identifier."""
    by_person = unit is Unit.PERSON or aligned
    ids = _identifiers(records) if by_person or neighbours is Neighbours.ADD_REMOVE else None
    if by_person and ids is None:
        raise DataError(
            "all records of a person are trained on or held out together, here and at other owners, but the records "
            "have no identifiers; declare [identifier] in the schema",
            key="identifier",
        )
    if ids is not None:
        return hold_out_by_identifier(ids, terms.share, key)
    if neighbours is Neighbours.ADD_REMOVE:
        return hold_out_by_coins(len(records), terms.share, key)
    return hold_out_by_position(len(records), terms.count(len(records)), key)


def hold_out_by_position(records: int, count: int, key: bytes) -> Mask:
    """The `count` positions with the lowest keyed hash."""
    holdout = np.zeros(records, bool)
    holdout[np.argsort(_words(records, key), kind="stable")[:count]] = True
    return holdout


def hold_out_by_coins(records: int, share: float, key: bytes) -> Mask:
    """An independent coin for each position."""
    return _words(records, key) < _below(share)


def hold_out_by_identifier(ids: NDArray[np.object_], share: float, key: bytes) -> Mask:
    """An independent coin for each identifier, the same at every owner and position."""
    secret = derive(key, "identifiers")
    # Normalised as an alignment does, or two owners of one person would disagree.
    texts = (unicodedata.normalize("NFC", str(one)).strip() for one in ids)
    hashed = (hmac.digest(secret, text.encode(errors="surrogatepass"), hashlib.sha256)[:8] for text in texts)
    return np.array([int.from_bytes(one, "big") for one in hashed], np.uint64) < _below(share)


@dataclass(frozen=True, eq=False)
class StreamedSubset:
    """Some of the records of a stream, block by block, with the interface of the stream."""

    whole: StreamedRecords
    which: Mask

    def __len__(self) -> int:
        return int(self.which.sum())

    def blocks(self) -> Iterator[Records]:
        start = 0
        for block in self.whole.blocks():
            yield _select(block, self.which[start : start + len(block)])
            start += len(block)

    def loaders(self) -> None:
        """None: which records a block has depends on those before it."""

    def require_memory(self) -> None:
        self.whole.require_memory()

    @property
    def features(self) -> NDArray[np.float64]:
        return self.whole.features[self.which]

    @property
    def labels(self) -> NDArray[np.int64] | NDArray[np.float64] | None:
        labels = self.whole.labels
        return None if labels is None else labels[self.which]

    @property
    def ids(self) -> NDArray[np.object_] | None:
        ids = self.whole.ids
        return None if ids is None else ids[self.which]


def select_records(records: LocalRecords, which: Mask) -> LocalRecords:
    """These records, in memory or streamed as all of them are."""
    if isinstance(records, Records):
        return _select(records, which)
    if isinstance(records, EngineRecords):
        raise needs_records(records.where, "[evaluation]")
    return cast("LocalRecords", StreamedSubset(records, which))


def _identifiers(records: LocalRecords) -> NDArray[np.object_] | None:
    """All identifiers, read in blocks: the features may not fit into memory."""
    found = [None if block.ids is None else np.array(block.ids) for block in records.blocks()]
    present = [ids for ids in found if ids is not None]
    return np.concatenate(present) if present and len(present) == len(found) else None


def _select(records: Records, which: Mask) -> Records:
    return Records(
        records.features[which],
        None if records.labels is None else records.labels[which],
        None if records.ids is None else records.ids[which],
    )


def _words(records: int, key: bytes) -> NDArray[np.uint64]:
    # The keystream at a position is a keyed hash of the position.
    return Stream(derive(key, "positions")).words(records)


def _below(share: float) -> np.uint64:
    return np.uint64(int(share * 2.0**64))
