"""A column of dates: read from any source, counted in steps since a public day, clipped, filled, drafted, saved."""

from __future__ import annotations

import sqlite3
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from comity.data import Classes, Csv, Date, Encoding, Numeric, Schema, draft, explain, open_source
from comity.data.schemas.reading import read_days, steps_since
from comity.errors import DataError, SchemaError

TEXT = """
[columns.admitted]
kind = "date"
low = 2015-01-01
high = 2024-12-31
step = "month"
missing = "fill"
fill = 2020-06-15
[columns.born]
kind = "date"
low = 1900-01-01
high = 2024-12-31
format = "%d.%m.%Y"
"""


def column(**changes: object) -> Date:
    return Date("day", **{"low": date(2020, 1, 1), "high": date(2020, 12, 31), **changes})  # type: ignore[arg-type]


def steps(one: Date, values: object) -> list[float]:
    """What the values become, in steps since low."""
    encoded = Encoding(Schema((one,)), scaling="unit").encode(pd.DataFrame({"day": values}))
    return [round(value, 9) for value in (encoded.records.features[:, 0] * one.steps).tolist()]


def test_a_schema_with_dates_is_read_and_written() -> None:
    schema = Schema.parse(TEXT)
    assert schema.columns == (
        Date("admitted", date(2015, 1, 1), date(2024, 12, 31), "month", None, "fill", date(2020, 6, 15)),
        Date("born", date(1900, 1, 1), date(2024, 12, 31), format="%d.%m.%Y"),
    )
    assert Schema.parse(schema.to_toml()) == schema and "low = 2015-01-01" in schema.to_toml()
    quoted = TEXT.replace("2015-01-01", '"2015-01-01"')
    assert Schema.parse(quoted).digest() == schema.digest()
    assert Schema.parse(TEXT.replace("2015-01-01", "2015-01-02")).digest() != schema.digest()
    assert Schema.parse(TEXT.replace('"month"', '"day"')).digest() != schema.digest()


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("2015-01-01", "2015", "columns.admitted.low: expected a date such as 2015-01-31, found 2015"),
        ("2015-01-01", '"1.1.2015"', "columns.admitted.low: expected a date"),
        ("2015-01-01", "2015-01-01T00:00:00", "columns.admitted.low: expected a date"),
        ("2015-01-01", "2024-12-01", "columns.admitted.low and .high: expected high at least one month after low"),
        ('"month"', '"hour"', "columns.admitted.step: expected 'day' or 'week' or 'month' or 'year', found 'hour'"),
        ("2020-06-15", "2025-01-01", "columns.admitted.fill: expected a date from 2015-01-01 to 2024-12-31"),
        ('missing = "fill"', "", "columns.admitted.fill: expected a value exactly where missing = 'fill'"),
        ("%d.%m.%Y", "%d.%m", "columns.born.format: expected a format that spells every day"),
        ("%d.%m.%Y", "%d.%m.%y", "columns.born.format: expected a format that spells every day"),
        ("%d.%m.%Y", "%Q", "columns.born.format: expected a format"),
        ('"%d.%m.%Y"', "3", "columns.born.format: expected a format"),
        ('step = "month"', 'stp = "month"', "columns.admitted.stp: unknown key 'stp'; did you mean 'step'"),
    ],
)
def test_a_bad_date_column_names_its_key(old: str, new: str, sentence: str) -> None:
    assert old in TEXT
    with pytest.raises(SchemaError) as caught:
        Schema.parse(TEXT.replace(old, new, 1), "schema.toml")
    assert sentence in str(caught.value)


def test_steps_are_those_of_the_calendar() -> None:
    days = ["2020-01-01", "2020-01-31", "2020-02-01", "2020-02-29", "2020-12-31"]
    assert steps(column(), days) == [0, 30, 31, 59, 365]
    assert steps(column(step="week"), days) == [0, 4, 4, 8, 52]
    assert steps(column(step="month"), days) == [0, 0, 1, 1, 11]
    assert steps(column(step="year", low=date(2018, 7, 1)), days) == [2, 2, 2, 2, 2]


def test_a_day_reads_the_same_however_it_is_stored() -> None:
    noon = datetime(2020, 3, 5, 12, 30)
    for values in (
        ["2020-03-05", "2020-03-05T23:59:59", "2020-03-05 00:00", "2020-03-05T12:00:00.5Z", " 2020-03-05 "],
        pd.to_datetime(["2020-03-05 00:00:00", "2020-03-05 23:59:59"]),
        pd.array([date(2020, 3, 5), noon, pd.Timestamp(noon)], dtype=object),
        np.array(["2020-03-05"], "datetime64[D]"),
        pd.Categorical(["2020-03-05"]),
        pd.array(["2020-03-05"], dtype="string"),
    ):
        assert set(steps(column(), values)) == {64.0}


