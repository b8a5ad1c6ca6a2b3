"""Records from trees, votes on their labels, and what owners learn from them."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from comity.artefacts.dataset import Dataset
from comity.data import Bounded, Categorical, Classes, Numeric, Ordinal, Schema
from comity.entropy import Stream
from comity.errors import StudyError
from comity.learn.fits import fit_logistic
from comity.methods.synthetic.published.predictor import choose_learner, measure_error, train_model
from comity.methods.synthetic.published.synthesis import (
    build_table,
    clip_leaf_masses,
    draw_records,
    round_masses,
    solve_leaf_masses,
    vote,
)
from comity.methods.synthetic.published.tree import Attribute, Attributes, Tree, count_levels, draw_shape, grow_tree

ATTRIBUTES = (Attribute("x", 0), Attribute("y", 1), Attribute("colour", 2, 3), Attribute("yes", 5, 2))


def stream(*label: Any) -> Stream:
    return Stream.public("test", *label)


def some_tree(seed: int = 0, count: int = 200, depth: int = 5, classes: int = 2, leaves: int = 400) -> Any:
    chance = np.random.default_rng(seed)
    shape = draw_shape(ATTRIBUTES, depth=depth, candidates=4, leaves=leaves, stream=stream("shape", seed))
    values = np.column_stack([chance.random((count, 2)), chance.integers(0, 3, count), chance.integers(0, 2, count)])
    labels = (values[:, 0] * classes).astype(np.int64)
    tree = grow_tree(shape, values, labels, classes, choose=lambda _, rows: rows.argmax(axis=1), noise=lambda c: c)
    return tree, values, labels


def noisy(tree: Any, scale: Any, seed: Any) -> Tree:
    return Tree(
        tree.shape,
        tree.thresholds,
        tree.counts + np.rint(np.random.default_rng(seed).laplace(0, scale, tree.counts.shape)).astype(np.int64),
    )


def test_records_lie_in_the_leaves_that_they_are_made_for() -> None:
    for seed in range(5):
        tree, _, _ = some_tree(seed)
        sizes = np.random.default_rng(seed).integers(0, 4, tree.shape.leaves)
        made = draw_records(tree, sizes, stream(seed))
        assert tree.path(made)[-1].tolist() == np.repeat(np.arange(tree.shape.leaves), sizes).tolist()


def test_attributes_that_a_path_does_not_split_are_uniform_over_their_domain() -> None:
    shape = draw_shape(ATTRIBUTES, depth=2, candidates=1, leaves=9, stream=stream("shape", 1))
    split = int(shape.levels[0].attribute[0])
    tree = Tree(shape, (np.array([0.5]),), np.zeros((shape.leaves, 2), np.int64))
    sizes = np.zeros(shape.leaves, np.int64)
    sizes[0] = 3000
    made = draw_records(tree, sizes, stream(3))
    for at, one in enumerate(ATTRIBUTES):
        if at != split:
            cells = np.floor(made[:, at] * 4) if one.numeric else made[:, at]
            shares = np.bincount(cells.astype(int), minlength=one.values or 4) / 3000
            assert np.abs(shares - 1 / len(shares)).max() < 0.04


def test_sizes_are_rounded_so_that_small_leaves_add_up() -> None:
    masses = np.full(1000, 0.1)
    sizes = round_masses(masses, stream("rounding"))
    assert sizes.sum() in (99, 100, 101) and sizes.max() == 1 and np.rint(masses).sum() == 0
    edges, exact = np.cumsum(sizes), np.cumsum(masses)
    assert np.abs(edges - exact).max() <= 1


def test_least_squares_keep_the_number_of_records_and_noise_cut_at_zero_does_not() -> None:
    """The published comparison of sizes, in small: leaves with far more noise than records."""
    tree, values, _ = some_tree(seed=2, count=200, leaves=400, depth=8)
    loud = noisy(tree, 16, 1)
    counts = count_levels(tree.shape, tree.path(values), 3) + 2
    kept, cut = solve_leaf_masses(loud, counts, 3), clip_leaf_masses(loud)
    assert (kept >= 0).all() and abs(kept.sum() - 202) < 30
    assert tree.shape.leaves > 100 and cut.sum() > 1000


def test_consistent_sizes_are_those_of_the_counts_where_nothing_is_noised() -> None:
    tree, values, _ = some_tree()
    masses = solve_leaf_masses(tree, count_levels(tree.shape, tree.path(values), 3), 3)
    np.testing.assert_allclose(masses, tree.counts.sum(axis=1), atol=1e-9)


def test_labels_are_those_that_most_trees_give_the_first_of_several() -> None:
    trees = [some_tree(seed, classes=3)[0] for seed in range(4)]
    values = some_tree(9)[1]
    votes = np.stack([tree.predict(values) for tree in trees])
    expected = [np.bincount(column, minlength=3).argmax() for column in votes.T]
    assert vote(trees, values, 3).tolist() == expected
    assert vote(trees[:1], values, 3).tolist() == trees[0].predict(values).tolist()


SCHEMA = Schema(
    (
        Numeric("age", 0, 100, integer=True, missing="cell"),
        Numeric("income", 0, 1e6, scale="log"),
        Categorical("sex", ("f", "m"), other=True, missing="cell"),
        Ordinal("stage", ("1", "2", "3"), missing="cell"),
    ),
    Classes("ill", ("no", "yes")),
)


def test_the_table_is_one_that_the_schema_reads_and_encodes_to_the_same_records() -> None:
    attributes = Attributes(SCHEMA)
    chance = np.random.default_rng(0)
    columns = [chance.random(200) if one.numeric else chance.integers(0, one.values, 200) for one in attributes.all]
    values, labels = np.column_stack(columns).astype(float), chance.integers(0, 2, 200)
    frame = build_table(attributes, values, labels)
    assert list(frame.columns) == ["age", "income", "sex", "stage", "ill"]
    Dataset(frame, SCHEMA)
    encoded = attributes.encoding.encode(frame).records
    assert (cast(Any, encoded.labels) == labels).all()
    back, expected = attributes.values(encoded.features), attributes.values(attributes.rows(values))
    for at, one in enumerate(attributes.all):
        # Whole numbers and ranks are the nearest ones.
        room = {"age": 0.0051, "stage": 0.2501}.get(one.name, 1e-9)
        assert np.abs(back[:, at] - expected[:, at]).max() <= room


# What an owner learns.


@pytest.mark.parametrize("model", ["logistic", "svm"])
def test_two_classes_are_learned(model: Any) -> None:
    chance = np.random.default_rng(0)
    rows = np.column_stack([chance.random((400, 3)), np.ones(400)])
    labels = (rows[:, 0] > 0.5).astype(np.int64)
    target = Classes("y", ("a", "b"))
    weights = train_model(model, target, rows, labels, 1e-4)
    assert measure_error(target, weights, rows, labels) < 0.05


def test_several_classes_and_numbers_are_learned() -> None:
    chance = np.random.default_rng(0)
    rows = np.column_stack([chance.random((400, 3)), np.ones(400)])
    classes, number = Classes("y", ("a", "b", "c")), Bounded("y", 0, 10)
    labels = np.minimum((rows[:, 0] * 3).astype(np.int64), 2)
    assert measure_error(classes, train_model("logistic", classes, rows, labels, 1e-5), rows, labels) < 0.2
    values = 10 * rows[:, 0]
    assert measure_error(number, train_model("linear", number, rows, values, 1e-6), rows, values) < 1e-3


def test_the_weights_are_those_of_rows_as_they_are() -> None:
    chance = np.random.default_rng(1)
    rows, labels = 2 * chance.random((50, 3)), chance.integers(0, 2, 50)
    target = Classes("y", ("a", "b"))
    # The paper's penalty is λ|w|², that of the solver half of its l2 times |w|².
    np.testing.assert_allclose(
        train_model("logistic", target, rows, labels, 0.1)[0], fit_logistic(rows, labels, 0.2).weights, atol=1e-5
    )
    assert (train_model("logistic", target, rows[:0], labels[:0], 0.1) == 0).all()


@pytest.mark.parametrize(
    ("model", "target"),
    [
        ("tree", Classes("y", ("a", "b"))),
        ("linear", Classes("y", ("a", "b"))),
        ("svm", Classes("y", ("a", "b", "c"))),
        ("svm", Bounded("y", 0, 1)),
    ],
)
def test_a_model_that_does_not_learn_the_target_is_refused(model: str, target: Any) -> None:
    with pytest.raises(StudyError, match=r"synthetic\.learner"):
        choose_learner(model, target)


# Private predictors.
