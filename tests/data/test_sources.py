from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pytest

from comity.data import Csv, Encoding, Frame, Numeric, Parquet, Schema, Sql, open_source
from comity.errors import DataError, StudyError

TABLE = pd.DataFrame({"code": ["007", "010", "42"] * 40, "age": range(120), "dose": [0.5, None, 2.0] * 40})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    TABLE.to_csv(tmp_path / "t.csv", index=False)
    TABLE.to_parquet(tmp_path / "t.parquet")
    with sqlite3.connect(tmp_path / "t.sqlite") as connection:
        TABLE.to_sql("visits", connection, index=False)
    connection.close()
    with duckdb.connect(tmp_path / "t.duckdb") as database:
        database.execute(f"CREATE TABLE visits AS SELECT * FROM '{tmp_path / 't.parquet'}'")
    return tmp_path


def sources(folder: Path) -> list[Any]:
    return [
        TABLE,
        folder / "t.csv",
        str(folder / "t.parquet"),
        {"source": "csv", "path": str(folder / "t.csv")},
        {"source": "parquet", "path": str(folder / "t.parquet")},
        {"path": str(folder / "t.parquet")},
        {"source": "sql", "query": "SELECT * FROM visits", "path": str(folder / "t.duckdb")},
        {"source": "sql", "query": "SELECT * FROM visits", "path": str(folder / "t.sqlite")},
        {"source": "sql", "query": "SELECT * FROM data", "path": str(folder / "t.parquet")},
        {"source": "sql", "query": f"SELECT * FROM '{folder / 't.parquet'}'"},
        {"source": "sql", "query": "SELECT * FROM visits;", "url": f"sqlite:///{folder / 't.sqlite'}"},
        {"source": "sql", "table": "visits", "url": f"duckdb:///{folder / 't.duckdb'}"},
        {"source": "sql", "table": "main.visits", "path": str(folder / "t.duckdb")},
        {"source": "sql", "table": "visits", "path": str(folder / "t.sqlite")},
    ]


@pytest.mark.parametrize("index", range(14))
def test_every_source_reads_the_same_records_whole_and_in_batches(folder: Path, index: int) -> None:
    source = open_source(sources(folder)[index])
    whole = source.read()
    pd.testing.assert_frame_equal(whole.astype({"code": object}), TABLE.astype({"code": object}), check_dtype=False)
    assert list(source.read(["dose", "age"]).columns) == ["dose", "age"]
    parts = list(source.batches(["age", "code"], 50))
    assert max(map(len, parts)) <= 50 and list(parts[0].columns) == ["age", "code"]
    assert pd.concat(parts)["age"].tolist() == list(range(120))
    assert pd.concat(parts)["code"].tolist() == TABLE["code"].tolist()
    with pytest.raises(DataError, match=r"'does'.*did you mean 'dose'"):
        source.read(["does"])
    with pytest.raises(ValueError, match="at least one row"):
        next(source.batches(None, 0))
    assert open_source(source) is source


@pytest.mark.parametrize("index", range(14))
def test_an_empty_source_still_has_its_columns(tmp_path: Path, index: int) -> None:
    empty = TABLE.iloc[:0]
    empty.to_csv(tmp_path / "t.csv", index=False)
    empty.to_parquet(tmp_path / "t.parquet")
    with sqlite3.connect(tmp_path / "t.sqlite") as connection:
        empty.to_sql("visits", connection, index=False)
    connection.close()
    with duckdb.connect(tmp_path / "t.duckdb") as database:
        database.execute(f"CREATE TABLE visits AS SELECT * FROM '{tmp_path / 't.parquet'}'")
    given = sources(tmp_path)[index]
    source = open_source(empty if isinstance(given, pd.DataFrame) else given)
    assert source.read().shape == (0, 3)
    (part,) = source.batches(["age", "dose"], 10)
    encoding = Encoding(Schema((Numeric("age", 0, 9), Numeric("dose", 0, 9))))
    assert encoding.encode(part).records.features.shape == (0, 2)


def test_relative_paths_start_at_the_base(folder: Path) -> None:
    assert open_source("t.csv", base=folder) == Csv(folder / "t.csv")
    assert open_source(Path("t.parquet"), base=folder) == Parquet(folder / "t.parquet")
    table = {"source": "sql", "query": "SELECT age FROM 't.parquet' ORDER BY age DESC"}
    assert open_source(table, base=folder).read()["age"].tolist()[0] == 119
    assert isinstance(open_source(TABLE), Frame)


