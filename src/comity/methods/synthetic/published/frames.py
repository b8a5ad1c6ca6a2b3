"""Shared records as a table of the schema: numbers in their own units, dates as days, categories by
their names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from comity.data import Bounded, Categorical, Classes, Column, Date, Ordinal
from comity.data.schemas.calendar import days_of
from comity.methods.synthetic.published.attributes import Attributes

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]

OTHER = "(other)"


def table_of(attributes: Attributes, values: Floats, target: NDArray[Any]) -> pd.DataFrame:
    """Records (n, attributes) and their targets, as the schema reads them: `target` holds classes or numbers."""
    import pandas as pd

    places = {one.name: at for at, one in enumerate(attributes.all)}
    made: dict[str, Any] = {}
    for column in attributes.schema.columns:
        flag = places.get(f"{column.name}=(missing)")
        missing = np.zeros(len(values), np.bool_) if flag is None else values[:, flag] > 0.5
        made[column.name] = _column(column, values[:, places[column.name]], missing)
    found = attributes.schema.target
    if isinstance(found, Classes):
        made[found.name] = np.array(found.values, object)[np.asarray(target, np.int64)]
    elif isinstance(found, Bounded):
        made[found.name] = np.clip(np.asarray(target, np.float64), found.low, found.high)
    return pd.DataFrame(made)


def _column(column: Column, values: Floats, missing: NDArray[np.bool_]) -> Any:
    import pandas as pd

    if isinstance(column, Categorical):
        words = [*column.values, *((OTHER,) * column.other), *((None,) * (column.missing == "cell"))]
        return np.array(words, object)[values.astype(np.int64)]
    if isinstance(column, Ordinal):
        at = np.rint(values * (len(column.values) - 1)).astype(np.int64)
        return np.array([*column.values, None], object)[np.where(missing, len(column.values), at)]
    if isinstance(column, Date):
        return days_of(column, np.rint(values * column.steps), missing)
    first, last = column.on_scale(np.array([column.low, column.high]))
    numbers = np.clip(column.off_scale(first + values * (last - first)), column.low, column.high)
    if not column.integer:
        return np.where(missing, np.nan, numbers)
    whole = pd.array(np.rint(numbers).astype(np.int64), "Int64")
    whole[missing] = pd.NA
    return whole if missing.any() else np.rint(numbers).astype(np.int64)
