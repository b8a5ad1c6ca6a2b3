"""From noisy counts to rows of cells.

Everything here reads released counts and public randomness alone: it costs nothing, and anyone may repeat it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import sqrt

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from comity.compiled import compiled_or_interpreted
from comity.entropy import Stream
from comity.methods.synthetic.components import Components
from comity.methods.synthetic.consistency import ConsistentTables, add_interaction, denoise_determined
from comity.methods.synthetic.counts import Layout
from comity.methods.synthetic.impossibilities import Impossibilities
from comity.methods.synthetic.labels import redraw_labels
from comity.methods.synthetic.third_order import ThirdOrder, want_triples
from comity.methods.synthetic.triples import OpenedTriples

Floats = NDArray[np.float64]

# A mixture of products whose two-way counts are the released ones.
#
# It has K components of equal weight. In each, the columns are independent with probabilities softmax(logits). The
# two-way counts of the mixture are n·PᵀP/K, so it is fitted by least squares with gradients.

# Of 100, 300 and 800 components on training records of Adult, credit defaults and bikes at epsilon .3, 1 and 10, more
# are never further by three-way distances: at 10, 300 are 11 to 20 % nearer than 100 and 800 another 3 to 11 %, each
# for twice the time. With any of the three left out the choice is the same. More do no harm where noise is large: on
# the same noisy counts, 15 to 25 draws at epsilon 1 and 5 at .1, logistic and ridge regression on the rows are equal
# for 100 and 300 within two standard errors, trees too on Adult and credit defaults, and trees on bikes gain at 1.
# Schemas with more than `_MANY_CELLS` cells get fewer components, 100 at least: a limit of time.
COMPONENTS, _MIN_COMPONENTS, _MANY_CELLS = 300, 100, 300
# Settled on Adult. Credit defaults and bikes alone choose the same number of steps over 600: two-way distances at ε = 1
# are .0206 and .0237 instead of .0231 and .0265, and at .1 equal within 2 %. Schemas with more cells get fewer steps,
# so no fit takes much longer than on Adult.
STEPS, RATE = 2000, 0.1
_WIDE_CELLS, _MIN_STEPS = 160, 400
# Where some pairs are not counted: how much the model believes that their columns are independent, as a part of what
# it believes of a counted pair, and the least steps. Without that belief, the fit makes up relations between them. Of
# 0, 0.1, 0.5 and 1, and of 400 and 1,200 steps, on generated tables of 100 columns and eight factors, whose related
# columns are near or anywhere: with 0 uncounted correlations are .24 off where they are .05, 0.5 and 1 are alike, and
# more steps halve the error of counted ones.
_UNCOUNTED, _MIN_STEPS_FAR = 0.5, 1000
# Counts are treated as no more exact than this: the mixture can't fit every exact table, and its misfit of one should
# not distort the others. Settled on Adult.
_MIN_DEVIATION = 20.0
# A logit that stands for no probability at all: its exponential is zero, and gradients do not move it.
_NEVER = -1e9
# The penalty on impossible records, in deviations of a count for each column. Of 1, 3 and 10 on training records of
# Adult with seven rules all give the same distances within 1 %.
_IMPOSSIBLE = 3.0
_BETA_1, _BETA_2, _ADAM_EPSILON = 0.9, 0.999, 1e-8


@dataclass(frozen=True)
class Mixture:
    """Probabilities (components, cells). In each component, those of a column add up to one."""

    layout: Layout
    probabilities: Floats

    def column(self, k: int) -> Floats:
        start = self.layout.offsets[k]
        return self.probabilities[:, start : start + self.layout.sizes[k]]

    def pair(self, i: int, j: int) -> Floats:
        """The share of records in each pair of cells."""
        return np.asarray(self.column(i).T @ self.column(j)) / len(self.probabilities)

    def single(self, k: int) -> Floats:
        return np.asarray(self.column(k).mean(0))


def fit_mixture(
    layout: Layout,
    consistent: ConsistentTables,
    stream: Stream,
    *,
    pairs: Mapping[tuple[int, int], Floats] | None = None,
    pull: float = 0.0,
    start: Mixture | None = None,
    components: int | None = None,
    steps: int | None = None,
    impossible: Impossibilities | None = None,
    triples: ThirdOrder | None = None,
) -> Mixture:
    """Fit `pairs`, or the consistent ones, by weighted least squares with Adam, from `start` or near the single
    columns.

    `pull` penalises the distance of components from their mean, which is the trace of the matrix of interactions, in
    units of the largest eigenvalue that noise alone would give that matrix. A column that follows another is left out,
    because it is drawn from that one. Cells to which `start` gives no probability keep none. `impossible` records are
    penalised. With `triples`, third moments are fitted too.
    """
    width, total = layout.width, consistent.total
    if steps is None:
        steps = max_steps(layout)
    if components is None:
        components = count_components(layout)
    single = np.concatenate([consistent.singles[k] for k in range(layout.columns)]) / total
    target, weight, noise = _weigh_pairs(layout, consistent, consistent.pairs if pairs is None else pairs, single)
    if start is None:
        logits = 0.5 * stream.normal((components, width)) + np.log(np.maximum(single, 1e-6))
    else:
        components = len(start.probabilities)
        excluded = start.probabilities == 0 if layout.impossible else np.zeros((), np.bool_)
        logits = np.where(excluded, _NEVER, np.log(np.maximum(start.probabilities, 1e-30)))
    scale = total**2
    single_weight = layout.columns / max(consistent.narrowest, _MIN_DEVIATION) ** 2
    together = 0.0
    if noise and pull:
        # In units of the loss: half a squared distance with eigenvalues pulled by λ. A symmetric matrix of noise has
        # eigenvalues up to 2σ√width.
        typical = float(np.median(noise))
        together = 2 * total / max(typical, _MIN_DEVIATION) ** 2 * pull * 2 * typical * sqrt(width)
    penalty = _IMPOSSIBLE * layout.columns * total / max(consistent.narrowest, _MIN_DEVIATION)
    logits = logits.astype(np.float32)
    weight32 = (weight * scale).astype(np.float32)
    target32 = target.astype(np.float32)
    first, second = np.zeros_like(logits), np.zeros_like(logits)
    starts = np.array(layout.offsets)
    sizes = np.array(layout.sizes)
    for step in range(1, steps + 1):
        p = _softmax(logits, starts, sizes)
        off = (p.T @ p) / components - target32
        middle = p.mean(0)
        slope = (2 * weight32 * off).astype(np.float32)
        gradient = p @ slope / components * 2
        gradient += (2 * single_weight * scale * (middle - single) / components).astype(np.float32)
        if together:
            gradient += np.float32(2 * together / components) * (p - middle)
        if impossible:
            impossible.add_penalty(gradient, p, penalty)
        if triples:
            triples.add_gradient(gradient, p, scale)
        inner = np.repeat(np.add.reduceat(gradient * p, starts, axis=1), sizes, axis=1)
        gradient = p * (gradient - inner)
        first = _BETA_1 * first + (1 - _BETA_1) * gradient
        second = _BETA_2 * second + (1 - _BETA_2) * gradient**2
        rate = RATE * (1 - (step - 1) / steps)
        corrected = np.sqrt(second / (1 - _BETA_2**step)) + _ADAM_EPSILON
        logits -= (rate * first / (1 - _BETA_1**step) / corrected).astype(np.float32)
    return Mixture(layout, _softmax(logits.astype(np.float64), starts, sizes))


def _weigh_pairs(
    layout: Layout, consistent: ConsistentTables, pairs: Mapping[tuple[int, int], Floats], single: Floats
) -> tuple[Floats, Floats, list[float]]:
    """Wanted shares of pairs of cells, what each is believed, and the deviations of the counted pairs."""
    target, weight = np.zeros((layout.width, layout.width)), np.zeros((layout.width, layout.width))
    places = [slice(start, start + size) for start, size in zip(layout.offsets, layout.sizes)]
    noise = []
    for (i, j), table in pairs.items():
        if i in layout.follows or j in layout.follows:
            continue
        noise.append(consistent.deviation[i, j])
        believed = 1 / max(noise[-1], _MIN_DEVIATION) ** 2
        target[places[i], places[j]], weight[places[i], places[j]] = table / consistent.total, believed
        target[places[j], places[i]], weight[places[j], places[i]] = table.T / consistent.total, believed
    if layout.reach is not None and noise:
        unknown = (weight == 0) & _cells_of_pairs(layout)
        target[unknown] = np.outer(single, single)[unknown]
        weight[unknown] = _UNCOUNTED / max(float(np.median(noise)), _MIN_DEVIATION) ** 2
    return target, weight, noise


def max_steps(layout: Layout) -> int:
    """Steps by the cells of the columns that are fitted; those that follow others are not."""
    width = sum(layout.sizes[k] for k in layout.leading)
    least = _MIN_STEPS if layout.reach is None else _MIN_STEPS_FAR
    return max(least, min(STEPS, int(STEPS * (_WIDE_CELLS / width) ** 2)))


def count_components(layout: Layout) -> int:
    """Components by the cells of the columns that are fitted."""
    width = sum(layout.sizes[k] for k in layout.leading)
    return max(_MIN_COMPONENTS, min(COMPONENTS, int(COMPONENTS * (_MANY_CELLS / width) ** 2)))


def _cells_of_pairs(layout: Layout) -> NDArray[np.bool_]:
    """Which pairs of cells are those of two different columns that are fitted."""
    columns = np.repeat(np.arange(layout.columns), layout.sizes)
    fitted = np.isin(columns, layout.leading)
    return np.asarray(fitted[:, None] & fitted & (columns[:, None] != columns))


def _softmax(logits: Floats, starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> Floats:
    largest = np.repeat(np.maximum.reduceat(logits, starts, axis=1), sizes, axis=1)
    raised = np.exp(logits - largest)
    return np.asarray(raised / np.repeat(np.add.reduceat(raised, starts, axis=1), sizes, axis=1))


# The mixture is fitted in two passes.
#
# The first fits the tables as they were opened and pulls the components together. Noise has no structure that many
# columns share, so this pass finds a weak relation of many columns that no single table shows. The second fits the mean
# of two estimates of each pair: what the table alone says, and what the first pass says plus what the table adds to it
# beyond noise. The former misses weak relations, the latter fine details of strong ones; their mean is nearer than
# either.

Pairs = dict[tuple[int, int], Floats]

# How strongly components are pulled together, in units of the largest eigenvalue of noise. Of 0.3 and 0.6, any two of
# Adult, credit defaults and bikes choose this one by their two-way distances (five splits at ε = 1, 0.5 and 0.1). On
# the one left out, distances are .0128/.0192/.0489, .0195/.0301/.1001 and .0234/.0358/.1084; tables that are shrunk one
# by one gave bikes .0264/.0389/.1089.
PULL = 0.3
# Shares of the steps for the first and the second pass.
_FIRST_STEPS, _SECOND_STEPS = 0.25, 0.75
# Where records are impossible, so many more steps come before the exclusions, with the penalty. Of 0, 0.2, 0.35 and 0.5
# on training records of Adult with seven rules, at epsilon 1 and 10: without more steps three-way distances grow by 3
# and 5 %, with 0.35 by 0 and 2 %, with 0.5 no less.
_PENALISED_STEPS = 0.35


# Where triples were counted, so many more steps fit them together with the pairs. 0.5 is no nearer on training records
# of bikes and credit defaults at epsilon 10.
_TRIPLE_STEPS = 0.3


def fit_two_passes(
    layout: Layout, consistent: ConsistentTables, stream: Stream, triples: OpenedTriples | None = None
) -> Mixture:
    steps, rules = max_steps(layout), Impossibilities(layout)
    opened = {(key[0], key[1]): table for key, table in consistent.noisy.items() if len(key) == 2}
    shared = fit_mixture(
        layout,
        consistent,
        stream,
        pairs=rules.clear(opened),
        pull=PULL,
        steps=int(_FIRST_STEPS * steps),
        impossible=rules,
    )
    pairs = rules.clear(refine_pairs(layout, consistent, shared))
    if rules:
        part = int(_PENALISED_STEPS * steps)
        shared = fit_mixture(layout, consistent, stream, pairs=pairs, start=shared, steps=part, impossible=rules)
        shared = Mixture(layout, rules.exclude(shared.probabilities))
    fitted = fit_mixture(layout, consistent, stream, pairs=pairs, start=shared, steps=int(_SECOND_STEPS * steps))
    if triples is None:
        return fitted
    wanted = want_triples(triples, fitted.probabilities, consistent.total, _MIN_DEVIATION)
    part = int(_TRIPLE_STEPS * steps)
    return fit_mixture(layout, consistent, stream, pairs=pairs, start=fitted, steps=part, triples=wanted)


def refine_pairs(layout: Layout, consistent: ConsistentTables, shared: Mixture) -> Pairs:
    """The mean of the two estimates of every pair of columns of which neither follows another."""
    refined = {}
    for (i, j), table in consistent.pairs.items():
        if i not in layout.follows and j not in layout.follows:
            expected = shared.pair(i, j) * consistent.total
            second = add_interaction(expected, consistent.noisy[i, j], consistent.deviation[i, j])
            refined[i, j] = (table + second) / 2
    return refined


# Rows are drawn by systematic rounding: within a component, no cell is further than one from its share.

Integers = NDArray[np.int64]


def sample_mixture(mixture: Mixture, rows: int, stream: Stream) -> tuple[Integers, Integers]:
    """Cells (rows, columns), and the component of every row. Independent draws would add sampling noise to counts that
    were paid for."""
    components, layout = len(mixture.probabilities), mixture.layout
    groups = draw_systematically(np.full((1, components), 1.0), np.zeros(rows, np.int64), stream)
    found = np.empty((rows, layout.columns), np.int64)
    for k in range(layout.columns):
        found[:, k] = draw_systematically(mixture.column(k), groups, stream)
        if layout.impossible:
            # Rounding of the places could choose a cell without any probability.
            shares = mixture.column(k)
            none = shares[groups, found[:, k]] == 0
            found[none, k] = shares[groups[none]].argmax(1)
    balance_pairs(mixture, found, groups, stream)
    return found, groups


def draw_systematically(shares: Floats, groups: Integers, stream: Stream) -> Integers:
    """A cell for every row, in random order. In each group, each cell comes as often as the group's shares say, rounded
    up or down by one coin for the group."""
    rows = len(groups)
    if rows == 0:
        return np.empty(0, np.int64)
    count = np.bincount(groups, minlength=len(shares))
    order = np.lexsort((stream.words(rows), groups))
    first = np.repeat(np.cumsum(count) - count, count)
    coins = np.repeat(stream.uniform(len(shares)), count)
    # A group's places and edges both lie between its number and the next, so one search serves all groups.
    sorted_groups = groups[order]
    places = sorted_groups + (np.arange(rows) - first + coins) / np.repeat(count, count)
    shares = np.maximum(shares, 0) + 1e-12
    edges = np.cumsum(shares, axis=1) / shares.sum(1, keepdims=True)
    edges[:, -1] = 1.0
    flat = (edges + np.arange(len(shares))[:, None]).ravel()
    found = np.empty(rows, np.int64)
    found[order] = np.searchsorted(flat, places, side="right") - sorted_groups * shares.shape[1]
    return np.clip(found, 0, shares.shape[1] - 1)


def draw_following(codes: Integers, pairs: Floats, stream: Stream) -> Integers:
    """A column's cells given those of the column that determines it, by the released counts of the pair."""
    return draw_systematically(np.where(pairs.sum(1, keepdims=True) > 0, pairs, pairs.sum(0)), codes, stream)


