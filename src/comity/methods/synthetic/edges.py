"""Cells of numbers for which the schema has bounds and nothing else: measured with a small part of the loss.

Eight cells of equal length put a long-tailed number into one of them. So each such number is first counted by itself in
many narrow public cells, with noise. From the opened counts everyone computes the same edges, rather round figures,
between which about equally many records lie, and owners then count pairs in these cells. A row's value inside its cell
is drawn by the opened narrow counts.

Records are encoded in narrow cells, so no owner reads its data again. The number of wide cells is public: the form of
the second release does not depend on the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from math import ceil, floor, inf, log10, sqrt

import numpy as np
from numpy.typing import NDArray

from comity.data import CellEncoding, Cells, Numeric, Schema
from comity.data.schemas.impossible import cuts_of
from comity.entropy import Stream
from comity.methods.synthetic.consistency import project_onto_simplex
from comity.methods.synthetic.counts import BUCKETS, Layout
from comity.representation import short_repr

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Edges = Mapping[str, tuple[float, ...]]

# The most narrow cells of equal length, cells of a measured number, and what an edge at a round figure is worth, as a
# part of the entropy that a cell brings to its column. People divide numbers, and compare datasets, at round figures,
# and inside a cell a number does not know the other columns. Chosen by three-way distances on training rows of Adult
# and credit defaults and on tax units (`python -m experiments choose synthetic`). Without Adult or tax units the choice
# is the same. Without credit defaults there would be 10 cells, at no round figures: Adult and tax units do not tell,
# and credit defaults would be .023 further, of .094.
NARROW = 128
MEASURED_BINS = 9
ROUNDNESS = 0.15
# The figures of a magnitude at which narrow cells begin. Set by hand while looking at the same tables.
_DIGITS = (1.0, 1.2, 1.5, 1.8, 2.0, 2.5, 3.0, 4.0, 5.0, 7.0)
# The part of the loss that measures edges. Of 0.05, 0.1 and 0.2 the one with the least three-way distances on the same
# datasets, and with credit defaults or tax units left out.
MEASURING_SHARE = Decimal("0.1")
# Above it, noise covers where the records are: the deviation of a column's counts over all its narrow cells, as a share
# of the records. Not tuned on data.
MAX_EDGE_NOISE = 0.2
# Narrow counts stand out of the noise above so many deviations. Set by hand on the same datasets; none was left out.
_STANDS_OUT = 2.0
_MAX_COUNT = 2.0**40
_LOG2_E = 1.4426950408889634


@dataclass(frozen=True)
class Measuring:
    """The numbers of a schema that have neither bins nor edges, in `cells` cells each. Cells of others are those of
    `bins`."""

    schema: Schema
    bins: int
    cells: int

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(
            name
            for name, cuts in self._narrow_cuts.items()
            if len(set(cuts) - self._rule_cuts(name)) >= max(self.cells, self.bins)
        )

    @cached_property
    def _narrow_cuts(self) -> dict[str, tuple[float, ...]]:
        return {
            column.name: _narrow_cuts(column, self.bins)
            for column in self.schema.columns
            if isinstance(column, Numeric) and column.cuts is None
        }

    @cached_property
    def narrow(self) -> Cells:
        """The narrow cells of these columns and the cells of all others."""
        return self.encoding.cells

    @cached_property
    def encoding(self) -> CellEncoding:
        return CellEncoding(self.with_edges(self._narrow_cuts), cut=self.bins, buckets=BUCKETS)

    def with_edges(self, edges: Edges) -> Schema:
        """The schema with these edges of the measured columns."""
        columns = tuple(
            replace(column, edges=edges[column.name])
            if column.name in self.names and isinstance(column, Numeric)
            else column
            for column in self.schema.columns
        )
        return replace(self.schema, columns=columns)

    @cached_property
    def places(self) -> tuple[int, ...]:
        return tuple(map(self.narrow.names.index, self.names))

    @cached_property
    def layout(self) -> Layout:
        """The narrow counts: a table for each measured column."""
        return Layout(tuple(self.narrow.sizes[place] for place in self.places), None, sparse=True)

    def count(self, codes: NDArray[np.float64], filled: NDArray[np.bool_] | None = None) -> Floats:
        """Narrow counts of records given as narrow cells (..., n, columns)."""
        return self.layout.count(codes[..., list(self.places)], filled)

    # From opened counts to edges.

    def planned_edges(self) -> Edges:
        """As many edges as will be measured, anywhere: for the form of releases."""
        return {name: self._choose(name, np.zeros(self.layout.sizes[at])) for at, name in enumerate(self.names)}

    def measured_edges(self, opened: Floats) -> Edges:
        """Edges, rather round ones, between which about equally many of the opened counts lie. Everyone finds the same:
        floats of the standard are added, multiplied, compared and divided in one order. Any numbers give edges, also
        those that no honest coordinator sends."""
        finite = np.clip(np.nan_to_num(np.asarray(opened, np.float64)), -_MAX_COUNT, _MAX_COUNT)
        return {
            name: self._choose(name, project_onto_simplex(table, max(1.0, float(table.sum()))))
            for name, table in zip(self.names, self.layout.tables(finite).values())
        }

    def _choose(self, name: str, histogram: Floats) -> tuple[float, ...]:
        """So many of the narrow edges that there are `cells` cells. A narrow cell with very many records is one."""
        inner, barred = self._inner(name), self._rule_cuts(name)
        prices = np.array([inf if cut in barred else _price_figure(cut) for cut in inner.tolist()])
        chosen = choose_edges(histogram[: len(inner) + 1], prices, self.cells)
        return tuple(float(inner[place]) for place in chosen)

    def _inner(self, name: str) -> Floats:
        edges = self.narrow.edges(self.narrow.names.index(name))
        assert edges is not None
        return edges[1:-1]

    def _rule_cuts(self, name: str) -> set[float]:
        """Edges that rules of the schema make: they are edges of wide cells in any case."""
        conditions = [pair for rule in self.schema.impossible for pair in rule.conditions if pair[0] == name]
        return {cut for _, entries in conditions for cut in cuts_of(self.schema[name], entries)}

    # Between narrow and wide cells.

    def merge(self, codes: NDArray[np.float64], wide: Cells) -> NDArray[np.float64]:
        """Records (..., n, columns) in narrow cells as records in wide ones."""
        found = np.array(codes, np.float64)
        for place, lookup in self._lookups(wide).items():
            found[..., place] = lookup[codes[..., place].astype(np.int64)]
        return found

    def _lookups(self, wide: Cells) -> dict[int, Integers]:
        """For each measured column, the wide cell of every narrow one. A cell of missing values stays one."""
        found = {}
        for name, place in zip(self.names, self.places):
            edges = wide.edges(place)
            assert edges is not None
            begins = np.concatenate([edges[:1], self._inner(name)])
            lookup = np.searchsorted(edges[1:-1], begins, side="right")
            missing = self.narrow.sizes[place] - len(begins)
            found[place] = np.concatenate([lookup, np.full(missing, wide.sizes[place] - 1)]).astype(np.int64)
        return found

    def refine(self, codes: Integers, opened: Floats, deviation: float, wide: Cells, stream: Stream) -> Integers:
        """Rows in narrow cells, drawn inside their wide cells by the opened narrow counts, whose noise has this
        deviation."""
        # It comes with compiled functions, which a plan does not need.
        from comity.methods.synthetic.synthesis import draw_systematically

        found = codes.copy()
        tables = list(self.layout.tables(opened).values())
        for table, (place, lookup) in zip(tables, self._lookups(wide).items()):
            shares = self._shares_inside(table, lookup, wide.sizes[place], deviation)
            drawn = draw_systematically(shares, codes[:, place], stream)
            # Rounding could choose a narrow cell of another wide one.
            outside = lookup[drawn] != codes[:, place]
            drawn[outside] = shares[codes[outside, place]].argmax(1)
            found[:, place] = drawn
        return found

    def _shares_inside(self, table: Floats, lookup: Integers, size: int, deviation: float) -> Floats:
        """For each wide cell, the shares of its narrow cells, (wide, narrow)."""
        found = np.zeros((size, len(lookup)))
        for wide in range(size):
            inside = np.nonzero(lookup == wide)[0]
            found[wide, inside] = estimate_inside(table[inside], deviation)
        return found

    def middles(self, place: int, opened: Floats, deviation: float, wide: Cells) -> Floats:
        """The mean of each wide cell's values by the narrow counts, without the cell of missing values."""
        at, edges = self.places.index(place), self.narrow.edges(place)
        assert edges is not None
        column = self.narrow.columns[place]
        assert isinstance(column, Numeric)
        table, lookup = list(self.layout.tables(opened).values())[at], self._lookups(wide)[place]
        shares = self._shares_inside(table, lookup, wide.sizes[place], deviation)[:, : len(edges) - 1]
        middle = (edges[:-1] + edges[1:] - column.integer) / 2
        # The cell of missing values has no narrow cell with a length.
        known = shares.sum(1) > 0
        return np.asarray((shares[known] @ middle) / shares[known].sum(1), np.float64)


