"""Which counts are taken, and what is known of them before anything runs.

A record lies in one cell of each column, so it adds one to one cell of each table: of one column, or of a pair. Cells
come from the schema, and the weights of tables from the roles of the columns. Both are public.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import ROUND_FLOOR, Context, Decimal
from functools import cached_property
from math import comb, fsum, pi, prod, sqrt
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from comity.data import CellEncoding, Cells, Classes, Schema
from comity.data.cells import CellRule
from comity.errors import DataError, StudyError
from comity.federation.declare.bounds import Range, Weights
from comity.federation.declare.consortium import Consortium
from comity.privacy.accounting import gaussian_budget
from comity.privacy.loss import GDP, Pure
from comity.privacy.mechanisms.gaussian import Gaussian
from comity.privacy.mechanisms.laplace import Laplace
from comity.representation import short_repr

# Tables and their weights.

Floats = NDArray[np.float64]


def check_cells(codes: NDArray[Any], sizes: tuple[int, ...]) -> NDArray[np.int64]:
    """Records (n, columns) as whole numbers. Raises where one is not below its column's number of cells."""
    found = codes.astype(np.int64)
    if found.shape[1] != len(sizes) or (found < 0).any() or (found >= np.array(sizes)).any():
        raise DataError(f"records must be given as cells of {len(sizes)} columns, below {sizes}")
    return found


class BlockWeights(NamedTuple):
    """Weights of single columns, of pairs, and of pairs with the label. They are integers to keep sums exact."""

    single: int
    pair: int
    label: int


# Settled on Adult, for noise on the L2 norm and on the L1 norm of what a record moves.
GAUSSIAN = BlockWeights(1, 2, 4)
LAPLACE = BlockWeights(1, 4, 6)


@dataclass(frozen=True)
class Block:
    """The counts of one column, or of two (`second` above `first`), and their integer weight."""

    first: int
    second: int | None
    weight: int
    start: int
    shape: tuple[int, ...]

    @property
    def key(self) -> tuple[int, ...]:
        return (self.first,) if self.second is None else (self.first, self.second)

    @property
    def cells(self) -> int:
        return prod(self.shape)

    @property
    def stop(self) -> int:
        return self.start + self.cells