# Rows are balanced: values change places until pairs of columns come as often as the model says.
#
# Columns that are drawn independently within a component match its pairs on average; the random difference would be
# noise on top of that in the counts. Two rows of one component exchange their values of a column where that brings the
# two-way counts nearer. This changes neither how often a value comes nor the component.

# How often each row is offered an exchange of each column. More sweeps move two-way distances by less than 1 % on
# Adult, credit defaults and bikes.
SWEEPS = 2


def balance_pairs(mixture: Mixture, codes: Integers, groups: Integers, stream: Stream) -> None:
    """Exchange values in place; `groups` are the rows' components."""
    layout = mixture.layout
    columns = np.array(layout.leading)
    if len(columns) < 2 or len(codes) < 2:
        return
    offsets = np.array(layout.offsets)
    gap = -mixture.probabilities.T @ mixture.probabilities * (len(codes) / len(mixture.probabilities))
    cells = codes + offsets
    for place, i in enumerate(columns):
        for j in columns[place + 1 :]:
            here = np.bincount(codes[:, i] * layout.sizes[j] + codes[:, j], minlength=layout.sizes[i] * layout.sizes[j])
            table = here.reshape(layout.sizes[i], layout.sizes[j])
            rows, others = (slice(offsets[k], offsets[k] + layout.sizes[k]) for k in (i, j))
            gap[rows, others] += table
            gap[others, rows] += table.T
    for _ in range(SWEEPS):
        for k in columns:
            order = np.lexsort((stream.words(len(codes)), groups))
            _exchange(cells, groups, order, int(k), columns, gap)
    codes[:] = cells - offsets


