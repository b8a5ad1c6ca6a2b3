"""Exported CSV files hold no cell that a spreadsheet would run, and the same records as before."""

from __future__ import annotations

import csv
import io
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from comity.artefacts.csv_cells import escape_cell, escape_frame, unescape_cell, unescape_frame
from comity.artefacts.dataset import Dataset
from comity.artefacts.table import Table
from comity.cli.released import _show_predictions, _show_rows
from comity.data import Categorical, Numeric, Schema

FORMULAS = [
    '=HYPERLINK("http://example.org/?"&A1,"open")',
    "+1+cmd|' /C calc'!A0",
    "-2+3+cmd|' /C calc'!A0",
    "@SUM(1+1)",
    "\t=1+1",
    "\r=1+1",
    "\n=1+1",
    "\uff1d1+1",
    "-",
    "+",
    "=",
    "-1.5.2",
    "-1e",
    "--1",
    "+-1",
    "-inf",
    "-1,5",
    "\ufeff=1+1",
    "\0=1+1",
    "\u200b@SUM(1)",
]
# Where a semicolon separates cells, these are several.
WITHIN = ["x;=cmd|' /C calc'!A0;y", "x\n=1+1;", "x; +1+1", "x;\ufeff=1", "a;b\r@SUM(1)", "x;-1,5", "1;-5;=1", ";="]
PLAIN = [
    "",
    "a",
    "a=b",
    "1",
    "-1",
    "-1.5",
    "+3",
    "-.5",
    "1e-9",
    "-1E+5",
    "O'Brien",
    "'quoted'",
    "'",
    "''x",
    " -x",
    "x; y",
    "1;-5",
    "2; -.5;3",
    "a;b=c",
]


def dangerous(text: str) -> bool:
    """As a spreadsheet decides: a sign at the beginning, and no number; of each cell where semicolons separate them."""
    return any(map(_runs, (text, *(part.lstrip(" ") for part in re.split("[;\r\n]", text)[1:]))))


def _runs(text: str) -> bool:
    text = text.lstrip("\0\u200b\ufeff")
    try:
        float(text)
    except ValueError:
        return text[:1] in tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20") and text != ""
    return not text.lstrip("+-")[:1].isdigit() and not text.lstrip("+-").startswith(".")


@pytest.mark.parametrize("text", FORMULAS)
def test_a_text_that_a_spreadsheet_would_run_is_marked(text: str) -> None:
    assert dangerous(text) and escape_cell(text).startswith("'") and not dangerous(escape_cell(text))
    assert escape_cell(text).replace("'", "") == text.replace("'", "")


@pytest.mark.parametrize("text", WITHIN)
def test_a_formula_behind_a_semicolon_or_line_end_is_marked_where_it_begins(text: str) -> None:
    assert dangerous(text) and not dangerous(escape_cell(text))


@pytest.mark.parametrize("text", PLAIN)
def test_other_texts_and_numbers_stay(text: str) -> None:
    assert escape_cell(text) == text and not dangerous(text)


def test_long_texts_take_no_longer_than_their_length() -> None:
    """A record may be one cell of megabytes."""
    long = [f"-{'1' * 300_000}x", f"x;{' ' * 300_000}y", f"{'x;' * 150_000}=", "'" * 300_000, "1" * 300_000]
    began = time.process_time()
    assert [unescape_cell(escape_cell(text)) for text in long] == long
    assert time.process_time() - began < 5


@pytest.mark.parametrize("cell", [-1.5, -3, 0, True, None, float("nan"), np.float64(-2.0), np.int64(-1)])
def test_what_is_no_text_stays(cell: Any) -> None:
    assert escape_cell(cell) is cell


@pytest.mark.parametrize("text", [*FORMULAS, *WITHIN, *PLAIN, "x;'=1", "1;'-5", "'=x", "''=x", "'-1", "'''+", "'\t"])
def test_marks_are_taken_off_again(text: str) -> None:
    assert unescape_cell(escape_cell(text)) == text
    assert not dangerous(escape_cell(text))


def test_frames_keep_their_numbers_and_types() -> None:
    frame = pd.DataFrame({"=x": FORMULAS[:3], "n": [-1.5, 2.0, np.nan], "k": [-1, 2, 3], "b": [True, False, True]})
    frame["t"] = pd.to_datetime(["2020-01-01", "2021-01-01", "2022-01-01"])
    frame["c"] = pd.Categorical(["-a", "b", "b"])
    made = escape_frame(frame)
    assert list(made.columns) == ["'=x", "n", "k", "b", "t", "c"]
    assert list(made["'=x"]) == ["'" + text for text in FORMULAS[:3]] and list(made["c"]) == ["'-a", "b", "b"]
    for name in ("n", "k", "b", "t"):
        pd.testing.assert_series_equal(made[name], frame[name])
    again = unescape_frame(made)
    assert list(again["=x"]) == list(frame["=x"]) and list(again["c"]) == ["-a", "b", "b"]
    assert frame.columns[0] == "=x", "the table itself is as it was"
    assert "-1.5" in made.to_csv(index=False) and "'-1.5" not in made.to_csv(index=False)


def cells(path: Path) -> list[str]:
    with path.open(newline="", encoding="utf-8") as file:
        return [cell for row in csv.reader(file) for cell in row]


def test_a_dataset_in_csv(tmp_path: Path) -> None:
    schema = Schema((Categorical("=group", ("=1+1", "-old", "young")), Numeric("change", low=-5, high=5)))
    frame = pd.DataFrame({"=group": ["=1+1", "-old", "young"], "change": [-1.5, 0.0, 2.5]})
    made = Dataset(frame, schema, stored="csv")
    made.save(tmp_path)
    found = cells(tmp_path / "data.csv")
    assert not any(map(dangerous, found)) and "-1.5" in found and "'=1+1" in found
    pd.testing.assert_frame_equal(Dataset.load(tmp_path).frame, frame, check_dtype=False)


def test_a_table_of_figures(tmp_path: Path) -> None:
    made = Table(("@term", "value"), (("=cmd|' /C calc'!A0", -1.5), ("age", -2), (None, 3)))
    made.save(tmp_path)
    found = cells(tmp_path / "table.csv")
    assert not any(map(dangerous, found)) and {"-1.5", "-2", "'@term"} <= set(found)
    assert Table.load(tmp_path) == made


@pytest.mark.parametrize("write", [_show_predictions, _show_rows])
def test_what_commands_write(tmp_path: Path, write: Any, capsys: pytest.CaptureFixture[str]) -> None:
    frame = pd.DataFrame({"id": ["=1+1", "@x", "a"], "score": [-1.5, 0.25, 3]})
    write(frame, tmp_path / "out.csv", as_json=False)
    found = cells(tmp_path / "out.csv")
    assert not any(map(dangerous, found)) and "'=1+1" in found and "-1.5" in found
    capsys.readouterr()


def test_what_a_prediction_prints(capsys: pytest.CaptureFixture[str]) -> None:
    _show_predictions(pd.DataFrame({"id": ["=1+1", "a"], "score": [-1.5, 0.25]}), None, as_json=False)
    rows = list(csv.reader(io.StringIO(capsys.readouterr().out)))
    assert rows == [["id", "score"], ["'=1+1", "-1.500000"], ["a", "0.250000"]]
