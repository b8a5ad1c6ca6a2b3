"""Cells: every record has one in each column, and what is drawn in a cell is read back into it."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from comity.data import Bounded, Categorical, Cells, Classes, Date, Encoding, Numeric, Ordinal, Schema
from comity.entropy import Stream
from comity.errors import SchemaError

SCHEMA = Schema(
    (
        Numeric("age", 0, 100, integer=True, bins=7, missing="cell"),
        Numeric("income", -500, 1e6, scale="log", bins=8),
        Numeric("dose", 0, 1, edges=(0.25, 0.5)),
        Numeric("children", 0, 3, integer=True, bins=20),
        Categorical("ward", ("a", "b"), other=True, missing="cell"),
        Ordinal("grade", ("e", "d", "c", "b", "a"), bins=2, missing="cell"),
        Ordinal("size", ("s", "m", "l"), edges=("l",)),
        Date("seen", date(2020, 1, 15), date(2021, 12, 20), step="month", bins=5, missing="cell"),
        Date("born", date(1950, 1, 1), date(1950, 1, 4), format="%d.%m.%Y", follows="ward"),
    ),
    Bounded("cost", 0, 10),
)


def every(cells: Cells, rows: int = 400) -> np.ndarray:
    generator = np.random.default_rng(0)
    return np.stack([generator.integers(0, size, rows) for size in cells.sizes], axis=1)


@pytest.mark.parametrize("schema", [SCHEMA, replace(SCHEMA, target=Classes("ill", ("0", "1")))])
def test_what_is_drawn_in_a_cell_is_read_back_into_it(schema: Schema, tmp_path: Path) -> None:
    cells = Cells(schema)
    places = every(cells)
    assert cells.sizes[:9] == (8, 8, 3, 4, 4, 3, 2, 6, 4)
    for made in (cells.draw(places, Stream.public("cells", "test")), cells.middle(places)):
        assert list(made.columns) == list(cells.names)
        assert (cells.locate(made) == places).all()
        made.to_csv(tmp_path / "t.csv", index=False)
        assert (cells.locate(pd.read_csv(tmp_path / "t.csv", dtype={"ill": str})) == places).all()
        made.to_parquet(tmp_path / "t.parquet")
        assert (cells.locate(pd.read_parquet(tmp_path / "t.parquet")) == places).all()
        kept = made["age"].dropna().astype(float)
        assert (kept == np.floor(kept)).all() and kept.between(0, 100).all()
        assert made["age"].isna().any() and set(made["ward"].dropna()) == {"a", "b", "(other)"}


def test_values_fall_into_the_cells_that_the_schema_says() -> None:
    cells = Cells(
        Schema(
            (Numeric("x", 0, 8, bins=4), Numeric("y", 0, 80, edges=(10, 20)), Numeric("z", 0, 63, scale="log", bins=3))
        )
    )
    frame = pd.DataFrame({"x": [0, 1.99, 2, 8, 99], "y": [9.9, 10, 20, 80, -5], "z": [2.9, 3.1, 14.9, 15.1, 63]})
    assert cells.locate(frame).tolist() == [[0, 0, 0], [0, 1, 1], [1, 2, 1], [3, 2, 2], [3, 0, 2]]


def test_a_column_that_follows_another_is_counted_with_it_alone() -> None:
    plain = Schema(tuple(Categorical(name, ("0", "1")) for name in "abcd"))
    follows = replace(plain, columns=(*plain.columns[:3], replace(plain.columns[3], follows="a")))
    assert len(Cells(plain).pairs) == 6
    assert Cells(follows).pairs == ((0, 1), (0, 2), (0, 3), (1, 2))
    assert follows.restrict(["b", "d"])["d"].follows is None and follows.restrict(["a", "d"])["d"].follows == "a"
    assert Schema.parse(follows.to_toml()) == follows and follows.digest() != plain.digest()
    for wrong in ("d", "nowhere"):
        with pytest.raises(SchemaError, match=r"columns\.d\.follows"):
            replace(plain, columns=(*plain.columns[:3], replace(plain.columns[3], follows=wrong)))


def test_bad_bins_name_their_key() -> None:
    square: Any = "square"
    for make, key in (
        (lambda: Numeric("x", 0, 1, bins=1), "bins"),
        (lambda: Numeric("x", 0, 1, bins=4, edges=(0.5,)), "bins"),
        (lambda: Numeric("x", 0, 1, scale=square), "scale"),
        (lambda: Ordinal("x", ("a", "b"), edges=("a",)), "edges"),
        (lambda: Ordinal("x", ("a", "b", "c"), edges=("c", "b")), "edges"),
    ):
        with pytest.raises(SchemaError, match=rf"columns\.x\.{key}"):
            make()


@pytest.mark.parametrize("rows", ["none", "scaled", "clipped", "normalised"])
@pytest.mark.parametrize("scaling", ["symmetric", "unit"])
def test_missing_cells_are_entries_of_their_own_within_the_bounds(rows: Any, scaling: Any) -> None:
    cells = Cells(SCHEMA)
    frame = cells.draw(every(cells), Stream.public("cells", "bounds"))
    for bins in (False, True):
        encoding = Encoding(SCHEMA, rows=rows, scaling=scaling, intercept=True, bins=bins)
        found = encoding.encode(frame).records.features
        assert found.shape[1] == encoding.width == len(set(encoding.names)) and np.isfinite(found).all()
        bounds, exact = encoding.bounds, found.astype(np.longdouble)
        assert np.sqrt((exact**2).sum(1)).max() <= bounds.l2 and np.abs(exact).sum(1).max() <= bounds.l1
        assert np.abs(exact).max() <= bounds.linf
        for name in ("age", "ward", "grade", "seen"):
            place = encoding.names.index(f"{name}=(missing)")
            assert ((found[:, place] > 0) == frame[name].isna().to_numpy()).all()
        for group in bounds.groups:
            assert ((found[:, group.start : group.stop] != 0).sum(axis=1) <= 1).all()
