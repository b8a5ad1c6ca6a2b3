"""No case of the committed comparison is below its constant without a warning of its plan."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from comity.data import Encoding
from comity.errors import BadInput
from experiments.accuracy import warnings
from experiments.accuracy.few_rows_tables import load_table
from experiments.accuracy.softlabel import FULL, RECORDS
from experiments.accuracy.tables import table
from experiments.accuracy.warned import SHAPES, plan_warnings, warn_of_columns
from experiments.accuracy.warnings import is_below, read_table


def below() -> list[str]:
    """Cases whose mean accuracy, or log loss, is worse than the constant's."""
    columns = ("ours", "constant", "log_loss", "constant_log_loss")
    return [row["case"] for row in read_table("case") if is_below(row, *columns)]


def test_every_case_below_its_constant_is_warned_of() -> None:
    found = below()
    # The page has such cases; a page that could not be read would have none.
    assert "softlabel adult-20 K=24 t=1 eps=0.1" in found
    # Plans over columns read tables, which the command below has.
    assert [case for case in found if not case.startswith("vertical") and not plan_warnings(case)] == []


def test_the_check_names_a_cell_that_no_plan_warns_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warnings, "check_few_rows", lambda rows: iter(()))
    monkeypatch.setattr(warnings, "plan_warnings", lambda case: ())
    with pytest.raises(BadInput, match=r"softlabel adult-20 K=24 t=1 eps=0\.1"):
        warnings.run(quick=True)
    monkeypatch.setattr(warnings, "plan_warnings", lambda case: ("may be worse",))
    found = warnings.run(quick=True)
    assert [row["case"] for row in found] == below() and {row["warned"] for row in found} == {"yes"}


def test_a_cell_is_below_by_accuracy_or_by_log_loss() -> None:
    columns = ("a", "c", "l", "k")
    cells = {"case": "one", "a": "0.8", "c": "0.7", "l": "0.5", "k": "0.6"}
    assert not is_below(cells, *columns)
    assert is_below(cells | {"a": "0.6"}, *columns) and is_below(cells | {"l": "0.7"}, *columns)
    # A number has no log loss; a log loss without one to compare with is no answer.
    assert not is_below(cells | {"l": "-", "k": "-"}, *columns)
    with pytest.raises(BadInput, match="one"):
        is_below(cells | {"k": "-"}, *columns)


def test_a_page_without_its_table_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "accuracy.md"
    page.write_text("# Accuracy\n\n| other | rows |\n|---|---|\n| 1 | 2 |\n", "utf-8")
    with pytest.raises(BadInput, match="no table"):
        read_table("case", page)


@pytest.mark.skipif("COMITY_DATA" not in os.environ, reason="reads public tables")
@pytest.mark.long
def test_no_cell_of_the_page_is_below_its_constant_without_a_warning() -> None:
    assert warnings.run(quick=False)


@pytest.mark.parametrize(
    "case", ["softlabel adult-20 K=24 t=1 eps=10", "softlabel kdd K=100 t=1 eps=10", "averaging credit K=5 t=1 eps=1"]
)
def test_cases_that_learn_are_not_warned_of(case: str) -> None:
    assert plan_warnings(case) == ()


def few_rows() -> list[Mapping[str, str]]:
    """The table of vertical cases with few rows."""
    return read_table("few rows")


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
