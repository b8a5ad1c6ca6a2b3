"""The party that holds a record, as one more column of what is counted.

Which parties there are is public, and so is the place of the column: after the other features, before the target. What
a record holds in it is the name of its party, whatever the record is, so the column moves no other record's counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from comity.data import Categorical, Schema
from comity.errors import StudyError
from comity.methods.synthetic.counts import MAX_COUNTS, PAIRED_COLUMNS, Layout

OWNER: Final = "owner"
"""The name of the column."""


def check_owner_column(schema: Schema) -> None:
    """Raise `StudyError` if the schema has a column of that name, or too many columns to count all of their pairs."""
    others = (schema.identifier, None if schema.target is None else schema.target.name)
    if OWNER in [column.name for column in schema.columns] or OWNER in others:
        raise StudyError(
            f"synthetic.by_owner adds a column {OWNER!r}, which the schema has already; rename that one, or set "
            "by_owner = false",
            key="synthetic.by_owner",
        )
    leading = sum(column.follows is None for column in schema.columns) + (schema.target is not None)
    if leading >= PAIRED_COLUMNS:
        raise StudyError(
            f"synthetic.by_owner counts parties with every column, of which there may be {PAIRED_COLUMNS - 1}; found "
            f"{leading}. Leave some out of the schema, or set by_owner = false",
            key="synthetic.by_owner",
        )


def check_owner_counts(layout: Layout) -> None:
    """Raise `StudyError` if there are too many counts, with the parties as a column."""
    if layout.counts > MAX_COUNTS:
        raise StudyError(
            f"synthetic releases at most {MAX_COUNTS:,} counts, and there are {layout.counts:,} with a column of the "
            "parties; declare fewer bins, or set synthetic.by_owner = false",
            key="synthetic.by_owner",
        )


def add_owner_column(schema: Schema, parties: Sequence[str]) -> Schema:
    return replace(schema, columns=(*schema.columns, Categorical(OWNER, tuple(parties))))
