"""How a table differs from a schema: every mismatch at once, each with a remedy.

Findings are for the owner, and in a simulation for the researcher, who has all records. Their counts are exact
functions of private records and are sent to nobody.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from comity.data.cells import Cells
from comity.data.schemas.columns import Bounded, Categorical, Classes, Column, Date, Numeric, Ordinal, Target
from comity.data.schemas.conforming import expected_dates, remedy_for_dates, remedy_for_numbers
from comity.data.schemas.reading import (
    MISSING,
    UNKNOWN,
    quote_text,
    quote_value,
    read_codes,
    read_days,
    read_ids,
    read_numbers,
)
from comity.data.schemas.schema import Schema
from comity.data.tables.source import Source
from comity.data.tables.table import column_of
from comity.data.tables.translation import TranslatedSource
from comity.errors import DataError

# A number of records that differs from the declared one by this factor is reported.
_SIZE_FACTOR = 10
MAX_TAIL = 0.01
"""A public bound may leave out the end of a long tail. A larger share of the values outside is a wrong bound."""


@dataclass(frozen=True)
class Finding:
    """One mismatch. An error stops a study from reading the data, a warning is most likely a mistake, a note is handled
    as the schema says.

    `sentence` quotes no value. `values` are some of those concerned, as text, for the owner's terminal only.
    """

    severity: Literal["error", "warning", "note"]
    column: str
    sentence: str
    values: tuple[str, ...] = ()


def explain(
    schema: Schema,
    frame: pd.DataFrame,
    where: str = "the data",
    *,
    unit: str | None = None,
    records: int | None = None,
) -> list[Finding]:
    """Every mismatch between the schema and the table, in the schema's order; an empty list if it fits.

    `unit` is the unit of privacy of the study, `records` the number that it declares for this owner. Findings that
    depend on one of them need it.
    """
    findings = explain_size(len(frame), where, unit=unit, declared=records)
    expected: list[Column | Target] = [*schema.columns, *(() if schema.target is None else (schema.target,))]
    for column in expected:
        try:
            series = column_of(frame, column.name, where)
        except DataError as error:
            findings.append(Finding("error", column.name, str(error)))
            continue
        if isinstance(column, Numeric | Bounded):
            findings += _check_numbers(column, series, where)
        elif isinstance(column, Date):
            findings += _check_dates(column, series, where)
        else:
            findings += _check_categories(column, series, where)
    for follower in schema.columns:
        if follower.follows is not None:
            findings += _check_follower(schema[follower.follows], follower, frame, where)
    findings += _count_impossible(schema, frame, where)
    if schema.identifier is not None:
        findings += _check_identifier(schema.identifier, frame, where, unit)
    return findings


def explain_source(
    schema: Schema, source: Source, where: str = "the data", *, unit: str | None = None, records: int | None = None
) -> tuple[list[Finding], int]:
    """`explain` for the records of a source, and how many they are. Values that the source's own keys (`format`,
    `unit`) can't translate are findings too."""
    if not isinstance(source, TranslatedSource):
        frame = source.read()
        return explain(schema, frame, where, unit=unit, records=records), len(frame)
    frame, wrong = source.read_all_wrong()
    findings = [
        _name_wrong(name, found.series, found.wrong, where, *source.translation.expected(name))
        for name, found in wrong.items()
        if name in schema.read_names
    ]
    return findings + explain(_without(schema, set(wrong)), frame, where, unit=unit, records=records), len(frame)


def _without(schema: Schema, names: set[str]) -> Schema:
    """The schema without columns that have findings already. One column always stays: a schema needs one."""
    kept = [column for column in schema.columns if column.name not in names]
    columns = tuple(column if column.follows not in names else replace(column, follows=None) for column in kept)
    target = None if schema.target is None or schema.target.name in names else schema.target
    if not columns and target is None:
        return schema
    rules = tuple(rule for rule in schema.impossible if names.isdisjoint(rule.names))
    return Schema(columns, target, None if schema.identifier in names else schema.identifier, rules)


def explain_size(records: int, where: str, *, unit: str | None = None, declared: int | None = None) -> list[Finding]:
    """Warn if an owner has no records, or many more or fewer than the study declares."""
    if records == 0:
        how = " with a neutral contribution" if unit == "party" else ""
        sentence = (
            f"{where}: holds no records: its owner takes part{how}, spends, and adds nothing to the result. Check that "
            "it is the right file."
        )
        return [Finding("warning", "", sentence)]
    if declared is None or declared / _SIZE_FACTOR < records < declared * _SIZE_FACTOR:
        return []
    sentence = (
        f"{where}: holds {records} records where the study declares {declared}, which differs tenfold or more and "
        "costs accuracy; correct the declared figure, or check that it is the right file."
    )
    return [Finding("warning", "", sentence)]


def _check_numbers(column: Numeric | Bounded, series: pd.Series, where: str) -> list[Finding]:
    integer = isinstance(column, Numeric) and column.integer
    read = read_numbers(series, integer=integer)
    findings = []
    if read.wrong.any():
        kind, remedy = "whole numbers" if integer else "numbers", remedy_for_numbers(series, read.wrong)
        findings.append(_name_wrong(column.name, series, read.wrong, where, f"expected {kind}", remedy))
    infinite = int(np.isinf(read.values).sum())
    if infinite:
        sentence = (
            f"{where}: {column.name}: {infinite} of {len(series)} values are infinite and will be clipped to a bound; "
            "they are most likely a division by zero or a mark for something missing: correct or remove them."
        )
        findings.append(Finding("warning", column.name, sentence))
    outside = int(((read.values < column.low) | (read.values > column.high)).sum()) - infinite
    if outside:
        sentence = (
            f"{where}: {column.name}: {outside} of {len(series)} values are outside [{column.low:g}, {column.high:g}] "
            "and will be clipped; check the unit of measure, or agree on wider bounds from public knowledge."
        )
        findings.append(Finding(_severity(outside, len(series)), column.name, sentence))
    filled = isinstance(column, Numeric) and column.missing != "error"
    return findings + _count_missing(column, int(read.missing.sum()), len(series), where, handled=filled)


