"""Identifiers of a simulation, checked while its files are read: before a ledger exists and before anything is drawn.

Sites check their own again when rows are aligned (`methods.by_columns.alignment`), but by then the run has begun,
and that nobody is shared shows only once pseudonyms are matched. Here one person has all the files, so sentences name
them. They show no identifier, so that none enters a log.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from comity.data import Records
from comity.data.schemas.reading import canonical_id, read_ids
from comity.errors import DataError

_KEY = "identifier.name"


def check_kind(series: pd.Series, where: str) -> None:
    """An identifier is a text or a whole number: two files may write anything else in two ways."""
    for row, value in enumerate(series.astype(object)):
        missing = value is None or value is pd.NA or (isinstance(value, float) and value != value)
        # Missing ones are the encoding's to refuse.
        if not missing and _kind(value) is None:
            raise DataError(
                f"{where}: column {str(series.name)!r} identifies records by texts or whole numbers, record {row + 1} "
                f"has a {type(value).__name__}; write the column as text",
                key=_KEY,
            )


def check_distinct(series: pd.Series, where: str) -> None:
    """One record per person: a second one would be a second row of the same unit."""
    seen: dict[str, int] = {}
    ids, missing = read_ids(series)
    for row, one in enumerate(ids):
        first = row if missing[row] else seen.setdefault(canonical_id(one), row)
        if first != row:
            raise DataError(
                f"{where}: column {str(series.name)!r} has the same identifier in records {first + 1} and {row + 1}; "
                "keep one record per person",
                key=_KEY,
            )


def check_shared(parties: Mapping[str, Records], where: str, column: str) -> None:
    """At least one person is held by all parties."""
    held = {
        party: set() if records.ids is None else {canonical_id(one) for one in records.ids}
        for party, records in parties.items()
    }
    if set.intersection(*held.values()):
        return
    forms = "; ".join(f"{party} has {_form(ids)}" for party, ids in held.items())
    raise DataError(
        f"{where}: the parties share nobody: no value of {column!r} is held by all of them ({forms}); check that the "
        "column means the same in every file and is written in the same way",
        code="empty-intersection",
        key=_KEY,
    )


def _kind(value: Any) -> str | None:
    if isinstance(value, str):
        return "text"
    if isinstance(value, bool | np.bool_):
        return None
    if isinstance(value, int | np.integer):
        return "number"
    return "number" if isinstance(value, float | np.floating) and float(value).is_integer() else None


def _form(ids: set[str]) -> str:
    if not ids:
        return "no records"
    sizes = sorted({len(one) for one in ids})
    length = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    what = "digits" if all(one.isdecimal() for one in ids) else "characters"
    return f"{len(ids)} of {length} {what}"