@dataclass(frozen=True, eq=False)
class MeasuredNumbers:
    """What was measured: opened narrow counts, and the deviation of their noise."""

    __repr__ = short_repr

    measuring: Measuring
    values: Floats
    deviation: float

    def __post_init__(self) -> None:
        cells = self.measuring.layout.counts
        if not 0 < self.deviation < inf or self.values.shape != (cells,) or not np.isfinite(self.values).all():
            raise ValueError(f"measured edges need {cells} narrow counts and the deviation of their noise")

    @property
    def schema(self) -> Schema:
        """The schema with the measured edges."""
        return self.measuring.with_edges(self.measuring.measured_edges(self.values))

    def refine(self, codes: Integers, wide: Cells, stream: Stream) -> Integers:
        return self.measuring.refine(codes, self.values, self.deviation, wide, stream)

    def middles(self, place: int, wide: Cells) -> Floats | None:
        """The mean of each wide cell's values; None for a column that was not measured."""
        if place not in self.measuring.places:
            return None
        return self.measuring.middles(place, self.values, self.deviation, wide)


def estimate_inside(counts: Floats, deviation: float) -> Floats:
    """Estimates of a wide cell's narrow counts, none negative. Those that stand out of the noise stay as they are; the
    others have equal parts of what they are together, which noise moves less than each of them."""
    found, out = np.maximum(counts, 0.0), counts > _STANDS_OUT * deviation
    if not out.all():
        found[~out] = max(0.0, float(counts[~out].sum())) / int((~out).sum())
    return found if found.any() else np.ones(len(counts))


