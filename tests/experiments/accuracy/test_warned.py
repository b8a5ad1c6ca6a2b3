"""No case of the committed comparison is below its constant without a warning of its plan."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from comity.data import Encoding
from experiments.accuracy.softlabel import FULL, RECORDS
from experiments.accuracy.tables import table
from experiments.accuracy.warned import SHAPES, plan_warnings, warn_of_columns
from experiments.choose.few_rows import load_table

PAGE = Path(__file__).parents[3] / "docs" / "accuracy.md"


def rows() -> Iterator[Mapping[str, str]]:
    lines = [line.strip("| \n").split(" | ") for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")]
    heads = next(line for line in lines if line[0] == "case")
    yield from (dict(zip(heads, line)) for line in lines if len(line) == len(heads) and " K=" in line[0])


def is_below(row: Mapping[str, str], ours: str, constant: str, sign: float) -> bool:
    return "-" not in (row[ours], row[constant]) and sign * (float(row[ours]) - float(row[constant])) < 0


def below() -> list[str]:
    """Cases whose mean accuracy, or log loss, is worse than the constant's."""
    return [
        row["case"]
        for row in rows()
        if is_below(row, "ours", "constant", 1) or is_below(row, "log_loss", "constant_log_loss", -1)
    ]


def test_every_case_below_its_constant_is_warned_of() -> None:
    found = below()
    # The page has such cases; a page that could not be read would have none.
    assert "softlabel adult-20 K=24 t=1 eps=1" in found
    assert [case for case in found if not plan_warnings(case)] == []


@pytest.mark.parametrize(
    "case", ["softlabel adult-20 K=24 t=1 eps=10", "softlabel kdd K=100 t=1 eps=10", "averaging credit K=5 t=1 eps=1"]
)
def test_cases_that_learn_are_not_warned_of(case: str) -> None:
    assert plan_warnings(case) == ()


def few_rows() -> list[Mapping[str, str]]:
    """The table of vertical cases with few rows: the first one whose case begins with a number of rows."""
    lines = [line.strip("| \n").split(" | ") for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")]
    heads = next(line for line in lines if line[0] == "few rows")
    return [dict(zip(heads, line)) for line in lines if re.match(r"\d+ rows of ", line[0])]


def test_every_case_of_few_rows_below_its_constant_is_warned_of() -> None:
    found = few_rows()
    below = [
        row
        for row in found
        if float(row["accuracy"]) < float(row["constant"]) or float(row["log loss"]) > float(row["constant's"])
    ]
    # The page has such cases, and cases without a warning.
    assert below and all(row["warned"] != "no" for row in below)
    assert any(row["warned"] == "no" for row in found)


@pytest.mark.skipif("COMITY_DATA" not in os.environ, reason="reads public tables")
def test_warnings_of_few_rows_on_the_page_are_those_of_the_plan() -> None:
    found = [row for row in few_rows() if " generated " in f" {row['few rows']} " or " heart " in row["few rows"]]
    assert found
    for row in found:
        case = re.fullmatch(r"(\d+) rows of (\S+) t=(\d) eps=(\S+)", row["few rows"])
        assert case is not None
        held = load_table(case[2])
        told = warn_of_columns(held, 2, int(case[3]), float(case[4]), rows=int(case[1]))
        expected = {"no": "", "constant": "can only give a constant", "maybe": "may give less than a constant"}
        assert expected[row["warned"]] in " ".join(told) and bool(told) == (row["warned"] != "no")


@pytest.mark.skipif("COMITY_DATA" not in os.environ, reason="reads public tables")
def test_a_vertical_case_of_the_comparison_is_warned_of_by_its_noise() -> None:
    assert plan_warnings("vertical adult-20 K=2 t=1 eps=1") == ()
    assert any("constant" in one for one in plan_warnings("vertical adult-20 K=2 t=1 eps=0.01"))
    assert any("constant" in one for one in plan_warnings("vertical-quadratic adult-20 K=2 t=1 eps=0.01"))


@pytest.mark.skipif("COMITY_DATA" not in os.environ, reason="reads public tables")
@pytest.mark.long
def test_shapes_are_those_of_the_tables() -> None:
    for name, shape in SHAPES.items():
        known = table(name)
        width = Encoding(known.schema, scaling="symmetric", rows="scaled", intercept=True, bins=True).width
        assert (width, len(known.train)) == (shape.features, shape.records)
        # What is left of HAR beside 100 parties.
        assert shape.public == min(FULL.auxiliary, len(known.train) - 100 * RECORDS)
