"""Cells: every record as one whole number for each column, by the schema alone, and back again.

What is counted under a guarantee are cells. They come from public bounds, edges and categories, so that two parties
with equal schemas have equal cells, and none is left out because no record is in it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from comity.data.encoding import Encoding, Values
from comity.data.schemas.columns import Bounded, Categorical, Classes, Column, Date, Numeric, Ordinal, Target, days_of
from comity.data.schemas.conforming import categories, column_of, dates, numbers
from comity.data.schemas.schema import Schema
from comity.data.tally import Tally
from comity.entropy import Stream
from comity.errors import SchemaError

if TYPE_CHECKING:
    import pandas as pd

    from comity.data.tables.arrow_frames import Table

Places = NDArray[np.int64]

BINS = 8
"""Cells of a number or a date for which the schema says neither bins nor edges. Not tuned on data."""

OTHER = "(other)"


@dataclass(frozen=True)
class Cells:
    """Features of a schema in order, then its target, each cut into cells; the last cell of a column whose missing
    values are a cell is theirs."""

    schema: Schema
    bins: int = BINS
    buckets: int | None = None
    """Cells of a target that is a number, where it has others than columns have."""

    def _bins(self, column: Column | Target) -> int:
        return self.buckets if isinstance(column, Bounded) and self.buckets is not None else self.bins

    @property
    def columns(self) -> tuple[Column | Target, ...]:
        return (*self.schema.columns, *(() if self.schema.target is None else (self.schema.target,)))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """How many cells each column has."""
        return tuple(_size(column, self._bins(column)) for column in self.columns)

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """The two-way tables that say all there is to count: every pair of columns, but of one that follows another
        only the pair of the two, because the rest follows from it. One table less is a block less in `Counts`."""
        names, found = self.names, []
        leaders = {place: getattr(column, "follows", None) for place, column in enumerate(self.columns)}
        for first, second in combinations(range(len(names)), 2):
            led = [leaders[place] for place in (first, second)]
            if led == [None, None] or led[0] == names[second] or led[1] == names[first]:
                found.append((first, second))
        return tuple(found)

    @cached_property
    def ordered(self) -> dict[int, int]:
        """By the place of each column whose cells have an order: how many they are. Those of missing values have
        none."""
        return {
            place: size - _has_missing(column)
            for place, (column, size) in enumerate(zip(self.columns, self.sizes))
            if not isinstance(column, Categorical | Classes)
        }

    def edges(self, place: int) -> NDArray[np.float64] | None:
        """Where the cells of a number, or a date in its steps, begin, and where the last one ends; None for others."""
        column = self.columns[place]
        return None if isinstance(column, Categorical | Classes | Ordinal) else _edges(column, self._bins(column))

    def labels(self, place: int) -> tuple[str, ...]:
        """A name for each cell of a column."""
        column, size = self.columns[place], self.sizes[place]
        missing = ("(missing)",) if _has_missing(column) else ()
        if isinstance(column, Categorical | Classes):
            other = (OTHER,) if isinstance(column, Categorical) and column.other else ()
            return (*column.values, *other, *missing)[:size]
        if isinstance(column, Ordinal):
            begins = (0, *column.cuts, len(column.values))
            spans = [column.values[a:b] for a, b in pairwise(begins)]
            return (*(one[0] if len(one) == 1 else f"{one[0]} to {one[-1]}" for one in spans), *missing)
        edges = _edges(column, self._bins(column))
        if isinstance(column, Date):
            none = np.zeros(len(edges) - 1, np.bool_)
            days = [str(day)[:10] for day in days_of(replace(column, format=None), edges[:-1], none)]
            return (*(f"from {day}" for day in days), *missing)
        # Of whole numbers the last one of a cell, not the first of the next.
        last = 1 if isinstance(column, Numeric) and column.integer else 0
        return (*(f"{low:.6g} to {high - last:.6g}" for low, high in pairwise(edges)), *missing)

    def of(self, table: Table, where: str = "the data", tally: Tally | None = None) -> Places:
        """The cell of each record in each column, (n, columns). Values that the schema does not allow are refused, or
        clipped, filled or mapped as it says."""
        tally = Tally.start(len(table)) if tally is None else tally
        found = [
            _places(column, column_of(table, column.name, where), self._bins(column), where, tally)
            for column in self.columns
        ]
        return np.stack(found, axis=1) if found else np.zeros((len(table), 0), np.int64)

    def draw(self, places: Places, stream: Stream) -> pd.DataFrame:
        """Records in these cells, uniform inside each: a table that the schema reads as it read the first one. Numbers
        are whole where the schema says so, dates are days, missing cells are missing values."""
        return self._made(places, lambda count: stream.uniform(count))

    def middle(self, places: Places) -> pd.DataFrame:
        """The same with the value in the middle of each cell: always the same record for the same cells."""
        return self._made(places, lambda count: np.full(count, 0.5))

    def _made(self, places: Places, share: Any) -> pd.DataFrame:
        import pandas as pd

        places = np.asarray(places, np.int64)
        if places.shape[1:] != (len(self.sizes),) or (places < 0).any() or (places >= np.array(self.sizes)).any():
            raise ValueError(f"cells are rows of whole numbers below {self.sizes}, found shape {places.shape}")
        made = {
            column.name: _values(column, places[:, at], share(len(places)), self._bins(column))
            for at, column in enumerate(self.columns)
        }
        return pd.DataFrame(made, columns=list(self.names))


def _edges(column: Numeric | Bounded | Date, bins: int) -> NDArray[np.float64]:
    """Where cells begin, on the column's scale of numbers, and where the last one ends."""
    if isinstance(column, Date):
        # A step is whole: the last cell ends after the last of them.
        count = min(bins if column.bins is None else column.bins, column.steps + 1)
        return np.unique(np.floor(np.arange(count + 1) * (column.steps + 1) / count))
    if isinstance(column, Bounded):
        return np.linspace(column.low, column.high, bins + 1)
    cuts = column.cuts if column.cuts is not None else column.equal_cuts(bins)
    return np.array([column.low, *cuts, column.high + (1 if column.integer else 0)])


