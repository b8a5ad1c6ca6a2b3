"""Records as rows of numbers and back, by rules that come from the schema alone, with the norm bounds that
sensitivities use.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil, floor, inf, nextafter, sqrt
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from comity.compiled import compiled_or
from comity.data.records import Records
from comity.data.row_products import in_blocks, row_norms
from comity.data.schemas.columns import OTHER_NAME, Categorical, Classes, Column, Date, Numeric, Ordinal
from comity.data.schemas.conforming import Tally, conform_categories, conform_dates, conform_numbers, name_first
from comity.data.schemas.reading import read_ids
from comity.data.schemas.schema import Schema
from comity.data.tables.table import column_of
from comity.errors import DataError, SchemaError, did_you_mean
from comity.representation import html_fields, short_repr

if TYPE_CHECKING:
    import pandas as pd

    from comity.data.tables.table import Table


def _scale_in_numpy(
    values: NDArray[np.float64],
    out: NDArray[np.float64],
    low: float,
    length: float,
    middle: float,
    root: float,
) -> None:
    out[:] = ((values - low) / length - middle) / root


@compiled_or(_scale_in_numpy)
def scale_column(
    values: NDArray[np.float64],
    out: NDArray[np.float64],
    low: float,
    length: float,
    middle: float,
    root: float,
) -> None:
    """Write ((x − low)/length − middle)/root for every x of `values`. Each operation is rounded by itself, as in numpy:
    a block has the same bits as the whole."""
    for i in range(values.shape[0]):
        out[i] = ((values[i] - low) / length - middle) / root


Scaling = Literal["symmetric", "unit"]
Rows = Literal["none", "scaled", "clipped", "normalised"]

_ULP = 2.0**-53


@dataclass(frozen=True)
class Group:
    """The entries start … stop − 1 of an encoded row, which one column fills; at most one is not zero."""

    column: str
    start: int
    stop: int
    one_hot: bool
    least: float
    """The smallest magnitude of the group's entry before rows are rescaled (1 for one-hot)."""


@dataclass(frozen=True)
class NormBounds:
    """Bounds on the L1, L2 and largest-entry norm of every row that an encoding can produce.

    Write G for the number of groups: one per column, and one for the intercept.

    * rows "none": a group has one entry that is not zero, of magnitude <= 1. A scaled number x in [low,
      high] has (x − low)/(high − low) in [0, 1], also after rounding, because subtraction and division
      round monotonically; a one-hot group holds a single 1. So L1 <= G, L2 <= sqrt(G), and no entry exceeds
      1. The record with every number at its high bound attains all three.
    * rows "scaled": the same divided by sqrt(G): sqrt(G), 1, 1/sqrt(G).
    * rows "clipped" and "normalised": L2 <= 1. At most G entries are not zero, so L1 <= sqrt(G) by
      Cauchy–Schwarz, with equality when all numbers are at their high bound. An entry e beside entries of
      squared norm r becomes e/max(1, sqrt(e² + r)), or e/sqrt(e² + r): rising in |e|, falling in r. It is
      largest at |e| = 1 with every other group at its least magnitude m_h: 1/sqrt(1 + Σ m_h²) over the
      other groups, and the worst group is the one with the largest m.

    The bounds hold for the numbers as stored, in exact arithmetic: divisors are rounded up by more than the
    error of computing them, bounds that are no exact float are rounded up.
    """

    l1: float
    l2: float
    linf: float
    groups: tuple[Group, ...]


@dataclass(frozen=True)
class Encoded:
    """Encoded records, and the tally of what the schema changed in them. The tally stays with the owner."""

    __repr__ = short_repr

    records: Records
    tally: Tally


@dataclass(frozen=True, eq=False)
class Values:
    """Conforming values of `count` records, one array for each column of the schema."""

    __repr__ = short_repr

    count: int
    values: tuple[NDArray[Any], ...]

    def __getitem__(self, part: slice) -> Values:
        start, stop, _ = part.indices(self.count)
        return Values(stop - start, tuple(values[start:stop] for values in self.values))


@dataclass(frozen=True, eq=False)
class Conformed:
    """Records as the schema allows them, before features are scaled. The tally stays with the owner."""

    __repr__ = short_repr

    columns: Values
    labels: NDArray[np.int64] | NDArray[np.float64] | None
    ids: NDArray[np.object_] | None
    tally: Tally


