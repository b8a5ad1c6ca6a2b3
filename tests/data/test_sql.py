"""SQL sources: they read and do nothing else, hold no password, and quote no value."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pytest

from comity.data import Classes, Date, Encoding, Numeric, Schema, Sql, explain, open_source
from comity.errors import BadInput, DataError, StudyError
from tests.data.postgres import PASSWORD, Cluster, absent, cluster

TABLE = pd.DataFrame({"name": ["Quillfeather", "Moss"] * 60, "age": range(120)})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with sqlite3.connect(tmp_path / "t.sqlite") as connection:
        TABLE.to_sql("visits", connection, index=False)
    connection.close()
    with duckdb.connect(tmp_path / "t.duckdb") as database:
        database.register("given", TABLE)
        database.execute("CREATE TABLE visits AS SELECT * FROM given")
    return tmp_path


WRITES = [
    "DELETE FROM visits",
    "INSERT INTO visits VALUES ('x', 1)",
    "CREATE TABLE other AS SELECT 1",
    "SELECT 1; DELETE FROM visits",
    "SELECT 1; DELETE FROM visits;",
    "/* SELECT */ DROP TABLE visits",
    "-- SELECT\nDROP TABLE visits",
    "COPY visits TO 'out.csv'",
    "ATTACH 'other.duckdb'",
    "INSTALL httpfs",
    "PRAGMA user_version = 3",
    "SET memory_limit = '1GB'",
    "",
    " ; ",
]


@pytest.mark.parametrize("query", WRITES)
def test_a_query_that_is_no_reading_one_is_refused_before_a_database_sees_it(folder: Path, query: str) -> None:
    with pytest.raises(DataError, match="expected one statement that reads"):
        Sql(query, path=folder / "t.duckdb")
    with pytest.raises(BadInput):
        open_source({"source": "sql", "query": query, "path": str(folder / "t.sqlite")})


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM visits",
        "select * from visits ;\n",
        "(SELECT * FROM visits)",
        "-- all of them\n/* of\nthem */ WITH a AS (SELECT * FROM visits) SELECT * FROM a",
        "SELECT name, age FROM visits WHERE name <> ':x' AND name <> '%s' AND '12:30' LIKE '%:30'",
    ],
)
def test_reading_queries_are_run_as_they_are_written(folder: Path, query: str) -> None:
    for file in ("t.duckdb", "t.sqlite"):
        if file == "t.sqlite" and query.startswith("("):
            continue
        assert len(open_source({"source": "sql", "query": query, "path": str(folder / file)}).read()) == 120


def test_a_database_file_is_opened_read_only_also_by_its_url(folder: Path) -> None:
    """What passes for reading by its first word still can't write: the file is open for reading alone."""
    query = "WITH gone AS (SELECT 1) DELETE FROM visits"
    for table in (
        {"path": str(folder / "t.duckdb")},
        {"path": str(folder / "t.sqlite")},
        {"url": f"sqlite:///{folder / 't.sqlite'}"},
        {"url": f"duckdb:///{folder / 't.duckdb'}"},
    ):
        with pytest.raises(DataError) as caught:
            open_source({"source": "sql", "query": query, **table}).read()
        assert ("statement that reads" in str(caught.value)) is ("duckdb" in str(table))
        assert len(open_source({"source": "sql", "table": "visits", **table}).read()) == 120
    (folder / "new").mkdir()
    with pytest.raises(DataError, match="there is no such file"):
        open_source({"source": "sql", "table": "visits", "url": f"sqlite:///{folder / 'new' / 'x.sqlite'}"})
    assert list((folder / "new").iterdir()) == []


