"""DiffGen: taxonomies from files and schemas, scores whose sensitivity is counted out, and audits that a leak fails."""

from __future__ import annotations

from decimal import Decimal
from itertools import combinations_with_replacement, product
from typing import Any, cast

import numpy as np
import pytest

from comity.audit import epsilon_lower_bound
from comity.data import Categorical, Classes, Numeric, Schema
from comity.entropy import Stream
from comity.errors import StudyError
from comity.methods.synthetic.published.baselines.diffgen.budget import DiffGenBudget
from comity.methods.synthetic.published.baselines.diffgen.specialising import (
    Interval,
    below,
    draw_generalised,
    generalise,
    inside,
    leaf_of,
    utility,
)
from comity.methods.synthetic.published.baselines.diffgen.taxonomy import Group, taxonomy_of
from comity.methods.synthetic.published.tree import Attributes
from comity.privacy.permit import simulated_permit
from comity.privacy.randomness import SeededNoise
from comity.privacy.unit import Neighbours
from experiments.data.adult import adult_schema
from experiments.papers.synthetic.adult_taxonomy import adult_taxonomy

SCHEMA = Schema((Numeric("x", 0, 1), Categorical("town", ("a", "b", "c", "d"))), Classes("y", ("no", "yes")))
ATTRIBUTES = Attributes(SCHEMA)
TOWNS = 'town = {north = ["a", "b"], south = ["c", "d"]}'
TAXONOMY = taxonomy_of(ATTRIBUTES, TOWNS)


def some(count: Any, seed: int = 0) -> Any:
    chance = np.random.default_rng(seed)
    values = np.column_stack([chance.random(count), chance.integers(0, 4, count)]).astype(float)
    return values, (values[:, 0] > 0.4).astype(np.int64)


def exact(values: Any, labels: Any, *, specialisations: int = 3, leaves: int = 1000, taxonomy: Any = TAXONOMY) -> Any:
    return generalise(
        taxonomy,
        values,
        labels,
        2,
        specialisations=specialisations,
        candidates=5,
        leaves=leaves,
        stream=Stream.public("test"),
        choose=lambda rows: rows.argmax(axis=1),
        noise=lambda counts: counts,
    )


# Taxonomies.


def leaves_below(group: Any) -> set[Any]:
    return {group.values} if not group.below else set().union(*(leaves_below(one) for one in group.below))


def test_groups_of_the_file_then_what_it_does_not_place() -> None:
    number, town = TAXONOMY.roots
    assert town is not None
    assert number is None and [one.values for one in town.below] == [(0, 1), (2, 3)]
    assert leaves_below(town) == {(0,), (1,), (2,), (3,)}
    partly = taxonomy_of(ATTRIBUTES, 'town = {north = ["a", "b", "nowhere"], alone = ["nowhere"]}').roots[1]
    assert partly is not None
    assert [one.values for one in partly.below] == [(0, 1), (2,), (3,)]
    assert [one.values for one in cast(Any, taxonomy_of(ATTRIBUTES).roots[1]).below] == [(0,), (1,), (2,), (3,)]


def test_the_file_of_adult_places_every_category_once() -> None:
    attributes = Attributes(adult_schema())
    found = adult_taxonomy(attributes)
    for one, root in zip(attributes.all, found.roots):
        assert (root is None) is one.numeric
        if root is not None:
            assert leaves_below(root) == {(value,) for value in range(one.values)}
    named = {one.name: root for one, root in zip(attributes.all, found.roots)}
    assert all(
        any(below.below for below in cast(Any, named[name]).below)
        for name in ("workclass", "occupation", "marital_status")
    )


@pytest.mark.parametrize("text", ["town = 3", "town = {a = [1]}", "[", 'town = {n = ["a"], s = ["a"]}'])
def test_a_taxonomy_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(StudyError, match="the taxonomy") as refused:
        taxonomy_of(ATTRIBUTES, text)
    assert refused.value.key == "taxonomy"


# Exact parts, beside the definition.


