"""A file in its owner's terms is encoded as one that was cleaned by hand: from every source, whole and in blocks."""

from __future__ import annotations

import sqlite3
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comity.data import Categorical, Classes, Date, Encoding, Numeric, Schema, StreamedRecords, open_source
from comity.data.tables.table import Batch
from comity.data.tables.translation import NUMBER_FORMATS, TranslatedSource, Translation, read_translation
from comity.errors import DataError, StudyError

SCHEMA = Schema(
    (
        Numeric("age", 0, 120, integer=True),
        Categorical("sex", ("female", "male"), other=True, missing="other"),
        Numeric("height", 100, 220, missing="fill", fill=170, integer=True),
        Numeric("income", 0, 10_000),
        Date("seen", date(2020, 1, 1), date(2024, 12, 31), format="%m/%d/%Y"),
    ),
    Classes("ill", ("no", "yes")),
    "patient",
)
ENCODING = Encoding(SCHEMA)
PEOPLE = 40
CLEAN = pd.DataFrame(
    {
        "patient": [f"p{place:03d}" for place in range(PEOPLE)],
        "age": [20 + place for place in range(PEOPLE)],
        "sex": ["male", "female", None, "male"] * 10,
        "height": [101.0 + 2 * place if place % 7 else None for place in range(PEOPLE)],
        "income": [1234.5 + place * 0.1 for place in range(PEOPLE)],
        "seen": [f"{1 + place % 12:02d}/{1 + place % 28:02d}/2021" for place in range(PEOPLE)],
        "ill": ["yes", "no"] * 20,
    }
)
KEYS: dict[str, Any] = {
    "rename": {"Alter": "age", "Geschlecht": "sex", "Datum": "seen", "krank": "ill", "Nr": "patient"},
    "missing": ["?"],
    "recode": {"sex": {"m": "male", "w": "female", "9": ""}, "ill": {"1": "yes", "0": "no"}},
    "format": {"seen": "%d.%m.%Y", "income": "1.234,5"},
    "unit": {"height": 100},
    "complete": ["ill"],
}


def messy() -> pd.DataFrame:
    """The same people in another owner's terms, and one without a target, who is left out."""
    days = [pd.to_datetime(text, format="%m/%d/%Y").strftime("%d.%m.%Y") for text in CLEAN["seen"]]
    spelled = [f"{value:,.1f}".translate(str.maketrans(",.", ".,")) for value in CLEAN["income"]]
    frame = pd.DataFrame(
        {
            "Nr": CLEAN["patient"],
            "Alter": CLEAN["age"].map(str),
            "Geschlecht": ["m", "w", "9", "m"] * 10,
            "height": ["?" if height != height else f"{height / 100:.2f}" for height in CLEAN["height"]],
            "income": spelled,
            "Datum": days,
            "krank": ["1", "0"] * 20,
        }
    )
    nobody = {"Nr": "x", "Alter": "1", "Geschlecht": "m", "height": "1.5", "income": "1,0", "Datum": days[0]}
    return pd.concat([frame.iloc[:9], pd.DataFrame([nobody]), frame.iloc[9:]], ignore_index=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sources")
    frame = messy()
    frame.to_csv(folder / "m.csv", index=False, sep=";", encoding="latin-1")
    quoted = frame.assign(height=frame["height"].str.replace(".", ","))
    quoted.to_csv(folder / "q.csv", index=False, quoting=1)
    frame.to_parquet(folder / "m.parquet")
    with sqlite3.connect(folder / "m.sqlite") as connection:
        frame.to_sql("m", connection, index=False)
    connection.close()
    with duckdb.connect(folder / "m.duckdb") as database:
        database.execute(f"CREATE TABLE m AS SELECT * FROM '{folder / 'm.parquet'}'")
    return folder


SOURCES = {
    "csv": {"source": "csv", "path": "m.csv", "separator": ";", "encoding": "latin-1"},
    "quoted csv with decimal commas": {"source": "csv", "path": "q.csv", "decimal": ","},
    "parquet": {"source": "parquet", "path": "m.parquet"},
    "sqlite": {"source": "sql", "path": "m.sqlite", "table": "m"},
    "duckdb": {"source": "sql", "path": "m.duckdb", "query": "SELECT * FROM m"},
}


def encoded(frame: Any) -> tuple[Any, ...]:
    records = ENCODING.encode(frame).records
    assert records.labels is not None and records.ids is not None
    return records.features.tobytes(), records.labels.tolist(), records.ids.tolist()


@pytest.mark.parametrize("name", SOURCES)
def test_records_are_encoded_as_from_a_file_that_was_cleaned_by_hand(folder: Path, name: str) -> None:
    source = open_source({**SOURCES[name], **KEYS}, base=folder)
    expected = encoded(CLEAN)
    assert encoded(source.read()) == expected
    assert encoded(source.read(ENCODING.reads)) == expected
    assert encoded(pd.concat(list(source.batches(ENCODING.reads, 7)), ignore_index=True)) == expected
    streamed = StreamedRecords.scan(source, ENCODING, piece=7)
    assert len(streamed) == PEOPLE
    assert streamed.labels is not None and streamed.ids is not None
    assert (streamed.features.tobytes(), streamed.labels.tolist(), streamed.ids.tolist()) == expected


def test_columns_without_a_translation_are_still_read_without_a_copy(folder: Path) -> None:
    pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]}).to_parquet(folder / "n.parquet")
    source = open_source({"path": "n.parquet", "missing": ["?"], "unit": {"b": 2}}, base=folder)
    (piece,) = source.pieces(["a", "b"])
    assert isinstance(piece, Batch) and piece.plain("a") is not None and piece.plain("b") is None
    marked = open_source({"path": "n.parquet", "missing": ["-9"]}, base=folder)
    (piece,) = marked.pieces(["a"])
    assert isinstance(piece, Batch) and piece.plain("a") is None


