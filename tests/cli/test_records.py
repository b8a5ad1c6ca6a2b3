"""Commands read what studies read: databases by table, query and URL, and CSV in other dialects."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pytest

from comity.data import Schema, clinic_schema, clinics
from tests.data.postgres import PASSWORD, Cluster, absent, cluster
from tests.support.study_folder import STUDY, write_study

from .conftest import Ended

Comity = Callable[..., Ended]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    visits = clinics(1, 40, "records")["clinic-01"]
    visits.to_csv("plain.csv", index=False)
    visits.to_csv("other.csv", index=False, sep=";", decimal=",", encoding="latin-1")
    with sqlite3.connect("visits.sqlite") as connection:
        visits.to_sql("visits", connection, index=False)
    connection.close()
    with duckdb.connect("visits.duckdb") as database:
        database.execute("CREATE TABLE visits AS SELECT * FROM read_csv('plain.csv', all_varchar = true)")
    Path("schema.toml").write_text(clinic_schema("readmitted").to_toml())
    return tmp_path


WAYS = [
    ("plain.csv",),
    ("other.csv", "--separator", ";", "--decimal", ",", "--encoding", "latin-1"),
    ("visits.sqlite", "--table", "visits"),
    ("visits.duckdb", "--query", "SELECT * FROM visits"),
    ("sqlite:///visits.sqlite", "--table", "visits"),
    ("duckdb:///visits.duckdb", "--query", "SELECT * FROM visits WHERE 1 = 1"),
]


@pytest.mark.parametrize("way", WAYS)
def test_schema_check_and_draft_read_every_source(folder: Path, comity: Comity, way: tuple[str, ...]) -> None:
    checked = comity("schema", "check", "schema.toml", *way, "--json")
    assert checked.code == 0 and checked.document["records"] == 40 and checked.document["fits"]
    drafted = comity("schema", "draft", *way, "--target", "readmitted", "--json")
    assert drafted.code == 0
    assert "age" in Schema.parse(drafted.document["schema"]).names


def test_schema_check_quotes_values_on_the_terminal_and_tells_sizes(folder: Path, comity: Comity) -> None:
    frame: Any = pd.read_csv("plain.csv")
    frame.loc[0, "readmitted"] = "perhaps"
    frame.loc[1, "patient"] = frame.loc[0, "patient"]
    frame.to_csv("odd.csv", index=False)
    said = comity("schema", "check", "schema.toml", "odd.csv", "--records", "1000", "--unit", "record")
    assert said.code == 3 and "Found: 'perhaps'." in said.out
    assert "warning: odd.csv: holds 40 records where the study declares 1000" in said.out
    assert "1 of 40 records repeat an identifier" in said.out
    assert "repeat" not in comity("schema", "check", "schema.toml", "odd.csv", "--unit", "party").out
    assert comity("schema", "check", "schema.toml", "odd.csv", "--unit", "clinic").code == 2


def test_a_wrong_dialect_is_named_with_the_option(folder: Path, comity: Comity) -> None:
    said = comity("schema", "check", "schema.toml", "other.csv")
    assert said.code == 3 and "separated by semicolons" in said.err and "--separator" in said.err
    first = Path("other.csv").read_text("latin-1").splitlines()[1]
    assert first not in said.err and first.split(";")[0] not in said.err
    Path("tabs.csv").write_text(Path("plain.csv").read_text().replace(",", "\t"))
    assert comity("schema", "check", "schema.toml", "tabs.csv", "--separator", "\\t").code == 0


@pytest.mark.parametrize(
    "way",
    [
        ("postgresql://reader:hunter2@host/clinic", "--table", "visits"),
        ("postgresql://reader@host/clinic?password=hunter2", "--table", "visits"),
        ("postgresql://reader:hunter2@host/clinic",),
        ("nosuch://reader:hunter2@host/clinic", "--query", "SELECT 1"),
    ],
)
def test_a_password_on_the_command_line_is_refused_and_never_shown(folder: Path, comity: Comity, way: Any) -> None:
    for command in (
        ("schema", "check", "schema.toml", *way),
        ("schema", "draft", *way, "--target", "readmitted"),
        ("schema", "check", "schema.toml", *way, "--json"),
    ):
        said = comity(*command)
        assert said.code == 3 and "hunter2" not in said.out + said.err


def test_a_query_that_writes_is_refused(folder: Path, comity: Comity) -> None:
    for way in (("visits.sqlite",), ("visits.duckdb",)):
        said = comity("schema", "check", "schema.toml", *way, "--query", "DELETE FROM visits")
        assert said.code == 3 and "statement that reads" in said.err
        assert comity("schema", "check", "schema.toml", *way, "--table", "visits").code == 0


def test_a_study_on_databases_runs_and_its_model_predicts_from_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, comity: Comity
) -> None:
    path = write_study(tmp_path / "small")
    monkeypatch.chdir(path.parent)
    with duckdb.connect("clinics.duckdb") as database:
        for name in ("records", "test"):
            database.execute(f"CREATE TABLE {name} AS SELECT * FROM read_csv('{name}.csv', all_varchar = true)")
    plain = comity("run", "study.toml", "--seed", 3, "--json").document
    text = STUDY.replace('data = "records.csv"', 'data = {source = "sql", path = "clinics.duckdb", table = "records"}')
    text = text.replace('test = "test.csv"', 'test = {source = "sql", path = "clinics.duckdb", query = "FROM test"}')
    Path("sql.toml").write_text(text)
    named = comity("run", "sql.toml", "--seed", 3, "--json").document
    assert named["error"] == plain["error"] and named["study_hash"] == plain["study_hash"]
    from_file = comity("predict", plain["folder"], "test.csv", "--json").document
    from_base = comity("predict", named["folder"], "clinics.duckdb", "--table", "test", "--json").document
    assert from_file == from_base and len(from_file) == 100
    resumed = comity("run", "--resume", named["folder"], "--json")
    assert resumed.code == 0


def test_what_is_odd_is_told_on_the_terminal_and_in_the_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, comity: Comity
) -> None:
    path = write_study(tmp_path / "small")
    monkeypatch.chdir(path.parent)
    pd.read_csv("records.csv").assign(age=float("inf")).to_csv("records.csv", index=False)
    said = comity("run", "study.toml", "--seed", 3)
    assert said.code == 0 and "WARNING        records.csv: age: 60 of 60 values are infinite" in said.out
    assert comity("run", "study.toml", "--seed", 3, "--json").document["findings"]


@pytest.fixture(scope="module")
def postgres() -> Iterator[Cluster]:
    reason = absent()
    if reason is not None:
        pytest.skip(reason)
    with cluster("CREATE TABLE nothing_yet (x int)") as running:
        yield running


def test_postgresql_serves_a_study_and_the_password_stays_in_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, comity: Comity, postgres: Cluster
) -> None:
    import sqlalchemy

    path = write_study(tmp_path / "small")
    monkeypatch.chdir(path.parent)
    engine = sqlalchemy.create_engine(postgres.socket_url)
    for name in ("records", "test"):
        pd.read_csv(f"{name}.csv").to_sql(name, engine, index=False, if_exists="replace")
    engine.dispose()
    secret = Path("secret")
    secret.write_text(PASSWORD + "\n")
    secret.chmod(0o600)
    plain = comity("run", "study.toml", "--seed", 3, "--json").document
    source = f'{{source = "sql", url = "{postgres.url}", password_file = "secret", query = "SELECT * FROM records"}}'
    Path("sql.toml").write_text(STUDY.replace('"records.csv"', source))
    named = comity("run", "sql.toml", "--seed", 3, "--json")
    assert named.code == 0, named.err
    assert named.document["error"] == plain["error"]
    options = ("--password-file", "secret")
    checked = comity("schema", "check", "schema.toml", postgres.url, "--table", "records", *options)
    assert checked.code == 0 and "(60 records)" in checked.out
    predicted = comity("predict", named.document["folder"], postgres.url, "--table", "test", *options, "--json")
    assert len(predicted.document) == 100
    drafted = comity("schema", "draft", postgres.url, "--table", "test", "--target", "readmitted", *options)
    assert drafted.code == 0
    secret.write_text("wrong" + PASSWORD)
    refused = comity("run", "sql.toml", "--seed", 3)
    assert refused.code == 3 and "password authentication failed" in refused.err
    said = [named.out, named.err, checked.out, drafted.out, drafted.err, refused.out, refused.err]
    assert not [text for text in said if PASSWORD in text]
    held = [one for one in Path(named.document["folder"]).rglob("*") if one.is_file()]
    assert len(held) > 5 and not [one for one in held if PASSWORD.encode() in one.read_bytes()]
    assert json.loads((Path(named.document["folder"]) / "result.json").read_text())["settings"]["simulation.data"]
