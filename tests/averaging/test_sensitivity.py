"""Every sensitivity of the default, by brute force on small cases."""

from __future__ import annotations

from itertools import product
from math import sqrt
from typing import Any, cast

import numpy as np
import pytest

from comity.federation.declare.bounds import RecordSum
from comity.federation.declare.payers import spent_by
from comity.learn.record_sum import from_upper_triangle, in_unit_ball, upper_triangle
from comity.methods.averaging.objectives import TOLERANCE, objective_of
from comity.methods.averaging.published.noise import gradient_diameter
from comity.privacy.loss import Approx, Pure
from tests.averaging.default_consortium import KINDS, make_consortium, make_records, protocol


def classes_of(kind: Any) -> int:
    return {"softmax": 3, "linear": 0}.get(kind, 2)


def targets_of(kind: Any) -> tuple[Any, ...]:
    return (-1.0, 0.0, 1.0) if kind == "linear" else tuple(map(float, range(classes_of(kind))))


def disc(count: Any) -> np.ndarray:
    """Points of the unit disc and its boundary, the origin among them."""
    angles = np.arange(count) * 2 * np.pi / count
    ring = np.column_stack([np.cos(angles), np.sin(angles)])
    return np.concatenate([[[0.0, 0.0]], 0.5 * ring, ring])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("neighbours", ["replace", "add-remove"])
def test_no_record_moves_a_gradient_sum_further_than_declared(kind: Any, neighbours: str) -> None:
    loss = objective_of(kind, classes_of(kind))
    built = protocol(kind, solver="gradient")
    consortium = make_consortium(neighbours=neighbours)
    declared, cut = built.declare(consortium)["gradient"].sensitivity, built.clip_norm(consortium)
    points, generator = disc(12), np.random.default_rng(1)
    worst = 0.0
    for scale in (0.0, 1.0, 10.0, 1000.0):
        weights = scale * generator.normal(size=(loss.width, 2))
        one = np.concatenate(
            [
                loss.gradient(weights, point[None], np.array([y]), np.ones(1, bool), cut)[None]
                for point, y in product(points, targets_of(kind))
            ]
        )
        flat = one.reshape(len(one), -1)
        if neighbours == "replace":
            worst = max(worst, float(np.linalg.norm(flat[:, None] - flat[None], axis=-1).max()))
        else:
            worst = max(worst, float(np.linalg.norm(flat, axis=-1).max()))
    assert worst <= declared
    # And the bound is not slack: half of it would not do.
    assert worst > 0.85 * declared


def test_records_outside_the_ball_are_brought_inside_and_broken_ones_count_as_none() -> None:
    rows = np.array([[3.0, 4.0], [0.3, 0.4], [np.nan, 1.0], [np.inf, 0.0], [1e200, 1e200], [0.0, 0.0]])
    inside = in_unit_ball(rows)
    np.testing.assert_allclose(np.linalg.norm(inside, axis=1), [1, 0.5, 0, 0, 1, 0], atol=1e-12)
    loss = objective_of("linear", 0)
    broken = loss.gradient(np.full((1, 2), 1e308), inside, np.zeros(6), np.ones(6, bool), 1.0)
    assert np.isfinite(broken).all()


def test_the_second_moment_moves_by_root_two_at_most_and_its_vector_has_the_matrix_norm() -> None:
    points = disc(24)
    vectors = np.stack([upper_triangle(point[None]) for point in points])
    worst = np.linalg.norm(vectors[:, None] - vectors[None], axis=-1).max()
    assert worst == pytest.approx(sqrt(2))
    assert np.linalg.norm(vectors, axis=-1).max() == pytest.approx(1)
    built = protocol()
    assert built.declare(make_consortium())["second_moment"].sensitivity >= worst
    assert built.declare(make_consortium(neighbours="add-remove"))["second_moment"].sensitivity >= 1
    rows = np.random.default_rng(0).normal(size=(5, 4))
    np.testing.assert_allclose(from_upper_triangle(upper_triangle(rows), 4), rows.T @ rows)
    assert np.linalg.norm(upper_triangle(rows)) == pytest.approx(np.linalg.norm(rows.T @ rows))


def test_projection_brings_no_two_sums_further_apart() -> None:
    bound, generator = RecordSum(1.0, 2.0), np.random.default_rng(3)
    left, right = generator.normal(size=(200, 3)) * 3, generator.normal(size=(200, 3)) * 3
    after = np.linalg.norm(bound.enforce(left, (3,)) - bound.enforce(right, (3,)), axis=1)
    assert (after <= np.linalg.norm(left - right, axis=1) + 1e-12).all()
    assert np.linalg.norm(bound.enforce(left, (3,)), axis=1).max() <= 2 * (1 + 1e-12)


