"""A source reads the columns that are asked for, and the records and their order stay the same."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest
import sqlalchemy

from comity.data import Csv, Parquet, Sql, open_source
from comity.errors import DataError

ROWS, WIDTH = 50, 30
TABLE = pd.DataFrame({f"c{at}": (np.arange(ROWS) * (at + 7)) % 23 for at in range(WIDTH)})
TABLE["note"] = [None if at % 5 == 0 else f"n{at}" for at in range(ROWS)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with sqlite3.connect(tmp_path / "t.sqlite") as connection:
        TABLE.to_sql("visits", connection, index=False)
    connection.close()
    with duckdb.connect(tmp_path / "t.duckdb") as database:
        database.register("given", TABLE)
        database.execute("CREATE TABLE visits AS SELECT * FROM given")
    return tmp_path


@contextmanager
def statements() -> Iterator[list[str]]:
    """The statements that SQLAlchemy sends."""
    sent: list[str] = []

    def note(_: Any, __: Any, statement: str, *___: Any) -> None:
        sent.append(statement)

    sqlalchemy.event.listen(sqlalchemy.Engine, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        sqlalchemy.event.remove(sqlalchemy.Engine, "before_cursor_execute", note)


QUERIES = [
    "SELECT * FROM visits",
    "SELECT * FROM visits;\n",
    "SELECT * FROM visits -- all of them",
    "WITH older AS (SELECT * FROM visits WHERE c0 > 3) SELECT * FROM older",
    "SELECT * FROM visits ORDER BY c3 DESC, c0",
    "SELECT * FROM visits ORDER BY c3 DESC, c0 LIMIT 7",
    "SELECT DISTINCT c1, c2, c3 FROM visits",
]


@pytest.mark.parametrize("file", ["t.duckdb", "t.sqlite"])
@pytest.mark.parametrize("query", QUERIES)
def test_chosen_columns_are_those_of_the_whole_query_in_its_order(folder: Path, file: str, query: str) -> None:
    source = Sql(query, path=folder / file)
    whole, chosen = source.read(), source.read(["c3", "c1"])
    if "DISTINCT" in query:
        # Its records have no order, and two of them may agree in the columns that are chosen.
        whole, chosen = (one.sort_values(["c3", "c1"], ignore_index=True) for one in (whole, chosen))
    pd.testing.assert_frame_equal(chosen, whole[["c3", "c1"]])
    pieces = list(source.pieces(["c3", "c1"], rows=9))
    assert sum(map(len, pieces)) == len(whole) == source.row_count() or source.row_count() is None


def test_a_database_sends_no_column_that_nobody_asked_for(folder: Path) -> None:
    for query, table in ((None, "visits"), ("SELECT * FROM visits", None)):
        duck = Sql(query, table, path=folder / "t.duckdb")
        assert all(list(piece.columns) == ["c3", "c1"] for piece in duck.pieces(["c3", "c1"]))
        with statements() as sent:
            Sql(query, table, path=folder / "t.sqlite").read(["c3", "c1"])
        *_, last = sent
        assert last.startswith('SELECT "c3", "c1" FROM') and all("WHERE 1 = 0" in one for one in sent[:-1])


def test_a_query_that_sorts_is_not_nested_where_a_subquery_has_no_order(folder: Path) -> None:
    query = "SELECT * FROM visits ORDER BY c3"
    with statements() as sent:
        Sql(query, path=folder / "t.sqlite").read(["c3"])
    assert sent == [query] and Sql(query, path=folder / "t.sqlite").row_count() is None


@pytest.mark.parametrize("file", ["t.duckdb", "t.sqlite"])
def test_two_columns_of_one_name_are_read_as_the_query_has_them(folder: Path, file: str) -> None:
    source = Sql("SELECT c1, c2, c2 AS C1 FROM visits", path=folder / file)
    pd.testing.assert_series_equal(source.read(["c2"])["c2"], TABLE["c2"])
    with pytest.raises(DataError, match="column 'c7' is missing"):
        source.read(["c7"])


@pytest.mark.parametrize("name", ['ha"lf', "per cent %", "a:b", "c1; DROP TABLE visits", "naïve"])
def test_names_of_columns_are_quoted(tmp_path: Path, name: str) -> None:
    frame = TABLE[["c0", "c1"]].set_axis(["c0", name], axis=1)
    with sqlite3.connect(tmp_path / "t.sqlite") as connection:
        frame.to_sql("visits", connection, index=False)
    connection.close()
    with duckdb.connect(tmp_path / "t.duckdb") as database:
        database.register("given", frame)
        database.execute("CREATE TABLE visits AS SELECT * FROM given")
    for file in ("t.sqlite", "t.duckdb"):
        for query, table in ((None, "visits"), ("SELECT * FROM visits", None)):
            assert Sql(query, table, path=tmp_path / file).read([name])[name].tolist() == TABLE["c1"].tolist()


@pytest.mark.parametrize("file", ["t.duckdb", "t.sqlite"])
def test_incomplete_records_stay_in_the_database(folder: Path, file: str) -> None:
    table = {"source": "sql", "path": str(folder / file), "table": "visits"}
    source = open_source({**table, "rename": {"note": "text"}, "missing": ["n1"], "complete": ["text"]})
    expected = TABLE[TABLE["note"].notna() & (TABLE["note"] != "n1")]["c4"].tolist()
    assert source.read(["c4"])["c4"].tolist() == expected
    assert sum(map(len, source.pieces(["c4"]))) == len(expected)
    # Nothing is known of how many are complete, only how many there are at most.
    assert source.row_count() is None and source.rows_at_most(1) == ROWS
    inner = Sql(path=folder / file, table="visits").without_blanks(["note"])
    assert len(inner.read(["c4"])) == len(inner.read()) == int(TABLE["note"].notna().sum())


def test_files_convert_only_what_is_asked_for(folder: Path) -> None:
    TABLE.to_csv(folder / "t.csv", index=False)
    TABLE.to_parquet(folder / "t.parquet")
    for source in (Csv(folder / "t.csv"), Parquet(folder / "t.parquet")):
        assert source.names() == list(TABLE.columns)
        pd.testing.assert_frame_equal(source.read(["c3", "c1"]), TABLE[["c3", "c1"]])
        parts = list(source.batches(["c3", "c1"], rows=20))
        pd.testing.assert_frame_equal(pd.concat(parts, ignore_index=True), TABLE[["c3", "c1"]])
    # A column that can't be read is no matter where nobody asks for it.
    (folder / "dots.csv").write_text('a;b\n"1,5";1.000\n"2,5";2.5\n')
    dotted = Csv(folder / "dots.csv", separator=";", decimal=",")
    assert dotted.read(["a"])["a"].tolist() == [1.5, 2.5]
    with pytest.raises(DataError, match="numbers with points"):
        dotted.read()
    (folder / "twice.csv").write_text("a,b,a\n1,2,3\n")
    assert Csv(folder / "twice.csv").read(["b"])["b"].tolist() == [2]
