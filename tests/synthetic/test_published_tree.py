"""Private trees: a public shape, scores whose sensitivity is counted out, and audits that a leaking tree fails."""

from __future__ import annotations

from decimal import Decimal
from itertools import combinations_with_replacement, permutations, product
from time import process_time
from typing import Any, cast

import numpy as np
import pytest

from comity.audit import epsilon_lower_bound
from comity.data import Bounded, Categorical, Classes, Numeric, Ordinal, Schema
from comity.entropy import Stream
from comity.errors import StudyError
from comity.methods.synthetic.published.method import Budget
from comity.methods.synthetic.published.tree import (
    PASS_THROUGH,
    Attribute,
    Attributes,
    Boxes,
    Shape,
    Tree,
    count_classes,
    count_levels,
    draw_shape,
    grow_tree,
    offer_candidates,
    score_candidates,
)
from comity.privacy.loss import ZCDP, Pure
from comity.privacy.permit import simulated_permit
from comity.privacy.randomness import SeededNoise
from comity.privacy.unit import Neighbours

MIXED = (Attribute("x", 0), Attribute("y", 1), Attribute("colour", 2, 3), Attribute("yes", 5, 2))
CENSUS = (
    *(Attribute(f"n{i}", i) for i in range(6)),
    *(Attribute(f"c{i}", 6 + i, size) for i, size in enumerate((9, 16, 7, 15, 6, 5, 2, 42))),
)
BOTH = (Neighbours.ADD_REMOVE, Neighbours.REPLACE)


def shaped(attributes: Any = MIXED, depth: int = 4, candidates: int = 3, leaves: int = 10_000, seed: int = 0) -> Shape:
    stream = Stream.public("test", seed)
    return draw_shape(attributes, depth=depth, candidates=candidates, leaves=leaves, stream=stream)


def some(attributes: Any, count: Any, classes: int = 2, seed: int = 0) -> Any:
    chance = np.random.default_rng(seed)
    columns = [chance.random(count) if one.numeric else chance.integers(0, one.values, count) for one in attributes]
    return np.column_stack(columns).astype(float), chance.integers(0, classes, count)


def best(number: Any, rows: Any) -> Any:
    return rows.argmax(axis=1)


def exact(counts: Any) -> Any:
    return counts


# The shape.


def test_a_path_spends_its_categories_and_never_its_numbers() -> None:
    for seed in range(20):
        shape = shaped(depth=6, seed=seed)
        for leaf in range(0, shape.leaves, 7):
            place, path = leaf, []
            for level in reversed(shape.levels):
                place = level.parent[place]
                path.append(int(level.attribute[place]))
            used = [a for a in path if a != PASS_THROUGH and not MIXED[a].numeric]
            assert len(used) == len(set(used))
        for level in shape.levels:
            sizes = np.bincount(level.parent, minlength=level.nodes)
            expected = [1 if a == PASS_THROUGH else 2 if MIXED[a].numeric else MIXED[a].values for a in level.attribute]
            assert sizes.tolist() == expected and (level.parent[level.first] == np.arange(level.nodes)).all()


def test_attributes_are_drawn_uniformly_among_those_that_are_left() -> None:
    roots = [int(shaped(depth=2, seed=seed).levels[0].attribute[0]) for seed in range(800)]
    assert np.abs(np.bincount(roots, minlength=4) / 800 - 0.25).max() < 0.06


def test_leaves_are_capped_by_a_rule_that_sees_no_record() -> None:
    for most in (1, 5, 50, 3000):
        shape = shaped(CENSUS, depth=8, leaves=most, seed=most)
        assert all(level.children <= most for level in shape.levels)
    assert shaped(CENSUS, depth=8, leaves=3000).leaves > 2900


def test_records_pass_through_where_the_attributes_run_out() -> None:
    shape = shaped((Attribute("colour", 0, 3), Attribute("yes", 3, 2)), depth=5)
    assert [level.children for level in shape.levels[1:]] == [6, 6, 6]
    values, labels = some(shape.attributes, 40)
    tree = grow_tree(shape, values, labels, 2, choose=best, noise=exact)
    assert tree.counts.sum() == 40