def test_a_confined_query_reads_its_own_folder_and_no_network(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "private.csv"
    TABLE.to_csv(elsewhere, index=False)
    TABLE.to_csv(folder / "own.csv", index=False)
    table = {"source": "sql", "path": "own.csv"}
    whole = open_source({**table, "query": "SELECT * FROM data"}, base=folder, confined=True).read()
    assert len(whole) == 120
    for named in (str(elsewhere), f"../{elsewhere.parent.name}/private.csv", "https://example.org/private.csv"):
        for query in (
            f"SELECT * FROM '{named}'",
            f"SELECT * FROM read_text('{named}')",
            f"SELECT * FROM glob('{named}')",
        ):
            with pytest.raises(DataError) as caught:
                open_source({**table, "query": query}, base=folder, confined=True).read()
            assert "Quillfeather" not in str(caught.value)
    with pytest.raises(StudyError, match="expected path or url beside query"):
        open_source({"source": "sql", "query": f"SELECT * FROM '{elsewhere}'"}, base=folder, confined=True)
    # Without confinement the file is there: it was the rule that kept it out.
    assert len(open_source({"source": "sql", "query": f"SELECT * FROM '{elsewhere}'"}, base=folder).read()) == 120


def test_confined_paths_do_not_leave_their_folder(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    for name in ("t.sqlite", "t.duckdb"):
        (elsewhere / name).write_bytes((folder / name).read_bytes())
    TABLE.to_csv(elsewhere / "t.csv", index=False)
    (folder / "link.csv").symlink_to(elsewhere / "t.csv")
    secret = elsewhere / "secret"
    secret.write_text("x")
    up = f"../{elsewhere.name}"
    for value in (
        str(elsewhere / "t.csv"),
        f"{up}/t.csv",
        "link.csv",
        {"source": "csv", "path": f"{up}/t.csv"},
        {"source": "sql", "table": "visits", "path": f"{up}/t.duckdb"},
        {"source": "sql", "table": "visits", "url": f"sqlite:///{elsewhere / 't.sqlite'}"},
        {"source": "sql", "table": "visits", "url": f"duckdb:///{up}/t.duckdb"},
        {"source": "sql", "table": "visits", "url": "postgresql://u@h/d", "password_file": str(secret)},
    ):
        with pytest.raises(StudyError, match="expected a path inside"):
            open_source(value, base=folder, confined=True)
        open_source(value, base=folder)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:hunter2@host/db",
        "postgresql://user:hun@ter2@host/db",
        "postgresql://user:hunter2/x@host/db",
        "postgresql://user:hunter2?x@host/db",
        "postgresql://:hunter2@host/db",
        "postgresql://user@host/db?password=hunter2",
        "postgresql://user@host/db?sslmode=require&PASSWORD=hunter2",
        "postgresql://user@host/db?options=hunter2",
        "mssql+pyodbc:///?odbc_connect=PWD%3Dhunter2",
        "sqlite://user:hunter2@nowhere/x",
        "nosuch+driver://user:hunter2@host/x",
        "hunter2:::",
        "sqlite:hunter2",
    ],
)
def test_a_password_in_a_url_is_refused_and_never_shown(url: str) -> None:
    table = {"source": "sql", "query": "SELECT 1", "url": url}
    acts: list[Callable[[], Any]]
    acts = [lambda: open_source(table, "study.toml"), lambda: Sql("SELECT 1", url=url, where="study.toml")]
    for act in acts:
        with pytest.raises(StudyError, match=r"study.toml: url: ") as caught:
            act()
        assert "hunter2" not in str(caught.value)


def test_a_url_is_not_shown_by_its_source() -> None:
    assert "host" not in repr(Sql("SELECT 1", url="postgresql://user@host/db"))


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("nosuch://user@host/x", "its dialect is not known"),
        ("mysql+nosuchdriver://user@host/x", "url can't be used"),
        ("postgresql+psycopg2cffi://user@host/x", "is not installed"),
    ],
)
def test_a_url_that_has_no_driver_says_what_to_install(url: str, words: str) -> None:
    with pytest.raises(DataError, match="install the driver with pip") as caught:
        Sql("SELECT 1", url=url).read()
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"query": "SELECT 1", "table": "t", "path": "x"}, "table: expected query or table, found both"),
        ({"path": "x"}, "query: expected a value, found none"),
        ({"table": "t"}, "url: expected a value, found none"),
        ({"table": "t", "path": "x", "password_file": "y"}, "password_file: expected url beside it"),
        ({"table": "t", "url": "sqlite:x"}, "url: expected dialect+driver://user@host/database"),
        ({"table": "t", "url": "sqlite://"}, "url: expected sqlite:///FILE"),
        ({"table": "t", "url": "sqlite://x"}, "url: expected sqlite:///FILE"),
        ({"table": "t", "url": "postgresql://h/d?options=-c"}, "url: unknown parameter 'options'"),
    ],
)
def test_a_bad_sql_table_names_its_key(table: dict[str, Any], sentence: str) -> None:
    with pytest.raises(StudyError) as caught:
        open_source({"source": "sql", **table}, "study.toml")
    assert f"study.toml: {sentence}" in str(caught.value)