@dataclass(frozen=True)
class Encoding:
    """How records become rows: one-hot categories, numbers on [-1, 1] ("symmetric") or [0, 1] ("unit").

        encoding = comity.Encoding(schema, scaling="symmetric", rows="clipped")
        rows = encoding.encode_features(frame)

    `rows` says how whole rows are rescaled: "none"; "scaled" divides all rows by the one public bound on their L2 norm;
    "clipped" projects each row onto the unit ball; "normalised" sets each to norm 1 (the zero row stays zero).
    `intercept` adds a last entry of 1 before rows are rescaled: it counts in the norm. `bins` turns numeric columns
    that declare edges or bins into one-hot bins. A column whose missing values are a cell has a last entry for them,
    which is 1 where its others are 0. Nothing is learned from data: equal schemas give equal encodings.
    """

    __repr__ = short_repr
    _repr_html_ = html_fields

    schema: Schema
    scaling: Scaling = field(default="symmetric", kw_only=True)
    rows: Rows = field(default="none", kw_only=True)
    intercept: bool = field(default=False, kw_only=True)
    bins: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        for key, known in (("scaling", get_args(Scaling)), ("rows", get_args(Rows))):
            value = getattr(self, key)
            if value not in known:
                raise SchemaError(f"encoding.{key}: unknown value {value!r}{did_you_mean(str(value), known)}", key=key)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """A name for each entry of a row: `age`, `sex=f`, `sex=(other)`, `age<40`, `(intercept)`."""
        names = tuple(name for column in self.schema.columns for name in self._column_names(column))
        return (*names, "(intercept)") if self.intercept else names

    @property
    def width(self) -> int:
        return len(self.names)

    @property
    def constant(self) -> float | None:
        """The intercept's entry if it is the same in every row. None without an intercept, and where each row is
        rescaled by its length."""
        if not self.intercept or self.rows in ("clipped", "normalised"):
            return None
        return 1.0 / self._divisor if self.rows == "scaled" else 1.0

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns of a source that encoding reads: features, target and identifier."""
        return self.schema.read_names

    @cached_property
    def bounds(self) -> NormBounds:
        groups = tuple(self._groups())
        count = len(groups)
        if count == 0:
            return NormBounds(0.0, 0.0, 0.0, ())
        root = _root_up(count)
        if self.rows == "none":
            return NormBounds(float(count), root, 1.0, groups)
        if self.rows == "scaled":
            return NormBounds(root, 1.0, min(1.0, nextafter(1 / sqrt(count), inf)), groups)
        squares = sorted(group.least**2 for group in groups)
        linf = min(1.0, nextafter(1 / sqrt(1 + sum(squares[:-1])), inf))
        return NormBounds(root, 1.0, linf, groups)

    def encode(self, frame: Table, where: str = "the data") -> Encoded:
        """Features, labels and identifiers of every record; `where` names the data in errors.

        Errors are for the owner's terminal. Others may see the code and key of one.
        """
        conformed = self.conform(frame, where)
        rows = self.rows_of(conformed.columns)
        return Encoded(Records(rows, conformed.labels, conformed.ids), conformed.tally)

    def encode_features(self, frame: pd.DataFrame, where: str = "the data") -> NDArray[np.float64]:
        """Feature rows only, for prediction; the frame needs no target and no identifier."""
        return self.rows_of(self._columns(frame, where, Tally.start(len(frame))))

    def conform(self, frame: Table, where: str = "the data", *, first: int = 0) -> Conformed:
        """The first half of `encode`: every value as the schema allows it, or an error that refuses it. A frame may be
        a piece of a longer source: `first` is the number of records before it."""
        tally = Tally.start(len(frame), first)
        columns = self._columns(frame, where, tally)
        labels = self._labels(frame, where, tally)
        ids: NDArray[np.object_] | None = None
        if self.schema.identifier is not None:
            name = self.schema.identifier
            ids, missing = read_ids(column_of(frame, name, where))
            if missing.any():
                raise DataError(
                    f"{where}: column {name!r} identifies records and has no value in "
                    f"{name_first(missing, tally)}; give every record an identifier, or remove [identifier] "
                    "from the schema.",
                    key=name,
                )
        return Conformed(columns, labels, ids, tally)

    def decode(self, rows: NDArray[np.float64], labels: NDArray[Any] | None = None) -> pd.DataFrame:
        """The records of these rows, as far as encoding kept them: numbers are clipped and filled, days are the first
        of their step, undeclared categories are `OTHER_NAME`. Rows must not be rescaled or in bins."""
        import pandas as pd

        if self.rows != "none" or self.bins:
            raise SchemaError("rows that were rescaled or cut into bins can't be read back as records", key="rows")
        rows = np.asarray(rows, np.float64)
        table: dict[str, Any] = {
            column.name: self._decode_column(column, rows[:, group.start : group.stop])
            for column, group in zip(self.schema.columns, self.bounds.groups)
        }
        target = self.schema.target
        if target is not None and labels is not None:
            table[target.name] = (
                np.asarray(target.values, object)[np.asarray(labels, np.int64)]
                if isinstance(target, Classes)
                else np.asarray(labels, np.float64)
            )
        return pd.DataFrame(table)

    def _decode_column(self, column: Column, part: NDArray[np.float64]) -> Any:
        if isinstance(column, Categorical):
            names = np.array([*column.values, *([OTHER_NAME] if column.other else []), None], object)
            return names[part.argmax(axis=1)]
        share = part[:, 0] if self.scaling == "unit" else (part[:, 0] + 1) / 2
        missing = part[:, 1] > 0.5 if part.shape[1] == 2 else np.zeros(len(part), bool)
        if isinstance(column, Ordinal):
            places = np.rint(share * (len(column.values) - 1)).astype(np.int64)
            values = np.asarray(column.values, object)[np.clip(places, 0, len(column.values) - 1)]
            values[missing] = None
            return values
        if isinstance(column, Date):
            return column.days_after(np.rint(share * column.steps), missing)
        first, last = column.on_scale(np.array([column.low, column.high]))
        numbers = column.off_scale(first + share * (last - first))
        # Scaling and back is off by a few bits: as many digits as a double surely keeps.
        numbers = np.array([float(f"{number:.12g}") for number in numbers])
        numbers = np.clip(np.rint(numbers) if column.integer else numbers, column.low, column.high)
        if missing.any():
            return np.where(missing, np.nan, numbers)
        return numbers.astype(np.int64) if column.integer else numbers

    def rows_of(self, columns: Values) -> NDArray[np.float64]:
        """The second half of `encode`: rows (n, width) of conforming values, scaled."""
        rows = np.zeros((columns.count, self.width))
        for values, column, group in zip(columns.values, self.schema.columns, self.bounds.groups):
            self._fill(rows[:, group.start : group.stop], column, group, values)
        if self.intercept:
            rows[:, -1] = 1.0
        return self._rescale(rows)

    def write_rows(self, columns: Values, out: NDArray[np.float64]) -> NDArray[np.float64]:
        """`rows_of` to the last bit, written to `out`, whose columns are contiguous in memory: one pass scales a
        column, and its rows by their one public bound."""
        root = self.divisor
        for values, column, group in zip(columns.values, self.schema.columns, self.bounds.groups):
            part = out[:, group.start : group.stop]
            if isinstance(column, Numeric) and column.scale == "linear" and not group.one_hot:
                symmetric, length = self.scaling == "symmetric", column.high - column.low
                scale_column(
                    values, out[:, group.start], column.low, length / (1 + symmetric), 1.0 if symmetric else 0.0, root
                )
                if group.stop == group.start + 2:
                    missing = np.isnan(values)
                    part[:, 0][missing] = 0.0
                    part[:, 1] = missing / root
            else:
                part[:] = 0.0
                self._fill(part, column, group, values)
                part /= root
        if self.intercept:
            out[:, -1] = 1.0 / root
        return out if self.rows == "scaled" else self._rescale(out)

    def _fill(self, rows: NDArray[np.float64], column: Column, group: Group, values: NDArray[Any]) -> None:
        """Write the entries of one column into `rows`, which are zero, before rows are rescaled."""
        if group.one_hot:
            rows[np.arange(len(rows)), values] = 1.0
            return
        # A contiguous array: in place it would take several slow passes.
        scaled = np.empty(len(rows))
        self._scale(column, values, scaled)
        if group.stop == group.start + 2:
            missing = values < 0 if isinstance(column, Ordinal) else np.isnan(values)
            rows[:, 1] = missing
            scaled[missing] = 0.0
        rows[:, 0] = scaled

    def _columns(self, frame: Table, where: str, tally: Tally) -> Values:
        """Positions within one-hot groups, and numbers that are not scaled yet."""
        values: list[NDArray[Any]] = []
        for column, group in zip(self.schema.columns, self.bounds.groups):
            if isinstance(column, Numeric):
                numbers = conform_numbers(column, frame, where, tally)
                values.append(_bins(column, numbers) if group.one_hot else numbers)
            elif isinstance(column, Date):
                values.append(conform_dates(column, frame, where, tally))
            else:
                values.append(conform_categories(column, frame, where, tally))
        return Values(len(frame), tuple(values))

    def _scale(self, column: Column, values: NDArray[Any], out: NDArray[np.float64]) -> None:
        """Write the scaled numbers of a column into `out`."""
        if isinstance(column, Numeric) and column.scale == "log":
            first, last = column.on_scale(np.array([column.low, column.high]))
            # Logarithms are not known to round monotonically.
            np.clip(column.on_scale(values) - first, 0.0, last - first, out=out)
            length = float(last - first)
        elif isinstance(column, Numeric):
            np.subtract(values, column.low, out=out)
            length = column.high - column.low
        else:
            out[:] = values
            length = float(column.steps) if isinstance(column, Date) else len(column.values) - 1.0
        if self.scaling == "unit":
            out /= length
        else:
            # Twice the quotient by the length, to the last bit: halving and doubling round nothing.
            out /= length / 2
            out -= 1

    @property
    def divisor(self) -> float:
        """What every entry of every row is divided by: 1, unless rows are "scaled"."""
        return self._divisor if self.rows == "scaled" else 1.0

    @property
    def _margin(self) -> float:
        """The factor by which computed norms are rounded up. A norm of G entries is computed within G + 4 ulps; a
        single entry is its norm, without rounding."""
        count = len(self.bounds.groups)
        return 1 + (count + 8) * _ULP if count > 1 else 1.0

    @property
    def _divisor(self) -> float:
        """The divisor of "scaled" rows: the bound on their norm, rounded up."""
        return sqrt(len(self.bounds.groups)) * self._margin

    def _rescale(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.rows == "none" or not self.bounds.groups or len(rows) == 0:
            return rows
        if self.rows == "scaled":
            rows /= self._divisor
            return rows
        if self.rows == "normalised":
            # Dividing by the largest entry first keeps the squares of tiny entries from vanishing.
            peak = np.abs(rows).max(axis=1, keepdims=True)
            rows /= np.where(peak > 0, peak, 1.0)
        # Squares are added in an order that depends on the width only: blocks have the same bits as the whole.
        norms = in_blocks(lambda block: row_norms(block)[:, None], rows, 1)[:, 0] * self._margin
        rows /= np.where(norms > (1.0 if self.rows == "clipped" else 0.0), norms, 1.0)[:, None]
        return rows

    def _labels(self, frame: Table, where: str, tally: Tally) -> NDArray[np.int64] | NDArray[np.float64] | None:
        target = self.schema.target
        if target is None:
            return None
        if isinstance(target, Classes):
            return conform_categories(target, frame, where, tally)
        return conform_numbers(target, frame, where, tally)

    def _column_names(self, column: Column) -> tuple[str, ...]:
        missing = (f"{column.name}=(missing)",) if column.missing == "cell" else ()
        if isinstance(column, Categorical):
            values = (*column.values, *((OTHER_NAME,) * column.other))
            return (*(f"{column.name}={value}" for value in values), *missing)
        if isinstance(column, Numeric) and self.bins and column.cuts is not None:
            inner = (f"{low:g}<={column.name}<{high:g}" for low, high in zip(column.cuts, column.cuts[1:]))
            return (f"{column.name}<{column.cuts[0]:g}", *inner, f"{column.cuts[-1]:g}<={column.name}", *missing)
        return (column.name, *missing)

    def _groups(self) -> Iterator[Group]:
        start = 0
        for column in self.schema.columns:
            one_hot = isinstance(column, Categorical) or (
                isinstance(column, Numeric) and self.bins and column.cuts is not None
            )
            stop = start + len(self._column_names(column))
            yield Group(column.name, start, stop, one_hot, 1.0 if one_hot else self._least_magnitude(column))
            start = stop
        if self.intercept:
            yield Group("(intercept)", start, start + 1, True, 1.0)

    def _least_magnitude(self, column: Column) -> float:
        """The smallest magnitude on the scale: 0, unless the middle of a symmetric scale lies between two values."""
        if self.scaling == "unit" or (isinstance(column, Numeric) and column.scale == "log"):
            return 0.0
        if isinstance(column, Ordinal):
            return 0.0 if len(column.values) % 2 else 1 / (len(column.values) - 1)
        if isinstance(column, Numeric) and column.integer:
            middle = (column.low + column.high) / 2
            nearest_whole = min(middle - floor(middle), ceil(middle) - middle)
            return 2 * nearest_whole / (column.high - column.low)
        if isinstance(column, Date):
            # Steps are whole: with an odd number of them none is the middle.
            return 1 / column.steps if column.steps % 2 else 0.0
        return 0.0


def _bins(column: Numeric, values: NDArray[np.float64]) -> NDArray[np.int64]:
    """The position of each record within a one-hot group of bins; missing values are after the last."""
    cuts = np.asarray(column.cuts)
    positions = np.searchsorted(cuts, values, side="right")
    return np.where(np.isnan(values), len(cuts) + 1, positions).astype(np.int64)


def _root_up(count: int) -> float:
    root = sqrt(count)
    return root if root.is_integer() else nextafter(root, inf)
