"""Cells: every record as one whole number for each column, by the schema alone, and back.

Methods count cells under a guarantee. Cells come from public bounds, edges and categories: parties with equal schemas
have equal cells, and a cell without records is not left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from comity.data.encoding import Encoding, Values
from comity.data.schemas.columns import (
    OTHER_NAME,
    Bounded,
    Categorical,
    Classes,
    Column,
    Date,
    Numeric,
    Ordinal,
    Target,
)
from comity.data.schemas.conforming import Tally, conform_categories, conform_dates, conform_numbers
from comity.data.schemas.impossible import MISSING_NAME, Impossible, covers, cuts_of
from comity.data.schemas.schema import Schema
from comity.entropy import Stream

if TYPE_CHECKING:
    import pandas as pd

    from comity.data.tables.table import Table

Places = NDArray[np.int64]

BINS = 8
"""Cells of a number or a date without bins or edges in the schema. Not tuned on data."""


# Cells (by column) that never come together in one record.
CellRule = tuple[tuple[int, tuple[int, ...]], ...]


@dataclass(frozen=True)
class Division:
    """How a column is divided where the schema does not say: the number of bins, and further `cuts`."""

    bins: int
    cuts: tuple[float, ...] = ()


@dataclass(frozen=True)
class Cells:
    """The features of a schema in order, then its target, each divided into cells. Where missing values are a cell, it
    is the column's last. Cells also begin where a rule of `impossible` begins or ends, so each cell lies inside the
    rule's values or outside."""

    schema: Schema
    bins: int = BINS
    buckets: int | None = None
    """Cells of a numeric target; by default as many as columns have."""
    rules: tuple[Impossible, ...] | None = None
    """The rules that divide columns; by default those of the schema. A party that holds some of the columns needs all
    rules of the whole schema, to have the same cells as the others."""

    def _division(self, column: Column | Target) -> Division:
        bins = self.buckets if isinstance(column, Bounded) and self.buckets is not None else self.bins
        rules = self.schema.impossible if self.rules is None else self.rules
        cuts = {
            cut
            for rule in rules
            for name, entries in rule.conditions
            if name == column.name
            for cut in cuts_of(column, entries)
        }
        return Division(bins, tuple(sorted(cuts)))

    @property
    def columns(self) -> tuple[Column | Target, ...]:
        return (*self.schema.columns, *(() if self.schema.target is None else (self.schema.target,)))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """How many cells each column has."""
        return tuple(_size(column, self._division(column)) for column in self.columns)

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """The two-way tables to count: every pair of columns. A column that follows another is paired with that one
        only, because the other tables follow from it. One table less is a block less in `Counts`."""
        names, pairs = self.names, []
        leaders = {place: getattr(column, "follows", None) for place, column in enumerate(self.columns)}
        for first, second in combinations(range(len(names)), 2):
            led = [leaders[place] for place in (first, second)]
            if led == [None, None] or led[0] == names[second] or led[1] == names[first]:
                pairs.append((first, second))
        return tuple(pairs)

    @cached_property
    def ordered(self) -> dict[int, int]:
        """The number of ordered cells of each column that has an order, by the column's place. The cell of missing
        values is not among them."""
        return {
            place: size - _has_missing(column)
            for place, (column, size) in enumerate(zip(self.columns, self.sizes))
            if not isinstance(column, Categorical | Classes)
        }

    @cached_property
    def impossible(self) -> tuple[CellRule, ...]:
        """For each rule of the schema, the cells of each of its columns. A record is impossible if all of its cells in
        these columns are among them."""
        places = {name: place for place, name in enumerate(self.names)}
        return tuple(
            tuple((places[name], self._cells_in(places[name], set(entries))) for name, entries in rule.conditions)
            for rule in self.schema.impossible
        )

    def _cells_in(self, place: int, entries: set[Any]) -> tuple[int, ...]:
        column, size = self.columns[place], self.sizes[place]
        missing = (size - 1,) if _has_missing(column) and MISSING_NAME in entries else ()
        if isinstance(column, Categorical | Classes):
            return (
                *(cell for cell, name in enumerate(self.labels(place)) if name in entries - {MISSING_NAME}),
                *missing,
            )
        division = self._division(column)
        begins: Any = (
            (0, *_ordinal_cuts(column, division))
            if isinstance(column, Ordinal)
            else _edges(column, division)[:-1].tolist()
        )
        return (*(cell for cell, begin in enumerate(begins) if covers(column, tuple(entries), begin)), *missing)

    def is_impossible(self, places: Places) -> NDArray[np.bool_]:
        """Whether each record, given as cells (n, columns), is one that the schema declares impossible."""
        found = np.zeros(len(places), np.bool_)
        for rule in self.impossible:
            found |= np.logical_and.reduce([np.isin(places[:, column], cells) for column, cells in rule])
        return found

    def edges(self, place: int) -> NDArray[np.float64] | None:
        """The edges of the cells of a number, or of a date in its steps, with both ends; None for other columns."""
        column = self.columns[place]
        return None if isinstance(column, Categorical | Classes | Ordinal) else _edges(column, self._division(column))

    def labels(self, place: int) -> tuple[str, ...]:
        """A name for each cell of a column."""
        column, size = self.columns[place], self.sizes[place]
        missing = ("(missing)",) if _has_missing(column) else ()
        if isinstance(column, Categorical | Classes):
            other = (OTHER_NAME,) if isinstance(column, Categorical) and column.other else ()
            return (*column.values, *other, *missing)[:size]
        if isinstance(column, Ordinal):
            begins = (0, *_ordinal_cuts(column, self._division(column)), len(column.values))
            spans = [column.values[a:b] for a, b in pairwise(begins)]
            return (*(one[0] if len(one) == 1 else f"{one[0]} to {one[-1]}" for one in spans), *missing)
        edges = _edges(column, self._division(column))
        if isinstance(column, Date):
            none = np.zeros(len(edges) - 1, np.bool_)
            days = [str(day)[:10] for day in replace(column, format=None).days_after(edges[:-1], none)]
            return (*(f"from {day}" for day in days), *missing)
        # A cell of whole numbers ends with its last one, not with the first of the next cell.
        last = 1 if isinstance(column, Numeric) and column.integer else 0
        return (*(f"{low:.6g} to {high - last:.6g}" for low, high in pairwise(edges)), *missing)

    def locate(self, table: Table, where: str = "the data", tally: Tally | None = None) -> Places:
        """The cell of each record in each column, (n, columns). Values that the schema does not allow are clipped,
        filled or mapped as it says, or refused."""
        tally = Tally.start(len(table)) if tally is None else tally
        places = [_locate(column, table, self._division(column), where, tally) for column in self.columns]
        return np.stack(places, axis=1) if places else np.zeros((len(table), 0), np.int64)

    def draw(self, places: Places, stream: Stream) -> pd.DataFrame:
        """Records drawn uniformly inside these cells: a table of the schema. Numbers are whole where the schema says
        so, dates are days, missing cells are missing values."""
        return self._to_frame(places, stream.uniform)

    def middle(self, places: Places) -> pd.DataFrame:
        """Records in the middle of these cells: always the same record for the same cells."""
        return self._to_frame(places, lambda count: np.full(count, 0.5))

    def _to_frame(self, places: Places, share: Callable[[int], NDArray[np.float64]]) -> pd.DataFrame:
        import pandas as pd

        places = np.asarray(places, np.int64)
        if places.shape[1:] != (len(self.sizes),) or (places < 0).any() or (places >= np.array(self.sizes)).any():
            raise ValueError(f"cells are rows of whole numbers below {self.sizes}, found shape {places.shape}")
        values = {
            column.name: _values(column, places[:, at], share(len(places)), self._division(column))
            for at, column in enumerate(self.columns)
        }
        return pd.DataFrame(values, columns=list(self.names))


