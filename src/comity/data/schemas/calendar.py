"""From steps back to days: what a column of dates shows of a step that was counted or drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.data.schemas.columns import Date


def days_of(column: Date, steps: NDArray[np.float64], missing: NDArray[np.bool_]) -> Any:
    """The first day of each step, as a date or as the text that the column's format spells."""
    import pandas as pd

    first, whole = np.datetime64(column.low, "D"), steps.astype(np.int64)
    if column.step in ("day", "week"):
        days = first + whole * (7 if column.step == "week" else 1)
    else:
        unit = {"month": "M", "year": "Y"}[column.step]
        days = (first.astype(f"datetime64[{unit}]") + whole).astype("datetime64[D]")
    days = np.clip(days, first, np.datetime64(column.high, "D"))
    made = pd.Series(days.astype("datetime64[s]"))
    if column.format is not None:
        made = made.dt.strftime(column.format).astype(object)
    return made.where(~missing, None if column.format is not None else pd.NaT).to_numpy()