def test_parts_of_each_attribute_cover_it_and_leaves_are_their_combinations() -> None:
    values, labels = some(300)
    found = exact(values, labels, specialisations=5)
    for attribute, parts in enumerate(found.cuts):
        covered: Any = sum(inside(part, values[:, attribute]).astype(int) for part in parts)
        assert (covered == 1).all()
    for record, leaf in zip(values, leaf_of(found.cuts, values)):
        places = [
            next(k for k, part in enumerate(parts) if inside(part, record[a : a + 1])[0])
            for a, parts in enumerate(found.cuts)
        ]
        assert leaf == np.ravel_multi_index(places, found.sizes)
    assert found.counts.sum() == 300 and len(found.counts) == np.prod(found.sizes) > 8


def test_what_tells_classes_apart_is_specialised_first() -> None:
    values, labels = some(500)
    found = exact(values, labels, specialisations=1)
    assert found.sizes == (2, 1) and abs(found.cuts[0][1].low - 0.4) < 0.2


def test_leaves_are_capped_by_a_rule_that_sees_no_record() -> None:
    values, labels = some(50)
    for most in (1, 2, 6, 40):
        for held in (values, values[:0]):
            found = exact(held, labels[: len(held)], specialisations=8, leaves=most)
            assert len(found.counts) <= most
    assert exact(values, labels, specialisations=0).counts.tolist() == [np.bincount(labels).tolist()]


def test_records_are_drawn_in_their_leaves_with_their_labels() -> None:
    values, labels = some(400)
    found = exact(values, labels, specialisations=4)
    made, told = draw_generalised(found, Stream.public("draw"))
    assert len(made) == 400
    again = np.bincount(leaf_of(found.cuts, made) * 2 + told, minlength=found.counts.size)
    assert (again == found.counts.reshape(-1)).all()
    assert set(np.unique(made[:, 1])) <= {0.0, 1.0, 2.0, 3.0} and made[:, 0].max() < 1


# Sensitivity, counted out.

POINTS = [(x, town, label) for x in (0.1, 0.9) for town in (0, 2) for label in (0, 1)]


def as_records(points: Any) -> Any:
    rows = np.array(points, float).reshape(-1, 3)
    return rows[:, :2], rows[:, 2].astype(np.int64)


def test_no_record_moves_a_score_by_more_than_one_and_all_move_the_same_way() -> None:
    """Every dataset of up to three records on a small domain, and every record that may come."""
    town: Any = TAXONOMY.roots[1]
    parts = [(0, below(Interval(0.0, 1.0, 0.5))), (1, town.below), (1, town.below[0].below)]

    def scores(points: Any) -> np.ndarray:
        values, labels = as_records(points)
        return np.array([utility(ones, values[:, a], labels, 2) for a, ones in parts])

    seen = set()
    for size in range(4):
        for points in combinations_with_replacement(POINTS, size):
            before = scores(points)
            for extra in POINTS:
                moved = scores((*points, extra)) - before
                assert moved.min() >= 0 and moved.max() <= 1
                seen |= set(moved.tolist())
    assert seen == {0, 1}


def test_counts_move_by_what_their_noise_is_scaled_for() -> None:
    values, labels = some(12)
    cuts = exact(values, labels).cuts

    def counted(rows: Any, of: Any) -> np.ndarray:
        return np.bincount(leaf_of(cuts, rows) * 2 + of, minlength=100)

    others, labels_of_others = some(20, seed=5)
    worst = [0.0, 0.0]
    for gone, (record, label) in product(range(12), zip(others, labels_of_others)):
        kept = np.arange(12) != gone
        removed = counted(values[kept], labels[kept])
        replaced = counted(np.vstack([values[kept], record]), np.append(labels[kept], label))
        worst = [max(a, float(np.abs(b - counted(values, labels)).sum())) for a, b in zip(worst, (removed, replaced))]
    assert worst == [budget(n).leaves.sensitivity for n in (Neighbours.ADD_REMOVE, Neighbours.REPLACE)]


# What it costs.


def budget(
    neighbours: Any = Neighbours.ADD_REMOVE, epsilon: int = 1, numbers: int = 1, specialisations: int = 1
) -> DiffGenBudget:
    return DiffGenBudget(Decimal(epsilon), numbers, specialisations, neighbours)


