"""Records as rows of cells: what a method that counts sees of its owner's data."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from comity.data.cells import BINS, Cells
from comity.data.encoding import Encoding, Values
from comity.data.tally import Tally

if TYPE_CHECKING:
    from comity.data.tables.arrow_frames import Table


@dataclass(frozen=True)
class CellEncoding(Encoding):
    """An entry for each column, the target last: the number of the cell that the record lies in (`Cells`).

    Labels are beside them, as in any encoding. `cut` and `buckets` are the cells of a number, and of a target that is
    one, for which the schema says none.
    """

    cut: int = field(default=BINS, kw_only=True)
    buckets: int | None = field(default=None, kw_only=True)

    @cached_property
    def cells(self) -> Cells:
        return Cells(self.schema, self.cut, self.buckets)

    @cached_property
    def names(self) -> tuple[str, ...]:
        return self.cells.names

    def rows_of(self, columns: Values) -> NDArray[np.float64]:
        return self.write_rows(columns, np.empty((columns.count, self.width)))

    def write_rows(self, columns: Values, out: NDArray[np.float64]) -> NDArray[np.float64]:
        for place, values in enumerate(columns.values):
            out[:, place] = values
        return out

    def _columns(self, frame: Table, where: str, tally: Tally) -> Values:
        return Values(len(frame), tuple(self.cells.of(frame, where, tally).T))

    def _labels(self, frame: Table, where: str, tally: Tally) -> NDArray[Any] | None:
        # The target is in a cell already, and what the schema changed in it is counted once.
        return super()._labels(frame, where, Tally.start(len(frame), tally.first))