@dataclass(frozen=True)
class Layout:
    """`sizes` cells per column; `target` is the label's place, if there is one. A column that `follows` another is
    counted with that one alone and drawn from it; the budget of its other pairs goes to the rest."""

    sizes: tuple[int, ...]
    target: int | None = None
    follows: Mapping[int, int] = field(default_factory=dict)
    sparse: bool = False
    """Whether only pairs with the label are counted, because noise would cover the others."""
    reach: int | None = None
    """How many places two leading columns may lie apart whose pair is counted; None for all pairs. Pairs with the label
    are counted in any case."""
    emphasis: BlockWeights = GAUSSIAN
    impossible: tuple[CellRule, ...] = ()
    """What no record can be, by the schema. It changes no count and no weight."""
    ordered: tuple[int, ...] = ()
    """Columns whose cells have an order. It changes no count and no weight."""

    @property
    def columns(self) -> int:
        return len(self.sizes)

    @cached_property
    def leading(self) -> tuple[int, ...]:
        """Columns that follow no other one. The model is about these."""
        return tuple(k for k in range(self.columns) if k not in self.follows)

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """Index of each column's first cell in a row of all cells."""
        return tuple(int(start) for start in np.concatenate([[0], np.cumsum(self.sizes)[:-1]]))

    @property
    def width(self) -> int:
        return sum(self.sizes)

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        return tuple(self._blocks())

    def _blocks(self) -> Iterator[Block]:
        start, paired = 0, {k for pair in self.pairs for k in pair}
        for k in self.leading:
            # Where only pairs with the label are counted, they imply the counts of each column.
            if not self.sparse or k not in paired:
                yield Block(k, None, self.emphasis.single, start, (self.sizes[k],))
                start += self.sizes[k]
        for first, second in self.pairs:
            tied = first in self.follows or second in self.follows
            weight = self.emphasis.label if tied or self.target in (first, second) else self.emphasis.pair
            shape = (self.sizes[first], self.sizes[second])
            yield Block(first, second, weight, start, shape)
            start += shape[0] * shape[1]

    @cached_property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        both = self._pairs_of_leading
        if self.sparse:
            both = [pair for pair in both if self.target in pair]
        elif self.reach is not None:
            place = {k: at for at, k in enumerate(self.leading)}
            both = [(i, j) for i, j in both if self.target in (i, j) or place[j] - place[i] <= self.reach]
        tied = [(min(k, of), max(k, of)) for k, of in self.follows.items()]
        return (*both, *sorted(tied))

    @property
    def _pairs_of_leading(self) -> list[tuple[int, int]]:
        return [(i, j) for place, i in enumerate(self.leading) for j in self.leading[place + 1 :]]

    @property
    def uncounted(self) -> int:
        """The number of pairs of leading columns that no table counts."""
        return len(self._pairs_of_leading) + len(self.follows) - len(self.pairs)

    @property
    def keys(self) -> tuple[tuple[int, ...], ...]:
        """The columns of every block."""
        return tuple(block.key for block in self.blocks)

    @property
    def counts(self) -> int:
        """The number of counts."""
        return self.blocks[-1].stop

    @property
    def weights(self) -> tuple[int, ...]:
        """The weight of every block, which one record adds to one of its cells (`Counts`)."""
        return tuple(block.weight for block in self.blocks)

    def count(self, codes: NDArray[Any], filled: NDArray[np.bool_] | None = None) -> Floats:
        """The weighted counts (..., counts), whole numbers, of records given as cells (..., n, columns).

        `filled` (..., n) tells records from padding. Every record adds the block's weight to one cell of each block.
        Cells outside the layout are refused, because they would be counted elsewhere.
        """
        return count_blocks(self.blocks, self.sizes, self.counts, codes, filled)

    def tables(self, weighted: Floats) -> dict[tuple[int, ...], Floats]:
        """Unweighted counts by column, (k,), and by pair of columns, (i, j)."""
        return {
            block.key: weighted[block.start : block.stop].reshape(block.shape) / block.weight for block in self.blocks
        }

    def deviations(self, deviation: float) -> dict[tuple[int, ...], float]:
        """Standard deviation of each table's cells; `deviation` is that of a weighted count."""
        return {block.key: deviation / block.weight for block in self.blocks}


def count_blocks(
    blocks: tuple[Block, ...],
    sizes: tuple[int, ...],
    counts: int,
    codes: NDArray[Any],
    filled: NDArray[np.bool_] | None,
) -> Floats:
    """Weighted counts (..., counts) of these blocks; zero where no block lies. `codes` are cells of columns of these
    sizes."""
    lead = codes.shape[:-2]
    stack = codes.reshape(prod(lead), *codes.shape[-2:])
    here = np.ones(stack.shape[:2], np.bool_) if filled is None else filled.reshape(stack.shape[:2])
    owner, flat = np.nonzero(here)[0], check_cells(stack[here], sizes)
    found = np.zeros((len(stack), counts))
    for block in blocks:
        place = owner * block.cells + flat[:, block.first] * (block.shape[1] if block.second is not None else 1)
        if block.second is not None:
            place += flat[:, block.second]
        one = np.bincount(place, minlength=len(stack) * block.cells).reshape(len(stack), block.cells)
        found[:, block.start : block.stop] = one * block.weight
    return found.reshape(*lead, counts)


# The tables of a schema.

# Cells of a number or date where the schema says nothing. The next value is tried if there would be too many counts.
# Not tuned on data.
BINS = (8, 6, 5, 4, 3, 2)
# Cells of a numeric target, as in the published method.
BUCKETS = 10
# The most columns and counts of a release: a limit of size.
MAX_COLUMNS = 200
MAX_COUNTS = 1 << 17
# All pairs of so many columns are counted. Of more, as many pairs, those with the target and of near columns: a limit
# of size.
PAIRED_COLUMNS = 64