def edge_noise(layout: Layout, deviation: float, rows: int) -> float:
    """Deviation of a column's narrow counts, over all of its cells, as a share of the records."""
    return deviation * sqrt(max(layout.sizes)) / rows


def _narrow_cuts(column: Numeric, bins: int) -> tuple[float, ...]:
    """Round figures at equal distances, round figures of every magnitude, and the cuts that `bins` equal cells would
    have. People heap values at round figures, and a cell that begins at one holds it alone with what follows it."""
    kept = set(column.equal_cuts(bins))
    least, found = 1e-9 * (column.high - column.low), list[float]()
    for cut in sorted({*kept, *_equal_figures(column), *_figures_of_magnitudes(column)}):
        if found and cut - found[-1] < least:
            if cut in kept:
                found[-1] = cut
        else:
            found.append(cut)
    return tuple(found)


def _equal_figures(column: Numeric) -> list[float]:
    """Multiples of the smallest 1, 2 or 5 times a power of ten of which at most `NARROW` are in the range. Of at most
    twice as many whole numbers each is a cell, also where the schema does not say that values are whole: most are."""
    wanted = (column.high - column.low) / NARROW
    power = 10.0 ** floor(log10(wanted))
    step = next(one for one in (power, 2 * power, 5 * power, 10 * power) if one >= wanted * (1 - 1e-12))
    if column.integer or wanted > 1:
        step = 1.0 if wanted <= 2 else max(step, 1.0)
    first, last = ceil(column.low / step), floor(column.high / step)
    # Below one, a quotient of whole numbers is the figure itself and a product may miss it by its last bit.
    parts = round(1 / step)
    figures = (at / parts if step < 1 else at * step for at in range(first, last + 1))
    return [cut for cut in figures if _is_inside(column, cut)]


