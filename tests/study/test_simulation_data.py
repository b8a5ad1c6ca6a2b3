"""What `[simulation]` names as records, and what a simulation says about odd ones before anybody relies on it."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pytest

from comity.data import clinic_schema, clinics, explain
from comity.errors import BadInput, StudyError
from comity.report.result import load_result
from comity.study.records.party_data import load_party_data
from comity.study.simulation.simulate import RunOptions, run_study, simulate
from comity.study.study import Study

STUDY = """
[study]
name = "small"
protocol = "averaging"
schema = "schema.toml"
[privacy]
unit = "record"
epsilon = 4.0
delta = 1e-6
[averaging]
solver = "average"
sizes = {sizes}
[parties.a]
[parties.b]
[parties.c]
[simulation]
baselines = false
data = {data}
"""
FILES = {"a": "a.csv", "b": "b.csv", "c": "c.csv"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COMITY_HOME", str(tmp_path / "home"))
    for name, table in zip("abc", clinics(3, 40, "sources").values()):
        table.to_csv(tmp_path / f"{name}.csv", index=False)
    (tmp_path / "schema.toml").write_text(clinic_schema("readmitted").to_toml())
    return tmp_path


def study(folder: Path, data: object = FILES, sizes: object = 40, **overrides: object) -> Study:
    text = STUDY.format(data=_toml(data), sizes=_toml(sizes))
    (folder / "study.toml").write_text(text)
    return Study.load(folder / "study.toml", overrides=overrides or None)


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(entry)}" for key, entry in value.items()) + "}"
    return json.dumps(value)


def change(path: Path, **columns: Any) -> None:
    pd.read_csv(path, dtype={"patient": str}).assign(**columns).to_csv(path, index=False)


def test_ordinary_records_are_not_remarked_on(folder: Path) -> None:
    assert load_party_data(study(folder)).warnings == ()


def test_infinite_numbers_repeated_identifiers_and_odd_sizes_are_told(folder: Path) -> None:
    change(folder / "a.csv", age=float("inf"))
    change(folder / "b.csv", patient="p1")
    (folder / "c.csv").write_bytes(b"")
    found = load_party_data(study(folder, sizes={"a": 40, "b": 400, "c": 40})).warnings
    assert [one for one in found if "a.csv: age: 40 of 40 values are infinite" in one]
    assert [one for one in found if "b.csv: patient: 39 of 40 records repeat an identifier" in one]
    assert [one for one in found if "b.csv: holds 40 records where the study declares 400" in one]
    assert [one for one in found if "c.csv: holds no records" in one]
    assert len(found) == 4


def test_a_simulation_and_schema_check_say_the_same(folder: Path) -> None:
    change(folder / "a.csv", age=float("inf"), patient="p1")
    one = study(folder, sizes=400)
    told = explain(one.schema, pd.read_csv(folder / "a.csv"), str(folder / "a.csv"), unit="record", records=400)
    expected = {finding.sentence for finding in told if finding.severity == "warning"}
    assert len(expected) == 3 and expected <= set(load_party_data(one).warnings)


def test_one_file_for_all_parties_is_looked_at_as_a_whole_and_by_party(folder: Path) -> None:
    tables = [pd.read_csv(folder / f"{name}.csv").assign(site=name) for name in "abc"]
    pd.concat([tables[0].iloc[:3], tables[1].assign(age=float("inf")), tables[2]]).to_csv(
        folder / "all.csv", index=False
    )
    one = study(folder, "all.csv", **{"simulation.split": "by-column", "simulation.column": "site"})
    found = load_party_data(one).warnings
    assert [line for line in found if "all.csv: age: 40 of 83 values are infinite" in line]
    assert [line for line in found if "all.csv: a: holds 3 records where the study declares 40" in line]
    assert len(found) == 2


def test_what_was_told_is_in_the_result_and_survives_its_folder(folder: Path) -> None:
    change(folder / "a.csv", age=float("inf"))
    outcome = run_study(study(folder), seed=1)
    assert any("infinite" in one for one in outcome.findings)
    outcome.save(folder / "run")
    assert load_result(folder / "run").findings == outcome.findings
    assert json.loads((folder / "run" / "result.json").read_text())["findings"] == list(outcome.findings)
    assert "values are infinite" in (folder / "run" / "report.html").read_text()


def test_no_value_of_a_record_is_in_what_is_told(folder: Path) -> None:
    change(folder / "a.csv", ward="Quillfeather", patient="Quillfeather")
    one = study(folder)
    assert load_party_data(one).warnings and not [line for line in load_party_data(one).warnings if "Quill" in line]


def test_simulating_in_python_tells_it_too(folder: Path) -> None:
    one = study(folder)
    frames = {name: pd.read_csv(folder / f"{name}.csv") for name in "abc"}
    frames["b"]["age"] = float("inf")
    outcome = simulate(
        one.protocol, parties=frames, epsilon=4, delta=1e-6, unit="record", seed=1, options=RunOptions(baselines=False)
    )
    assert any("b: age: 40 of 40 values are infinite" in line for line in outcome.findings)


def test_a_thousand_files_with_one_mistake_do_not_fill_a_screen(folder: Path) -> None:
    big = pd.concat([pd.read_csv(folder / "a.csv")] * 25).assign(patient=range(1000))
    big.to_csv(folder / "all.csv", index=False)
    one = Study.parse(
        STUDY.format(data='"all.csv"', sizes=400).replace(
            "[parties.a]\n[parties.b]\n[parties.c]", "[parties]\ncount = 50"
        ),
        folder=folder,
    )
    found = load_party_data(one).warnings
    assert len(found) == 21 and found[-1] == "and 30 more warnings of this kind about the data"


@pytest.mark.parametrize("kind", ["zero", "header"])
def test_no_records_at_all_are_an_error_before_anything_is_spent(folder: Path, kind: str) -> None:
    header = (folder / "a.csv").read_text().splitlines()[0]
    (folder / "none.csv").write_text("" if kind == "zero" else header + "\n")
    for data in ("none.csv", dict.fromkeys("abc", "none.csv")):
        with pytest.raises(StudyError, match=r"simulation\.data holds no records at all"):
            load_party_data(study(folder, data))


def test_a_file_without_a_byte_is_a_party_without_records(folder: Path) -> None:
    header = (folder / "a.csv").read_text().splitlines()[0]
    party_data = []
    for text in ("", header + "\n"):
        (folder / "c.csv").write_text(text)
        party_data.append(load_party_data(study(folder)))
    for one in party_data:
        assert (
            len(one.parties["c"]) == 0 and one.parties["c"].features.shape == party_data[0].parties["c"].features.shape
        )
    assert party_data[0].warnings == party_data[1].warnings != ()


def databases(folder: Path) -> dict[str, dict[str, str]]:
    """The parties' tables in a DuckDB file, a SQLite file and a CSV file with another dialect."""
    with duckdb.connect(folder / "a.duckdb") as database:
        database.execute(f"CREATE TABLE visits AS SELECT * FROM read_csv('{folder / 'a.csv'}', all_varchar = true)")
    with sqlite3.connect(folder / "b.sqlite") as connection:
        pd.read_csv(folder / "b.csv").to_sql("visits", connection, index=False)
    connection.close()
    table = pd.read_csv(folder / "c.csv")
    table.to_csv(folder / "c.csv", index=False, sep=";", decimal=",", encoding="latin-1")
    return {
        "a": {"source": "sql", "path": "a.duckdb", "query": "SELECT * FROM visits"},
        "b": {"source": "sql", "url": "sqlite:///b.sqlite", "table": "visits"},
        "c": {"source": "csv", "path": "c.csv", "separator": ";", "decimal": ",", "encoding": "latin-1"},
    }