@compiled_or_interpreted
def _exchange(cells: Integers, groups: Integers, order: Integers, k: int, columns: Integers, gap: Floats) -> None:
    """Exchange column k between neighbours in `order` of one group where that lessens the sum of squares of `gap`, the
    rows' two-way counts less the wanted ones."""
    for place in range(0, len(order) - 1, 2):
        one, other = order[place], order[place + 1]
        a, b = cells[one, k], cells[other, k]
        if a == b or groups[one] != groups[other]:
            continue
        change = 0.0
        for j in columns:
            u, v = cells[one, j], cells[other, j]
            if j != k and u != v:
                change += 2.0 + gap[b, u] - gap[a, u] + gap[a, v] - gap[b, v]
        if change >= 0.0:
            continue
        for j in columns:
            u, v = cells[one, j], cells[other, j]
            if j != k and u != v:
                gap[a, u] -= 1.0
                gap[u, a] -= 1.0
                gap[b, v] -= 1.0
                gap[v, b] -= 1.0
                gap[b, u] += 1.0
                gap[u, b] += 1.0
                gap[a, v] += 1.0
                gap[v, a] += 1.0
        cells[one, k], cells[other, k] = b, a


# Naive Bayes: columns are independent given the label, which is all that a very small budget affords.
#
# A learner of such rows believes every column separately. Columns that say the same are counted several times, and so
# is their noise. For classes this moves probabilities and seldom the answer. For a number it moves the answer, further
# than a constant would miss. `temper` therefore weakens what columns say of a number.

