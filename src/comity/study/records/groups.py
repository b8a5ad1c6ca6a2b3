"""The subgroups of a simulation's test records that `[simulation] evaluate_by` asks for: by columns, and by party.

Cells are public: categories as the schema declares them, numbers and days in its bins, or in quarters of their bounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from comity.data import Bounded, Categorical, Classes, Column, Date, Encoding, Numeric, Schema, Tally
from comity.data.schemas.conforming import conform_categories, conform_dates
from comity.errors import StudyError, did_you_mean
from comity.representation import short_repr

if TYPE_CHECKING:
    import pandas as pd

    from comity.study.study import Study

PARTY: Final = "party"
"""The name of the grouping by party, where the schema has no column of that name."""
_QUARTERS: Final = 4
_MISSING: Final = "(missing)"
_KEY: Final = "simulation.evaluate_by"


@dataclass(frozen=True, eq=False)
class Groups:
    """The subgroup of each test record, by grouping, and the order in which subgroups are shown."""

    __repr__ = short_repr

    labels: Mapping[str, NDArray[np.object_]] = field(default_factory=dict)
    order: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def check_groups(study: Study, names: Sequence[str], *, of_parties: bool) -> None:
    """Refuse groupings that can't be had, before a record is read. `of_parties` says whether each test record is one
    party's."""
    if not names:
        return
    schema, where = study.schema, f"{study.where}: {_KEY}"
    if schema.target is None or not study.protocol.has_record_errors:
        why = "the schema has no [target]" if schema.target is None else f"{study.protocol_name} predicts no target"
        raise StudyError(f"{where}: subgroups are compared by their error, and {why}; leave it out", key=_KEY)
    known = (*schema.names, schema.target.name)
    for name in names:
        if name == PARTY and PARTY not in known:
            if not of_parties:
                raise StudyError(
                    f'{where}: "{PARTY}" needs test records that belong to a party each; here they belong to none, or '
                    "every party holds columns of all of them. Leave it out",
                    key=_KEY,
                )
        elif name not in known:
            raise StudyError(
                f'{where}: expected columns of the schema or "{PARTY}", found {name!r}'
                f"{did_you_mean(name, (*known, PARTY))}",
                key=_KEY,
            )
    if len(set(names)) != len(names):
        raise StudyError(f"{where}: a grouping is named twice; name each once", key=_KEY)


def label_groups(
    schema: Schema,
    names: Sequence[str],
    frame: pd.DataFrame,
    where: str,
    parties: Sequence[str] | None = None,
    order: Sequence[str] = (),
) -> Groups:
    """The subgroups of the records in `frame`; `parties` has the party of each record, `order` all parties."""
    assert schema.target is not None
    columns: dict[str, Column | Classes | Bounded] = {one.name: one for one in (*schema.columns, schema.target)}
    labels: dict[str, NDArray[np.object_]] = {}
    orders: dict[str, tuple[str, ...]] = {}
    for name in names:
        if name in columns:
            labels[name], orders[name] = _label(columns[name], frame, where)
        else:
            assert parties is not None
            labels[name], orders[name] = np.asarray(parties, object), tuple(order)
    return Groups(labels, orders)


def _label(
    column: Column | Classes | Bounded, frame: pd.DataFrame, where: str
) -> tuple[NDArray[np.object_], tuple[str, ...]]:
    tally = Tally.start(len(frame))
    if isinstance(column, Bounded):
        column = Numeric(column.name, column.low, column.high)
    if isinstance(column, Numeric | Categorical):
        return _label_by_encoding(column, frame, where)
    if isinstance(column, Date):
        steps = conform_dates(column, frame, where, tally)
        parts = min(_QUARTERS, column.steps + 1)
        first = np.array([np.ceil(part * (column.steps + 1) / parts) for part in range(parts)])
        starts = replace(column, format=None).days_after(first, np.zeros(parts, bool))
        days = [f"from {str(day)[:10]}" for day in starts]
        codes = np.where(np.isnan(steps), parts, np.searchsorted(first, np.nan_to_num(steps), side="right") - 1)
        return _named(codes, days)
    return _named(conform_categories(column, frame, where, tally), list(column.values))


def _label_by_encoding(
    column: Numeric | Categorical, frame: pd.DataFrame, where: str
) -> tuple[NDArray[np.object_], tuple[str, ...]]:
    if isinstance(column, Numeric) and column.cuts is None:
        column = replace(column, bins=_QUARTERS)
    encoding = Encoding(Schema((replace(column, follows=None),)), rows="none", bins=True)
    codes = encoding.encode_features(frame, where=where).argmax(axis=1)
    return _named(codes, [name.removeprefix(f"{column.name}=") for name in encoding.names])


def _named(codes: NDArray[Any], names: Sequence[str]) -> tuple[NDArray[np.object_], tuple[str, ...]]:
    """Codes outside the names are missing values."""
    every = np.array([*names, _MISSING], object)
    places = np.where((codes < 0) | (codes > len(names)), len(names), codes).astype(np.int64)
    return every[places], tuple(dict.fromkeys(every))
