"""No case of the committed comparison is below its constant without a warning of its plan."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from comity.data import Encoding
from experiments.accuracy.softlabel import FULL, RECORDS
from experiments.accuracy.tables import table
from experiments.accuracy.warned import SHAPES, plan_warnings

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


@pytest.mark.skipif("COMITY_DATA" not in os.environ, reason="reads public tables")
@pytest.mark.long
def test_shapes_are_those_of_the_tables() -> None:
    for name, shape in SHAPES.items():
        known = table(name)
        width = Encoding(known.schema, scaling="symmetric", rows="scaled", intercept=True, bins=True).width
        assert (width, len(known.train)) == (shape.features, shape.records)
        # What is left of HAR beside 100 parties.
        assert shape.public == min(FULL.auxiliary, len(known.train) - 100 * RECORDS)
