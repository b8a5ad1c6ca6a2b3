"""Models from one release of moments: how far a record moves it, what is made of it, when a study takes it."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import sqrt
from typing import Any, cast

import numpy as np
import pytest

from comity.audit import epsilon_lower_bound
from comity.audit.bound import mu_lower_bound
from comity.data import Records
from comity.errors import StudyError
from comity.federation.coordinator.lifecycle import run
from comity.federation.declare.bounds import EntrySum, RecordSum
from comity.federation.declare.payers import spent_by
from comity.learn.classifiers import LinearClassifier
from comity.learn.quadratic import UNEQUAL
from comity.learn.regressor import LinearRegressor
from comity.methods.averaging import Averaging, regression
from comity.methods.averaging.regression import TARGET_WEIGHT, Moments, clip_l1, fit_regression
from comity.privacy.loss import GDP, Approx, Pure
from comity.privacy.permit import simulated_permit
from comity.privacy.randomness import SeededNoise
from comity.study.simulation.simulate import RunOptions, simulate
from tests.averaging.default_consortium import make_consortium, make_records, parties, protocol

SURE = 1 - 1e-7


def records_of_two() -> list[Any]:
    """Rows of two features in and out of the unit ball with targets at, between and beyond their ends."""
    angles = np.arange(16) * np.pi / 8
    ring = np.column_stack([np.cos(angles), np.sin(angles)])
    rows = np.concatenate([[[0.0, 0.0]], 0.5 * ring, ring, 3 * ring[:4], [[np.nan, 1.0]]])
    return list(product(rows, (-1.0, 0.0, 0.3, 1.0, 7.0, np.nan)))


def vectors(layout: Any) -> np.ndarray:
    one = np.ones(1, bool)
    return np.stack([layout.sum_records(x[None], np.array([t]), one) for x, t in records_of_two()])


@pytest.mark.parametrize("loss", [Approx(1.0, 1e-5), Pure(1.0)])
@pytest.mark.parametrize("neighbours", ["replace", "add-remove"])
def test_no_record_moves_the_moments_further_than_declared(loss: Any, neighbours: str) -> None:
    built, consortium = (
        Averaging.over_rows(features=2, model="linear", classes=(), sizes=100),
        make_consortium(loss, neighbours=neighbours),
    )
    found, norm = vectors(built.layout(consortium)), 1 if isinstance(loss, Pure) else 2
    if neighbours == "replace":
        worst = np.linalg.norm(found[:, None] - found[None], ord=norm, axis=-1).max()
    else:
        worst = np.linalg.norm(found, ord=norm, axis=-1).max()
    declared = built.declare(consortium)["moments"].sensitivity
    assert worst <= declared
    # Twice an added record's distance needs two records without a common entry, which one target forbids.
    assert worst > (0.6 if norm == 1 and neighbours == "replace" else 0.88) * declared


def test_rows_that_reach_less_far_in_the_first_norm_are_noised_less_and_held_to_it() -> None:
    wide, short = Moments(50, sqrt(50), pure=True), Moments(50, 3.0, pure=True)
    assert short.sensitivity < wide.sensitivity / 3
    row = np.full((1, 50), 1 / sqrt(50))
    assert np.abs(clip_l1(row, 3.0)).sum() == pytest.approx(3.0)
    one = short.sum_records(row, np.ones(1), np.ones(1, bool))
    assert np.abs(one).sum() <= short.sensitivity * (1 + 1e-9) and np.abs(one).sum() > 0.99 * short.sensitivity - 0.7


def test_cutting_entries_keeps_the_first_norm_where_a_projection_would_not() -> None:
    bound, generator = EntrySum(1.0, 1.0, 2.0, 10), np.random.default_rng(0)
    left, right = generator.normal(size=(2, 300, 3)) * 3
    after = np.abs(bound.enforce(left, (3,)) - bound.enforce(right, (3,))).sum(-1)
    assert (after <= np.abs(left - right).sum(-1) + 1e-12).all()
    assert np.abs(bound.enforce(left, (3,))).max() <= bound.limit and bound.l1 >= 1.0 and bound.l2 >= 1.0
    assert not bound.enforce(np.array([np.nan, 1.0, 1.0]), (3,)).any() and not bound.neutral((3,)).any()
    # Projection on a ball shortens all entries where one grew: these two lie 0.5 apart before and 0.97 after.
    entries = np.concatenate([np.full(20, 1.0), [0.0]])
    grown = np.concatenate([np.full(20, 1.0), [0.5]])
    ball = RecordSum(1.0, sqrt(20))
    apart = np.abs(ball.enforce(entries, (21,)) - ball.enforce(grown, (21,))).sum()
    assert apart > np.abs(entries - grown).sum()


def heard(release: Any, consortium: Any, values: Any, seed: Any, count: int = 40_000) -> Any:
    """Views of one contribution under the honest parts of its noise."""
    scale, source = release.scale(consortium), SeededNoise(seed)
    total = np.rint(values / scale.grid) + np.zeros((count, len(values)))
    for _ in range(consortium.honest_parts):
        permit = simulated_permit(release.name)
        total += release.noise.draw(source, scale, total.shape, permit=permit, part=True)
    return total * scale.grid


def test_the_moments_lose_no_more_than_is_debited_for_them() -> None:
    built, consortium = (
        Averaging.over_rows(features=2, model="linear", classes=(), sizes=100),
        make_consortium(Approx(8.0, 1e-5)),
    )
    release, layout, one = built.declare(consortium)["moments"], built.layout(consortium), np.ones(1, bool)
    pair = [layout.sum_records(np.array([x]), np.array([t]), one) for x, t in (([1.0, 0.0], 1.0), ([0.0, 1.0], 1.0))]

    def measured(stretched: float = 1.0) -> float:
        seen = [heard(release, consortium, stretched * value, side) for side, value in enumerate(pair)]
        return mu_lower_bound(*(view @ (pair[0] - pair[1]) for view in seen), confidence=SURE)

    claimed = sqrt(float(cast(GDP, release.loss).square))
    assert 0.6 * claimed < measured() <= claimed
    assert (
        float(spent_by(built.declare(consortium), "ash", consortium).epsilon_at(cast(Approx, consortium.loss).delta))
        <= 8.0
    )
    # Rows and targets that were not brought within their bounds.
    assert measured(stretched=2.0) > claimed


def test_the_pure_moments_keep_their_epsilon() -> None:
    built, consortium = (
        Averaging.over_rows(features=1, model="linear", classes=(), sizes=100),
        make_consortium(Pure(2.0)),
    )
    release, layout, one = built.declare(consortium)["moments"], built.layout(consortium), np.ones(1, bool)
    pair = [layout.sum_records(np.array([[x]]), np.array([t]), one) for x, t in ((1.0, 1.0), (1.0, -1.0))]

    def measured(stretched: Any) -> float:
        seen = [heard(release, consortium, stretched * value, side) for side, value in enumerate(pair)]
        scores = [np.sign(pair[1] - pair[0]) @ np.clip(view, -9, 9).T for view in seen]
        return epsilon_lower_bound(*scores, delta=0.0, confidence=SURE)

    assert measured(1.0) <= 2.0
    assert measured(8.0) > 2.0


def exact(layout: Any, x: Any, targets: Any) -> Any:
    return layout.sum_records(x, targets, np.ones(len(x), bool))


@pytest.mark.parametrize("pure", [False, True])
def test_without_noise_it_is_least_squares(pure: bool) -> None:
    generator = np.random.default_rng(1)
    x = generator.normal(size=(300, 4))
    x /= np.maximum(1, np.linalg.norm(x, axis=1, keepdims=True))
    targets = np.clip(x @ [0.5, -0.3, 0.2, 0.0] + 0.1 * generator.normal(size=300), -1, 1)
    layout = Moments(4, 2.0, pure)
    found = fit_regression(layout, exact(layout, x, targets), records=300, deviation=0.0, classes=False)
    wanted, residuals, *_ = np.linalg.lstsq(x, targets, rcond=None)
    np.testing.assert_allclose(found.coef, wanted, atol=1e-5)
    np.testing.assert_allclose(found.shrunk, 0.0, atol=1e-9)
    wanted_errors = UNEQUAL * np.sqrt(np.diag(np.linalg.inv(x.T @ x)) * residuals[0] / 300)
    np.testing.assert_allclose(found.errors, wanted_errors, rtol=1e-5)
    classes = fit_regression(layout, exact(layout, x, np.sign(targets)), records=300, deviation=0.0, classes=True)
    np.testing.assert_allclose(classes.coef, 2 * np.linalg.lstsq(x, np.sign(targets), rcond=None)[0], atol=2e-5)


def test_a_run_over_hosts_and_one_over_stacks_are_least_squares_of_all_records() -> None:
    records, consortium = make_records("linear"), make_consortium()
    built = protocol("linear", records)
    assert [release.name for release in built.declare(consortium).releases] == ["moments", "model", "errors", "shrunk"]
    released = run(parties(built, records, consortium)[0])
    layout = built.layout(consortium)
    together: Any = sum(
        exact(layout, own.features, built.scale_targets(cast(Any, own.labels))) for own in records.values()
    )
    assert released["errors"].shape == (1, 4) and (released["errors"] > 0).all()
    plain = fit_regression(layout, together, records=200, deviation=0.0, classes=False).coef
    # The ridge that the declared noise asks for shrinks; the direction stays.
    cosine = released["model"][0] @ plain / np.linalg.norm(released["model"]) / np.linalg.norm(plain)
    assert cosine > 0.9


def test_intervals_cover_where_no_ridge_is_needed() -> None:
    generator = np.random.default_rng(2)
    x = generator.choice([-0.5, 0.5], size=(40_000, 3))
    truth = np.array([0.6, -0.2, 0.0])
    records = Records(x, np.clip(x @ truth + generator.uniform(-0.3, 0.3, 40_000), -1, 1))
    split = {f"p{at}": Records(records.features[at::4], cast(Any, records.labels)[at::4]) for at in range(4)}
    built = Averaging.over_rows(features=3, model="linear", classes=(), sizes=10_000)
    inside = []
    for seed in range(60):
        outcome = simulate(
            built,
            parties=split,
            epsilon=1.0,
            delta=1e-6,
            unit="record",
            seed=seed,
            options=RunOptions(baselines=False, hosts=False),
        )
        assert isinstance(outcome.model, LinearRegressor)
        low, high = outcome.model.interval(0.95).T
        inside.append((low <= truth) & (truth <= high))
    # 60 runs share their records, so that their residuals are one draw: the noise is what is covered here.
    assert 0.88 <= np.mean(inside) <= 1.0


@pytest.mark.parametrize("unequal", [UNEQUAL, 1.0])
def test_intervals_cover_where_residuals_are_unequal(unequal: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of the rows, which decide one coefficient, have residuals 1.6 times as large as all rows together."""
    monkeypatch.setattr("comity.learn.quadratic.UNEQUAL", unequal)
    generator, layout, truth = np.random.default_rng(5), Moments(2, 1.5, pure=False), np.array([0.3, -0.2])
    inside = []
    for _ in range(200):
        rare = generator.uniform(size=800) < 0.1
        x = np.column_stack([np.where(rare, 0.7, 0.0), generator.uniform(-0.7, 0.7, 800)])
        targets = x @ truth + np.where(rare, 0.2, 0.105) * generator.uniform(-1, 1, 800)
        found = fit_regression(layout, exact(layout, x, targets), records=800, deviation=0.0, classes=False)
        inside.append(np.abs(found.coef - truth) <= 1.959964 * found.errors)
    held = np.mean(inside, axis=0)
    # The positive control: as if residuals were equal, the coefficient is missed.
    assert held.min() >= 0.93 if unequal == UNEQUAL else held[0] < 0.9


