from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comity.data import Bounded, Categorical, Classes, Date, Numeric, Ordinal, Schema
from comity.errors import SchemaError

TEXT = """
[columns.age]
kind = "numeric"
low = 0
high = 120
missing = "fill"
fill = 40
[columns.sex]
kind = "categorical"
values = ["f", "m"]
other = true
[columns.grade]
kind = "ordinal"
values = [1, 2, 3]
[columns."lab, sodium"]
kind = "numeric"
low = 100.5
high = 170
edges = [130, 145]
[target]
name = "readmitted"
classes = ["no", "yes"]
[identifier]
name = "patient"
"""

AGE = '[columns.age]\nkind = "numeric"\nlow = 0\nhigh = 120\n'


def test_parse_reads_every_kind() -> None:
    assert Schema.parse(TEXT) == Schema(
        (
            Numeric("age", 0, 120, "fill", 40),
            Categorical("sex", ("f", "m"), other=True),
            Ordinal("grade", ("1", "2", "3")),
            Numeric("lab, sodium", 100.5, 170, edges=(130, 145)),
        ),
        Classes("readmitted", ("no", "yes")),
        "patient",
    )


def test_load_reads_a_file(tmp_path: Path) -> None:
    path = tmp_path / "schema.toml"
    path.write_text(TEXT)
    assert Schema.load(path) == Schema.parse(TEXT)
    path.write_text(AGE + "colour = 1\n")
    with pytest.raises(SchemaError, match=r"schema.toml: columns.age.colour: unknown key"):
        Schema.load(path)
    with pytest.raises(SchemaError, match=r"can't be read.*comity schema draft"):
        Schema.load(tmp_path / "nowhere.toml")


names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6).filter(str.strip)
finite = st.floats(-1e12, 1e12)


@st.composite
def schemas(draw: Any) -> Schema:
    columns: list[Any] = []
    for name in draw(st.lists(names, min_size=3, max_size=6, unique=True)):
        kind = draw(st.sampled_from(["numeric", "categorical", "ordinal", "date"]))
        low, high = sorted(draw(st.lists(finite, min_size=2, max_size=2, unique=True)))
        values = tuple(draw(st.lists(names, min_size=2, max_size=4, unique=True)))
        fill = draw(st.booleans())
        if kind == "numeric":
            middle = low + (high - low) / 2
            edges = (middle,) if low < middle < high and draw(st.booleans()) else None
            columns.append(Numeric(name, low, high, "fill" if fill else "error", high if fill else None, edges))
        elif kind == "categorical":
            columns.append(Categorical(name, values, fill, "other" if fill and draw(st.booleans()) else "error"))
        elif kind == "date":
            first, last = sorted(draw(st.lists(st.dates(), min_size=2, max_size=2, unique=True)))
            columns.append(Date(name, first, last, missing="fill" if fill else "error", fill=last if fill else None))
        else:
            columns.append(Ordinal(name, values, "fill" if fill else "error", values[0] if fill else None))
    target = draw(st.sampled_from([Classes("t" * 9, ("a", "b")), Bounded("t" * 9, -1, 2.5), None]))
    return Schema(tuple(columns), target, draw(st.sampled_from([None, "i" * 9])))


@given(schemas())
def test_toml_round_trip_keeps_schema_and_digest(schema: Schema) -> None:
    again = Schema.parse(schema.to_toml())
    assert again == schema
    assert again.digest() == schema.digest()


def test_digest_depends_on_order_and_content_and_not_on_spelling() -> None:
    schema = Schema.parse(TEXT)
    assert Schema(schema.columns[::-1], schema.target, schema.identifier).digest() != schema.digest()
    assert Schema.parse(TEXT.replace("120", "121")).digest() != schema.digest()
    assert Schema.parse(TEXT.replace("120", "120.0").replace("[1, 2, 3]", '["1","2","3"]')).digest() == schema.digest()
    assert Numeric("a", -0.0, 1) == Numeric("a", 0, 1)