def find_reach(columns: int, labelled: bool) -> int | None:
    """How many places apart the columns may lie whose pairs are counted; None for all. `columns` are the leading ones,
    with the label if there is one."""
    if columns <= PAIRED_COLUMNS:
        return None
    others, left = columns - labelled, comb(PAIRED_COLUMNS, 2) - labelled * (columns - 1)
    reach = 0
    while left >= others - (reach + 1):
        reach += 1
        left -= others - reach
    return reach


@dataclass(frozen=True)
class Counting:
    """The cells of a schema and the pairs of columns that are counted. Everyone derives the same from the schema.

    `sparse`: only pairs with the target are counted. `pure`: weights are for noise on the L1 norm.
    """

    __repr__ = short_repr

    schema: Schema
    bins: int = BINS[0]
    sparse: bool = False
    pure: bool = False

    @cached_property
    def encoding(self) -> CellEncoding:
        return CellEncoding(self.schema, cut=self.bins, buckets=BUCKETS)

    @property
    def cells(self) -> Cells:
        return self.encoding.cells

    @property
    def classified(self) -> bool:
        return isinstance(self.schema.target, Classes)

    @cached_property
    def layout(self) -> Layout:
        cells = self.cells
        place = {name: at for at, name in enumerate(cells.names)}
        follows = {
            place[column.name]: place[column.follows] for column in self.schema.columns if column.follows is not None
        }
        target = None if self.schema.target is None else len(cells.names) - 1
        weights = LAPLACE if self.pure else GAUSSIAN
        reach = find_reach(len(cells.names) - len(follows), target is not None)
        return Layout(
            cells.sizes, target, follows, self.sparse, reach, weights, cells.impossible, tuple(sorted(cells.ordered))
        )

    @property
    def sparser(self) -> Counting:
        return replace(self, sparse=True)


def fit_counting(
    schema: Schema, *, bins: int | None = None, pure: bool = False, max_columns: int = MAX_COLUMNS
) -> Counting:
    """All pairs of columns, or of very many columns those of `find_reach`, with as many cells as keep the number of
    counts within the limit. Numbers without declared bins get fewer if necessary. With `bins` given, exactly those are
    used or the schema is refused."""
    found = Counting(replace(schema, identifier=None), BINS[0] if bins is None else bins, pure=pure)
    columns = len(found.cells.names)
    if columns > max_columns:
        raise StudyError(
            f"synthetic counts pairs of at most {max_columns} columns, found {columns}; leave some out of the schema",
            key="columns",
        )
    for tried in BINS if bins is None else (bins,):
        found = replace(found, bins=tried)
        if found.layout.counts <= MAX_COUNTS:
            return found
    largest = max(zip(found.cells.sizes, found.cells.names))
    raise StudyError(
        f"synthetic releases at most {MAX_COUNTS:,} counts, and this schema has {found.layout.counts:,} with "
        f"{found.bins} cells to a number; the largest column is {largest[1]!r} with {largest[0]} cells. Declare fewer "
        "bins or edges, group categories under other = true, or say which column follows another",
        key=f"columns.{largest[1]}",
    )


# Which model the budget affords, and the error that noise brings. Both use public figures alone, so they release
# nothing.

# Above it, noise covers what a typical pair tells. Settled on Adult, credit defaults, bikes, news and diabetic
# retinopathy at three budgets; other data may want another value.
MAX_PAIR_NOISE = 0.3


def pair_noise(layout: Layout, deviation: float, rows: int) -> float:
    """Deviation of a pair's counts, over all cells, as a share of the records. `deviation` is that of a weighted
    count, `rows` the number of records that the study declares."""
    pairs = [block.cells for block in layout.blocks if block.second is not None]
    if not pairs:
        return 0.0
    return deviation / layout.emphasis.pair * sqrt(sum(pairs) / len(pairs)) / rows


