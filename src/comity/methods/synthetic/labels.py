"""Labels from an additive logistic model of the released counts, on the rows that were sampled.

The mixture knows pairs, but a label depends on all columns together. The model adds one effect per cell. It is fitted
until the sampled rows have the released (column, label) counts, within their noise. Where triples of columns were
counted, those two columns whose counts with the label stand out most have effects of their groups together. Then each
row's label is drawn from it, systematically along the fitted probability.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from comity.entropy import Stream
from comity.methods.synthetic.consistency import ConsistentTables
from comity.methods.synthetic.counts import Layout
from comity.methods.synthetic.impossibilities import Impossibilities
from comity.methods.synthetic.third_order import interaction_strength, keep_interaction
from comity.methods.synthetic.triples import OpenedTriples

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Prior standard deviation of an effect. Effects of an ordered column may be far from zero but change in small steps.
# Settled on Adult.
_PRIOR = 0.5
_STEP, _WIDE = 0.5, 2.0
_ROUNDS = 30
# Above so many effects they are fitted by gradients, on at most so many rows and in so many rounds: limits of time.
_MAX_NEWTON, _MANY_FITTED, _MANY_ROUNDS = 600, 20_000, 60
# The most rows that effects are fitted on: a limit of size.
_FITTED = 50_000
# How many pairs of columns have effects together, and how much their counts with the label must stand out: their square
# over that of noise. Of none, 10 and 20 on training records of Adult and credit defaults at epsilon 10, 20 raise the
# AUC of trees on credit defaults by .008 and leave it on Adult.
_INTERACTIONS, _STANDS_OUT = 20, 1.5


def redraw_labels(
    layout: Layout,
    consistent: ConsistentTables,
    codes: Integers,
    stream: Stream,
    *,
    ordered: Mapping[int, int] | None = None,
    triples: OpenedTriples | None = None,
) -> Integers:
    """New target cells for every row. `ordered` gives, for columns, how many of their first cells have an order:
    effects vary little from one of those to the next. With `triples`, pairs of columns have effects too."""
    target = layout.target
    assert target is not None
    used = [k for k in layout.leading if k != target]
    if layout.sizes[target] < 2 or not used:
        return codes[:, target]
    # Rows are in random order: the first ones determine the effects as well as all.
    design = one_hot(codes[:_FITTED], used, layout.sizes)
    share = len(design) / consistent.total
    wanted = np.concatenate([_pair_with_target(consistent, k, target) for k in used]) * share
    sigma = np.concatenate([np.full(layout.sizes[k], consistent.deviation[_pair_key(k, target)]) for k in used]) * share
    prior = _precision([(layout.sizes[k], (ordered or {}).get(k, 0)) for k in used])
    of_classes = np.maximum(consistent.singles[target], 1e-9)
    rules = Impossibilities(layout)
    # Classes that a row's other columns make impossible have no probability, in the fit and in the draw.
    possible = rules.possible_cells(codes, target) if rules else None
    allowed = None if possible is None else possible[:_FITTED]
    of_classes = of_classes / of_classes.sum()
    effects, together = fit_effects(design, wanted, sigma, prior, of_classes, allowed), list[Interaction]()
    if triples is not None:
        together = find_interactions(triples, codes[:_FITTED], effects.probabilities(design, allowed), target, share)
    if together:
        design = np.concatenate([design, *(one.one_hot(codes[:_FITTED]) for one in together)], axis=1)
        wanted = np.concatenate([wanted, *(one.wanted for one in together)])
        sigma = np.concatenate([sigma, *(np.full(one.cells, one.deviation) for one in together)])
        wide = np.eye(len(sigma)) / _PRIOR**2
        wide[: len(prior), : len(prior)] = prior
        effects = fit_effects(design, wanted, sigma, wide, of_classes, allowed)
    parts = [slice(start, start + _FITTED) for start in range(0, len(codes), _FITTED)]
    probabilities = np.concatenate(
        [
            effects.probabilities(
                np.concatenate(
                    [one_hot(codes[part], used, layout.sizes), *(one.one_hot(codes[part]) for one in together)], axis=1
                ),
                None if possible is None else possible[part],
            )
            for part in parts
        ]
    )
    return draw_labels(probabilities, stream)


@dataclass(frozen=True, eq=False)
class Interaction:
    """Two columns in groups, the wanted counts (cells of both, classes) of the fitted rows, and their deviation."""

    columns: tuple[int, int]
    groups: tuple[Integers, Integers]
    sizes: tuple[int, int]
    wanted: Floats
    deviation: float
    strength: float

    @property
    def cells(self) -> int:
        return self.sizes[0] * self.sizes[1]

    def place(self, codes: Integers) -> Integers:
        first, second = (groups[codes[:, column]] for column, groups in zip(self.columns, self.groups))
        return np.asarray(first * self.sizes[1] + second)

    def one_hot(self, codes: Integers) -> NDArray[np.float32]:
        design = np.zeros((len(codes), self.cells), np.float32)
        design[np.arange(len(codes)), self.place(codes)] = 1
        return design


def find_interactions(
    opened: OpenedTriples, codes: Integers, probabilities: Floats, target: int, share: float
) -> list[Interaction]:
    """The pairs of columns whose opened counts with the target stand out most from what these probabilities of the
    rows' classes give. `share` is the number of rows over that of records. Classes that share a group are not told
    apart, so there are none if the target has more classes than groups."""
    triples, found = opened.triples, list[Interaction]()
    if triples.size(target) < triples.layout.sizes[target]:
        return found
    for block in triples.blocks:
        if target not in block.key:
            continue
        first, second = (column for column in block.key if column != target)
        table = np.moveaxis(opened.table(block), block.key.index(target), 2) * share
        sizes, deviation = (table.shape[0], table.shape[1]), opened.deviation * share
        pair = Interaction((first, second), (opened.groups[first], opened.groups[second]), sizes, table, deviation, 0.0)
        place = pair.place(codes)
        expected = np.stack(
            [np.bincount(place, weights=one, minlength=pair.cells) for one in probabilities.T], axis=1
        ).reshape(table.shape)
        strength = interaction_strength(table - expected, deviation)
        if strength > _STANDS_OUT:
            wanted = (expected + keep_interaction(table - expected, deviation)).reshape(pair.cells, -1)
            found.append(replace(pair, wanted=wanted, strength=strength))
    return sorted(found, key=lambda one: -one.strength)[:_INTERACTIONS]


@dataclass(frozen=True)
class Effects:
    """Effects of every cell on the log odds of each class against the last, and the intercept."""

    intercept: Floats
    of_cells: Floats

    def probabilities(self, design: NDArray[np.float32], possible: NDArray[np.bool_] | None = None) -> Floats:
        """The probability of every class, for every row; none where a class is not `possible`."""
        eta = self.intercept[None] + design @ self.of_cells.T.astype(np.float32)
        eta = np.column_stack([eta, np.zeros(len(design))])
        if possible is not None:
            eta = np.where(possible, eta, -np.inf)
        eta -= eta.max(1, keepdims=True)
        raised = np.exp(eta)
        return np.asarray(raised / raised.sum(1, keepdims=True))


def one_hot(codes: Integers, used: Sequence[int], sizes: Sequence[int]) -> NDArray[np.float32]:
    starts = np.concatenate([[0], np.cumsum([sizes[k] for k in used])]).astype(np.int64)
    design = np.zeros((len(codes), int(starts[-1])), np.float32)
    for place, k in enumerate(used):
        design[np.arange(len(codes)), starts[place] + codes[:, k]] = 1
    return design


def fit_effects(
    design: NDArray[np.float32],
    wanted: Floats,
    sigma: Floats,
    prior: Floats,
    share: Floats,
    possible: NDArray[np.bool_] | None = None,
) -> Effects:
    """Fit effects by Levenberg–Marquardt on standardised misses.

    A miss is a (cell, class) count of the model less the released one, divided by its deviation, which includes some
    sampling of labels. The last class has no effects.
    """
    cells = design.shape[1]
    free = len(share) - 1
    intercept = np.log(share[:-1] / share[-1])
    effects = np.zeros((free, cells))
    damping = 1.0
    counts = design.sum(0).astype(np.float64)
    spread = np.sqrt(sigma[:, None] ** 2 + counts[:, None] * (share * (1 - share))[None, :-1] * 0.05 + 1)
    if free * cells > _MAX_NEWTON:
        return _fit_many(design, wanted, spread, prior, intercept, possible)

    def predict(found: Floats) -> Floats:
        return Effects(intercept, found).probabilities(design, possible)

    def loss(p: Floats, found: Floats) -> float:
        miss = (design.T @ p[:, :-1].astype(np.float32) - wanted[:, :-1]) / spread
        return float((miss**2).sum() + sum(row @ prior @ row for row in found))

    p = predict(effects)
    value = loss(p, effects)
    for _ in range(_ROUNDS):
        miss = (design.T @ p[:, :-1].astype(np.float32) - wanted[:, :-1]) / spread
        jacobian = np.zeros((free * cells, free * cells))
        for a in range(free):
            for b in range(free):
                w = (p[:, a] * ((a == b) - p[:, b])).astype(np.float32)
                jacobian[a * cells : (a + 1) * cells, b * cells : (b + 1) * cells] = (
                    design.T @ (design * w[:, None]) / spread[:, a : a + 1]
                )
        gradient = jacobian.T @ miss.T.ravel() + np.concatenate([prior @ row for row in effects])
        hessian = jacobian.T @ jacobian + np.kron(np.eye(free), prior)
        improved = False
        for _ in range(8):
            step = np.linalg.solve(hessian + damping * np.diag(np.diag(hessian)), -gradient).reshape(free, cells)
            trial = predict(effects + step)
            found = loss(trial, effects + step)
            if found < value:
                improved = value - found > 1e-6 * value
                effects, p, value = effects + step, trial, found
                damping = max(damping / 5, 1e-6)
                break
            damping *= 4
        if not improved:
            break
    return Effects(intercept, effects)


def _fit_many(
    design: NDArray[np.float32],
    wanted: Floats,
    spread: Floats,
    prior: Floats,
    intercept: Floats,
    possible: NDArray[np.bool_] | None,
) -> Effects:
    """The same loss for very many effects, by gradients: their matrix of second derivatives would take too long."""
    from scipy.optimize import minimize

    free, cells = len(intercept), design.shape[1]
    rows = min(len(design), _MANY_FITTED)
    scale = len(design) / rows
    part, allowed = design[:rows], None if possible is None else possible[:rows]

    def loss(flat: Floats) -> tuple[float, Floats]:
        found = flat.reshape(free, cells)
        p = Effects(intercept, found).probabilities(part, allowed)[:, :-1]
        miss = (scale * (part.T @ p.astype(np.float32)) - wanted[:, :-1]) / spread
        pulled = found @ prior
        slope = part @ (2 * scale * miss / spread).astype(np.float32)
        moved = p * (slope - (p * slope).sum(1, keepdims=True))
        gradient = (part.T @ moved.astype(np.float32)).T + 2 * pulled
        return float((miss**2).sum() + (found * pulled).sum()), np.asarray(gradient, np.float64).ravel()

    best = minimize(loss, np.zeros(free * cells), jac=True, method="L-BFGS-B", options={"maxiter": _MANY_ROUNDS})
    return Effects(intercept, best.x.reshape(free, cells))


def draw_labels(probabilities: Floats, stream: Stream) -> Integers:
    """A class for every row. Rows are ordered by the probability of the first class; of two classes, each then comes as
    often as its probabilities add up to, within one."""
    rows, classes = probabilities.shape
    order = np.lexsort((stream.words(rows), probabilities[:, 0]))
    cumulated = np.cumsum(probabilities[order], axis=0)
    found = np.empty(rows, np.int64)
    if classes == 2:
        before = np.floor(cumulated[:, 0] + (coin := float(stream.uniform())))
        start = np.concatenate([[np.floor(coin)], before[:-1]])
        found[order] = np.where(before > start, 0, 1)
    else:
        uniform = stream.uniform(rows)
        found[order] = (np.cumsum(probabilities[order], axis=1) < uniform[:, None]).sum(1).clip(max=classes - 1)
    # Rounding of the sums could choose a class without any probability.
    none = probabilities[np.arange(rows), found] == 0
    found[none] = probabilities[none].argmax(1)
    return found


def _precision(columns: Sequence[tuple[int, int]]) -> Floats:
    """Prior precision of effects. `columns` are pairs: the number of cells, and how many of the first have an order.
    Effects of neighbouring ordered cells are pulled together."""
    width = sum(size for size, _ in columns)
    found, start = np.zeros((width, width)), 0
    for size, ordered in columns:
        block = np.eye(size) / _PRIOR**2
        if ordered > 2:
            steps = np.diff(np.eye(ordered), axis=0)
            block[:ordered, :ordered] = steps.T @ steps / _STEP**2 + np.eye(ordered) / _WIDE**2
        found[start : start + size, start : start + size] = block
        start += size
    return found


def _pair_key(k: int, target: int) -> tuple[int, int]:
    return (min(k, target), max(k, target))


def _pair_with_target(consistent: ConsistentTables, k: int, target: int) -> Floats:
    table = consistent.pairs[_pair_key(k, target)]
    return table if k < target else table.T