def test_a_study_reads_databases_and_dialects_as_it_reads_plain_files(folder: Path) -> None:
    plain = load_party_data(study(folder))
    named = study(folder, databases(folder))
    assert named.hash == study(folder).hash
    found = load_party_data(named)
    for name in "abc":
        assert found.parties[name].features.tolist() == plain.parties[name].features.tolist()
    assert run_study(named, seed=1).settings["simulation.data"] == named.simulation.data


def test_one_source_for_all_parties_and_one_to_test_on(folder: Path) -> None:
    tables = databases(folder)
    pd.read_csv(folder / "a.csv").to_parquet(folder / "a.parquet")
    for value in (
        tables["a"],
        {"source": "sql", "path": "a.parquet", "query": "SELECT * FROM data"},
        {"path": "a.csv"},
    ):
        one = study(folder, value, **{"simulation.test": tables["b"]})
        party_data = load_party_data(one)
        assert (
            sum(map(len, party_data.parties.values())) == 40
            and party_data.test is not None
            and len(party_data.test) == 40
        )


def test_parties_may_have_the_names_of_keys(folder: Path) -> None:
    text = STUDY.format(data='{source = "a.csv", path = "b.csv"}', sizes=40)
    text = text.replace("[parties.a]\n[parties.b]\n[parties.c]", "[parties.source]\n[parties.path]")
    assert list(load_party_data(Study.parse(text, folder=folder)).parties) == ["source", "path"]