def affords_pairs(layout: Layout, deviation: float, rows: int | None) -> bool:
    """Whether all pairs are counted, for a mixture, or only those with the label. True where the study declares no
    number of records."""
    return rows is None or pair_noise(layout, deviation, rows) <= MAX_PAIR_NOISE


def expected_errors(
    layout: Layout, deviations: Mapping[tuple[int, ...], float], records: float
) -> dict[tuple[int, ...], float]:
    """The total variation that noise of these deviations is expected to bring to each table: for every cell, half the
    mean magnitude of a normal variable, divided by the records; at most 1."""
    mean = sqrt(2 / pi) / 2
    return {block.key: min(1.0, mean * block.cells * deviations[block.key] / records) for block in layout.blocks}


# Above it, a learner of the rows may predict the target no better than a constant. Of datasets of 1,000 to 20,000
# training records of Adult and credit defaults, at epsilon .1, .3 and 1, all that were worse than the constant had
# label tables off by more than .22 on average. Thinned until one class has 5 or 11 % of 5,000 or 10,000 records, at
# epsilon .1 to .4, they are worse above .12 and equal at .1; no study declares how rare a class is.
MAX_LABEL_ERROR = 0.1


def label_error(layout: Layout, errors: Mapping[tuple[int, ...], float]) -> float | None:
    """The mean of the expected errors of tables with the target; None without a target."""
    found = [error for key, error in errors.items() if len(key) == 2 and layout.target in key]
    return sum(found) / len(found) if found else None


# The second round.
#
# The first round counts every table with a part of the loss. The second spends the rest on the pairs with the target
# and on those pairs that stand out most in the opened counts of the first. This choice is a function of released
# counts. The number and the weights of the chosen pairs are public, so the sensitivity is the same whatever is chosen
# (proof.md, 4).

Integers = NDArray[np.int64]
Noise = Gaussian | Laplace

# The number of pairs without the target that are counted again, and the first round's part of the loss. Settled on
# Adult.
RECOUNTED_PAIRS = 25
FIRST_SHARE = Decimal("0.4")
# Parts of a loss are rounded down: together they never exceed it.
_ROUND_DOWN = Context(prec=50, rounding=ROUND_FLOOR)


def split_loss(consortium: Consortium, *shares: Decimal) -> tuple[Noise, ...]:
    """The noise of sums that spend these shares of the loss, and of one that spends the rest. Gaussian noise splits μ²,
    Laplace noise splits ε; both add up."""
    if isinstance(consortium.loss, Pure):
        return tuple(Laplace(Pure(part)) for part in _split(consortium.loss.epsilon, shares))
    return tuple(Gaussian(GDP.squared(part)) for part in _split(gaussian_budget(consortium.loss).square, shares))


def _split(whole: Decimal, shares: tuple[Decimal, ...]) -> Iterator[Decimal]:
    left = whole
    for share in shares:
        part = _ROUND_DOWN.multiply(whole, share)
        left = _ROUND_DOWN.subtract(left, part)
        yield part
    yield left