def test_a_time_is_on_the_day_that_it_shows_in_its_own_zone() -> None:
    east, west = timezone(timedelta(hours=9)), timezone(timedelta(hours=-8))
    late, early = datetime(2020, 3, 5, 23, 30, tzinfo=west), datetime(2020, 3, 5, 0, 30, tzinfo=east)
    assert steps(column(), pd.array([late, early, datetime(2020, 3, 5, tzinfo=UTC)], dtype=object)) == [64, 64, 64]
    assert steps(column(), ["2020-03-05T23:30:00-08:00", "2020-03-05T00:30:00+0900", "2020-03-05 00:30+09"]) == [64] * 3
    berlin = pd.Series(pd.to_datetime(["2020-03-05 00:30"])).dt.tz_localize("Europe/Berlin")
    assert steps(column(), berlin) == [64] and steps(column(), berlin.dt.tz_convert("UTC")) == [63]


def test_days_outside_are_clipped_and_counted_and_missing_ones_filled() -> None:
    one = column(missing="fill", fill=date(2020, 2, 1))
    values = ["0001-01-01", "2019-12-31", "2020-01-01", "2021-01-01", "9999-12-31", None, ""]
    encoded = Encoding(Schema((one,)), scaling="unit").encode(pd.DataFrame({"day": values}))
    assert (encoded.records.features[:, 0] * 365).round(9).tolist() == [0, 0, 0, 365, 365, 31, 31]
    assert encoded.tally.clipped == {"day": 4} and encoded.tally.missing == {"day": 2}
    found = explain(Schema((one,)), pd.DataFrame({"day": values}), "t")
    assert [finding.severity for finding in found] == ["warning", "note"]
    assert "4 of 7 dates are outside [2020-01-01, 2020-12-31]" in found[0].sentence
    with pytest.raises(DataError, match="column 'day' has no value in record 6"):
        Encoding(Schema((column(),))).encode(pd.DataFrame({"day": values}))


@pytest.mark.parametrize(
    ("values", "remedy"),
    [
        (["31.12.2020"], 'set format = "%d.%m.%Y"'),
        (["12/31/2020"], 'set format = "%m/%d/%Y"'),
        (["31/12/2020"], 'set format = "%d/%m/%Y"'),
        (["01/02/2020"], 'set format = "%d/%m/%Y" or format = "%m/%d/%Y"'),
        (["2020/12/31"], 'set format = "%Y/%m/%d"'),
        ([20201231], 'set format = "%Y%m%d"'),
        (["2020-02-30"], "correct the value, or set format"),
        (["yesterday"], "correct the value, or set format"),
        ([True], "correct the value, or set format"),
    ],
)
def test_another_way_to_write_a_day_is_named_with_its_format(values: list[Any], remedy: str) -> None:
    frame = pd.DataFrame({"day": ["2020-01-01", *values]}, dtype=object)
    with pytest.raises(DataError) as caught:
        Encoding(Schema((column(),))).encode(frame, "t.csv")
    (finding,) = explain(Schema((column(),)), frame, "t.csv")
    for sentence in (str(caught.value), finding.sentence):
        assert "dates as YYYY-MM-DD" in sentence and remedy in sentence and str(values[0]) not in sentence


def test_a_format_reads_what_it_names_and_nothing_else() -> None:
    one = column(format="%d/%m/%Y")
    assert steps(one, ["05/03/2020"]) == [64]
    assert steps(one, pd.to_datetime(["2020-03-05"])) == [64]
    with pytest.raises(DataError, match=r"expects dates as '%d/%m/%Y' writes them"):
        steps(one, ["2020-03-05"])
    assert steps(column(format="%Y%m%d"), [20200305]) == [64]
    assert steps(column(format="%Y%m%d"), [20200305.0]) == [64]
    assert steps(column(format="%Y-%m", step="month"), ["2020-03"]) == [2]


def test_dates_in_a_column_of_numbers_are_named() -> None:
    schema = Schema((Numeric("day", 0, 9),))
    for values in (["2020-01-01"], pd.to_datetime(["2020-01-01"])):
        frame = pd.DataFrame({"day": values})
        with pytest.raises(DataError, match='declare the column with kind = "date"'):
            Encoding(schema).encode(frame)
        assert 'kind = "date"' in explain(schema, frame)[0].sentence