def _edges(column: Numeric | Bounded | Date, division: Division) -> NDArray[np.float64]:
    """The edges of cells as numbers of the column, with both ends."""
    edges = _edges_without_rules(column, division.bins)
    return np.union1d(edges, division.cuts) if division.cuts else edges


def _edges_without_rules(column: Numeric | Bounded | Date, bins: int) -> NDArray[np.float64]:
    if isinstance(column, Date):
        # Steps are whole numbers: the last cell ends after the last step.
        count = min(bins if column.bins is None else column.bins, column.steps + 1)
        return np.unique(np.floor(np.arange(count + 1) * (column.steps + 1) / count))
    if isinstance(column, Bounded):
        return np.linspace(column.low, column.high, bins + 1)
    cuts = column.cuts if column.cuts is not None else column.equal_cuts(bins)
    return np.array([column.low, *cuts, column.high + (1 if column.integer else 0)])


def _ordinal_cuts(column: Ordinal, division: Division) -> tuple[int, ...]:
    return tuple(sorted({*column.cuts, *map(int, division.cuts)}))


def _has_missing(column: Column | Target) -> bool:
    return not isinstance(column, Classes | Bounded) and column.missing == "cell"


def _size(column: Column | Target, division: Division) -> int:
    if isinstance(column, Categorical):
        return column.width
    if isinstance(column, Classes):
        return len(column.values)
    if isinstance(column, Ordinal):
        return len(_ordinal_cuts(column, division)) + 1 + _has_missing(column)
    return len(_edges(column, division)) - 1 + _has_missing(column)


