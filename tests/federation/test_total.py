"""`site.total`: a sum over blocks of records, each record in it once, and no neutral answer to what can't be read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest

from comity.data import Classes, Encoding, Frame, Numeric, Records, Schema, StreamedRecords
from comity.errors import Refused
from comity.federation.declare.consortium import Consortium
from comity.federation.owner.rows import Rows
from comity.federation.owner.site import Site
from comity.privacy.loss import Pure
from comity.privacy.unit import Neighbours, Unit

ENCODING = Encoding(Schema((Numeric("x", 0, 1), Numeric("y", 0, 1)), Classes("z", ("0", "1"))), scaling="unit")


class _Host:
    def __init__(self, records: object) -> None:
        self.records, self.records_digest = records, None


class _Site(Site):
    """A site that has records and nothing else."""

    def __init__(self, records: object) -> None:
        self._host = _Host(records)  # type: ignore[assignment]
        self.party = "north"
        self.consortium = Consortium(
            parties=("north", "south", "west"), loss=Pure(1), unit=Unit.RECORD, neighbours=Neighbours.REPLACE
        )


def frame(rows: int = 101) -> pd.DataFrame:
    generator = np.random.default_rng(1)
    # Multiples of 1/64, so that sums are exact in every order.
    values = generator.integers(0, 65, (rows, 2)) / 64
    return pd.DataFrame({"x": values[:, 0], "y": values[:, 1], "z": generator.integers(0, 2, rows)})


def streamed(table: pd.DataFrame, piece: int, limit: int = 1) -> StreamedRecords:
    return StreamedRecords.scan(Frame(table), ENCODING, where="north", piece=piece, limit=limit)


@pytest.mark.parametrize("piece", [1, 10, 100, 101, 500])
def test_the_sum_over_blocks_is_the_sum_over_all(piece: int) -> None:
    table = frame()
    whole = ENCODING.encode(table).records

    def moments(rows: Rows) -> np.ndarray:
        assert rows.features.shape == (*rows.labels.shape, 2) and rows.filled.all()
        return np.asarray((rows.features * rows.labels[:, None]).T @ rows.features)

    expected = _Site(whole).total(moments)
    assert (_Site(streamed(table, piece)).total(moments) == expected).all()
    assert _Site(streamed(table, piece)).total(lambda rows: np.array([float(len(rows.features))])) == [101.0]


def test_a_part_that_hands_its_block_back_is_summed_all_the_same() -> None:
    table = frame(96)
    expected = ENCODING.encode(table).records.features.reshape(12, 8, 2).sum(axis=0)
    assert (_Site(streamed(table, 8)).total(lambda rows: rows.features) == expected).all()


def test_one_block_is_handed_over_as_it_is() -> None:
    records = Records(np.array([[-0.0, 0.1 + 0.2]]), np.array([1]))
    found = _Site(records).total(lambda rows: rows.features[0])
    assert found.tobytes() == records.features[0].tobytes()


def test_what_cant_be_read_stops_the_step_and_is_no_failed_fit() -> None:
    table = frame()
    records = streamed(table, 10)
    table.loc[55, "x"] = np.nan
    with pytest.raises(Refused, match="record 56") as caught:
        _Site(records).total(lambda rows: rows.features.sum(axis=0))
    assert caught.value.code == "stopped"
    with pytest.raises(Refused, match="needs all records") as caught:
        _ = _Site(records).features
    assert caught.value.code == "stopped"

    class Broken(Frame):
        def pieces(self, columns: Any = None, rows: int = 1) -> Iterator[Any]:
            yield self.frame[list(columns)].iloc[:5]
            raise RuntimeError("password=hunter2")

    object.__setattr__(records, "source", Broken(frame()))
    with pytest.raises(Refused, match="log of this site") as caught:
        _Site(records).total(lambda rows: rows.features.sum(axis=0))
    assert "hunter2" not in str(caught.value) and caught.value.__cause__ is None


def test_a_party_without_labels_says_so() -> None:
    with pytest.raises(Refused, match="holds none"):
        _Site(Records(np.zeros((3, 2)))).total(lambda rows: rows.labels)