@dataclass(frozen=True)
class Recount:
    """Which tables of `layout` the second round counts: the pairs with the target, and the strongest others. Pairs of a
    column that follows another are not counted again, because few of their cells are filled."""

    layout: Layout

    def __post_init__(self) -> None:
        if not self.candidates:
            raise StudyError(
                "synthetic.rounds = 2 counts the strongest pairs of columns again, and this schema has no pair beside "
                "those with the target; set rounds = 1, or bring more columns",
                key="synthetic.rounds",
            )

    @cached_property
    def _pairs(self) -> tuple[Block, ...]:
        leading = set(self.layout.leading)
        return tuple(block for block in self.layout.blocks if len(block.key) == 2 and leading.issuperset(block.key))

    @cached_property
    def labelled(self) -> tuple[Block, ...]:
        return tuple(block for block in self._pairs if self.layout.target in block.key)

    @cached_property
    def candidates(self) -> tuple[Block, ...]:
        """The pairs to choose from."""
        return tuple(block for block in self._pairs if self.layout.target not in block.key)

    @property
    def chosen_count(self) -> int:
        """The number of candidates that are counted again."""
        return min(RECOUNTED_PAIRS, len(self.candidates))

    @cached_property
    def weights(self) -> tuple[int, ...]:
        """One weight for each table. All candidates weigh the same, so the weights do not depend on the choice."""
        return tuple(block.weight for block in (*self.labelled, *self.candidates[: self.chosen_count]))

    @cached_property
    def counts(self) -> int:
        """The size of the largest possible choice, whatever is chosen. The rest is padding that holds noise alone."""
        largest = sorted((block.cells for block in self.candidates), reverse=True)
        return sum(block.cells for block in self.labelled) + sum(largest[: self.chosen_count])

    def find_strongest(self, opened: Floats, deviation: float) -> Integers:
        """Indices, in order, of the candidates whose opened counts lie furthest from independent columns: by the
        squared distance from the product of the table's margins, less what noise of this deviation adds to it.

        Every machine finds the same: margins are sums of whole numbers on a grid, hence exact, and squares are summed
        with one rounding, so the order of summation does not matter.
        """
        found = [
            _interaction_strength(opened[block.start : block.stop].reshape(block.shape), deviation)
            for block in self.candidates
        ]
        ranked = sorted(range(len(found)), key=lambda place: (-found[place], place))
        return np.array(sorted(ranked[: self.chosen_count]), np.int64)

    def blocks(self, pairs: Integers) -> tuple[Block, ...]:
        """The blocks of the first round that are counted again, in the order of the second."""
        return (*self.labelled, *(self.candidates[int(place)] for place in pairs))

    def count(self, pairs: Integers, codes: NDArray[Any], filled: NDArray[np.bool_] | None = None) -> Floats:
        """The weighted counts (..., counts) of records given as cells (..., n, columns)."""
        placed, start = [], 0
        for block in self.blocks(pairs):
            placed.append(Block(block.first, block.second, block.weight, start, block.shape))
            start += block.cells
        return count_blocks(tuple(placed), self.layout.sizes, self.counts, codes, filled)

    def combine(self, first: Floats, second: Floats, pairs: Integers, deviations: tuple[float, float]) -> Combined:
        """Both rounds as one: a table counted twice is the mean of both, weighted by inverse variance."""
        precise = [1 / deviation**2 for deviation in deviations]
        share, factor = precise[1] / sum(precise), sqrt(precise[0] / sum(precise))
        values, narrowed, start = first.copy(), dict.fromkeys(self.layout.keys, 1.0), 0
        for block in self.blocks(pairs):
            here = slice(block.start, block.stop)
            values[here] += share * (second[start : start + block.cells] - first[here])
            narrowed[block.key] = factor
            start += block.cells
        return Combined(values, tuple(narrowed.values()))


@dataclass(frozen=True, eq=False)
class Combined:
    """Weighted counts of all tables, and for each block the factor of its noise over that of the first round."""

    values: Floats
    narrowed: tuple[float, ...]


def _interaction_strength(table: Floats, deviation: float) -> float:
    rows, columns = table.sum(1), table.sum(0)
    expected = np.multiply.outer(rows, columns) / max(float(rows.sum()), 1.0)
    free = (table.shape[0] - 1) * (table.shape[1] - 1)
    return float(fsum(((table - expected) ** 2).ravel().tolist()) - free * deviation**2)


# What opened tables may hold.
#
# Every record lies in one cell of each table. Without noise, no count is negative, all tables have one total, and two
# tables that share a column agree on the records in each of its cells. Where the number of records is public, the total
# is that number. Where a study declares a round figure, no table counts more than `MAX_ROWS_FACTOR` times as many.


class CountedBlock(Protocol):
    """A table of some columns, and its weight."""

    @property
    def key(self) -> tuple[int, ...]: ...
    @property
    def weight(self) -> int: ...
    @property
    def start(self) -> int: ...
    @property
    def stop(self) -> int: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def cells(self) -> int: ...


