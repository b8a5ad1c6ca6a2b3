"""The encoding by which a method reads frames, of a party or of whole records."""

from __future__ import annotations

import typing
from typing import TYPE_CHECKING, runtime_checkable

from comity.data import Encoding, Records
from comity.errors import StudyError
from comity.federation.protocol import Protocol

if TYPE_CHECKING:
    import pandas as pd


@runtime_checkable
class ByColumns(typing.Protocol):
    """A protocol that encodes each party's own columns instead of whole records."""

    def encoding_of(self, party: str) -> Encoding: ...


def is_vertical(protocol: Protocol) -> bool:
    return isinstance(protocol, ByColumns)


def party_encoding(protocol: Protocol, party: str) -> Encoding:
    assert isinstance(protocol, ByColumns)
    return protocol.encoding_of(party)


def encoding_of(protocol: Protocol, where: str, party: str | None) -> Encoding:
    """What `party` encodes with; None stands for whole records, with the columns of all parties."""
    if party is not None and is_vertical(protocol):
        return party_encoding(protocol, party)
    encoding = getattr(protocol, "encoding", None)
    if not isinstance(encoding, Encoding):
        raise StudyError(f"{where}: {protocol.name} has no encoding for frames; give it one, or pass encoded Records")
    return encoding


def encoded(protocol: Protocol, data: pd.DataFrame, where: str, party: str | None = None) -> Records:
    """Records as the protocol wants them: those of a party, or whole ones."""
    return encoding_of(protocol, where, party).encode(data, where=where).records