@pytest.mark.parametrize(
    ("values", "factor", "expected"),
    [([1.1, 1.83, 0.07], 100, [110, 183, 7]), ([5.2], 38.67, [201.084]), ([float("inf"), -1], 2, [float("inf"), -2])],
)
def test_a_unit_multiplies_decimal_numbers_and_rounds_once(
    values: list[float], factor: float, expected: list[float]
) -> None:
    found = Translation(unit={"x": factor}).column(pd.Series(values), "x")
    assert found.series.tolist() == expected and not found.wrong.any()


@settings(max_examples=40)
@given(
    st.lists(st.one_of(st.decimals(-(10**9), 10**9, places=3), st.floats(-1e12, 1e12)), min_size=1, max_size=4),
    st.sampled_from([100.0, 0.01, 0.1, 2.54, 38.67, -1.0, 1e-3, 0.45359237, 1e15, 1 / 3]),
)
def test_products_are_the_doubles_nearest_to_those_of_the_decimal_numbers(values: list[Any], factor: float) -> None:
    numbers = [float(value) for value in values]
    expected = [float(Decimal(repr(number)) * Decimal(repr(factor))) for number in numbers]
    assert Translation(unit={"x": factor}).column(pd.Series(numbers), "x").series.tolist() == expected


@pytest.mark.parametrize("format", NUMBER_FORMATS)
def test_a_number_is_read_as_its_format_writes_it_and_not_otherwise(format: str) -> None:
    thousands, decimal = NUMBER_FORMATS[format]
    texts = [f"-12{thousands}345{decimal}25", f"7{decimal}5", "12", " 3 ", None, ""]
    found = Translation(format={"x": format}).column(pd.Series(texts, dtype=object), "x")
    np.testing.assert_array_equal(found.series.to_numpy(float), [-12345.25, 7.5, 12, 3, np.nan, np.nan])
    other = "," if decimal == "." else "."
    wrong = [f"1{other}5", "x", 1234.0, f"1{decimal}", "1e3"] + ([f"12{thousands}34"] if thousands else [])
    found = Translation(format={"x": format}).column(pd.Series(wrong, dtype=object), "x")
    assert found.wrong.all()