def _check_dates(column: Date, series: pd.Series, where: str) -> list[Finding]:
    read = read_days(series, column.format)
    findings = []
    if read.wrong.any():
        remedy = remedy_for_dates(column, series, read.wrong)
        findings.append(
            _name_wrong(column.name, series, read.wrong, where, f"expected {expected_dates(column)}", remedy)
        )
    steps = column.since_low(read.days)
    outside = int(((steps < 0) | (steps > column.steps)).sum())
    if outside:
        sentence = (
            f"{where}: {column.name}: {outside} of {len(series)} dates are outside [{column.low}, {column.high}] and "
            "will be clipped; check for marks of something unknown, or agree on wider bounds from public knowledge."
        )
        findings.append(Finding(_severity(outside, len(series)), column.name, sentence))
    return findings + _count_missing(
        column, int(read.missing.sum()), len(series), where, handled=column.missing != "error"
    )


def _severity(count: int, total: int) -> Literal["warning", "note"]:
    return "warning" if count > MAX_TAIL * total else "note"


def _name_wrong(
    column: str, series: pd.Series, wrong: NDArray[np.bool_], where: str, expected: str, remedy: str
) -> Finding:
    first, more = int(np.argmax(wrong)), int(wrong.sum()) - 1
    sentence = f"{where}: {column}: {expected}, found others in record {first + 1} and {more} more like it; {remedy}."
    return Finding("error", column, sentence, (quote_value(series, wrong),))


def _check_categories(column: Categorical | Ordinal | Classes, series: pd.Series, where: str) -> list[Finding]:
    read = read_codes(series, column.values)
    findings = []
    count = int((read.codes == UNKNOWN).sum())
    if count:
        other = isinstance(column, Categorical) and column.other
        values = tuple(map(quote_text, read.unknown[:5]))
        fate = (
            "and will count as other; nothing to do if that is meant"
            if other
            else "and will be refused; correct them, add them to the schema"
            + (", or set other = true" if isinstance(column, Categorical) else "")
        )
        findings.append(
            Finding(
                "note" if other else "error",
                column.name,
                f"{where}: {column.name}: {count} of {len(series)} values are not declared {fate}.",
                values,
            )
        )
    handled = not isinstance(column, Classes) and column.missing != "error"
    return findings + _count_missing(column, int((read.codes == MISSING).sum()), len(series), where, handled=handled)


def _check_follower(leader: Column, follower: Column, frame: pd.DataFrame, where: str) -> list[Finding]:
    """Count records that break a declared `follows`: those whose cell differs from that of most records with the same
    leading cell."""
    try:
        first, second = Cells(Schema((leader, follower))).locate(frame, where).T
    except DataError:
        # Other findings report values that are refused.
        return []
    pairs, pair_counts = np.unique(np.stack([first, second]), axis=1, return_counts=True)
    most = np.zeros(1 + int(first.max(initial=0)), np.int64)
    np.maximum.at(most, pairs[0], pair_counts)
    broken = len(frame) - int(most.sum())
    if not broken:
        return []
    sentence = (
        f"{where}: {follower.name}: {broken} of {len(frame)} records have another value than most with the same "
        f"{leader.name}, which the schema declares it to follow; this costs accuracy and no privacy: correct them, or "
        "remove follows."
    )
    return [Finding(_severity(broken, len(frame)), follower.name, sentence)]


def _count_impossible(schema: Schema, frame: pd.DataFrame, where: str) -> list[Finding]:
    """Count records that a rule of the schema declares impossible."""
    findings = []
    for place, rule in enumerate(schema.impossible):
        target = schema.target is not None and schema.target.name in rule.names
        columns = tuple(replace(column, follows=None) for column in schema.columns if column.name in rule.names)
        cells = Cells(Schema(columns, schema.target if target else None, None, (rule,)))
        try:
            count = int(cells.is_impossible(cells.locate(frame, where)).sum())
        except DataError:
            # Other findings report values that are refused.
            continue
        if count:
            sentence = (
                f"{where}: {', '.join(rule.names)}: {count} of {len(frame)} records contradict rule {place + 1} of "
                "impossible; this costs accuracy and no privacy, and synthetic data has no such records: correct the "
                "records, or agree on a narrower rule."
            )
            findings.append(Finding(_severity(count, len(frame)), rule.names[0], sentence))
    return findings


def _count_missing(column: Column | Target, count: int, total: int, where: str, *, handled: bool) -> list[Finding]:
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
    return [Finding("note" if handled else "error", column.name, text)]


def _check_identifier(name: str, frame: pd.DataFrame, where: str, unit: str | None) -> list[Finding]:
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
    if repeated and unit in (None, "record"):
        findings.append(
            Finding(
                "warning",
                name,
                f"{where}: {name}: {repeated} of {len(ids)} records repeat an identifier; a guarantee for "
                "the unit record then protects one record of a person, not all of them.",
            )
        )
    return findings
