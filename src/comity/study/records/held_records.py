"""The records of one owner as a method wants them: in memory where they fit, else in blocks. Where the method needs all
of them at once, records that do not fit are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from comity.data import LocalRecords, Source, StreamedRecords, fits_in_memory
from comity.study.records.encodings import encoding_of

if TYPE_CHECKING:
    import pandas as pd

    from comity.federation.declare.consortium import Consortium
    from comity.federation.protocol import Protocol


def held_records(
    protocol: Protocol, consortium: Consortium, source: Source, *, where: str, party: str, limit: int
) -> tuple[LocalRecords, pd.DataFrame | None]:
    """Every record is read and checked. Up to `limit` bytes they are held, and their frame is given too."""
    encoding = encoding_of(protocol, where, party)
    if fits_in_memory(source, encoding, limit):
        frame = source.read()
        return encoding.encode(frame, where=where).records, frame
    streamed = StreamedRecords.scan(source, encoding, where=where, limit=limit)
    if not protocol.streams(consortium):
        streamed.require_memory()
    return streamed, None
