from __future__ import annotations

import tomllib
from datetime import date
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from comity.data import (
    Bounded,
    Categorical,
    Classes,
    Date,
    Encoding,
    Numeric,
    Ordinal,
    Schema,
    clinic_schema,
    clinics,
    draft,
    explain,
)
from comity.data.schemas.drafting import round_outwards
from comity.errors import ComityError, DataError

SCHEMA = Schema(
    (
        Numeric("age", 0, 100),
        Numeric("dose", 0, 1, "fill", 0.5),
        Categorical("sex", ("f", "m")),
        Categorical("ward", ("a",), other=True, missing="other"),
        Ordinal("grade", ("1", "2")),
        Numeric("visits", 0, 9, integer=True),
        Date("admitted", date(2020, 1, 1), date(2020, 12, 31)),
    ),
    Classes("sick", ("no", "yes")),
    "patient",
)
GOOD = pd.DataFrame(
    {
        "age": [1.0, 2.0, 3.0],
        "dose": [0.1, 0.2, 0.3],
        "sex": ["f", "m", "f"],
        "ward": ["a", "a", "a"],
        "grade": [1, 2, 1],
        "visits": [0, 1, 2],
        "admitted": ["2020-01-01", "2020-02-01", "2020-03-01"],
        "sick": ["no", "yes", "no"],
        "patient": ["p1", "p2", "p3"],
    }
)


def test_a_table_that_fits_has_no_findings() -> None:
    assert explain(SCHEMA, GOOD) == []
    assert (
        explain(
            clinic_schema(),
            clinics(1, 50)["clinic-01"].assign(sex="f", ward="medical", lactate=1, creatinine=80),
        )
        == []
    )


@pytest.mark.parametrize(
    ("changes", "severity", "column", "sentence"),
    [
        (
            {"age": [1, "old", "x"]},
            "error",
            "age",
            "expected numbers, found others in record 2 and 1 more like it",
        ),
        (
            {"age": [-1, 101, 5]},
            "warning",
            "age",
            "2 of 3 values are outside [0, 100] and will be clipped; check the unit",
        ),
        (
            {"age": [None, 1, 2]},
            "error",
            "age",
            "1 of 3 values are missing and will be refused; complete them, or set missing",
        ),
        (
            {"dose": [None, 1, 1]},
            "note",
            "dose",
            "1 of 3 values are missing and will be filled as declared",
        ),
        (
            {"sex": ["f", "w", "w"]},
            "error",
            "sex",
            "2 of 3 values are not declared and will be refused",
        ),
        ({"sex": ["f", "m", None]}, "error", "sex", "set missing = 'other' and other = true"),
        ({"ward": ["b", "c", "a"]}, "note", "ward", "not declared and will count as other"),
        ({"ward": ["a", None, "a"]}, "note", "ward", "1 of 3 values are missing and will be filled"),
        (
            {"grade": [1, 2, 3]},
            "error",
            "grade",
            "not declared and will be refused; correct them, add them",
        ),
        ({"visits": [1, 0.5, 1]}, "error", "visits", "expected whole numbers, found others in record 2"),
        ({"sick": ["no", "yes", None]}, "error", "sick", "remove records without a target"),
        ({"patient": ["p1", "", "p3"]}, "error", "patient", "1 of 3 identifiers are missing"),
        ({"patient": ["p1", "p1", "p3"]}, "warning", "patient", "1 of 3 records repeat an identifier"),
    ],
)
def test_each_mismatch_is_explained(changes: Any, severity: str, column: str, sentence: str) -> None:
    (finding,) = explain(SCHEMA, GOOD.assign(**changes), "north.csv")
    assert (finding.severity, finding.column) == (severity, column)
    assert finding.sentence.startswith(f"north.csv: {column}: ") and sentence in finding.sentence


def test_the_tail_of_a_distribution_is_a_note_and_a_wrong_bound_a_warning() -> None:
    many = pd.concat([GOOD] * 100, ignore_index=True).assign(patient=[f"p{i}" for i in range(300)])
    for outside, severity in ((3, "note"), (4, "warning")):
        (finding,) = explain(SCHEMA, many.assign(age=[101] * outside + [1] * (300 - outside)))
        assert (finding.severity, finding.column) == (severity, "age")


def test_values_stand_beside_the_sentence_for_the_terminal_alone() -> None:
    bad = GOOD.assign(sex=["f", "w", "v"], visits=[1, 0.5, 1], ward=["b", "a", "a"])
    found = {finding.column: finding for finding in explain(SCHEMA, bad)}
    assert found["sex"].values == ("'w'", "'v'") and found["visits"].values == ("0.5",)
    assert found["ward"].values == ("'b'",)
    assert not [one for one in found.values() if any(value in one.sentence for value in one.values)]


@pytest.mark.parametrize(
    ("declared", "told"), [(None, False), (3, False), (1, False), (29, False), (30, True), (31, True), (10_000, True)]
)
def test_a_size_tenfold_from_the_declared_one_is_told(declared: int | None, told: bool) -> None:
    found = explain(SCHEMA, GOOD, "north.csv", records=declared)
    assert [(one.severity, one.column) for one in found] == ([("warning", "")] if told else [])
    assert not told or f"holds 3 records where the study declares {declared}" in found[0].sentence


def test_more_records_than_declared_are_told_too() -> None:
    many = pd.concat([GOOD] * 10, ignore_index=True).assign(patient=[f"p{i}" for i in range(30)])
    assert explain(SCHEMA, many, records=4) == []
    assert "holds 30 records where the study declares 3" in explain(SCHEMA, many, records=3)[0].sentence