# Before tempering, no cell is less likely than this times its probability under independence: an empty cell is not
# impossible. Not tuned on data.
_MIN_RATIO = 1e-3


def temper(layout: Layout, consistent: ConsistentTables) -> ConsistentTables:
    """Divide the log-likelihood ratios of pairs with the target by the effective number of columns.

    With I_j the mutual information of column j and the target, that number is (Σ I_j)²/Σ I_j²: the number of columns if
    all tell as much, one if one tells all. How far columns repeat each other is not measured; the worst case is
    assumed, that together they say as much as one of them. This was chosen among no tempering, fixed powers from a half
    to a tenth, the root of that number and the number itself, on credit limits, working hours, wages and two tables of
    motion with generated targets, at two budgets each, two runs a cell: the number itself has the lowest geometric mean
    of errors and the lowest worst error. Wages, which many columns tell apart, lose by it.
    """
    tables = {pair: table for pair, table in consistent.pairs.items() if layout.target in pair}
    alone = {(i, j): np.outer(consistent.singles[i], consistent.singles[j]) / consistent.total for i, j in tables}
    information = np.array([_mutual_information(table, alone[pair]) for pair, table in tables.items()])
    columns = max(1.0, float(information.sum() ** 2 / max((information**2).sum(), 1e-300)))
    raised = {pair: _temper_table(table, alone[pair], columns) for pair, table in tables.items()}
    return replace(consistent, pairs={**consistent.pairs, **raised})


