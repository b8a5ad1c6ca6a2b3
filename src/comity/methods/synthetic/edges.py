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
from comity.methods.synthetic.components import Components, draw_between
from comity.methods.synthetic.counts import BUCKETS, Layout
from comity.representation import short_repr

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Edges = Mapping[str, tuple[float, ...]]

# The most narrow cells of equal length, cells of a measured number, and what an edge at a round figure is worth, as a
# part of the entropy that a cell brings to its column. People divide numbers, and compare datasets, at round figures.
# Chosen by three-way distances on training rows of Adult and credit defaults and on tax units (`python -m experiments
# choose synthetic`). Of 8 and 9 cells, three draws each, 8 have .0456, .0878 and .0164 and 9 have .0452, .0902 and
# .0169; the choice is 8 with any of the three left out (without credit defaults by .0001). The other two were chosen
# before values followed components: without credit defaults edges would be at no round figures.
NARROW = 128
MEASURED_BINS = 8
ROUNDNESS = 0.15
# The figures of a magnitude at which narrow cells begin. Set by hand while looking at the same tables.
_DIGITS = (1.0, 1.2, 1.5, 1.8, 2.0, 2.5, 3.0, 4.0, 5.0, 7.0)
# The part of the loss that measures edges. Of 0.05, 0.1 and 0.2 the one with the least three-way distances on the same
# datasets, and with credit defaults or tax units left out.
MEASURING_SHARE = Decimal("0.1")
# Above it, noise covers where the records are: the deviation of a column's counts over all its narrow cells, as a share
# of the records. Not tuned on data.
MAX_EDGE_NOISE = 0.2
# What a step between neighbouring narrow cells must explain, in squared deviations of a count for each logarithm of the
# number of cells. Of 0.5, 1 and 2 the one with the least three-way distances on the same datasets at epsilon 1, also
# with any of them left out.
_STEP_PRICE = 1.0
_LEAST_LENGTH = 1e-6
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

    def measured_edges(self, opened: Floats, deviation: float) -> Edges:
        """Edges, rather round ones, between which about equally many of the records lie by the opened counts, whose
        noise has this deviation. Everyone finds the same: floats of the standard are added, multiplied, compared and
        divided in one order. Any numbers give edges, also those that no honest coordinator sends."""
        estimates = self._estimate(opened, deviation)
        return {name: self._choose(name, table) for name, table in zip(self.names, estimates)}

    def _estimate(self, opened: Floats, deviation: float) -> list[Floats]:
        """Each column's narrow counts without what is likely to be noise. The cell of missing values has no length and
        stays as it is."""
        finite = np.clip(np.nan_to_num(np.asarray(opened, np.float64)), -_MAX_COUNT, _MAX_COUNT)
        found = []
        for place, table in zip(self.places, self.layout.tables(finite).values()):
            lengths = self._lengths(place)
            dense = smooth_counts(table[: len(lengths)], lengths, deviation)
            found.append(np.concatenate([dense, np.maximum(table[len(lengths) :], 0.0)]))
        return found

    def _lengths(self, place: int) -> Floats:
        edges = self.narrow.edges(place)
        assert edges is not None
        return np.diff(edges)

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

    def refine(
        self,
        codes: Integers,
        opened: Floats,
        deviation: float,
        wide: Cells,
        stream: Stream,
        components: Components | None = None,
    ) -> Integers:
        """Rows in narrow cells, drawn inside their wide cells by the opened narrow counts, whose noise has this
        deviation. With `components` of a mixture, what a component says of neighbouring wide cells enters too."""
        # It comes with compiled functions, which a plan does not need.
        from comity.methods.synthetic.synthesis import draw_systematically

        found = codes.copy()
        for table, (place, lookup) in zip(self._estimate(opened, deviation), self._lookups(wide).items()):
            shares = self._shares_inside(place, table, lookup, wide.sizes[place])
            probabilities = None if components is None else components.column(place)
            if components is None or probabilities is None:
                drawn = draw_systematically(shares, codes[:, place], stream)
            else:
                ordered = wide.ordered[place]
                drawn = draw_between(shares, ordered, probabilities, components.rows, codes[:, place], stream)
            # Rounding could choose a narrow cell of another wide one.
            outside = lookup[drawn] != codes[:, place]
            drawn[outside] = shares[codes[outside, place]].argmax(1)
            found[:, place] = drawn
        return found

    def _shares_inside(self, place: int, table: Floats, lookup: Integers, size: int) -> Floats:
        """For each wide cell, the shares of its narrow cells, (wide, narrow); by their lengths where nothing was
        counted."""
        lengths = self._lengths(place)
        weights = np.concatenate([lengths / lengths.sum(), np.ones(len(table) - len(lengths))])
        found = np.zeros((size, len(lookup)))
        for wide in range(size):
            inside = np.nonzero(lookup == wide)[0]
            counted = table[inside] if (table[inside] > 0).any() else weights[inside]
            found[wide, inside] = counted / counted.sum()
        return found

    def middles(self, place: int, opened: Floats, deviation: float, wide: Cells) -> Floats:
        """The mean of each wide cell's values by the narrow counts, without the cell of missing values."""
        at, edges = self.places.index(place), self.narrow.edges(place)
        assert edges is not None
        column = self.narrow.columns[place]
        assert isinstance(column, Numeric)
        table, lookup = self._estimate(opened, deviation)[at], self._lookups(wide)[place]
        shares = self._shares_inside(place, table, lookup, wide.sizes[place])[:, : len(edges) - 1]
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
        return self.measuring.with_edges(self.measuring.measured_edges(self.values, self.deviation))

    def refine(self, codes: Integers, wide: Cells, stream: Stream, components: Components | None = None) -> Integers:
        return self.measuring.refine(codes, self.values, self.deviation, wide, stream, components)

    def middles(self, place: int, wide: Cells) -> Floats | None:
        """The mean of each wide cell's values; None for a column that was not measured."""
        if place not in self.measuring.places:
            return None
        return self.measuring.middles(place, self.values, self.deviation, wide)


def smooth_counts(counts: Floats, lengths: Floats, deviation: float) -> Floats:
    """Counts of neighbouring cells of these lengths as a density of few steps, none negative: by least squares, with a
    price for each step that noise of this deviation alone does not pay. A value that very many records have is a step
    up and a step down; a smooth density has as many steps as noise lets see.

    Every machine finds the same: sums, products, quotients and minima of floats in one order.
    """
    cells = len(counts)
    price = _STEP_PRICE * deviation**2 * float(_logarithm(np.array([float(cells)]))[0]) / _LOG2_E
    # Squares of still shorter cells would be lost in sums of floats.
    shares = np.maximum(lengths / lengths.sum(), _LEAST_LENGTH)
    both = np.concatenate([[0.0], np.cumsum(counts * shares)])
    square = np.concatenate([[0.0], np.cumsum(shares * shares)])
    least, begins = np.full(cells + 1, inf), np.zeros(cells + 1, np.int64)
    least[0] = 0.0
    for end in range(1, cells + 1):
        # What one density from each beginning to this end explains of the squares of counts.
        fit = np.maximum(both[end] - both[:end], 0.0)
        costs = least[:end] + (price - fit * fit / (square[end] - square[:end]))
        begins[end] = costs.argmin()
        least[end] = costs[begins[end]]
    found, end = np.zeros(cells), cells
    while end > 0:
        begin = int(begins[end])
        level = max(0.0, both[end] - both[begin]) / (square[end] - square[begin])
        found[begin:end] = level * shares[begin:end]
        end = begin
    return found


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
