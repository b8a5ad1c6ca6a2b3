"""How a table differs from a schema: every mismatch at once, each with what to do. For the owner's own
terminal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from comity.data.columns import Bounded, Categorical, Classes, Column, Numeric, Ordinal, Target
from comity.data.conforming import column_of
from comity.data.reading import MISSING, UNKNOWN, read_codes, read_ids, read_numbers, shown
from comity.data.schema import Schema
from comity.errors import DataError


@dataclass(frozen=True)
class Finding:
    """One mismatch. An error stops a study from reading the data; a warning is handled as the schema says."""

    severity: Literal["error", "warning"]
    column: str
    sentence: str


def explain(schema: Schema, frame: pd.DataFrame, where: str = "the data") -> list[Finding]:
    """Every mismatch between the schema and the table, in the schema's order; an empty list if it fits.

    Findings quote values and counts of private records, so they are shown to the owner and sent to nobody.
    """
    findings: list[Finding] = []
    expected: list[Column | Target] = [*schema.columns, *(() if schema.target is None else (schema.target,))]
    for column in expected:
        try:
            series = column_of(frame, column.name, where)
        except DataError as error:
            findings.append(Finding("error", column.name, str(error)))
            continue
        if isinstance(column, Numeric | Bounded):
            findings += _numbers(column, series, where)
        else:
            findings += _categories(column, series, where)
    if schema.identifier is not None:
        findings += _identifier(schema.identifier, frame, where)
    return findings


def _numbers(column: Numeric | Bounded, series: pd.Series, where: str) -> list[Finding]:
    integer = isinstance(column, Numeric) and column.integer
    read = read_numbers(series, integer=integer)
    findings = []
    if read.wrong.any():
        first = int(np.argmax(read.wrong))
        findings.append(
            Finding(
                "error",
                column.name,
                f"{where}: {column.name}: expected {'whole numbers' if integer else 'numbers'}, found "
                f"{shown(series, read.wrong)} in record {first + 1} and {int(read.wrong.sum()) - 1} more "
                "like it; correct the values, or declare the column otherwise.",
            )
        )
    outside = int(((read.values < column.low) | (read.values > column.high)).sum())
    if outside:
        findings.append(
            Finding(
                "warning",
                column.name,
                f"{where}: {column.name}: {outside} of {len(series)} values are outside [{column.low:g}, "
                f"{column.high:g}] and will be clipped; check the unit of measure, or agree on wider "
                "bounds from public knowledge.",
            )
        )
    filled = isinstance(column, Numeric) and column.fill is not None
    return findings + _missing(column, int(read.missing.sum()), len(series), where, handled=filled)


def _categories(column: Categorical | Ordinal | Classes, series: pd.Series, where: str) -> list[Finding]:
    read = read_codes(series, column.values)
    findings = []
    count = int((read.codes == UNKNOWN).sum())
    if count:
        other = isinstance(column, Categorical) and column.other
        shown = ", ".join(map(repr, read.unknown[:5])) + (", ..." if len(read.unknown) > 5 else "")
        fate = (
            "and will count as other; nothing to do if that is meant"
            if other
            else "and will be refused; correct them, add them to the schema"
            + (", or set other = true" if isinstance(column, Categorical) else "")
        )
        findings.append(
            Finding(
                "warning" if other else "error",
                column.name,
                f"{where}: {column.name}: {count} of {len(series)} values are not declared ({shown}) {fate}.",
            )
        )
    handled = not isinstance(column, Classes) and column.missing != "error"
    return findings + _missing(column, int((read.codes == MISSING).sum()), len(series), where, handled=handled)


def _missing(column: Column | Target, count: int, total: int, where: str, *, handled: bool) -> list[Finding]:
    if not count:
        return []
    if handled:
        sentence = "and will be filled as declared; nothing to do if that is meant"
    elif isinstance(column, Classes | Bounded):
        sentence = "and will be refused; remove records without a target"
    else:
        policy = (
            "missing = 'other' and other = true" if isinstance(column, Categorical) else "missing = 'fill' and a fill"
        )
        sentence = f"and will be refused; complete them, or set {policy}"
    text = f"{where}: {column.name}: {count} of {total} values are missing {sentence}."
    return [Finding("warning" if handled else "error", column.name, text)]


def _identifier(name: str, frame: pd.DataFrame, where: str) -> list[Finding]:
    try:
        ids, missing = read_ids(column_of(frame, name, where))
    except DataError as error:
        return [Finding("error", name, str(error))]
    findings = []
    if missing.any():
        findings.append(
            Finding(
                "error",
                name,
                f"{where}: {name}: {int(missing.sum())} of {len(ids)} identifiers are missing and will be "
                "refused; complete them, or remove [identifier] from the schema.",
            )
        )
    present = ids[~missing]
    repeated = len(present) - len(set(present))
    if repeated:
        findings.append(
            Finding(
                "warning",
                name,
                f"{where}: {name}: {repeated} of {len(ids)} records repeat an identifier; a guarantee for "
                "the unit record then protects one record of a person, not all of them.",
            )
        )
    return findings