@pytest.mark.parametrize(("neighbours", "factor"), [(Neighbours.ADD_REMOVE, 0.75), (Neighbours.REPLACE, 1.5)])
def test_the_true_loss_of_the_published_noise(neighbours: Any, factor: float) -> None:
    found = budget(neighbours, numbers=6, specialisations=8)
    assert float(found.total) == pytest.approx(factor)
    # The noise is as printed, whoever is a neighbour: 2/ε' with ε' = ε/(2·(6 + 16)), and 2/ε.
    assert found.choice.scale.total * found.choice.scale.grid == pytest.approx(88, rel=2e-3)
    assert found.leaves.scale.total == pytest.approx(2)


# Audits.


def private(values: Any, labels: Any, noise: Any, found: Any, *, narrower: int = 1) -> Any:
    loud = DiffGenBudget(found.epsilon * narrower, found.numbers, found.specialisations, found.neighbours)
    return generalise(
        TAXONOMY,
        values,
        labels,
        2,
        specialisations=found.specialisations,
        candidates=3,
        leaves=100,
        stream=Stream.public("audit"),
        choose=lambda rows: loud.choice.run(noise, rows, permit=simulated_permit("choice")),
        noise=lambda counts: loud.leaves.run(noise, counts, permit=simulated_permit("leaves")),
    )


@pytest.mark.parametrize(("narrower", "holds"), [(1, True), (8, False)])
def test_neighbours_are_no_clearer_than_charged(narrower: int, holds: bool) -> None:
    """A record comes to four others; the same with an eighth of the noise is caught."""
    found, noise = budget(epsilon=4), SeededNoise(7)
    others, labels = np.tile([[0.9, 3.0]], (4, 1)), np.zeros(4, np.int64)
    record = np.array([[0.1, 0.0]])

    def seen(values: Any, of: Any) -> np.ndarray:
        out = []
        for _ in range(700):
            made = private(values, of, noise, found, narrower=narrower)
            out.append(float(np.clip(made.counts[leaf_of(made.cuts, record)[0], 1], -8, 8)) + 0.25 * len(made.cuts[0]))
        return np.array(out)

    measured = epsilon_lower_bound(seen(np.vstack([others, record]), np.append(labels, 1)), seen(others, labels))
    assert (measured <= float(found.total)) is holds


def ranges_from_data(values: Any) -> Interval:
    """What must not be: the interval that a number begins with, measured on the records."""
    return Interval(float(values.min()), float(values.max()))


def test_domains_come_from_the_schema_and_those_of_the_data_would_tell_neighbours_apart() -> None:
    """The support test: records drawn from an interval that was measured reach an outlier only if it is there."""
    near = np.array([[0.1, 0.0], [0.2, 1.0]])
    far = np.vstack([near, [[0.9, 3.0]]])
    reach = [ranges_from_data(values[:, 0]).high for values in (near, far)]
    assert reach[0] <= 0.2 < reach[1]
    assert {values[:, 1].max() for values in (near, far)} == {1.0, 3.0}, "categories that occur tell as much"
    noise, found = SeededNoise(1), budget()
    for values in (near, far, near[:0]):
        made = private(values, np.zeros(len(values), np.int64), noise, found)
        numbers, towns = made.cuts
        assert numbers[0].low == 0.0 and numbers[-1].high == 1.0
        assert {value for part in towns for value in part.values} == {0, 1, 2, 3}


def test_a_group_of_one_group_is_that_group() -> None:
    nested = taxonomy_of(ATTRIBUTES, 'town = {all = {north = ["a", "b"], south = ["c", "d"]}}').roots[1]
    assert nested == TAXONOMY.roots[1] and isinstance(nested, Group)


def test_leaves_with_the_share_of_one_choice_have_more_noise_and_cost_less() -> None:
    """As Fioretto and Van Hentenryck print it: ε/(2(d + 2h)) for every query, the counts of the leaves among them."""
    for neighbours, times in ((Neighbours.ADD_REMOVE, 1), (Neighbours.REPLACE, 2)):
        even, original = (DiffGenBudget(Decimal(1), 6, 8, neighbours, even=one) for one in (True, False))
        assert even.leaves.scale.total == pytest.approx(2 * 22) and original.leaves.scale.total == pytest.approx(2)
        assert float(even.total) == pytest.approx(times * (1 / 4 + 1 / 44))
        assert even.choice == original.choice