def _mutual_information(table: Floats, alone: Floats) -> float:
    """The mutual information of a table's two columns, in nats; `alone` is the table under independence."""
    filled = (table > 0) & (alone > 0)
    return max(0.0, float((table[filled] * np.log(table[filled] / alone[filled])).sum() / table.sum()))


def _temper_table(table: Floats, alone: Floats, columns: float) -> Floats:
    ratio = np.divide(table, alone, out=np.ones_like(table), where=alone > 0)
    found = alone * np.maximum(ratio, _MIN_RATIO) ** (1 / columns)
    return np.asarray(found * table.sum() / found.sum())


def sample_naive_bayes(layout: Layout, consistent: ConsistentTables, rows: int, stream: Stream) -> Integers:
    """Draw labels by their counts, and within each label every column separately; without a label, columns alone."""
    found = np.zeros((rows, layout.columns), np.int64)
    together = np.zeros(rows, np.int64)
    target = layout.target
    if target is not None:
        found[:, target] = draw_systematically(consistent.singles[target][None], together, stream)
    for k in layout.leading:
        if target is None:
            found[:, k] = draw_systematically(consistent.singles[k][None], together, stream)
        elif k != target:
            table = consistent.pairs[min(k, target), max(k, target)]
            found[:, k] = draw_following(found[:, target], table if target < k else table.T, stream)
    return found