@pytest.mark.parametrize(("depth", "candidates", "leaves"), [(1, 3, 10), (4, 0, 10), (4, 3, 0)])
def test_a_shape_of_nothing_is_refused(depth: int, candidates: int, leaves: int) -> None:
    with pytest.raises(StudyError, match="expected a depth of at least 2"):
        shaped(depth=depth, candidates=candidates, leaves=leaves)


# Growing, beside the definition.


def by_definition(shape: Any, tree: Any, record: Any) -> int:
    """The leaf of one record, by walking down its boxes."""
    place = 0
    for level, thresholds in zip(shape.levels, tree.thresholds):
        a = int(level.attribute[place])
        step = 0 if a == PASS_THROUGH else int(record[a] >= thresholds[place]) if MIXED[a].numeric else int(record[a])
        place = int(level.first[place]) + step
    return place


def test_records_are_in_the_leaf_whose_box_holds_them() -> None:
    shape = shaped(depth=5, seed=3)
    values, labels = some(MIXED, 300, classes=3)
    tree = grow_tree(shape, values, labels, 3, choose=best, noise=exact)
    leaves = tree.path(values)[-1]
    assert leaves.tolist() == [by_definition(shape, tree, record) for record in values]
    boxes = tree.boxes
    for place, one in enumerate(MIXED):
        if one.numeric:
            assert (boxes.low[leaves, place] <= values[:, place]).all()
            assert (values[:, place] < boxes.high[leaves, place]).all()
    assert (tree.counts == count_classes(leaves, labels, shape.leaves, 3)).all()
    assert (tree.predict(values) == tree.counts.argmax(axis=1)[leaves]).all()


def scored(shape: Any, values: Any, labels: Any, at: Any, classes: Any, number: int = 0, boxes: Any = None) -> Any:
    level = shape.levels[number]
    offered = offer_candidates(level, boxes or Boxes.root(len(shape.attributes)))
    return offered, score_candidates(level, offered, values, labels, at, classes)


def test_scores_are_those_of_the_definition() -> None:
    shape = next(s for s in (shaped(seed=seed) for seed in range(99)) if s.choices[0] == 1 and s.choices[1] == 2)
    values, labels = some(MIXED, 60, classes=3)
    at = np.random.default_rng(1).integers(0, 2, 60)
    offered, found = scored(shape, values, labels, at, 3, number=1, boxes=Boxes(np.zeros((2, 4)), np.ones((2, 4))))
    for row, node in enumerate(shape.levels[1].numbers):
        own, a = at == node, shape.levels[1].attribute[node]
        for k, threshold in enumerate(offered[row]):
            left = labels[own & (values[:, a] < threshold)]
            right = labels[own & (values[:, a] >= threshold)]
            expected = sum(np.bincount(side, minlength=3).max() for side in (left, right))
            assert found[row, k] == expected


# Sensitivity, counted out.

POINTS = [(x, label) for x in (0.05, 0.5, 0.95) for label in (0, 1, 2)]
ONE = (Attribute("x", 0),)


def as_records(points: Any) -> Any:
    return np.array([[x] for x, _ in points]).reshape(-1, 1), np.array([y for _, y in points], np.int64)


def test_no_record_moves_a_score_by_more_than_one_and_all_move_the_same_way() -> None:
    """Every dataset of up to four records on a small domain, and every record that may come."""
    shape = shaped(ONE, depth=2, candidates=4)
    for size in range(5):
        for points in combinations_with_replacement(POINTS, size):
            values, labels = as_records(points)
            _, before = scored(shape, values, labels, np.zeros(size, np.int64), 3)
            for extra in POINTS:
                values, labels = as_records((*points, extra))
                _, after = scored(shape, values, labels, np.zeros(size + 1, np.int64), 3)
                moved = after - before
                assert moved.min() >= 0 and moved.max() <= 1