def test_a_number_with_points_for_thousands_is_not_taken_for_a_fraction(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x\n1.234\n5.678\n")
    source = open_source({"path": "t.csv", "format": {"x": "1.234,5"}}, base=tmp_path)
    assert source.read()["x"].tolist() == [1234.0, 5678.0]


def test_a_value_that_its_format_can_not_spell_is_refused_and_not_quoted(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("seen\n23.11.2021\n2021-11-24\n")
    source = open_source({"path": "t.csv", "format": {"seen": "%d.%m.%Y"}}, "study.toml: data", base=tmp_path)
    for read in (source.read, lambda: list(source.batches(["seen"], 1)), lambda: list(source.pieces(["seen"], 1))):
        with pytest.raises(DataError, match=r"study.toml: data \(t.csv\).*'seen'.*%d.%m.%Y.*record 2") as caught:
            read()
        assert "2021-11-24" not in str(caught.value)
    assert isinstance(source, TranslatedSource)
    _, wrong = source.read_all_wrong()
    assert wrong["seen"].series[wrong["seen"].wrong].tolist() == ["2021-11-24"]


def test_a_source_of_numbers_refuses_a_format_of_numbers(tmp_path: Path) -> None:
    pd.DataFrame({"x": [1.234]}).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(DataError, match="expected numbers as text"):
        open_source({"path": "t.parquet", "format": {"x": "1.234,5"}}, base=tmp_path).read()


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"rename": {"agee": "years"}}, r"rename: the file has no column 'agee' \(did you mean 'age'\?\)"),
        ({"rename": {"age": "sex"}}, "two columns would be called 'sex'"),
        ({"recode": {"sexx": {"m": "male"}}}, r"recode: the file has no column 'sexx' \(did you mean 'sex'\?\)"),
        ({"unit": {"years": 2}}, "unit: the file has no column 'years'"),
        ({"format": {"years": "%d.%m.%Y"}}, "format: the file has no column 'years'"),
        ({"complete": ["years"]}, "complete: the file has no column 'years'"),
    ],
)
def test_a_translation_of_a_column_that_is_not_there_is_refused(
    tmp_path: Path, keys: dict[str, Any], sentence: str
) -> None:
    (tmp_path / "t.csv").write_text("age,sex\n1,m\n")
    with pytest.raises(DataError, match=sentence):
        open_source({"path": "t.csv", **keys}, base=tmp_path).read()


def test_a_renamed_column_that_is_not_there_is_refused_in_blocks_too(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("age,sex\n1,m\n")
    source = open_source({"path": "t.csv", "rename": {"agee": "years"}}, base=tmp_path)
    for read in (lambda: source.read(["years"]), lambda: list(source.pieces(["years"]))):
        with pytest.raises(DataError, match="correct the name on the left of rename"):
            read()


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        ({"rename": ["age"]}, "rename"),
        ({"rename": {"age": 3}}, "rename"),
        ({"rename": {"a": "x", "b": "x"}}, "rename"),
        ({"missing": "?"}, "missing"),
        ({"missing": [-9]}, "missing"),
        ({"recode": {"sex": "male"}}, "recode.sex"),
        ({"recode": {"sex": {"1": 2}}}, "recode.sex"),
        ({"format": {"seen": "DD.MM.YYYY"}}, "format.seen"),
        ({"format": {"seen": "%H:%M"}}, "format.seen"),
        ({"format": {"x": "1,2,3"}}, "format.x"),
        ({"unit": {"height": "100"}}, "unit.height"),
        ({"unit": {"height": 0}}, "unit.height"),
        ({"unit": {"height": True}}, "unit.height"),
        ({"unit": {"height": float("nan")}}, "unit.height"),
        ({"complete": "ill"}, "complete"),
    ],
)
def test_keys_of_another_form_are_refused_before_a_file_is_opened(keys: dict[str, Any], key: str) -> None:
    with pytest.raises(StudyError) as caught:
        open_source({"path": "absent.csv", **keys}, "site.toml: data.visits")
    assert caught.value.key == key and str(caught.value).startswith("site.toml: data.visits: " + key)


def test_a_misspelt_key_names_the_nearest() -> None:
    with pytest.raises(StudyError, match="did you mean 'recode'"):
        open_source({"path": "absent.csv", "recodes": {}})


def test_a_source_without_these_keys_is_not_wrapped(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("age\n1\n")
    assert not isinstance(open_source({"path": "t.csv"}, base=tmp_path), TranslatedSource)
    assert read_translation({"path": "t.csv"}, "here") is None