def test_a_linear_model_by_moments_beats_gradients_where_the_budget_is_small() -> None:
    records = make_records("linear", (4000,) * 5, width=12)
    errors = {}
    for solver in ("moments", "gradient"):
        built = protocol("linear", records, solver=solver)
        found = [
            simulate(
                built,
                parties=records,
                epsilon=0.1,
                delta=1e-6,
                unit="record",
                seed=seed,
                test=make_records("linear", (500,) * 5, width=12)["elm"],
                options=RunOptions(baselines=False, hosts=False),
            ).error
            for seed in range(3)
        ]
        errors[solver] = np.mean(cast(Any, found))
    assert errors["moments"] < 0.9 * errors["gradient"]


def test_public_figures_choose_moments_for_pure_classes() -> None:
    sizes = {30: "average", 2_000: "moments", 10**7: "average"}
    for size, way in sizes.items():
        built = protocol(sizes=size)
        assert built.solver_for(make_consortium(Pure(1.0))) == way
    assert (
        regression.moments_are_better(0.01)
        and not regression.moments_are_better(0.0101)
        and not regression.moments_are_better(0.001)
    )
    assert protocol(sizes=2_000, l2=0.1).solver_for(make_consortium(Pure(1.0))) == "average"
    assert protocol(sizes=2_000).solver_for(make_consortium(Approx(1.0, 1e-6))) == "gradient"
    assert protocol("svm", sizes=2_000).solver_for(make_consortium(Pure(1.0))) == "average"
    assert (
        protocol("linear", rounds=4).solver_for(make_consortium())
        == protocol("linear", clip=0.5).solver_for(make_consortium())
        == "gradient"
    )
    assert protocol("linear", l2=0.1).solver_for(make_consortium(Pure(1.0))) == "average"
    assert (
        protocol("linear").solver_for(make_consortium(Pure(1.0)))
        == protocol("linear").solver_for(make_consortium())
        == "moments"
    )
    assert replace(protocol("linear"), features=1501).solver_for(make_consortium()) == "gradient"