def test_counts_move_by_what_their_noise_is_scaled_for() -> None:
    shape, measured = shaped(depth=4, seed=5), 2
    values, labels = some(MIXED, 12)
    tree = grow_tree(shape, values, labels, 2, choose=best, noise=exact)
    others, labels_of_others = some(MIXED, 40, seed=9)

    def counted(rows: Any, of: Any) -> Any:
        path = tree.path(rows)
        return count_classes(path[-1], of, shape.leaves, 2), count_levels(shape, path, measured)

    leaves, levels = counted(values, labels)
    worst = np.zeros((2, 2))
    for gone, (record, label) in product(range(12), zip(others, labels_of_others)):
        kept = np.arange(12) != gone
        removed = counted(values[kept], labels[kept])
        replaced = counted(np.vstack([values[kept], record]), np.append(labels[kept], label))
        for row, (a, b) in enumerate((removed, replaced)):
            worst[row] = np.maximum(worst[row], [np.abs(a - leaves).sum(), np.abs(b - levels).sum()])
    for row, neighbours in enumerate(BOTH):
        budget = Budget(Decimal(1), 4, measured + 1, neighbours)
        assert worst[row].tolist() == [budget.leaves.sensitivity, budget.counts.sensitivity]


# What it costs.


@pytest.mark.parametrize(("neighbours", "factor"), [(Neighbours.ADD_REMOVE, 0.78125), (Neighbours.REPLACE, 1.2291667)])
def test_the_true_loss_of_the_published_noise(neighbours: Any, factor: float) -> None:
    budget = Budget.of(Pure(1), 8, 4, neighbours)
    assert budget.factor == pytest.approx(factor, abs=1e-6)
    # The noise itself is as printed, under both neighbour relations: 2/ε' for choices, 1/ε' for leaves, 2(p − 1)/ε for
    # levels.
    assert budget.choice.scale.total * budget.choice.scale.grid == pytest.approx(32, rel=2e-3)
    assert budget.leaves.scale.total == pytest.approx(16) and budget.counts.scale.total == pytest.approx(6)


def test_noise_with_a_delta_is_refused() -> None:
    with pytest.raises(StudyError, match=r"privacy\.delta"):
        Budget.of(ZCDP(1), 8, 4, Neighbours.REPLACE)


# Audits.


def private_tree(values: Any, labels: Any, noise: Any, budget: Any, shape: Any, *, narrower: int = 1) -> Tree:
    """A private tree as a site grows it; `narrower` draws the noise for so many times the loss."""
    loud = Budget(budget.epsilon * narrower, budget.depth, budget.levels, budget.neighbours)
    return grow_tree(
        shape,
        values,
        labels,
        2,
        choose=lambda number, rows: loud.choice.run(noise, rows, permit=simulated_permit("split", number)),
        noise=lambda counts: loud.leaves.run(noise, counts, permit=simulated_permit("leaves")),
    )


def seen_of_the_record(grow: Any, times: Any) -> np.ndarray:
    """Of each tree, the noisy count of the record's class in its leaf, and on which side of it the threshold is."""
    found = []
    for _ in range(times):
        tree = grow()
        place = int(tree.path(np.array([[0.3]]))[-1][0])
        found.append(float(np.clip(tree.counts[place, 1], -30, 30)) + (tree.thresholds[0][0] > 0.3) * 0.25)
    return np.array(found)


@pytest.mark.parametrize(("narrower", "holds"), [(1, True), (8, False)])
def test_neighbours_are_no_clearer_than_charged(narrower: int, holds: bool) -> None:
    """A record comes to four others; the same tree with an eighth of the noise is caught."""
    shape, budget = shaped(ONE, depth=2, candidates=3, seed=2), Budget(Decimal(4), 2, 3, Neighbours.ADD_REMOVE)
    charged = float(budget.choice.charged.epsilon + cast(Pure, budget.leaves.charged).epsilon)
    noise = SeededNoise(5)
    without, labels = np.full((4, 1), 0.9), np.zeros(4, np.int64)
    with_one = np.vstack([without, [[0.3]]])

    def audited(values: Any, of: Any) -> Any:
        return seen_of_the_record(lambda: private_tree(values, of, noise, budget, shape, narrower=narrower), 2500)

    found = epsilon_lower_bound(audited(with_one, np.append(labels, 1)), audited(without, labels))
    assert (found <= charged) is holds