SECRET = "postgresql://reader:hunter2@host/clinic"


@pytest.mark.parametrize(
    "data",
    [
        {"source": "sql", "url": SECRET, "table": "visits"},
        {"a": {"source": "sql", "url": SECRET, "table": "visits"}, "b": "b.csv", "c": "c.csv"},
        {"source": "sql", "url": SECRET, "tabel": "visits"},
        {"source": "sql", "url": [SECRET], "table": "visits"},
        {"source": "sql", "url": "postgresql://reader@host/clinic", "table": "visits", "password": "hunter2"},
        {"source": "sql", "url": "postgresql://reader@host/clinic?password=hunter2", "table": "visits"},
        {"source": "csv", "path": 3, "encoding": SECRET},
        [SECRET],
        SECRET,
        {"a": [SECRET], "b": "b.csv", "c": "c.csv"},
    ],
)
def test_a_password_in_a_study_is_refused_and_never_shown(folder: Path, data: object) -> None:
    with pytest.raises(BadInput) as caught:
        load_party_data(study(folder, data))
    assert "hunter2" not in str(caught.value) and "simulation.data" in str(caught.value)
    for key in ("simulation.data", "simulation.test"):
        with pytest.raises(BadInput) as caught:
            load_party_data(study(folder, **{key: data}))
        assert "hunter2" not in str(caught.value)


def test_a_study_reads_nothing_outside_its_folder(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "a.csv"
    elsewhere.write_bytes((folder / "a.csv").read_bytes())
    for value in (
        str(elsewhere),
        {"source": "csv", "path": str(elsewhere)},
        {"source": "sql", "path": "a.csv", "query": f"SELECT * FROM '{elsewhere}'"},
        {"source": "sql", "query": f"SELECT * FROM '{elsewhere}'"},
        {"source": "sql", "path": "a.csv", "query": "COPY (SELECT 1) TO 'stolen.csv'"},
    ):
        with pytest.raises(BadInput):
            load_party_data(study(folder, value))
    assert not (folder / "stolen.csv").exists()


def test_a_wrong_separator_is_named_with_the_studys_key(folder: Path) -> None:
    pd.read_csv(folder / "a.csv").to_csv(folder / "a.csv", index=False, sep=";")
    with pytest.raises(BadInput, match=r"a.csv is separated by semicolons.*separator = \";\""):
        load_party_data(study(folder))


VERTICAL = """
[study]
name = "joint"
protocol = "vertical"
schema = "schema.toml"
[privacy]
unit = "record"
epsilon = 8.0
delta = 1e-6
[vertical]
solver = "quadratic"
products = "dealer"
alignment = "none"
[parties.north]
columns = ["admitted", "sick"]
[parties.south]
columns = ["dose"]
[simulation]
baselines = false
"""
JOINT = """
[columns.admitted]
kind = "date"
low = 2020-01-01
high = 2020-12-31
format = "%d.%m.%Y"
[columns.dose]
kind = "numeric"
low = 0
high = 1
[target]
name = "sick"
classes = ["no", "yes"]
"""


def test_dates_and_odd_records_where_parties_hold_columns(folder: Path) -> None:
    days = pd.date_range("2020-01-01", periods=366)
    frame = pd.DataFrame({"admitted": days.strftime("%d.%m.%Y"), "dose": float("inf"), "sick": "no"})
    frame.loc[days.month > 6, "sick"] = "yes"
    frame.to_csv(folder / "whole.csv", index=False)
    frame[["admitted", "sick"]].to_csv(folder / "north.csv", index=False)
    frame[["dose"]].to_csv(folder / "south.csv", index=False)
    (folder / "schema.toml").write_text(JOINT)
    for data in ('data = "whole.csv"\nsplit = "by-features"', 'data = {north = "north.csv", south = "south.csv"}'):
        party_data = load_party_data(Study.parse(VERTICAL + data, folder=folder))
        assert len(party_data.warnings) == 1 and "dose: 366 of 366 values are infinite" in party_data.warnings[0]
    outcome = run_study(Study.parse(VERTICAL + 'data = "whole.csv"\nsplit = "by-features"', folder=folder), seed=2)
    predicted = outcome.model.predict(pd.DataFrame({"admitted": ["02.01.2020", "30.12.2020"], "dose": 1.0}))
    assert list(predicted) == ["no", "yes"]
