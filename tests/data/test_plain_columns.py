"""The quick ways of reading a batch give what the thorough ones do, to the last bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from comity.data import Categorical, Classes, Encoding, Numeric, Ordinal, Parquet, Schema, StreamedRecords
from comity.data.schemas.conforming import plain_categories, plain_numbers
from comity.data.schemas.reading import read_codes, whole_codes
from comity.data.tables.table import Batch
from comity.errors import DataError


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "uint32", "int64"])
@pytest.mark.parametrize(
    "values", [("0", "1", "2"), ("2", "0", "1"), ("5", "120"), ("-100", "100", "120"), ("1.0", "2")]
)
def test_codes_by_a_table_are_those_by_a_search(dtype: str, values: tuple[str, ...]) -> None:
    known = np.array([float(value) for value in values])
    if np.dtype(dtype).kind == "u" and known.min() < 0:
        known = np.abs(known)
        values = tuple(f"{value:g}" for value in known)
    found = known.astype(dtype)[np.random.default_rng(3).integers(0, len(values), 50)]
    expected = read_codes(pd.Series(found), values).codes
    codes = whole_codes(found, values)
    if (expected < 0).any():
        assert codes is None
    else:
        assert codes is not None and codes.dtype == np.int64 and (codes == expected).all()


@pytest.mark.parametrize(
    "found",
    [
        np.array([0, 3]),
        np.array([0, 10**6]),
        np.array([2**63 + 1], np.uint64),
        np.array([], np.int64),
        np.array([0.0, 1.0]),
    ],
)
def test_what_the_table_can_not_tell_is_left_to_the_search(found: np.ndarray) -> None:
    assert whole_codes(found, ("0", "1", "1000000")) is None


def test_only_a_plain_column_of_one_name_is_taken_as_it_lies() -> None:
    def batch(values: object, names: tuple[str, ...] = ("x",)) -> Batch:
        return Batch(pa.record_batch([pa.array(values)] * len(names), names=list(names)))

    column, classes = Numeric("x", 0, 2, integer=True), Classes("x", ("0", "1"))
    values: list[Any]
    assert (cast(Any, plain_numbers(column, batch([0.0, 2.0]))) == [0, 2]).all()
    for values in ([0.0, 2.5], [0.0, 1.5], [0.0, -1.0], [0.0, float("nan")], [0.0, None], ["0"], [True]):
        assert plain_numbers(column, batch(values)) is None
    assert cast(Any, plain_categories(classes, batch([0, 1]))).tolist() == [0, 1]
    for values in ([0, 2], [0, None], ["0"], [0.0, 1.0]):
        assert plain_categories(classes, batch(values)) is None
    with pytest.raises(DataError, match="expected one column 'x', found 2"):
        Encoding(Schema((column,))).conform(batch([0, 1], ("x", "x")))


@pytest.mark.parametrize("scaling", ["symmetric", "unit"])
@pytest.mark.parametrize("rows", ["none", "scaled", "clipped", "normalised"])
def test_columns_scaled_in_one_pass_have_the_bits_of_the_whole(tmp_path: Path, scaling: Any, rows: Any) -> None:
    generator = np.random.default_rng(4)
    schema = Schema(
        (
            Numeric("x", -0.1, 0.7),
            Numeric("gap", 3, 1e9, missing="cell"),
            Numeric("log", 0, 1e6, scale="log"),
            Numeric("binned", 0, 1, bins=3, missing="cell"),
            Ordinal("grade", ("1", "2", "3"), missing="cell"),
            Categorical("ward", ("0", "1"), missing="cell"),
        ),
        Classes("y", ("1", "0")),
    )
    table = pd.DataFrame(
        {
            "x": generator.uniform(-0.3, 0.9, 301),
            "gap": np.where(generator.random(301) < 0.2, np.nan, generator.uniform(0, 2e9, 301)),
            "log": generator.uniform(0, 1e6, 301),
            "binned": np.where(generator.random(301) < 0.2, np.nan, generator.random(301)),
            "grade": pd.array([None if missing else "2" for missing in generator.random(301) < 0.2], "string"),
            "ward": generator.integers(0, 2, 301),
            "y": generator.integers(0, 2, 301).astype(np.int8),
        }
    )
    table.to_parquet(tmp_path / "t.parquet")
    encoding = Encoding(schema, scaling=scaling, rows=rows, intercept=True, bins=True)
    whole = encoding.encode(table).records
    streamed = StreamedRecords.scan(Parquet(tmp_path / "t.parquet"), encoding, piece=64)
    assert streamed.features.tobytes() == whole.features.tobytes()
    assert (cast(Any, streamed.labels) == whole.labels).all()