@dataclass(frozen=True)
class Synthesis:
    """How rows are made from counts. `ordered` gives, for columns, how many of their cells have an order. A
    `classified` label is redrawn from the row's columns. `triples` are counts of three columns, if there are any."""

    layout: Layout
    model: str
    ordered: Mapping[int, int] = field(default_factory=dict)
    classified: bool = False
    triples: OpenedTriples | None = None

    def make_rows(self, consistent: ConsistentTables, stream: Stream, count: int) -> Integers:
        """Cells (count, columns)."""
        return self.make_rows_in_components(consistent, stream, count)[0]

    def make_rows_in_components(
        self, consistent: ConsistentTables, stream: Stream, count: int
    ) -> tuple[Integers, Components | None]:
        """Cells (count, columns), and the rows' components if the model is a mixture."""
        # Small products take longer on several threads, and their last bits would depend on the number of threads.
        with threadpool_limits(1, user_api="blas"):
            if self.model == "naive-bayes":
                tables = consistent if self.classified else temper(self.layout, consistent)
                codes, components = self._sample_possible_naive_bayes(tables, stream, count), None
            else:
                codes, components = self._sample_labelled_mixture(consistent, stream, count)
        for column, of in self.layout.follows.items():
            key = (min(column, of), max(column, of))
            noisy = consistent.noisy[key] if of < column else consistent.noisy[key].T
            pairs = denoise_determined(noisy, consistent.deviation[key])
            codes[:, column] = draw_following(codes[:, of], pairs, stream)
        return codes, components

    def _sample_possible_naive_bayes(self, tables: ConsistentTables, stream: Stream, count: int) -> Integers:
        rules, target = Impossibilities(self.layout), self.layout.target
        if not rules:
            return sample_naive_bayes(self.layout, tables, count, stream)
        cleared = replace(tables, pairs=rules.clear(tables.pairs))
        codes = sample_naive_bayes(self.layout, cleared, count, stream)
        groups = np.zeros(count, np.int64) if target is None else codes[:, target].copy()
        rules.exchange(codes, groups, stream)
        return codes

    def _sample_labelled_mixture(
        self, consistent: ConsistentTables, stream: Stream, count: int
    ) -> tuple[Integers, Components]:
        mixture = fit_two_passes(self.layout, consistent, stream, self.triples)
        codes, rows = sample_mixture(mixture, count, stream)
        target = self.layout.target
        if self.classified and target is not None:
            codes[:, target] = redraw_labels(
                self.layout, consistent, codes, stream, ordered=self.ordered, triples=self.triples
            )
        return codes, Components(rows, {k: mixture.column(k) for k in self.layout.leading})