def _has_missing(column: Column | Target) -> bool:
    return not isinstance(column, Classes | Bounded) and column.missing == "cell"


def _size(column: Column | Target, bins: int) -> int:
    if isinstance(column, Categorical):
        return column.width
    if isinstance(column, Classes):
        return len(column.values)
    if isinstance(column, Ordinal):
        return len(column.cuts) + 1 + _has_missing(column)
    return len(_edges(column, bins)) - 1 + _has_missing(column)


def _places(column: Column | Target, series: pd.Series, bins: int, where: str, tally: Tally) -> Places:
    if isinstance(column, Categorical | Classes):
        return categories(column, series, where, tally)
    last = _size(column, bins) - 1
    if isinstance(column, Ordinal):
        codes = categories(column, series, where, tally)
        return np.where(codes < 0, last, np.searchsorted(column.cuts, codes, side="right")).astype(np.int64)
    values = dates(column, series, where, tally) if isinstance(column, Date) else numbers(column, series, where, tally)
    inner = _edges(column, bins)[1:-1]
    return np.where(np.isnan(values), last, np.searchsorted(inner, values, side="right")).astype(np.int64)


def _values(column: Column | Target, places: Places, share: NDArray[np.float64], bins: int) -> Any:
    """A value of each cell, `share` of the way through it."""
    import pandas as pd

    missing = places == _size(column, bins) - 1 if _has_missing(column) else np.zeros(len(places), np.bool_)
    if isinstance(column, Categorical | Classes):
        texts = np.array([*column.values, OTHER, None], object)
        return texts[np.where(missing, len(texts) - 1, places)]
    if isinstance(column, Ordinal):
        begins = np.array([0, *column.cuts, len(column.values)])
        cell = np.where(missing, 0, places)
        at = begins[cell] + np.floor(share * (begins[cell + 1] - begins[cell])).astype(np.int64)
        return np.array([*column.values, None], object)[np.where(missing, len(column.values), at)]
    edges, cell = _edges(column, bins), np.where(missing, 0, places)
    low, high = edges[cell], edges[cell + 1]
    if isinstance(column, Date):
        return days_of(column, np.floor(low + share * (high - low)), missing)
    if isinstance(column, Numeric) and column.integer:
        # Whole numbers from the first in the cell to the last before the next.
        first, after = np.ceil(low), np.maximum(np.ceil(high), np.ceil(low) + 1)
        whole = np.clip(first + np.floor(share * (after - first)), column.low, column.high)
        made = pd.array(whole.astype(np.int64), "Int64")
        made[missing] = pd.NA
        return made if missing.any() else whole.astype(np.int64)
    if isinstance(column, Numeric):
        start, stop = column.on_scale(low), column.on_scale(high)
        between = column.off_scale(start + share * (stop - start))
    else:
        between = low + share * (high - low)
    # A cell does not hold the edge at which the next begins, and rounding does not lead out of it.
    inside = np.clip(between, low, np.where(high < column.high, np.nextafter(high, low), high))
    return np.where(missing, np.nan, inside)


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


def decoded(encoding: Encoding, rows: NDArray[np.float64], labels: NDArray[Any] | None = None) -> pd.DataFrame:
    """The records of which these are the rows, as far as encoding kept them: numbers as they were clipped and filled,
    days as the first of their step, categories outside of the schema as `OTHER`. For rows that were not rescaled."""
    import pandas as pd

    if encoding.rows != "none" or encoding.bins:
        raise SchemaError("rows that were rescaled or cut into bins can't be read back as records", key="rows")
    rows = np.asarray(rows, np.float64)
    made: dict[str, Any] = {}
    for column, group in zip(encoding.schema.columns, encoding.bounds.groups):
        made[column.name] = _decoded_values(column, rows[:, group.start : group.stop], encoding)
    target = encoding.schema.target
    if target is not None and labels is not None:
        if isinstance(target, Classes):
            made[target.name] = np.asarray(target.values, object)[np.asarray(labels, np.int64)]
        else:
            made[target.name] = np.asarray(labels, np.float64)
    return pd.DataFrame(made)


def _decoded_values(column: Column, part: NDArray[np.float64], encoding: Encoding) -> Any:
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