def _figures_of_magnitudes(column: Numeric) -> list[float]:
    """Figures of two digits at most, of both signs, over seven magnitudes at most. Zero, where very many values may
    be, has a cell of nearly no length."""
    largest = floor(log10(max(abs(column.low), abs(column.high))))
    sides = (-1.0, 1.0) if column.low < 0 < column.high else (-1.0,) if column.low < 0 else (1.0,)
    digits = _DIGITS if len(sides) == 1 else _DIGITS[::2]
    magnitudes = range(max(largest - 6, 0) if column.integer else largest - 6, largest + 1)
    figures = {side * digit * 10.0**power for side in sides for digit in digits for power in magnitudes}
    whole = {float(ceil(figure)) for figure in figures} if column.integer else figures
    least = 1.0 if column.integer else 10.0 ** (largest - 9)
    return [figure for figure in (0.0, least, *whole) if _is_inside(column, figure)]


def _is_inside(column: Numeric, cut: float) -> bool:
    return column.low < cut < column.high + column.integer


def choose_edges(counts: Floats, prices: Floats, cells: int) -> list[int]:
    """The `cells` - 1 inner edges, by their places, whose cells have the largest entropy of counts less the prices of
    edges. One unit of price is a part of the largest entropy that free edges reach. An infinite price bars an edge.

    Every machine finds the same: sums, products, quotients and minima of floats in one order.
    """
    before = np.concatenate([[0.0], np.cumsum(counts)])
    if not before[-1] > 0:
        before = np.arange(len(before), dtype=np.float64)
    shares = np.maximum(before[None, :] - before[:, None], 0.0) / before[-1]
    costs = shares * _logarithm(np.maximum(shares, 2.0**-40))
    costs[np.tril_indices(len(before))] = inf
    barred = np.isinf(prices)
    free = np.where(barred, inf, 0.0)
    reached, _ = _partition(costs, free, cells)
    return _partition(costs, free + np.where(barred, 0.0, prices) * (ROUNDNESS / cells * max(0.0, -reached)), cells)[1]


def _logarithm(shares: Floats) -> Floats:
    """The logarithm to base two by sums, products and quotients. Those of libraries may differ in the last bit."""
    mantissa, power = np.frexp(shares)
    t = (mantissa - 1) / (mantissa + 1)
    square, series = t * t, np.zeros_like(t)
    for odd in range(15, 0, -2):
        series = series * square + 1 / odd
    return np.asarray(power + 2 * t * series * _LOG2_E)


def _partition(costs: Floats, prices: Floats, cells: int) -> tuple[float, list[int]]:
    """The least sum of the costs of `cells` cells and the prices of their edges, and these. `costs` are by the edges
    where a cell begins and ends."""
    ends = np.concatenate([[0.0], prices, [0.0]])
    # The least cost of the first cells, if they end before each narrow cell, and where the last of them begins.
    least = np.where(np.arange(len(costs)) == 0, 0.0, inf)
    begins = list[Integers]()
    for _ in range(cells):
        sums = least[:, None] + costs
        begins.append(sums.argmin(0))
        least = sums.min(0) + ends
    chosen, place = list[int](), len(costs) - 1
    for begin in begins[:0:-1]:
        place = int(begin[place])
        chosen.append(place - 1)
    return float(least[-1]), chosen[::-1]


def _price_figure(cut: float) -> float:
    """How far a figure is from those that people write first: zero and powers of ten, 2 and 5, other single digits,
    halves between them, anything else."""
    if cut == 0:
        return 0.0
    digits = f"{abs(cut):.9e}".split("e")[0].rstrip("0").rstrip(".")
    if len(digits) == 1:
        return 0.0 if digits == "1" else 1.0 if digits in "25" else 2.0
    return 3.0 if len(digits) == 3 and digits[2] == "5" else 4.0