@pytest.mark.parametrize("l2", [1.0, 0.3, 0.1, 0.01, 1e-3, 1e-4])
def test_no_two_logistic_gradients_are_further_apart_than_the_diameter(l2: float) -> None:
    angles = np.linspace(0, 2 * np.pi, 721)
    # As far out as any fit lies: λr = max_a a·σ(−ra).
    reach = np.linspace(0, sqrt(0.27846 / l2), 400)
    a = np.linspace(0, 1, 400)
    pulled = (a[None] / (1 + np.exp(reach[:, None] * a[None]))).max(1)
    worst = 0.0
    for r in reach[l2 * reach <= pulled][:: max(1, len(reach) // 40)]:
        curve = np.exp(1j * angles) / (1 + np.exp(r * np.cos(angles)))
        worst = max(worst, float(np.abs(curve[:, None] - curve[None, ::3]).max()))
    assert worst <= gradient_diameter(l2)
    assert worst > 0.97 * gradient_diameter(l2)


def test_the_diameters_of_the_design() -> None:
    found = [gradient_diameter(l2) for l2 in (1.0, 0.1, 0.01, 1e-3)]
    np.testing.assert_allclose(found, [1.02, 1.21, 1.64, 1.91], atol=0.006)


def moved(loss: Any, x: Any, y: Any, other_x: Any, other_y: Any, l2: Any, size: Any) -> Any:
    """How far m·w moves between two data sets, with the penalties that sites of that public size take."""
    fits = []
    for rows, labels in ((x, y), (other_x, other_y)):
        fits.append(np.atleast_2d(loss.fit(rows, labels, l2 * max(1.0, size / len(rows))).weights))
    return size * float(np.linalg.norm(fits[0] - fits[1]))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("l2", [1.0, 0.05])
def test_no_record_moves_a_weighted_fit_further_than_declared(kind: Any, l2: float) -> None:
    loss = objective_of(kind, classes_of(kind))
    generator, worst = np.random.default_rng(4), 0.0
    points = disc(6)
    bound = loss.diameter(l2) / l2 + 10 * 2 * TOLERANCE / l2
    for count in (1, 2, 5):
        for size in (1, 3, 10):
            for _ in range(6):
                rows = points[generator.integers(0, len(points), count)]
                labels = generator.choice(targets_of(kind), count)
                new, label = points[generator.integers(0, len(points))], generator.choice(targets_of(kind))
                replaced, relabelled = rows.copy(), labels.copy()
                replaced[0], relabelled[0] = new, label
                worst = max(worst, moved(loss, rows, labels, replaced, relabelled, l2, size))
                added, labelled = np.vstack([rows, new]), np.append(labels, label)
                worst = max(worst, moved(loss, rows, labels, added, labelled, l2, size))
    assert worst <= bound
    # Opposite records of a party that the study takes for a large one: near to the worst there is.
    x = np.array([[1.0, 0.0]])
    far = moved(loss, x, np.array([targets_of(kind)[0]]), x, np.array([targets_of(kind)[-1]]), l2, 1000)
    assert 0.25 * bound < far <= bound + 1000 * 2 * TOLERANCE / l2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("l2", [1.0, 0.01])
def test_no_fit_is_longer_than_its_radius(kind: Any, l2: float) -> None:
    loss = objective_of(kind, classes_of(kind))
    generator = np.random.default_rng(5)
    longest = 0.0
    for count in (1, 2, 4, 8):
        for _ in range(10):
            rows = disc(8)[generator.integers(0, 17, count)]
            longest = max(
                longest, float(np.linalg.norm(loss.fit(rows, generator.choice(targets_of(kind), count), l2).weights))
            )
    assert 0.3 * loss.radius(l2) < longest <= loss.radius(l2) * (1 + 1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("neighbours", ["replace", "add-remove"])
def test_what_a_run_declares_for_its_average_holds_over_all_parties(kind: Any, neighbours: str) -> None:
    built = protocol(kind, solver="average", l2=0.05)
    release = built.declare(make_consortium(Pure(1.0), neighbours=neighbours))["models"]
    assert release.sensitivity >= built.objective.diameter(0.05) / 0.05
    # Whoever's record it is: a small party's size cancels.
    sizes = {"ash": 3, "birch": 1000, "cedar": 10, "doum": 10, "elm": 10}
    again = protocol(kind, solver="average", l2=0.05, sizes=sizes)
    assert again.declare(make_consortium(Pure(1.0)))["models"].sensitivity == pytest.approx(
        release.sensitivity, rel=1e-3
    )


def test_the_parts_of_the_budget_are_within_the_whole() -> None:
    for epsilon, delta, rounds in ((0.1, 1e-5, 20), (1.0, 1e-6, 7), (8.0, 1e-9, 1)):
        built = protocol(rounds=rounds)
        consortium = make_consortium(Approx(epsilon, delta))
        spent = spent_by(built.declare(consortium), "ash", consortium)
        found = float(spent.epsilon_at(cast(Approx, consortium.loss).delta))
        assert epsilon * 0.999 < found <= epsilon


def test_made_records_lie_in_the_ball() -> None:
    assert all(np.linalg.norm(own.features, axis=1).max() <= 1 + 1e-12 for own in make_records("logistic").values())