@pytest.mark.parametrize(("neighbours", "holds"), [(Neighbours.REPLACE, True), (Neighbours.ADD_REMOVE, False)])
def test_a_replaced_record_costs_what_is_charged_for_it_and_more_than_one_that_comes(
    neighbours: Any, holds: bool
) -> None:
    """The label of one record changes, which moves two counts of its leaf. The same noise: charged for a record that
    comes, the audit refutes it; charged for one that is replaced, it holds."""
    shape, budget = shaped(ONE, depth=2, candidates=1, seed=2), Budget(Decimal(8), 2, 3, neighbours)
    values, noise = np.full((3, 1), 1e-9), SeededNoise(3)

    def seen(labels: Any) -> np.ndarray:
        trees = (private_tree(values, np.array(labels), noise, budget, shape) for _ in range(4000))
        return np.array([np.clip(one.counts[0, 1], 0, 3) - np.clip(one.counts[0, 0], 0, 3) for one in trees], float)

    found = epsilon_lower_bound(seen([0, 0, 1]), seen([0, 0, 0]))
    assert (found <= float(cast(Pure, budget.leaves.charged).epsilon)) is holds


def thresholds_from_data(values: Any) -> Any:
    """What must not be: candidates between the smallest and the largest value that there is."""
    return values.min() + np.array([0.25, 0.5, 0.75]) * (values.max() - values.min())


def test_candidates_come_from_the_schema_and_those_of_the_data_would_tell_neighbours_apart() -> None:
    """Whatever is drawn, a threshold taken from the data is one that the neighbour can't have: there is no ε."""
    near, far = np.array([0.1, 0.2, 0.3]), np.array([0.1, 0.2, 0.3, 0.9])
    assert not set(thresholds_from_data(near)) & set(thresholds_from_data(far))
    shape = shaped(ONE, depth=2)
    possible = set(offer_candidates(shape.levels[0], Boxes.root(1))[0].tolist())
    noise, budget = SeededNoise(1), Budget(Decimal(1), 2, 3, Neighbours.ADD_REMOVE)
    for values in (near, far):
        labels = np.zeros(len(values), np.int64)
        trees = [private_tree(values[:, None], labels, noise, budget, shape) for _ in range(100)]
        assert {float(tree.thresholds[0][0]) for tree in trees} == possible


def leaves_if_empty_nodes_stop(shape: Any, values: Any) -> int:
    """What must not be: how many leaves a tree has whose empty nodes are not split."""
    tree = grow_tree(shape, values, np.zeros(len(values), np.int64), 2, choose=lambda n, s: s[:, 0] * 0, noise=exact)
    path, stopped = tree.path(values), 0
    for level, nodes in zip(shape.levels, path):
        occupied = np.unique(nodes)
        stopped += sum(int((level.parent == node).sum()) - 1 for node in occupied)
    return stopped + 1


def test_empty_nodes_are_split_and_stopping_there_would_tell_neighbours_apart() -> None:
    shape = shaped(ONE, depth=3, candidates=1, seed=4)
    alone = np.full((5, 1), 1e-9)
    with_one = np.vstack([alone, [[1 - 1e-9]]])
    assert leaves_if_empty_nodes_stop(shape, alone) != leaves_if_empty_nodes_stop(shape, with_one)
    noise, budget = SeededNoise(1), Budget(Decimal(1), 3, 3, Neighbours.ADD_REMOVE)
    for values in (alone, with_one, alone[:0]):
        tree = private_tree(values, np.zeros(len(values), np.int64), noise, budget, shape)
        assert tree.counts.shape == (shape.leaves, 2) and [len(t) for t in tree.thresholds] == [1, 2]


# From the schema.


def test_rows_of_a_schema_become_attributes_and_come_back() -> None:
    schema = Schema(
        (
            Numeric("age", 0, 100, missing="cell"),
            Categorical("sex", ("f", "m"), other=True),
            Ordinal("stage", ("1", "2", "3")),
        ),
        Classes("ill", ("no", "yes")),
    )
    attributes = Attributes(schema)
    assert [(one.name, one.values) for one in attributes.all] == [
        ("age", 0),
        ("age=(missing)", 2),
        ("sex", 3),
        ("stage", 0),
    ]
    rows = np.array([[0.5, 0, 0, 1, 0, 0.5, 1], [0.0, 1, 0, 0, 1, 1.0, 1]])
    values = attributes.values(rows)
    assert values.tolist() == [[0.5, 0, 1, 0.5], [0.0, 1, 2, 1.0]]
    assert (attributes.rows(values) == rows).all()


