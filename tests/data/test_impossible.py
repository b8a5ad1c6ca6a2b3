"""`[[impossible]]`: what a schema may declare, how cells follow it, and what the owner is told of contradictions."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import numpy as np
import pandas as pd
import pytest

from comity.data import Bounded, Categorical, Cells, Classes, Date, Impossible, Numeric, Ordinal, Schema, explain
from comity.entropy import Stream
from comity.errors import SchemaError

COLUMNS = """
[columns.age]
kind = "numeric"
low = 0
high = 99
integer = true

[columns.income]
kind = "numeric"
low = 0
high = 1000
missing = "cell"

[columns.job]
kind = "categorical"
values = ["1", "2", "3"]
other = true

[columns.grade]
kind = "ordinal"
values = ["a", "b", "c", "d"]
bins = 2

[columns.seen]
kind = "date"
low = 2015-01-01
high = 2019-12-31
step = "month"

[columns.level]
kind = "numeric"
low = 0
high = 9
follows = "grade"

[target]
name = "y"
classes = ["no", "yes"]
"""
RULE = """
[[impossible]]
age = [0, 14]
job = [1, "2"]
"""


def parse(rules: str = RULE) -> Schema:
    return Schema.parse(COLUMNS + rules)


def test_a_rule_is_part_of_the_schema_and_of_its_digest() -> None:
    plain, ruled = parse(""), parse()
    assert ruled.impossible[0].table() == {"age": [0.0, 14.0], "job": ["1", "2"]}
    assert Schema.parse(ruled.to_toml()) == ruled
    assert plain.digest() != ruled.digest() != parse(RULE.replace("14", "13")).digest()
    assert replace(ruled, impossible=()).digest() == plain.digest()


def test_every_form_of_a_value_is_read_and_written() -> None:
    ruled = parse(
        '[[impossible]]\nage = [[0, 9], [90, 99]]\nincome = [[1, 1000], "(missing)"]\njob = ["(other)"]\n'
        'grade = ["b"]\nseen = [2016-01-01, 2016-12-31]\ny = ["yes"]\n'
    )
    assert Schema.parse(ruled.to_toml()) == ruled
    assert ruled.impossible[0].names == ("age", "income", "job", "grade", "seen", "y")


@pytest.mark.parametrize(
    ("rule", "key", "part"),
    [
        ("age = [0, 14]", "impossible[0]", "at least two columns"),
        ('age = [0, 14]\njob = ["4"]', "impossible[0].job", "no such value '4'"),
        ('age = [0, 14]\njob = [["1", "2"]]', "impossible[0].job", "no such value"),
        ('age = [0, 140]\njob = ["1"]', "impossible[0].age", "within the column's bounds"),
        ('age = [14, 0]\njob = ["1"]', "impossible[0].age", "low first"),
        ('age = [0, 99]\njob = ["1"]', "impossible[0].age", "all of them"),
        ('age = [[0, 50], [51, 99]]\njob = ["1"]', "impossible[0].age", "all of them"),
        ('age = [0, 9]\njob = ["1", "2", "3", "(other)"]', "impossible[0].job", "all of them"),
        ('age = [3.2, 3.8]\njob = ["1"]', "impossible[0].age", "at least one value"),
        ('income = [1000, 1000]\njob = ["1"]', "impossible[0].income", "at least one value"),
        ('ages = [0, 9]\njob = ["1"]', "impossible[0].ages", "did you mean 'age'"),
        ('age = 3\njob = ["1"]', "impossible[0].age", "a range [low, high]"),
        ('age = []\njob = ["1"]', "impossible[0].age", "a range [low, high]"),
        ('age = ["(missing)"]\njob = ["1"]', "impossible[0].age", "a range [low, high]"),
        ('seen = [1, 2]\njob = ["1"]', "impossible[0].seen", "a range [low, high]"),
        ('level = [1, 2]\njob = ["1"]', "impossible[0].level", "write the rule for 'grade'"),
    ],
)
def test_a_rule_that_does_not_fit_is_refused_with_its_key(rule: str, key: str, part: str) -> None:
    with pytest.raises(SchemaError) as refused:
        parse(f"[[impossible]]\n{rule}\n")
    assert refused.value.key == key and part in str(refused.value)


def test_too_many_rules_and_rules_that_are_no_tables_are_refused() -> None:
    with pytest.raises(SchemaError, match="at most 64"):
        parse(RULE * 65)
    with pytest.raises(SchemaError, match=r"\[\[impossible\]\]"):
        Schema.parse("impossible = 3\n" + COLUMNS)


def all_kinds(target: Classes | Bounded) -> tuple[Schema, pd.DataFrame]:
    columns = (
        Numeric("age", 0, 99, integer=True),
        Numeric("income", 0.0, 1000.0, missing="cell", scale="log"),
        Categorical("job", ("a", "b"), other=True, missing="cell"),
        Ordinal("grade", ("a", "b", "c", "d"), bins=2),
        Date("seen", date(2015, 1, 1), date(2019, 12, 31), step="month"),
    )
    rules = (
        Impossible.of({"age": [0, 14], "income": [[0.5, 1000.0]]}),
        Impossible.of({"age": [[15, 17], [98, 99]], "job": ["(other)", "(missing)"], "grade": ["b", "d"]}),
        Impossible.of({"seen": [date(2016, 2, 1), date(2016, 12, 31)], "income": ["(missing)"]}),
        Impossible.of({target.name: ["yes"] if isinstance(target, Classes) else [3.0, 4.0], "grade": ["a"]}),
    )
    chance = np.random.default_rng(0)
    count = 3000
    income = np.where(chance.random(count) < 0.3, np.nan, chance.choice([0.0, 0.5, 0.499, 700.0], count))
    frame = pd.DataFrame(
        {
            "age": chance.choice([0, 14, 15, 17, 18, 97, 98, 99], count),
            "income": income,
            "job": chance.choice(np.array(["a", "b", "z", None], object), count),
            "grade": chance.choice(list("abcd"), count),
            "seen": np.datetime64("2015-01-01", "s") + chance.integers(0, 1825, count) * np.timedelta64(86_400, "s"),
            target.name: chance.choice(["no", "yes"], count)
            if isinstance(target, Classes)
            else chance.choice([0.0, 2.99, 3.0, 4.0, 4.01, 9.0], count),
        }
    )
    return Schema(columns, target, None, rules), frame


def by_hand(frame: pd.DataFrame, target: Classes | Bounded) -> np.ndarray:
    """The four rules of `all_kinds`, written out."""
    income, job, label = frame["income"], frame["job"], frame[target.name]
    month = frame["seen"].to_numpy().astype("datetime64[M]")
    listed = label.eq("yes") if isinstance(target, Classes) else label.between(3, 4)
    return np.asarray(
        (frame["age"].le(14) & income.ge(0.5))
        | (frame["age"].isin([15, 16, 17, 98, 99]) & ~job.isin(["a", "b"]) & frame["grade"].isin(["b", "d"]))
        | ((month >= np.datetime64("2016-02")) & (month <= np.datetime64("2016-12")) & income.isna())
        | (listed & frame["grade"].eq("a"))
    )


@pytest.mark.parametrize("target", [Classes("y", ("no", "yes")), Bounded("y", 0.0, 9.0)], ids=["classes", "number"])
@pytest.mark.parametrize("bins", [2, 8])
def test_cells_lie_inside_a_rule_or_outside_and_know_which(target: Classes | Bounded, bins: int) -> None:
    schema, frame = all_kinds(target)
    cells = Cells(schema, bins, bins)
    places = cells.locate(frame)
    wanted = by_hand(frame, target)
    assert 0 < wanted.sum() < len(frame)
    np.testing.assert_array_equal(cells.is_impossible(places), wanted)
    # Records that are drawn anywhere inside possible cells are possible, by their values.
    drawn = cells.draw(places[~wanted], Stream.public("possible"))
    assert not by_hand(drawn, target).any()
    assert by_hand(cells.draw(places[wanted], Stream.public("impossible")), target).all()


def test_without_rules_cells_are_what_they_were() -> None:
    schema, _ = all_kinds(Classes("y", ("no", "yes")))
    plain = Cells(replace(schema, impossible=()))
    assert plain.sizes == (8, 9, 4, 2, 8, 2) and plain.impossible == ()
    assert Cells(schema).sizes > plain.sizes
    # A party that holds one column of a rule has the same cells as all others.
    part = schema.restrict(["age", "seen"])
    assert part.impossible == ()
    whole = dict(zip(Cells(schema).names, Cells(schema).sizes))
    assert Cells(part, rules=schema.impossible).sizes == (whole["age"], whole["seen"])


def test_the_owner_is_told_how_many_of_its_records_contradict_a_rule() -> None:
    schema, frame = all_kinds(Classes("y", ("no", "yes")))
    found = [one for one in explain(schema, frame, "north.csv") if "contradict" in one.sentence]
    assert [one.column for one in found] == ["age", "age", "seen", "y"]
    first = int((frame["age"].le(14) & frame["income"].ge(0.5)).sum())
    assert found[0].sentence.startswith(f"north.csv: age, income: {first} of 3000 records contradict rule 1")
    assert found[0].severity == "warning" and not found[0].values and "no privacy" in found[0].sentence
    possible = frame[~by_hand(frame, Classes("y", ("no", "yes")))]
    assert not [one for one in explain(schema, possible) if "contradict" in one.sentence]
    # A column that can't be read has a finding already, and its rules are not counted.
    broken = frame.assign(age=["x"] * len(frame))
    assert [one.column for one in explain(schema, broken) if "contradict" in one.sentence] == ["seen", "y"]
