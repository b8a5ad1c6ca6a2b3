"""`follows`: what it saves, and what the owner is told of records that break it."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from math import comb, sqrt

import numpy as np
import pandas as pd
import pytest

from comity.data import Categorical, Cells, Classes, Date, Numeric, Ordinal, Schema, explain
from comity.federation.declare.bounds import Counts

LEVELS = ("low", "mid", "high")


def schema(follower: Numeric | Categorical | Ordinal | Date | None = None) -> Schema:
    return Schema(
        (
            Categorical("level", LEVELS, missing="other", other=True),
            follower or Numeric("years", 0, 16, follows="level"),
        ),
        Classes("y", ("0", "1")),
    )


def frame(broken: int, rows: int = 400) -> pd.DataFrame:
    level = np.arange(rows) % 3
    years = np.array([4.0, 8.0, 15.0])[level]
    years[3 : 3 + 3 * broken : 3] = 15.0
    return pd.DataFrame({"level": np.array(LEVELS)[level], "years": years, "y": 0})


@pytest.mark.parametrize(("broken", "severity"), [(1, "note"), (4, "note"), (5, "warning"), (60, "warning")])
def test_records_that_break_it_are_counted_for_their_owner(broken: int, severity: str) -> None:
    (found,) = explain(schema(), frame(broken), "north.csv")
    assert found.severity == severity and found.column == "years" and not found.values
    assert found.sentence.startswith(f"north.csv: years: {broken} of 400 records have another value than most")
    assert "no privacy" in found.sentence


def test_what_does_not_change_a_count_breaks_nothing() -> None:
    assert explain(schema(), frame(0)) == []
    near = frame(0)
    # Of eight cells from 0 to 16 the third holds 4 and 5.
    near.loc[3, "years"] = 5.9
    assert explain(schema(), near) == []
    assert explain(schema(), frame(0, rows=3).iloc[:0])[0].column == ""


@pytest.mark.parametrize(
    "follower",
    [
        Ordinal("years", ("4", "8", "15"), follows="level"),
        Categorical("years", ("4", "8", "15"), follows="level"),
        Numeric("years", 0, 16, integer=True, missing="cell", follows="level"),
    ],
)
def test_columns_of_every_kind_are_looked_at(follower: Numeric | Categorical | Ordinal) -> None:
    table = frame(7).astype({"years": int})
    (found,) = explain(schema(follower), table)
    assert "7 of 400" in found.sentence
    days = pd.DataFrame({"level": ["low", "low", "mid"], "years": ["2020-01-01", "2021-01-01", "2020-01-01"], "y": 0})
    (found,) = explain(schema(Date("years", date(2020, 1, 1), date(2021, 1, 1), follows="level")), days)
    assert "1 of 3" in found.sentence


def test_values_that_are_refused_are_told_once() -> None:
    table = frame(9).astype({"years": object})
    table.loc[0, "years"] = "many"
    (found,) = explain(schema(), table)
    assert found.severity == "error" and "expected numbers" in found.sentence
    assert [one.column for one in explain(schema(), frame(9).drop(columns="level"))] == ["level"]


def test_a_column_that_follows_another_takes_its_tables_out_of_the_noise() -> None:
    """Fifteen columns, as in the census of 1994, whose years of education follow from its name: 92 two-way tables
    instead of 105, so that noise on each of them is 6 % narrower if Gaussian, 12 % if of pure ε."""
    plain = Schema(tuple(Categorical(f"c{at}", ("0", "1")) for at in range(14)), Classes("y", ("0", "1")))
    follows = replace(plain, columns=(*plain.columns[:13], replace(plain.columns[13], follows="c3")))
    before, after = (Counts((1,) * len(Cells(one).pairs), False, 1000) for one in (plain, follows))
    assert before.l1 == comb(15, 2) == 105 and after.l1 == comb(14, 2) + 1 == 92
    assert after.l2 / before.l2 == pytest.approx(sqrt(92 / 105)) and round(after.l2 / before.l2, 3) == 0.936
    assert round(after.l1 / before.l1, 3) == 0.876