def test_restrict_keeps_order_and_identifier_and_the_target_only_where_it_belongs() -> None:
    schema = Schema.parse(TEXT)
    part = schema.restrict(["s*", "age"])
    assert part.names == ("age", "sex")
    assert part.target is None and part.identifier == "patient"
    assert schema.restrict("age", target=True).target == schema.target
    assert schema.restrict(["readmitted"]).columns == () and schema.restrict("readmitted").target == schema.target
    assert schema.columns_matching(["*"]) == (*schema.names, "readmitted")
    with pytest.raises(SchemaError, match="'ages' matches no column; did you mean 'age'"):
        schema.restrict(["ages"])
    assert schema["sex"] == Categorical("sex", ("f", "m"), other=True)
    with pytest.raises(SchemaError, match="no such column; did you mean 'sex'"):
        schema["sexe"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a = [", "study.toml: not valid TOML"),
        ("", "columns: expected at least one column"),
        ("colums = 1", "colums: unknown key 'colums'; did you mean 'columns'"),
        ("columns = 3", "columns: expected a table, found 3"),
        (AGE.replace("high", "hihg"), "columns.age.hihg: unknown key 'hihg'; did you mean 'high'"),
        (AGE.replace("high = 120", ""), "columns.age.high: expected a value, found none; add high"),
        (
            AGE.replace('"numeric"', '"numerical"'),
            "columns.age.kind: unknown kind 'numerical'; did you mean 'numeric'",
        ),
        (AGE.replace("120", "-1"), r"columns.age.low and .high: expected low < high, found \(0.0, -1.0\)"),
        (AGE.replace("120", '"x"'), "columns.age.high: expected a finite number, found 'x'"),
        (AGE.replace("120", "true"), "columns.age.high: expected a finite number, found True"),
        (AGE.replace("120", "inf"), "columns.age.high: expected a finite number, found inf"),
        (AGE.replace("120", "1" + "0" * 400), "columns.age.high: expected an integer of at most 64 bits"),
        (AGE + 'missing = "drop"', "columns.age.missing: expected 'error' or 'fill' or 'cell', found 'drop'"),
        (
            AGE + 'missing = "fill"',
            "columns.age.fill: expected a value exactly where missing = 'fill', found None",
        ),
        (AGE + "fill = 4", "columns.age.fill: expected a value exactly where missing = 'fill', found 4"),
        (
            AGE + 'missing = "fill"\nfill = 121',
            r"columns.age.fill: expected a number in \[0, 120\], found 121",
        ),
        (AGE + "integer = 1", "columns.age.integer: expected true or false, found 1"),
        (AGE.replace("120", "1.5") + "integer = true", "columns.age.low and .high: expected whole numbers"),
        (AGE + 'integer = true\nmissing = "fill"\nfill = 1.5', "columns.age.fill: expected a whole number"),
        (AGE + "edges = [0, 5]", "columns.age.edges: expected rising cut points strictly inside"),
        (AGE + "edges = [5, 5]", "columns.age.edges: expected rising cut points strictly inside"),
        (AGE + "edges = 5", "columns.age.edges: expected a list of numbers, found 5"),
        (
            '[columns.s]\nkind = "categorical"\nvalues = "f"',
            "columns.s.values: expected a list of values, found 'f'",
        ),
        (
            '[columns.s]\nkind = "categorical"\nvalues = []',
            "columns.s.values: expected at least 1 different values",
        ),
        (
            '[columns.s]\nkind = "ordinal"\nvalues = ["a"]',
            "columns.s.values: expected at least 2 different values",
        ),
        (
            '[columns.s]\nkind = "ordinal"\nvalues = [1, "1"]',
            "columns.s.values: expected at least 2 different",
        ),
        (
            '[columns.s]\nkind = "ordinal"\nvalues = [1, 2]\nmissing = "fill"\nfill = 3',
            "columns.s.fill: expected one of",
        ),
        (
            '[columns.s]\nkind = "categorical"\nvalues = ["a"]\nmissing = "other"',
            "columns.s.missing: expected other = true",
        ),
        (
            AGE + '[target]\nname = "age"\nclasses = [0, 1]',
            "columns.age: expected each name once, found 'age' twice",
        ),
        (AGE + '[target]\nname = "y"', "target.classes: expected classes, or low and high, found neither"),
        (AGE + '[target]\nname = "y"\nlow = 1', "target.high: expected a value, found none"),
        (
            AGE + '[target]\nname = "y"\nlow = 1\nclasses = [0, 1]',
            "target: expected classes or low and high, found both",
        ),
        (AGE + "[target]\nclasses = [0, 1]", "target.name: expected a value, found none"),
        (AGE + '[target]\nname = ""\nclasses = [0, 1]', "target.name: expected a name that is not blank"),
        (AGE + '[identifier]\nname = ""', "identifier.name: expected a column's name, found ''"),
        (AGE + "[identifier]\nnme = 1", "identifier.nme: unknown key 'nme'; did you mean 'name'"),
    ],
)
def test_bad_schema_names_file_key_value_and_remedy(text: str, sentence: str) -> None:
    with pytest.raises(SchemaError, match=r"study.toml: ") as caught:
        Schema.parse(text, "study.toml")
    assert caught.match(sentence)
    assert str(caught.value).endswith(".")


def test_python_schema_refuses_what_is_no_column() -> None:
    with pytest.raises(SchemaError, match="expected Numeric, Categorical, Ordinal or Date, found 'age'"):
        Schema(("age",))  # type: ignore[arg-type]


def test_a_draft_is_part_of_the_schema_and_changes_nothing_where_there_is_none() -> None:
    text = '[columns.age]\nkind = "numeric"\nlow = 0\nhigh = 110\n{}[target]\nname = "ill"\nclasses = ["no", "yes"]\n{}'
    plain, marked = Schema.parse(text.format("", "")), Schema.parse(text.format("draft = true\n", "draft = true\n"))
    assert plain.drafts == () and marked.drafts == ("age", "ill")
    assert Schema.parse(text.format("draft = false\n", "draft = false\n")).digest() == plain.digest()
    assert marked.digest() != plain.digest() and Schema.parse(marked.to_toml()) == marked
    assert marked.restrict("age").drafts == ("age",)
    for wrong in (text.format('draft = "yes"\n', ""), text.format("", "draft = 1\n")):
        with pytest.raises(SchemaError, match=r"draft: expected true or false"):
            Schema.parse(wrong)
