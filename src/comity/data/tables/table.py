"""A table as a source gives it: a pandas DataFrame, or an Arrow batch from which an encoding takes the columns that it
needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from comity.errors import DataError, nearest_name

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Batch:
    """An Arrow record batch with the part of a DataFrame that encoding needs. A column becomes a series on demand.

    Numbers without gaps are views of the batch. Texts become categories, which store each distinct text once: looking
    categories up costs as much as there are distinct texts.
    """

    batch: Any

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    @cached_property
    def columns(self) -> list[str]:
        return list(self.batch.schema.names)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self), len(self.columns)

    def plain(self, name: str) -> NDArray[Any] | None:
        """The column as it lies in memory, if it is the only one of that name and holds numbers without gaps."""
        if self.columns.count(name) != 1:
            return None
        column = self.batch.column(self.columns.index(name))
        return column.to_numpy() if _is_plain(column) else None

    def series(self, place: int) -> pd.Series:
        import pandas as pd
        import pyarrow as pa

        column = self.batch.column(place)
        if _is_plain(column):
            return pd.Series(column.to_numpy(), copy=False)
        if pa.types.is_decimal(column.type):
            # An encoding does not take Python's Decimal for a number.
            return pd.Series(np.asarray(column.cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64))
        series: pd.Series = column.to_pandas(strings_to_categorical=True, date_as_object=False)
        return series


if TYPE_CHECKING:
    Table = pd.DataFrame | Batch


def column_of(table: Table, name: str, where: str) -> pd.Series:
    """The one column of that name; an error names the nearest. A table without columns and records has every column,
    because a party without records need not know their names."""
    import pandas as pd

    if table.shape == (0, 0):
        return pd.Series([], dtype=object, name=name)
    present = [str(column) for column in table.columns]
    count = present.count(name)
    if count > 1:
        raise DataError(
            f"{where}: expected one column {name!r}, found {count}; rename or remove the surplus.", key=name
        )
    if count == 0:
        raise missing_column(where, name, present)
    place = present.index(name)
    return table.series(place) if isinstance(table, Batch) else table.iloc[:, place]


def missing_column(where: str, name: str, present: Sequence[str]) -> DataError:
    """The error names a similar column and lists no others: without a header line, the header is the first record."""
    close = nearest_name(name, present)
    if close is not None:
        hint = f"did you mean {close!r}? Rename it, or correct the schema"
    else:
        hint = (
            f"none of its {len(present)} columns is like it; check that the file begins with a header line, with the "
            "names of the schema"
        )
    return DataError(f"{where}: column {name!r} is missing; {hint}.", code="missing-column", key=name)


def _is_plain(column: Any) -> bool:
    import pyarrow as pa

    return not column.null_count and (pa.types.is_integer(column.type) or pa.types.is_floating(column.type))