def _locate(column: Column | Target, table: Table, division: Division, where: str, tally: Tally) -> Places:
    if isinstance(column, Categorical | Classes):
        return conform_categories(column, table, where, tally)
    last = _size(column, division) - 1
    if isinstance(column, Ordinal):
        codes = conform_categories(column, table, where, tally)
        return np.where(codes < 0, last, np.searchsorted(_ordinal_cuts(column, division), codes, side="right")).astype(
            np.int64
        )
    if isinstance(column, Date):
        values = conform_dates(column, table, where, tally)
    else:
        values = conform_numbers(column, table, where, tally)
    inner = _edges(column, division)[1:-1]
    return np.where(np.isnan(values), last, np.searchsorted(inner, values, side="right")).astype(np.int64)


def _values(column: Column | Target, places: Places, share: NDArray[np.float64], division: Division) -> Any:
    """A value of each cell, `share` of the way through it."""
    import pandas as pd

    missing = places == _size(column, division) - 1 if _has_missing(column) else np.zeros(len(places), np.bool_)
    if isinstance(column, Categorical | Classes):
        texts = np.array([*column.values, OTHER_NAME, None], object)
        return texts[np.where(missing, len(texts) - 1, places)]
    if isinstance(column, Ordinal):
        begins = np.array([0, *_ordinal_cuts(column, division), len(column.values)])
        cell = np.where(missing, 0, places)
        at = begins[cell] + np.floor(share * (begins[cell + 1] - begins[cell])).astype(np.int64)
        return np.array([*column.values, None], object)[np.where(missing, len(column.values), at)]
    edges, cell = _edges(column, division), np.where(missing, 0, places)
    low, high = edges[cell], edges[cell + 1]
    if isinstance(column, Date):
        return column.days_after(np.floor(low + share * (high - low)), missing)
    if isinstance(column, Numeric) and column.integer:
        # Whole numbers from the first in the cell to the last before the next cell.
        first, after = np.ceil(low), np.maximum(np.ceil(high), np.ceil(low) + 1)
        whole = np.clip(first + np.floor(share * (after - first)), column.low, column.high)
        if not missing.any():
            return whole.astype(np.int64)
        gapped = pd.array(whole.astype(np.int64), "Int64")
        gapped[missing] = pd.NA
        return gapped
    if isinstance(column, Numeric):
        start, stop = column.on_scale(low), column.on_scale(high)
        between = column.off_scale(start + share * (stop - start))
    else:
        between = low + share * (high - low)
    # The edge belongs to the next cell, and rounding must not lead there.
    inside = np.clip(between, low, np.where(high < column.high, np.nextafter(high, low), high))
    return np.where(missing, np.nan, inside)


@dataclass(frozen=True)
class CellEncoding(Encoding):
    """One entry for each column, the target last: the number of the record's cell (`Cells`).

    Labels are separate, as in any encoding. `cut` and `buckets` are the numbers of cells of a number, and of a numeric
    target, without bins or edges in the schema. `rules` divide cells further (`Cells`).
    """

    cut: int = field(default=BINS, kw_only=True)
    buckets: int | None = field(default=None, kw_only=True)
    rules: tuple[Impossible, ...] | None = field(default=None, kw_only=True)

    @cached_property
    def cells(self) -> Cells:
        return Cells(self.schema, self.cut, self.buckets, self.rules)

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
        return Values(len(frame), tuple(self.cells.locate(frame, where, tally).T))

    def _labels(self, frame: Table, where: str, tally: Tally) -> NDArray[Any] | None:
        # The target's cell counted already what the schema changed in it.
        return super()._labels(frame, where, Tally.start(len(frame), tally.first))