def test_numbers_are_bucketed_by_their_public_range() -> None:
    attributes = Attributes(Schema((Numeric("x", 0, 1),), Bounded("y", -10, 10)))
    assert attributes.classes == 10
    assert attributes.labels(np.array([-10, -8.1, -8.0, 9.99, 10, 99, np.nan])).tolist() == [0, 0, 1, 9, 9, 9, 0]


@pytest.mark.parametrize(
    ("columns", "target", "key"),
    [
        ((Numeric("x", 0, 1),), None, "target"),
        ((), Classes("y", ("a", "b")), "columns"),
    ],
)
def test_schemas_without_target_or_columns_are_refused(columns: Any, target: Any, key: str) -> None:
    with pytest.raises(StudyError) as error:
        Attributes(Schema(columns, target))
    assert error.value.key == key


def test_an_agents_tree_takes_a_few_milliseconds_without_its_noise() -> None:
    """Twenty thousand leaves, five hundred records, depth eight: far below a tenth of a second of CPU."""
    values, labels = some(CENSUS, 500)
    seconds = []
    for seed in range(3):
        started = process_time()
        shape = shaped(CENSUS, depth=8, candidates=10, leaves=20_000, seed=seed)
        grow_tree(shape, values, labels, 2, choose=best, noise=exact)
        seconds.append(process_time() - started)
    assert shape.leaves > 19_900 and min(seconds) < 0.1


def wins(scores: tuple[int, ...], mean: float) -> np.ndarray:
    """With which probability each candidate of a row has the largest score with exponential noise of this mean: in a
    random order, the first that is accepted with probability exp(−(largest − own)/mean)."""
    kept = np.exp((np.array(scores) - max(scores)) / mean)
    found = np.zeros(len(scores))
    orders = list(permutations(range(len(scores))))
    for order in orders:
        left = 1.0
        for at in order:
            found[at] += left * kept[at] / len(orders)
            left *= 1 - kept[at]
    return found


def weighed(scores: tuple[int, ...], mean: float) -> np.ndarray:
    """The exponential mechanism: probabilities proportional to exp(score/mean)."""
    weights = np.exp((np.array(scores) - max(scores)) / mean)
    return np.asarray(weights / weights.sum())


@pytest.mark.parametrize(("chooses", "chances"), [("exponential", weighed), ("permute-and-flip", wins)])
@pytest.mark.parametrize("neighbours", [Neighbours.ADD_REMOVE, Neighbours.REPLACE])
def test_the_true_loss_of_a_tree_is_that_of_every_outcome_of_a_small_one(
    neighbours: Any, chooses: Any, chances: Any
) -> None:
    """Three candidates, scores that a record raises by 0 or 1 each: the largest ratio of probabilities of a choice; and
    of counts with Laplace noise, whose ratio is the L1 distance over the scale. Summed over all levels."""
    budget = Budget.of(Pure(1), 4, 3, neighbours, chooses=chooses)
    mean = budget.choice.scale.total * budget.choice.scale.grid
    steps = list(product((0, 1), repeat=3))
    # The last base has a threshold far ahead: there the exponential mechanism comes nearest to its loss.
    bases = ((5, 3, 9), (4, 4, 4), (30, 0, 0), (200, 0, 0))
    raised = [tuple(np.array(base) + step) for base in bases for step in steps]
    worst = 0.0
    for one, other in product(raised, repeat=2):
        apart = np.array(one) - np.array(other)
        one_step = (apart >= 0).all() and apart.max() <= 1
        # A record that is replaced leaves one row and comes to another, or to the same.
        if one_step or (neighbours is Neighbours.REPLACE and np.abs(apart).max() <= 1):
            worst = max(worst, float(np.abs(np.log(chances(one, mean) / chances(other, mean))).max()))
    apart_leaves, apart_counts = (1, 2) if neighbours is Neighbours.ADD_REMOVE else (2, 2)
    noise = [apart_leaves / budget.leaves.scale.total, apart_counts / budget.counts.scale.total]
    whole = (budget.depth - 1) * worst + sum(noise)
    assert 0.99 * float(budget.total) <= whole <= float(budget.total) * (1 + 1e-9)
