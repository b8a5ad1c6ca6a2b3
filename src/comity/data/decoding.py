"""Encoded rows back as records: what a method that hands over records gives to people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from comity.data.cells import OTHER
from comity.data.encoding import Encoding
from comity.data.schemas.calendar import days_of
from comity.data.schemas.columns import Categorical, Classes, Column, Date, Ordinal
from comity.errors import SchemaError

if TYPE_CHECKING:
    import pandas as pd


def decoded(encoding: Encoding, rows: NDArray[np.float64], labels: NDArray[Any] | None = None) -> pd.DataFrame:
    """The records of which these are the rows, as far as encoding kept them: numbers as they were clipped and filled,
    days as the first of their step, categories outside of the schema as `OTHER`. For rows that were not rescaled."""
    import pandas as pd

    if encoding.rows != "none" or encoding.bins:
        raise SchemaError("rows that were rescaled or cut into bins can't be read back as records", key="rows")
    rows = np.asarray(rows, np.float64)
    made: dict[str, Any] = {}
    for column, group in zip(encoding.schema.columns, encoding.bounds.groups):
        made[column.name] = _values(column, rows[:, group.start : group.stop], encoding)
    target = encoding.schema.target
    if target is not None and labels is not None:
        if isinstance(target, Classes):
            made[target.name] = np.asarray(target.values, object)[np.asarray(labels, np.int64)]
        else:
            made[target.name] = np.asarray(labels, np.float64)
    return pd.DataFrame(made)


def _values(column: Column, part: NDArray[np.float64], encoding: Encoding) -> Any:
    import pandas as pd

    if isinstance(column, Categorical):
        names: list[Any] = [*column.values, *([OTHER] if column.other else []), None]
        return pd.Series([names[place] for place in part.argmax(axis=1)], dtype=object).to_numpy()
    share = part[:, 0] if encoding.scaling == "unit" else (part[:, 0] + 1) / 2
    missing = part[:, 1] > 0.5 if part.shape[1] == 2 else np.zeros(len(part), bool)
    if isinstance(column, Ordinal):
        places = np.rint(share * (len(column.values) - 1)).astype(np.int64)
        found = np.asarray(column.values, object)[np.clip(places, 0, len(column.values) - 1)]
        found[missing] = None
        return found
    if isinstance(column, Date):
        return days_of(column, np.rint(share * column.steps), missing)
    first, last = column.on_scale(np.array([column.low, column.high]))
    numbers = column.off_scale(first + share * (last - first))
    # Scaling and back is off by a few bits: as many digits as a double surely keeps.
    numbers = np.array([float(f"{number:.12g}") for number in numbers])
    numbers = np.clip(np.rint(numbers) if column.integer else numbers, column.low, column.high)
    if missing.any():
        return np.where(missing, np.nan, numbers)
    return numbers.astype(np.int64) if column.integer else numbers
