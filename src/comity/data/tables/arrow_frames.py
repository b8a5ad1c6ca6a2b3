"""Arrow batches as an encoding reads them: numbers as they lie in memory, texts as categories."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Batch:
    """A record batch, with as much of a frame as encoding needs: a column is made a series when it is asked for.

    Numbers without gaps are views of the batch; each distinct text is stored once, so that looking categories up costs
    as much as there are distinct ones.
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
        """The one column of that name as it lies in memory, if it holds numbers without gaps."""
        import pyarrow as pa

        if self.columns.count(name) != 1:
            return None
        column = self.batch.column(self.columns.index(name))
        if column.null_count or not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
            return None
        found: NDArray[Any] = column.to_numpy()
        return found

    def series(self, place: int) -> pd.Series:
        import pandas as pd
        import pyarrow as pa

        column = self.batch.column(place)
        kind = column.type
        if column.null_count == 0 and (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            return pd.Series(column.to_numpy(), copy=False)
        if pa.types.is_decimal(kind):
            # Their Python objects would be no numbers to an encoding.
            return pd.Series(np.asarray(column.cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64))
        made: pd.Series = column.to_pandas(strings_to_categorical=True, date_as_object=False)
        return made


if TYPE_CHECKING:
    Table = pd.DataFrame | Batch
    """Records as a source gives them."""