def test_csv_types_lose_nothing_and_batches_agree_with_the_whole(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    # The odd values come after more than one block of the reader.
    lines = [f"{i},{i},{i},0{i}" for i in range(150_000)] + ['x,1.5,,"a\nb"']
    path.write_text("\n".join(["mixed,real,gap,code", *lines]) + "\n")
    whole = Csv(path).read()
    assert [whole[name].dtype.kind for name in ("real", "gap")] == ["f", "f"]
    assert whole["mixed"].iloc[0] == "0" and whole["code"].iloc[7] == "07" and whole["code"].iloc[-1] == "a\nb"
    assert whole["gap"].isna().sum() == 1
    parts = list(Csv(path).batches(None, 40_000))
    assert len(parts) > 3
    pd.testing.assert_frame_equal(pd.concat(parts, ignore_index=True), whole)


def test_missing_marks_in_a_csv(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('a,b\n1,NA\n,"NA"\nnan,x\n')
    read = Csv(path).read()
    assert read["a"].isna().tolist() == [False, True, True]
    assert read["b"].isna().tolist() == [True, False, False] and read["b"].iloc[1] == "NA"


def test_a_path_is_taken_literally(folder: Path) -> None:
    odd = folder / "a #1?b%20'c.sqlite"
    odd.write_bytes((folder / "t.sqlite").read_bytes())
    assert len(open_source({"source": "sql", "query": "SELECT * FROM visits", "path": str(odd)}).read()) == 120


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("open.csv", b'a,b\n1,2\n"3,4\n'),
        ("ragged.csv", b"a,b\n1,2\n1,2,3\n"),
        ("text.parquet", b"hello"),
    ],
)
def test_a_broken_file_is_one_sentence_naming_it(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    for act in (lambda: open_source(path).read(), lambda: list(open_source(path).batches(None, 5))):
        with pytest.raises(DataError, match=f"{name} can't be read") as caught:
            act()
        assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_names_what_is_beside_it(folder: Path) -> None:
    with pytest.raises(
        DataError, match=r"site.toml: .*tt.csv can't be opened: there is no such file; beside it is 't.csv'"
    ):
        open_source(folder / "tt.csv", "site.toml")
    with pytest.raises(DataError, match="there is no such file; check the path"):
        open_source(folder / "no" / "where.parquet")
    with pytest.raises(DataError, match=r"expected .csv or .parquet"):
        open_source(folder / "t.xlsx")
    with pytest.raises(DataError, match=r"expected a DataFrame, a path or a table with source = ..., found int"):
        open_source(3)
    with pytest.raises(DataError, match="there is no such file"):
        open_source({"source": "sql", "query": "SELECT 1", "path": str(folder / "gone.duckdb")})


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"source": "parqet", "path": "x"}, "source: unknown source 'parqet'; did you mean 'parquet'"),
        ({}, "source: unknown source None"),
        ({"source": "csv", "pth": "x"}, "pth: unknown key 'pth'; did you mean 'path'"),
        ({"source": "csv", "query": "x"}, "query: unknown key 'query'"),
        ({"source": "csv"}, "path: expected a value, found none; add path"),
        ({"source": "csv", "path": 3}, "path: expected text, found int"),
        ({"source": "sql"}, "query: expected a value, found none"),
        ({"source": "sql", "query": "select 1", "url": "y", "path": "z"}, "url: expected path or url, found both"),
    ],
)
def test_a_bad_data_table_names_its_key(table: dict[str, Any], sentence: str) -> None:
    with pytest.raises(StudyError, match=r"site.toml: ") as caught:
        open_source(table, "site.toml")
    assert sentence in str(caught.value)


def test_bad_queries_are_one_sentence(folder: Path) -> None:
    for table in ({"path": str(folder / "t.duckdb")}, {"path": str(folder / "t.sqlite")}, {}):
        source = open_source({"source": "sql", "query": "SELECT nothing FROM nowhere", **table}, "site.toml")
        with pytest.raises(DataError, match=r"site.toml: the query on .* can't be read .*check query") as caught:
            source.read()
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("module", "url"), [("duckdb", None), ("sqlalchemy", "postgresql://host/db")])
def test_without_the_extra_the_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, module: str, url: str | None
) -> None:
    def absent(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr("comity.data.tables.sql.import_module", absent)
    with pytest.raises(DataError, match=f"needs {module}.*pip install 'comity\\[sql\\]'"):
        Sql("SELECT 1", url=url).read()