def test_every_source_gives_the_same_days(tmp_path: Path) -> None:
    days = [date(2020, 1, 1), date(2020, 3, 5), None, date(2020, 12, 31)]
    moments = [None if day is None else datetime(day.year, day.month, day.day, 22, 30) for day in days]
    frame = pd.DataFrame({"day": days, "moment": moments})
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    with sqlite3.connect(tmp_path / "t.sqlite") as connection:
        frame.astype(str).where(frame.notna(), None).to_sql("t", connection, index=False)
    connection.close()
    with duckdb.connect(tmp_path / "t.duckdb") as database:
        database.execute(f"CREATE TABLE t AS SELECT *, moment::TIMESTAMPTZ AS z FROM '{tmp_path / 't.parquet'}'")
    schema = Schema(
        tuple(
            Date(name, date(2020, 1, 1), date(2020, 12, 31), missing="fill", fill=date(2020, 1, 2))
            for name in ("day", "moment")
        )
    )
    for source in (
        frame,
        tmp_path / "t.csv",
        tmp_path / "t.parquet",
        {"source": "sql", "table": "t", "path": str(tmp_path / "t.sqlite")},
        {"source": "sql", "table": "t", "path": str(tmp_path / "t.duckdb")},
    ):
        read = open_source(source).read()
        assert explain(schema, read, str(source)) != [] and all(
            finding.severity == "note" for finding in explain(schema, read)
        )
        features = Encoding(schema, scaling="unit").encode(read).records.features * 365
        assert features.round(9).tolist() == [[0, 0], [64, 64], [1, 1], [365, 365]], source


def test_dates_are_drafted_over_whole_years(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(
        "iso,german,american,either,stamp,y\n"
        "2019-03-04,31.12.2019,12/31/2019,01/02/2019,2019-03-04T10:00:00Z,0\n"
        ",01.01.2021,01/02/2020,03/04/2020,2020-03-04T10:00:00Z,1\n"
        "2021-07-08,02.02.2020,02/03/2020,05/06/2020,2020-05-04T10:00:00Z,0\n"
    )
    text = draft(Csv(path).read(), target="y")
    schema = Schema.parse(text)
    assert schema.columns == (
        Date("iso", date(2019, 1, 1), date(2021, 12, 31), missing="fill", fill=date(2021, 7, 8)),
        Date("german", date(2019, 1, 1), date(2021, 12, 31), format="%d.%m.%Y"),
        Date("american", date(2019, 1, 1), date(2020, 12, 31), format="%m/%d/%Y"),
        Date("stamp", date(2019, 1, 1), date(2020, 12, 31)),
    )
    assert "# left out: 'either' has dates that %d/%m/%Y and %m/%d/%Y read differently" in text
    assert Encoding(schema).encode(Csv(path).read()).records.features.shape == (3, 4)


def test_numbers_and_categories_are_not_drafted_as_dates() -> None:
    frame = pd.DataFrame({"n": [20200101, 20200102, 20200103], "c": ["a", "b", "a"], "y": [0, 1, 0]})
    assert [type(one).__name__ for one in Schema.parse(draft(frame, target="y")).columns] == ["Numeric", "Categorical"]


days = st.dates(date(1, 1, 1), date(9999, 12, 31))


@given(st.lists(days, min_size=1, max_size=5), days, days, st.sampled_from(["day", "week", "month", "year"]))
def test_rows_lie_within_their_norm_bounds_and_keep_the_order(found: list[Any], a: date, b: date, step: str) -> None:
    low, high = min(a, b), max(a, b)
    try:
        one = Date("day", low, high, step=step)  # type: ignore[arg-type]
    except SchemaError:
        assert steps_since(low, np.array([high], "datetime64[D]"), step)[0] < 1
        return
    frame = pd.DataFrame({"day": pd.Series(sorted(found), dtype=object)})
    for rows in ("none", "clipped", "normalised"):
        encoding = Encoding(Schema((one, Numeric("x", 0, 1))), rows=rows)
        features = encoding.encode(frame.assign(x=1.0)).records.features
        assert (np.abs(features) <= encoding.bounds.linf).all()
        assert (np.linalg.norm(features, axis=1) <= encoding.bounds.l2 * (1 + 1e-12)).all()
        if rows == "none":
            assert (np.diff(features[:, 0]) >= 0).all()
            assert np.abs(features[:, 0]).min() >= encoding.bounds.groups[0].least * (1 - 1e-9)


@given(days, st.sampled_from(["%d.%m.%Y", "%Y/%m/%d", "%m/%d/%Y", None]))
def test_a_day_comes_back_from_its_text(day: date, format: str | None) -> None:
    text = (
        day.isoformat()
        if format is None
        else format.replace("%Y", f"{day.year:04}").replace("%m", f"{day.month:02}").replace("%d", f"{day.day:02}")
    )
    read = read_days(pd.Series([text, day, None], dtype=object), format)
    assert read.days[0] == read.days[1] == np.datetime64(day) and read.missing.tolist() == [False, False, True]


def test_a_model_on_dates_is_saved_loaded_and_predicts(tmp_path: Path) -> None:
    from comity.artefacts.artefact import save_artefact
    from comity.learn import LinearClassifier, load_model

    encoding = Encoding(Schema((column(),), Classes("y", ("no", "yes"))), intercept=True)
    save_artefact(LinearClassifier([[4.0, 0.0]], ("no", "yes"), encoding), tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert loaded.predict(pd.DataFrame({"day": ["2020-01-02", "2020-12-30"]})).tolist() == ["no", "yes"]