def test_a_table_without_records_is_told_with_what_follows() -> None:
    for unit, neutral in ((None, False), ("record", False), ("party", True)):
        (finding,) = explain(SCHEMA, GOOD.iloc[:0], "north.csv", unit=unit, records=100)
        assert finding.severity == "warning" and "north.csv: holds no records" in finding.sentence
        assert "spends, and adds nothing" in finding.sentence and ("neutral" in finding.sentence) is neutral


def test_repeated_identifiers_matter_where_a_record_is_protected() -> None:
    twice = GOOD.assign(patient=["p1", "p1", "p3"])
    assert [explain(SCHEMA, twice, unit=unit) != [] for unit in (None, "record", "person", "party")] == [
        True,
        True,
        False,
        False,
    ]


def test_all_mismatches_are_reported_at_once() -> None:
    bad = GOOD.drop(columns=["age", "patient"]).assign(sex="w", grade=9, Age=1)
    found = explain(SCHEMA, bad, "north.csv")
    assert [(finding.severity, finding.column) for finding in found] == [
        ("error", name) for name in ("age", "sex", "grade", "patient")
    ]
    assert "did you mean 'Age'?" in found[0].sentence


cells = st.sampled_from(
    [0, 1, 2, 5, 0.5, -3, 200, "f", "m", "w", "1", "no", "yes", None, "", "x1", "2020-02-30", "1999-01-01"]
)


@given(st.fixed_dictionaries({name: st.lists(cells, min_size=2, max_size=2) for name in GOOD.columns}))
def test_errors_are_found_exactly_where_encoding_refuses(columns: Any) -> None:
    table = pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in columns.items()})
    errors = [finding for finding in explain(SCHEMA, table) if finding.severity == "error"]
    try:
        Encoding(SCHEMA).encode(table)
    except ComityError as error:
        assert error.key in {finding.column for finding in errors}
    else:
        assert errors == []


def test_draft_parses_warns_and_fits_its_sample() -> None:
    sample = clinics(3, 200)["clinic-02"].drop(columns="disposition")
    sample["triage"] = pd.Categorical(
        sample["triage"], ["non-urgent", "standard", "urgent", "very urgent", "immediate"], ordered=True
    )
    text = draft(sample, target="readmitted", identifier="patient")
    first = text.splitlines()[:5]
    assert "DRAFT" in first[0] and "PRIVATE data VOID THE GUARANTEE" in " ".join(first)
    schema = Schema.parse(text)
    found = explain(schema, sample)
    assert found and all(finding.severity == "note" and "missing" in finding.sentence for finding in found)
    assert schema.target == Classes("readmitted", ("no", "yes")) and schema.identifier == "patient"
    assert isinstance(schema["triage"], Ordinal) and schema["triage"].values[0] == "non-urgent"
    age = schema["age"]
    assert isinstance(age, Numeric) and age.integer and age.low % 10 == 0 and age.high % 10 == 0
    lactate = schema["lactate"]
    assert isinstance(lactate, Numeric) and lactate.missing == "fill"
    assert Encoding(schema).encode(sample).records.features.shape[0] == 200


def test_draft_leaves_out_what_it_can_not_describe() -> None:
    sample = pd.DataFrame(
        {
            "note": [f"text {i}" for i in range(99)],
            "empty": None,
            "flag": [0, 1, 1] * 33,
            "y": np.arange(99) / 7,
            "g": ["a", None, "b"] * 33,
        }
    )
    text = draft(sample, target="y")
    assert "# left out: 'note' has 99 different values" in text and "# left out: 'empty' has no values" in text
    schema = Schema.parse(text)
    assert schema.columns == (
        Categorical("flag", ("0", "1"), other=True),
        Categorical("g", ("a", "b"), other=True, missing="other"),
    )
    assert schema.target == Bounded("y", 0, 14)


def test_draft_orders_numeric_classes_by_value() -> None:
    sample = pd.DataFrame({"x": [0.1, 0.2, 0.3], "y": [10, 9, 2]})
    assert Schema.parse(draft(sample, target="y")).target == Classes("y", ("2", "9", "10"))


@pytest.mark.parametrize(
    ("sample", "sentence"),
    [
        (pd.DataFrame({"x": [], "y": []}), "expected a sample with records, found none"),
        (pd.DataFrame({"x": [1, 2, 3]}), "column 'y' is missing"),
        (pd.DataFrame({"x": [1, 2, 3], "y": [1, 1, 1]}), "target 'y' has 1 different values"),
        (
            pd.DataFrame({"x": range(60), "y": [f"t{i}" for i in range(60)]}),
            "is text with 60 different values",
        ),
        (pd.DataFrame({"y": [1, 2, 3]}), "no column beside the target can be drafted"),
    ],
)
def test_draft_refuses_a_useless_sample(sample: pd.DataFrame, sentence: str) -> None:
    with pytest.raises(DataError) as caught:
        draft(sample, target="y")
    assert sentence in str(caught.value)


@given(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9))
def test_drafted_bounds_contain_the_sample(a: float, b: float) -> None:
    low, high = round_outwards(min(a, b), max(a, b))
    assert low <= min(a, b) and max(a, b) <= high and low < high
    assert high - low <= 1.5 * abs(a - b) or a == b


def test_drafted_bounds_are_round() -> None:
    assert round_outwards(18.3, 91.2) == (10, 100)
    assert round_outwards(0.13, 0.31) == (0.12, 0.32)
    assert round_outwards(-3, -3) == (-3, -2.5)
    assert tomllib.loads(draft(pd.DataFrame({"x": [1, 2, 4], "y": [0, 1, 0]}), target="y"))["columns"]["x"]["high"] == 4