def test_a_password_file_is_its_owners_alone(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    source = Sql("SELECT 1", url="postgresql+psycopg://u@127.0.0.1:1/d", password_file=file)
    pytest.importorskip("psycopg")
    with pytest.raises(DataError, match=r"password_file: .* can't be read"):
        source.read()
    file.write_text("hunter2\n")
    file.chmod(0o640)
    with pytest.raises(DataError, match="can be read by others than you; run: chmod 600"):
        source.read()
    file.chmod(stat.S_IRUSR)
    with pytest.raises(DataError, match="the query on postgresql") as caught:
        source.read()
    assert "hunter2" not in str(caught.value) and "***" in str(caught.value)
    file.chmod(0o600)
    file.write_text("\n")
    with pytest.raises(DataError, match="expected a password in its first line"):
        source.read()


def test_a_password_that_a_driver_repeats_is_taken_out() -> None:
    source = Sql("SELECT 1", url="postgresql://u@h/d", where="north")
    with (
        pytest.raises(DataError, match=r"north: .*no entry for \*\*\*"),
        source._explain_errors(ValueError, "postgresql://u@h/d", lambda _: True, secret="hunter2"),
    ):
        raise ValueError("no entry for hunter2")


def test_a_url_in_place_of_a_file_is_not_shown() -> None:
    for value in ("postgresql://u:hunter2@h/d", Path("mysql+x://u:hunter2@h/d")):
        with pytest.raises(StudyError, match="expected a file, found a URL") as caught:
            open_source(value, "study.toml")
        assert "hunter2" not in str(caught.value)


def test_what_a_database_says_about_a_value_is_not_shown(folder: Path) -> None:
    (folder / "ragged.csv").write_text("name,age\nMoss,3\nQuillfeather,8817,77\n")
    for query in (
        "SELECT name::INT AS age FROM visits",
        f"SELECT * FROM read_csv('{folder / 'ragged.csv'}', columns={{'name': 'VARCHAR', 'age': 'INT'}})",
        "SELECT error(name) FROM visits",
    ):
        with pytest.raises(DataError, match="whose text may quote a record and is not shown") as caught:
            open_source({"source": "sql", "query": query, "path": str(folder / "t.duckdb")}, "north").read()
        assert "Quill" not in str(caught.value) and caught.value.__cause__ is None
        assert caught.value.__suppress_context__


def test_a_csv_file_has_the_same_values_by_a_query_as_without(folder: Path) -> None:
    (folder / "own.csv").write_text(
        'who,sick,agreed,code,age,"a ""b""",seen\nx,yes,true,007,5,1.5,2020-01-02\ny,no,false,012,6,2,2021-02-03\n'
    )
    query = {"source": "sql", "path": "own.csv", "query": "SELECT * FROM data WHERE age > 1"}
    found = open_source(query, where="t", base=folder).read()
    plain = open_source("own.csv", where="t", base=folder).read()
    for name in ("who", "sick", "agreed", "code", "age", 'a "b"'):
        assert found[name].tolist() == plain[name].tolist(), name
    assert found["sick"].tolist() == ["yes", "no"] and found["code"].tolist() == ["007", "012"]
    pieces = list(open_source(query, where="t", base=folder).pieces(["sick", "age"]))
    assert sum(len(piece) for piece in pieces) == 2


def test_a_csv_file_of_texts_alone_keeps_its_header(folder: Path) -> None:
    (folder / "texts.csv").write_text("ward,sick\na,yes\nb,no\n")
    found = open_source({"source": "sql", "path": "texts.csv", "query": "SELECT * FROM data"}, where="t", base=folder)
    assert found.read().to_dict("list") == {"ward": ["a", "b"], "sick": ["yes", "no"]}


def test_tables_have_any_name(folder: Path) -> None:
    with duckdb.connect(folder / "odd.duckdb") as database:
        database.execute('CREATE SCHEMA "a b"; CREATE TABLE "a b"."c""d" AS SELECT 1 AS x')
    assert open_source({"source": "sql", "table": 'a b.c"d', "path": str(folder / "odd.duckdb")}).read().shape == (1, 1)
    with pytest.raises(DataError, match="can't be read"):
        open_source(
            {"source": "sql", "table": 'visits"; DROP TABLE visits; --', "path": str(folder / "t.duckdb")}
        ).read()


PATIENTS = """
SET TIME ZONE 'Asia/Tokyo';
CREATE SCHEMA ward;
CREATE TABLE ward.patients AS SELECT
    i AS patient, 20 + i % 50 AS age, (i % 7)::numeric / 4 AS dose, DATE '2020-01-01' + i % 365 AS admitted,
    TIMESTAMPTZ '2020-03-05 23:30:00+00' AS seen, CASE WHEN i % 3 = 0 THEN 'yes' ELSE 'no' END AS sick,
    CASE WHEN i = 250 THEN 'Quillfeather' ELSE '1' END AS note
    FROM generate_series(1, 300) AS i
"""
SCHEMA = Schema(
    (
        Numeric("age", 0, 120),
        Numeric("dose", 0, 2),
        Date("admitted", pd.Timestamp("2020-01-01").date(), pd.Timestamp("2020-12-31").date()),
        Date("seen", pd.Timestamp("2020-01-01").date(), pd.Timestamp("2020-12-31").date()),
    ),
    Classes("sick", ("no", "yes")),
    "patient",
)


@pytest.fixture(scope="module")
def postgres() -> Iterator[Cluster]:
    reason = absent()
    if reason is not None:
        pytest.skip(reason)
    with cluster(PATIENTS) as running:
        yield running


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "secret"
    file.write_text(PASSWORD + "\n")
    file.chmod(0o600)
    return file


def test_postgresql_is_read_by_table_and_query_over_socket_and_loopback(postgres: Cluster, secret: Path) -> None:
    loopback = {"source": "sql", "url": postgres.url, "password_file": str(secret)}
    for table in (
        {"source": "sql", "url": postgres.socket_url, "table": "ward.patients"},
        {**loopback, "query": "SELECT * FROM ward.patients WHERE sick::text LIKE '%' ORDER BY patient"},
    ):
        frame = open_source(table, "north").read()
        assert explain(SCHEMA, frame) == []
        encoded = Encoding(SCHEMA, scaling="unit").encode(frame.sort_values("patient"))
        assert encoded.records.features.shape == (300, 4)
        assert (encoded.records.features[:7, 1] * 8).round(9).tolist() == [1, 2, 3, 4, 5, 6, 0]
        assert (encoded.records.features[:3, 2] * 365).round(9).tolist() == [1, 2, 3]
        # The server's own zone is Tokyo's, where it was the next day already.
        assert set((encoded.records.features[:, 3] * 365).round(9)) == {64.0}
        assert encoded.records.labels is not None and encoded.records.labels.sum() == 100
        assert max(map(len, open_source(table).batches(["age"], 70))) == 70


def test_postgresql_errors_hold_no_password_and_no_value(postgres: Cluster, secret: Path) -> None:
    secret.write_text("wrong-" + PASSWORD)
    table = {"source": "sql", "url": postgres.url, "password_file": str(secret), "table": "ward.patients"}
    with pytest.raises(DataError, match="password authentication failed") as caught:
        open_source(table, "north").read()
    assert PASSWORD not in str(caught.value) and "\n" not in str(caught.value)
    with pytest.raises(DataError, match="can't be read") as caught:
        open_source({"source": "sql", "url": postgres.url, "table": "ward.patients"}, "north").read()
    table = {"source": "sql", "url": postgres.socket_url}
    with pytest.raises(DataError, match=r"column .nothing. does not exist"):
        open_source({**table, "query": "SELECT nothing FROM ward.patients"}).read()
    with pytest.raises(DataError, match="is not shown") as caught:
        open_source({**table, "query": "SELECT note::int FROM ward.patients ORDER BY patient"}).read()
    assert "Quill" not in str(caught.value) and caught.value.__suppress_context__


@pytest.mark.parametrize(
    "query",
    [
        "WITH gone AS (DELETE FROM ward.patients RETURNING *) SELECT * FROM gone",
        "SELECT 1 AS x INTO ward.copied",
        "/* /* */ SELECT */ DELETE FROM ward.patients",
        "SELECT set_config('transaction_read_only', 'off', false)",
    ],
)
def test_postgresql_is_asked_in_a_transaction_that_can_not_write(postgres: Cluster, query: str) -> None:
    table = {"source": "sql", "url": postgres.socket_url}
    with pytest.raises(DataError, match="can't be read"):
        open_source({**table, "query": query}).read()
    assert len(open_source({**table, "table": "ward.patients"}).read(["age"])) == 300