class Tabulated(Protocol):
    """Tables of columns: a `Layout`, or triples of its columns."""

    @property
    def columns(self) -> int: ...
    @property
    def blocks(self) -> Sequence[CountedBlock]: ...


MAX_ROWS_FACTOR = 4
"""The factor by which records may exceed the declared number of rows, as for declared sizes in averaging."""


def table_ranges(
    layout: Tabulated, counts: Floats, *, exactly: int | None = None, about: int | None = None
) -> tuple[Range, ...]:
    """Ranges of the opened, weighted counts of a layout. `exactly` is the number of records where it is public, `about`
    the number that a study declares."""
    found = [*_total_ranges(layout, counts, exactly, about), *_shared_column_ranges(layout, counts)]
    if exactly is not None:
        weights = np.concatenate([np.full(block.cells, float(block.weight)) for block in layout.blocks])
        found.append(Range("every count", counts, 0.0, exactly * weights))
    return tuple(found)


def _total_ranges(layout: Tabulated, counts: Floats, exactly: int | None, about: int | None) -> Iterator[Range]:
    blocks = layout.blocks
    totals = np.array([counts[block.start : block.stop].sum() / block.weight for block in blocks])
    cells, weight = (np.array(of, np.float64) for of in zip(*((block.cells, block.weight) for block in blocks)))
    l1, l2, largest = cells / weight, np.sqrt(cells) / weight, 1 / weight
    own = Weights(l1, l2, largest)
    if exactly is not None:
        yield Range("the number of records in every table", totals, float(exactly), float(exactly), own)
        # All tables together know it better than any of them: the mean weighted by inverse variance.
        trust = l2**-2 / (l2**-2).sum()
        mean = Weights(float(trust @ l1), float(np.sqrt((trust**2) @ l2**2)), float((trust * largest).max()))
        what = "the mean number of records in the tables"
        yield Range(what, np.atleast_1d(trust @ totals), float(exactly), float(exactly), mean)
        return
    if about is not None:
        yield Range("the number of records in every table", totals, 0.0, float(MAX_ROWS_FACTOR * about), own)
    # Each is compared with the table whose total is known best.
    best = int(np.argmin(l2))
    both = Weights(l1 + l1[best], np.hypot(l2, l2[best]), np.maximum(largest, largest[best]))
    yield Range("the number of records in a table, less that in another,", totals - totals[best], 0.0, 0.0, both)


def _shared_column_ranges(layout: Tabulated, counts: Floats) -> Iterator[Range]:
    """The records in each cell of a column: every table that has the column, compared with the one that knows them
    best, which adds up the fewest cells."""
    for column in range(layout.columns):
        having = [block for block in layout.blocks if column in block.key]
        having.sort(key=lambda block: _cell_norms(block, column)[1])
        for block in having[1:]:
            here, there = _cell_norms(block, column), _cell_norms(having[0], column)
            weights = Weights(here[0] + there[0], sqrt(here[1] ** 2 + there[1] ** 2), max(here[2], there[2]))
            gap = _sum_to_column(block, counts, column) - _sum_to_column(having[0], counts, column)
            yield Range("the number of records in a cell, less that by another table,", gap, 0.0, 0.0, weights)


def _cell_norms(block: CountedBlock, column: int) -> tuple[float, float, float]:
    """L1, L2 and maximum norm of the weights by which a table's counts add up to the records in one cell."""
    added = block.cells // block.shape[block.key.index(column)]
    return added / block.weight, sqrt(added) / block.weight, 1 / block.weight


def _sum_to_column(block: CountedBlock, counts: Floats, column: int) -> Floats:
    table = counts[block.start : block.stop].reshape(block.shape)
    others = tuple(axis for axis, of in enumerate(block.key) if of != column)
    return np.asarray(table.sum(axis=others) / block.weight, np.float64)
