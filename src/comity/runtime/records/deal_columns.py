"""Records split by columns: each party gets its own columns of the same records, encoded by what it holds."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from typing import TYPE_CHECKING, runtime_checkable

import numpy as np

from comity.data import Encoding, Records
from comity.entropy import Stream
from comity.errors import DataError, StudyError
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


def check_rows(protocol: Protocol, parties: Mapping[str, Records], where: str) -> None:
    """Rows that are not aligned stand in one order already: as many at every party, and no more than are laid out for.
    The run would say so too, when its parties have reserved."""
    sizes = {len(records) for records in parties.values()}
    if len(sizes) != 1 or 0 in sizes:
        raise DataError(
            f"{where}: without an alignment all parties need the same rows in the same order, and at least one; their "
            "numbers of records differ or are zero. Declare [identifier] in the schema to align them",
            key="identifier",
        )
    most = getattr(protocol, "most", None)
    if most is not None and max(sizes) > most:
        raise StudyError(
            f"{where}: the products are laid out for {most} rows, found {max(sizes)}; raise "
            f"{protocol.name}.rows_at_most",
            key=f"{protocol.name}.rows_at_most",
        )


def deal_columns(
    protocol: Protocol, frame: pd.DataFrame, parties: tuple[str, ...], *, holdout: float | None, name: str, where: str
) -> tuple[dict[str, Records], pd.DataFrame | None]:
    """Every party's columns of the records that are kept, and whole records that were held out by public chance."""
    tested: pd.DataFrame | None = None
    if holdout is not None:
        order = Stream.public(name, "holdout").permutation(len(frame))
        count = round(len(frame) * holdout)
        if not 0 < count < len(frame):
            raise StudyError(
                f"{where}: too few records to hold a share of {holdout} back; give simulation.test",
                key="simulation.holdout",
            )
        tested, frame = frame.iloc[np.sort(order[:count])], frame.iloc[np.sort(order[count:])]
    return {party: party_encoding(protocol, party).encode(frame, where=where).records for party in parties}, tested