def test_pure_classes_are_learned_from_moments() -> None:
    records = make_records("logistic", (4000,) * 5)
    built = protocol("logistic", records, solver="moments")
    test = make_records("logistic", (500,) * 5)["elm"]
    outcome = simulate(
        built, parties=records, epsilon=1.0, unit="record", seed=1, test=test, options=RunOptions(hosts=False)
    )
    assert isinstance(outcome.model, LinearClassifier)
    constant = outcome.baseline("constant")
    assert constant is not None and outcome.error is not None and outcome.error < 0.5 * constant.error


@pytest.mark.parametrize(("options", "said"), [({"model": "svm"}, "linear and logistic"), ({"features": 2000}, "1500")])
def test_what_moments_cant_make_is_refused(options: Any, said: str) -> None:
    with pytest.raises(StudyError, match=said) as found:
        Averaging.over_rows(**{"features": 4, "sizes": 10, "solver": "moments", **options})
    assert found.value.key == "averaging.solver"


def test_the_target_is_bounded_beside_the_features() -> None:
    layout = Moments(1, 1.0, pure=False)
    vector = layout.sum_records(np.array([[1.0]]), np.array([100.0]), np.ones(1, bool))
    np.testing.assert_allclose(layout.matrix(vector), [[1.0, TARGET_WEIGHT], [TARGET_WEIGHT, TARGET_WEIGHT**2]])
