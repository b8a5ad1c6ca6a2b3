"""The encoding by which a method reads frames, of a party or of whole records."""

from __future__ import annotations

from comity.data import Encoding
from comity.errors import StudyError
from comity.federation.protocol import Protocol
from comity.runtime.records.deal_columns import is_vertical, party_encoding


def encoding_of(protocol: Protocol, where: str, party: str | None) -> Encoding:
    """What `party` encodes with; None for records that are nobody's part of the columns."""
    if party is not None and is_vertical(protocol):
        return party_encoding(protocol, party)
    encoding = getattr(protocol, "encoding", None)
    if not isinstance(encoding, Encoding):
        raise StudyError(f"{where}: {protocol.name} has no encoding for frames; give it one, or pass encoded Records")
    return encoding
