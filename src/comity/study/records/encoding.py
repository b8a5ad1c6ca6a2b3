"""One owner's records as a method wants them: sites and simulations load and encode them alike."""

from __future__ import annotations

import typing
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, runtime_checkable

from comity.data import Encoding, LocalRecords, Records, Source, StreamedRecords, fits_in_memory
from comity.data.tables.encoded_cache import CachePlace
from comity.data.tables.engine_records import EngineRecords, engine_of, needs_records
from comity.errors import DataError, StudyError
from comity.federation.protocol import Protocol

if TYPE_CHECKING:
    import pandas as pd

    from comity.data import Finding
    from comity.federation.declare.consortium import Consortium

FILES = 4
"""Files of records that are read by position: as they came, two on the way to the common order, and in it."""

# A thousand files with one mistake are one mistake: further warnings are counted.
MAX_WARNINGS = 20


@runtime_checkable
class EncodesByParty(typing.Protocol):
    """A protocol that encodes each party's own columns instead of whole records."""

    def encoding_of(self, party: str) -> Encoding: ...


def encoding_of(protocol: Protocol, where: str, party: str | None) -> Encoding:
    """What `party` encodes with; None stands for whole records, with the columns of all parties."""
    if party is not None and isinstance(protocol, EncodesByParty):
        return protocol.encoding_of(party)
    encoding = getattr(protocol, "encoding", None)
    if not isinstance(encoding, Encoding):
        raise StudyError(f"{where}: {protocol.name} has no encoding for frames; give it one, or pass encoded Records")
    return encoding


def encode_records(protocol: Protocol, data: pd.DataFrame, where: str, party: str | None = None) -> Records:
    """Encode a frame as the protocol wants it: the records of a party, or whole ones."""
    return encoding_of(protocol, where, party).encode(data, where=where).records


def load_records(
    protocol: Protocol,
    consortium: Consortium,
    source: Source,
    *,
    where: str,
    party: str,
    limit: int,
    also: Sequence[str] = (),
    cache: CachePlace | None = None,
    only_check: bool = False,
) -> tuple[LocalRecords, pd.DataFrame | None]:
    """Read and check every record of one owner. Up to `limit` bytes they are kept in memory, and their frame is given
    too, with the columns that are encoded and those of `also`; beyond, they are read in blocks, from a `cache` where it
    has room, or refused where the method needs all of them at once. A method that reads them by position needs room on
    disk, and refuses them without. What is `only_check`ed is not read again: it has no cache."""
    encoding = encoding_of(protocol, where, party)
    if engine_of(source) is not None:
        if not protocol.sums_exactly(consortium) or consortium.evaluation is not None:
            raise needs_records(where, protocol.title_in(consortium))
        return EngineRecords.scan(source, encoding, where=where), None
    if fits_in_memory(source, encoding, limit):
        frame = _read_needed(source, (*encoding.reads, *also))
        return encoding.encode(frame, where=where).records, frame
    positions = None
    if protocol.reads_by_position and protocol.streams(consortium):
        positions, cache = _place_by_position(cache, where), None
    kept = None if only_check else cache
    streamed = StreamedRecords.scan(
        source,
        encoding,
        where=where,
        limit=limit,
        cache=kept,
        positions=positions,
        singles=protocol.reads_singles(consortium),
    )
    if not protocol.streams(consortium):
        streamed.require_memory()
    return streamed, None


def _place_by_position(cache: CachePlace | None, where: str) -> CachePlace:
    """Where records lie by position. While they are put in order there are up to four files: each may take a quarter of
    what an owner allows."""
    if cache is None or cache.limit <= 0:
        raise DataError(
            f"{where}: these records do not fit into memory, and this method puts them in the order that all owners "
            "share, which takes room on disk; set cache, or raise memory.",
            key="cache",
        )
    return replace(cache, limit=cache.limit // FILES)


def _read_needed(source: Source, columns: Sequence[str]) -> pd.DataFrame:
    """The records with these columns, where the source knows its columns and has each of them once. Otherwise with all:
    what checks them says what is wrong."""
    names, needed = source.names(), list(dict.fromkeys(columns))
    if names is None or any(names.count(name) != 1 for name in needed):
        return source.read()
    return source.read(needed)


def data_warnings(findings: Iterable[Finding]) -> tuple[str, ...]:
    """The warnings among them, each once. What the schema handles as declared is no warning; errors were raised."""
    warnings = tuple(dict.fromkeys(one.sentence for one in findings if one.severity == "warning"))
    if len(warnings) <= MAX_WARNINGS:
        return warnings
    return (*warnings[:MAX_WARNINGS], f"and {len(warnings) - MAX_WARNINGS} more warnings of this kind about the data")
