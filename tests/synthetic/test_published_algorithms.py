"""Algorithms 1 to 5 of Fioretto and Van Hentenryck (2019), line by line, beside a direct transcription of each.

The transcriptions are plain recursion over lists of records. Where the paper draws at random, they take what the run
drew, and check that it may be drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize, nnls
from scipy.stats import chisquare

from comity.data import Bounded, Categorical, Classes, Numeric, Schema
from comity.entropy import Stream
from comity.methods.synthetic.published.hinge import fit_hinge
from comity.methods.synthetic.published.method import Budget, PublishedSynthetic
from comity.methods.synthetic.published.predictor import fit_squares, scale_target, train_model
from comity.methods.synthetic.published.synthesis import draw_records, round_masses, solve_leaf_masses
from comity.methods.synthetic.published.tree import Shape, Tree, count_levels, grow_tree
from comity.privacy.loss import Pure
from comity.privacy.permit import simulated_permit
from comity.privacy.randomness import SeededNoise
from comity.privacy.unit import Neighbours
from tests.support.protocols import simulate_with

from .consortia import build_published
from .test_published_tree import MIXED, shaped, some

# Algorithm 3.


@dataclass
class Grown:
    """What the transcription of makeTree leaves behind."""

    splits: dict[tuple[int, int], float] = field(default_factory=dict)
    scores: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    counts: dict[int, list[int]] = field(default_factory=dict)
    labels: dict[int, int] = field(default_factory=dict)


def make_tree(
    records: list[tuple[Any, int]],
    shape: Shape,
    allowed: frozenset[int],
    h: int,
    h_max: int,
    node: int,
    box: dict[int, tuple[float, float]],
    select: Callable[[int, int, list[int]], int],
    laplace: Callable[[int, int], int],
    classes: int,
    grown: Grown,
) -> None:
    """makeTree(D, T, A, h, h_max, t, ε). `shape` has what selectAttribute and the sampling of V drew."""
    if h < h_max:  # line 1
        level = shape.levels[h - 1]
        # line 2: A' ← A is the set of the caller, which a frozenset leaves alone.
        a = int(level.attribute[node])  # line 3: (a, A) ← selectAttribute(A)
        assert a in allowed  # line 17: sample from U(A)
        left_over = allowed if MIXED[a].numeric else allowed - {a}  # lines 18 to 20
        first = int(level.first[node])
        if MIXED[a].numeric:  # line 4
            row = int(np.flatnonzero(level.numbers == node)[0])
            low, high = box.get(a, (0.0, 1.0))
            candidates = [low + float(share) * (high - low) for share in level.shares[row]]  # line 21, active Ω_a
            assert all(low <= v <= high for v in candidates)
            u = [max_operator(records, a, v, classes) for v in candidates]
            grown.scores[h - 1, row] = u
            v = candidates[select(h - 1, row, u)]  # lines 5 and 22
            grown.splits[h - 1, node] = v
            below = [one for one in records if one[0][a] < v]
            above = [one for one in records if one[0][a] >= v]
            rest = (shape, left_over, h + 1, h_max)
            make_tree(below, *rest, first, {**box, a: (low, v)}, select, laplace, classes, grown)  # line 6
            make_tree(above, *rest, first + 1, {**box, a: (v, high)}, select, laplace, classes, grown)  # line 7
        else:  # line 8
            for value in range(MIXED[a].values):  # line 9
                same = [one for one in records if one[0][a] == value]
                make_tree(
                    same, shape, left_over, h + 1, h_max, first + value, box, select, laplace, classes, grown
                )  # line 10
        # line 11: A ← A', as in line 2.
    else:  # line 12
        counts = [sum(label == y for _, y in records) + laplace(node, label) for label in range(classes)]  # line 13
        grown.counts[node] = counts  # line 14
        grown.labels[node] = counts.index(max(counts))  # line 15


def max_operator(records: list[tuple[Any, int]], a: int, v: float, classes: int) -> int:
    """u(D, a, v) of section 3.1."""
    sides = ([y for x, y in records if x[a] < v], [y for x, y in records if x[a] >= v])
    return sum(max(side.count(label) for label in range(classes)) for side in sides)


@pytest.mark.parametrize("seed", range(3))
def test_algorithm_3_line_by_line(seed: int) -> None:
    # With splits of numbers and of categories on several levels.
    drawn = (shaped(depth=4, seed=100 * seed + k) for k in range(99))
    shape = next(one for one in drawn if sum(count > 0 for count in one.choices) > 1 and one.leaves > 11)
    assert any(MIXED[a].values > 2 for level in shape.levels for a in level.attribute if a >= 0)
    values, labels = some(MIXED, 150, classes=3, seed=seed)
    chance = np.random.default_rng(seed)
    wanted = {(number, row): int(chance.integers(3)) for number in range(3) for row in range(100)}
    noise = chance.integers(-3, 4, (shape.leaves, 3))
    seen: dict[tuple[int, int], list[int]] = {}

    def choose(number: int, rows: Any) -> Any:
        seen.update({(number, row): scores.tolist() for row, scores in enumerate(rows)})
        return np.array([wanted[number, row] for row in range(len(rows))])

    tree = grow_tree(shape, values, labels, 3, choose=choose, noise=lambda counts: counts + noise)
    grown = Grown()
    make_tree(
        [(x, int(y)) for x, y in zip(values, labels)],
        shape,
        frozenset(range(len(MIXED))),
        1,
        4,
        0,
        {},
        lambda number, row, u: wanted[number, row],
        lambda leaf, label: int(noise[leaf, label]),
        3,
        grown,
    )
    assert grown.scores == seen
    for (number, node), v in grown.splits.items():
        assert tree.thresholds[number][node] == pytest.approx(v, abs=1e-15)
    assert [grown.counts[leaf] for leaf in range(shape.leaves)] == tree.counts.tolist()
    assert [grown.labels[leaf] for leaf in range(shape.leaves)] == tree.labels.tolist()


@pytest.mark.parametrize("neighbours", [Neighbours.ADD_REMOVE, Neighbours.REPLACE])
def test_lines_13_and_22_draw_as_printed(neighbours: Any) -> None:
    """Line 2 of Algorithm 2 passes ε/(2·h_max); line 22 selects with probability ∝ exp(ε u/(2Δ_u)), Δ_u = 1; line 13
    adds Lap(1/ε)."""
    epsilon, h_max = 4.0, 8
    within = epsilon / (2 * h_max)
    budget, noise = Budget.of(Pure(Decimal(str(epsilon))), h_max, 4, neighbours), SeededNoise(1)
    scores = np.array([0, 5, 9, 14, 14])
    chosen = budget.choice.run(noise, np.tile(scores, (20_000, 1)), permit=simulated_permit("split"))
    weights = np.exp(within * scores / 2)
    # The mechanism widens its scale by a thousandth, for the grid of its scores.
    assert chisquare(np.bincount(chosen, minlength=5), 20_000 * weights / weights.sum()).pvalue > 1e-6
    drawn = budget.leaves.run(noise, np.zeros(20_000, np.int64), permit=simulated_permit("leaves"))
    # On whole numbers: P[z] ∝ exp(−|z|·ε).
    assert np.mean(np.abs(drawn)) == pytest.approx(1 / np.sinh(within), rel=0.03)


# Algorithm 5.


def opt_private_gen(tree: Tree, noisy: list[list[float]], parents: list[list[int]]) -> np.ndarray:
    """Lines 3 to 5 of optPrivateGen, from c̃ by level, the leaves last: the leaf sizes of the programme, by non-negative
    least squares over the leaves, of which every other size is a sum (O2)."""
    leaves = len(noisy[-1])
    rows, targets = [], []
    for level in range(len(noisy)):
        inside = np.zeros((len(noisy[level]), leaves))
        for leaf in range(leaves):
            place = leaf
            for above in reversed(parents[level:]):
                place = above[place]
            inside[place, leaf] = 1.0
        weight = 1 / len(noisy[level])  # O1: λ_i = 1/m_i
        rows.append(np.sqrt(weight) * inside)
        targets.append(np.sqrt(weight) * np.array(noisy[level]))
    found, _ = nnls(np.vstack(rows), np.concatenate(targets))  # O3
    return np.asarray(found)


def test_algorithm_5_line_by_line() -> None:
    p, shape = 3, shaped(depth=4, seed=4)
    values, labels = some(MIXED, 120)
    chance = np.random.default_rng(2)
    tree = grow_tree(
        shape,
        values,
        labels,
        2,
        choose=lambda _, rows: rows.argmax(axis=1),
        noise=lambda counts: counts + chance.integers(-6, 7, counts.shape),
    )
    path = tree.path(values)
    # line 1: |T_ij.data| for i = 1, …, p − 1; the leaves have theirs already.
    exact = [[int(np.sum(path[i] == j)) for j in range(shape.levels[i].nodes)] for i in range(p - 1)]
    assert np.concatenate(exact).tolist() == count_levels(shape, path, p - 1).tolist()
    # line 2: each with noise.
    noise = [chance.integers(-9, 10, len(level)) for level in exact]
    noisy = [list(np.array(level) + drawn) for level, drawn in zip(exact, noise)]
    leaves = [float(sum(counts)) for counts in tree.counts.tolist()]
    parents = [shape.levels[i].parent.tolist() for i in range(p - 2)]
    # The children of level p − 1 are the leaves below.
    up = np.arange(shape.leaves)
    for level in reversed(shape.levels[p - 2 :]):
        up = level.parent[up]
    found = solve_leaf_masses(tree, np.concatenate([np.array(level) for level in noisy]), p - 1)
    expected = opt_private_gen(tree, [*noisy, leaves], [*parents, up.tolist()])
    np.testing.assert_allclose(found, expected, atol=1e-7)
    # lines 5 to 8: as many individuals of each leaf, uniform in its path.
    sizes = round_masses(found, Stream.public("sizes"))
    assert np.abs(np.cumsum(sizes) - np.cumsum(found)).max() <= 1
    made = draw_records(tree, sizes, Stream.public("records"))
    assert np.bincount(tree.path(made)[-1], minlength=shape.leaves).tolist() == sizes.tolist()


def test_line_2_of_algorithm_5_has_laplace_noise_for_half_of_epsilon_over_p_minus_1() -> None:
    budget = Budget.of(Pure(1), 8, 4, Neighbours.ADD_REMOVE)
    drawn = budget.counts.run(SeededNoise(3), np.zeros(20_000, np.int64), permit=simulated_permit("counts"))
    assert np.mean(np.abs(drawn)) == pytest.approx(1 / np.sinh((1 / 2) / 3), rel=0.03)


# Algorithms 1, 2 and 4, as a run.

COLUMNS = (Numeric("age", 0, 100), Numeric("dose", 0, 1), Categorical("sex", ("f", "m")))
NAMES = ("ash", "birch", "cedar")


def frame(seed: int, target: Any) -> pd.DataFrame:
    chance = np.random.default_rng(seed)
    age = chance.uniform(0, 100, 90)
    y = 10 * age if isinstance(target, Bounded) else np.where(age + chance.normal(0, 20, 90) > 50, "yes", "no")
    return pd.DataFrame({"age": age, "dose": chance.random(90), "sex": chance.choice(["f", "m"], 90), "y": y})


def run_published(learner: str) -> tuple[PublishedSynthetic, Any, dict[str, pd.DataFrame]]:
    target = Bounded("y", 0, 1000) if learner == "linear" else Classes("y", ("no", "yes"))
    method = build_published(Schema(COLUMNS, target), depth=4, levels=3, leaves=40, learner=learner)
    parties = {name: frame(place, target) for place, name in enumerate(NAMES)}
    terms: dict[str, Any] = {"epsilon": 2.0, "unit": "record", "neighbours": "add-remove", "seed": 5}
    roles = {"sharer": ["ash", "cedar"]}
    return method, simulate_with(method, parties=parties, schema=method.schema, roles=roles, **terms), parties


def predict(tree: Tree, record: Any) -> int:
    """φ̃_j(x̃): the label of the leaf that a record falls into."""
    place = 0
    for level, thresholds in zip(tree.shape.levels, tree.thresholds):
        a = int(level.attribute[place])
        if a < 0:
            step = 0
        elif tree.shape.attributes[a].numeric:
            step = int(record[a] >= thresholds[place])
        else:
            step = int(record[a])
        place = int(level.first[place]) + step
    counts = tree.counts[place].tolist()
    return int(counts.index(max(counts)))


@pytest.mark.parametrize("learner", ["logistic", "svm", "linear"])
def test_algorithms_1_2_and_4_line_by_line(learner: str) -> None:
    method, found, parties = run_published(learner)
    sharers = ("ash", "cedar")
    trees = {name: method.read_tree(name, sent) for name, sent in found.released["trees"].items()}
    # Algorithm 2, lines 1 to 4: sharers, and nobody else, send a tree; sharers receive all.
    assert set(trees) == set(sharers)
    assert {name: "trees" in got.releases for name, got in found.received.items()} == {
        "ash": True,
        "birch": False,
        "cedar": True,
    }
    shared = found.released["datasets"]
    assert set(shared) == set(sharers)  # Algorithm 4, line 1
    for name in sharers:
        for row in shared[name]:  # line 4
            votes = [predict(trees[j], row[:-1]) for j in sharers]  # line 5
            tally = [votes.count(label) for label in range(method.attributes.classes)]
            label = tally.index(max(tally))  # line 6
            if learner == "linear":
                # A uniform draw inside the bucket of the vote (section 3.2.2).
                assert 100 * label <= row[-1] <= 100 * (label + 1)
            else:
                assert row[-1] == label  # line 7
    # Algorithm 4, lines 8 and 9: everyone has all datasets.
    assert all("datasets" in got.releases for got in found.received.values())
    # Algorithm 1, line 3: w* minimises J over all shared records and the agent's own.
    everything = np.concatenate([shared[name] for name in sharers])
    for name in NAMES:
        own = method.encoding.encode(parties[name]).records
        rows = np.concatenate([method.attributes.rows(everything[:, :-1]), own.features])
        labels = np.concatenate([everything[:, -1], np.asarray(own.labels)])
        weights = found.received[name].own["model"][0]
        best = minimise_risk(learner, rows, scale_target(method.target, labels), method.l2)
        assert risk(learner, weights, rows, scale_target(method.target, labels), method.l2) <= best + 2e-4


def risk(learner: str, w: Any, rows: Any, y: Any, l2: float) -> float:
    """J of equation 1, with the losses of equations 2 to 4 and c(w) = |w|²."""
    margins, signs = rows @ w, 2 * y - 1
    losses = {
        "linear": lambda: (margins - y) ** 2,
        "logistic": lambda: np.log1p(np.exp(-signs * margins)),
        "svm": lambda: np.maximum(0.0, 1 - signs * margins),
    }[learner]()
    return float(np.mean(losses) + l2 * np.sum(w**2))


def minimise_risk(learner: str, rows: Any, y: Any, l2: float) -> float:
    """By a general solver from several starts, smoothed for the hinge; the least J that it finds."""
    chance = np.random.default_rng(0)
    starts = [np.zeros(rows.shape[1]), *chance.normal(size=(2, rows.shape[1]))]
    found = []
    for start in starts:
        w = start
        for _ in range(3):
            w = minimize(lambda v: risk(learner, v, rows, y, l2), w, method="Powell", options={"maxiter": 40}).x
        found.append(risk(learner, w, rows, y, l2))
    return min(found)


# Equation 4: the hinge itself.


def test_the_hinge_is_solved_to_its_gap_and_as_another_solver_does() -> None:
    from sklearn.svm import LinearSVC

    chance = np.random.default_rng(1)
    rows = np.column_stack([chance.normal(size=(200, 3)), np.ones(200)])
    labels = (rows[:, 0] + chance.normal(0, 1, 200) > 0).astype(np.int64)
    for l2 in (1e-1, 1e-2, 1e-3):
        fit = fit_hinge(rows, labels, l2)
        assert -1e-12 <= fit.gap <= 1e-5
        other = LinearSVC(loss="hinge", C=1 / (2 * l2 * 200), fit_intercept=False, tol=1e-8, max_iter=200_000)
        theirs = risk("svm", other.fit(rows, labels).coef_[0], rows, labels, l2)
        assert abs(risk("svm", fit.weights, rows, labels, l2) - theirs) <= 1e-5
        np.testing.assert_array_equal(fit.weights, fit_hinge(rows, labels, l2).weights)


def test_rows_of_zeros_and_one_class_have_a_hinge_fit() -> None:
    assert fit_hinge(np.zeros((5, 2)), np.ones(5), 0.1).weights.tolist() == [0, 0]
    fit = fit_hinge(np.ones((50, 1)), np.ones(50), 1e-3)
    assert float(fit.weights[0]) == pytest.approx(1.0, abs=0.02)


def test_smooth_losses_are_others_and_near() -> None:
    chance = np.random.default_rng(4)
    rows = np.column_stack([chance.random((400, 2)), np.ones(400)])
    two, number = Classes("y", ("a", "b")), Bounded("y", -1, 1)
    labels = (rows[:, 0] > 0.5).astype(np.int64)
    targets = np.clip(rows[:, 0] - 0.5 + chance.normal(0, 0.1, 400), -1, 1)
    for learner, target, given in (("svm", two, labels), ("linear", number, targets)):
        printed = train_model(learner, target, rows, given, 1e-3)  # type: ignore[arg-type]
        smooth = train_model(learner, target, rows, given, 1e-3, losses="smooth")  # type: ignore[arg-type]
        assert np.abs(printed - smooth).max() > 1e-6
    np.testing.assert_allclose(
        2 * rows.T @ (rows @ fit_squares(rows, targets, 1e-3) - targets) / 400
        + 2e-3 * fit_squares(rows, targets, 1e-3),
        0,
        atol=1e-12,
    )
