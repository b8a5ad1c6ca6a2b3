"""Runs of the default: exact sums equal the plain computation, whoever drops out, whenever it is resumed."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from comity.data import Records
from comity.errors import SiteLost, StudyError
from comity.federation.coordinator.lifecycle import begin, run
from comity.learn.classifiers import LinearClassifier
from comity.learn.record_sum import in_unit_ball
from comity.learn.regressor import LinearRegressor
from comity.methods.averaging import Averaging
from comity.methods.averaging.descent import first_averaged_round
from comity.methods.averaging.second_moments import Whitening
from comity.privacy.ledger import Ledger
from comity.privacy.loss import Approx, Pure
from comity.study.local.cohort import Cohort, stack_parties
from comity.study.simulation.simulate import Terms, simulate
from tests.averaging.default_consortium import (
    KINDS,
    factor_in_one_place,
    make_consortium,
    make_records,
    parties,
    protocol,
    ridge_in_one_place,
    whitening_in_one_place,
)
from tests.support.noise import NoNoise

NAMES = ("ash", "birch", "cedar", "doum", "elm")


def descended(built: Any, records: Any, consortium: Any, present_in: Any = lambda number: NAMES) -> Any:
    """The gradient solver in one place: `present_in` says who is in the sum of each round."""
    whitening = np.eye(built.features)
    for look in range(-1 - built.whitenings, -1):
        seen = np.concatenate([records[name].features for name in present_in(look)])
        whitening = whitening_in_one_place(built, consortium, seen, len(seen), whitening)

    def white(rows: Any) -> Any:
        return in_unit_ball(rows @ whitening.T)

    everyone = np.concatenate([white(records[name].features) for name in present_in(-1)])
    second = everyone.T @ everyone
    ridge = ridge_in_one_place(built, consortium, [second])
    matrix = built.objective.step_curvature(built.clip_norm(consortium)) / 2 * second + ridge * np.eye(built.features)
    weights, way = np.zeros(built.shape), []
    for number in range(built.round_count(consortium)):
        gradient = np.zeros(built.shape)
        for name in present_in(number):
            own = records[name]
            gradient += built.objective.gradient(
                weights @ whitening,
                own.features,
                built.scale_targets(own.labels),
                np.ones(len(own), bool),
                built.clip_norm(consortium),
                white(own.features),
            )
        weights = weights - np.linalg.solve(matrix, gradient.T).T
        way.append(weights)
    found = np.mean(way[first_averaged_round(built.round_count(consortium)) :], axis=0) @ whitening
    return found * factor_in_one_place(built, records, consortium, found, present_in)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_without_noise_are_the_descent_in_one_place(kind: Any) -> None:
    records, consortium = make_records(kind), make_consortium(Approx(1.0, 1e-5))
    built = protocol(kind, records, rounds=4, solver="gradient")
    released = run(parties(built, records, consortium)[0])["model"]
    np.testing.assert_allclose(released, descended(built, records, consortium), atol=2e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_the_average_without_noise_is_the_size_weighted_mean(kind: Any) -> None:
    records, consortium = make_records(kind), make_consortium(Pure(1.0))
    built = protocol(kind, records, l2=0.02, solver="average")
    released = run(parties(built, records, consortium)[0])["model"]
    sizes = np.array(list(cast(Any, built.sizes).values()))
    fits = [
        np.atleast_2d(built.objective.fit(r.features, built.scale_targets(cast(Any, r.labels)), 0.02).weights)
        for r in records.values()
    ]
    np.testing.assert_allclose(released, np.tensordot(sizes / sizes.sum(), fits, 1), atol=2e-3)


@pytest.mark.parametrize("lose", ["sum.deal[0]", "train[0]", "sum.unmask[models/0]"])
def test_the_average_is_divided_by_the_sizes_of_those_who_are_in_it(lose: str) -> None:
    records, consortium = make_records("logistic"), make_consortium(Pure(1.0), dropouts=1)
    built = protocol(records=records, l2=0.02)
    released = run(parties(built, records, consortium, lose=(("cedar", lose),))[0])["model"]
    counted = [n for n in NAMES if n != "cedar" or lose == "sum.unmask[models/0]"]
    fits: Any = sum(
        len(records[n])
        * built.objective.fit(records[n].features, built.scale_targets(cast(Any, records[n].labels)), 0.02).weights
        for n in counted
    )
    np.testing.assert_allclose(released[0], fits / sum(len(records[n]) for n in counted), atol=2e-3)


@pytest.mark.parametrize(
    "lost_in",
    ["second_moment[0]", "whitened_moment[0]", "gradient[0]", "sum.unmask[gradient/1]", "calibration[1]"],
)
def test_gradients_go_on_without_a_party_lost_in_any_round(lost_in: str) -> None:
    records, consortium = make_records("logistic"), make_consortium(dropouts=1)
    built = protocol(records=records, rounds=4)
    released = run(parties(built, records, consortium, lose=(("cedar", lost_in),))[0])["model"]
    last = {
        "second_moment[0]": -3,
        "whitened_moment[0]": -2,
        "gradient[0]": -1,
        "sum.unmask[gradient/1]": 1,
        "calibration[1]": 4,
    }
    there = lambda number: [n for n in NAMES if n != "cedar" or number <= last[lost_in]]  # noqa: E731
    np.testing.assert_allclose(released, descended(built, records, consortium, there), atol=2e-3)


def test_too_many_lost_stops_the_run_and_those_who_come_back_finish_it(tmp_path: Path) -> None:
    records, consortium = make_records("logistic"), make_consortium(dropouts=1)
    built = protocol(records=records, rounds=4)
    lose = (("cedar", "gradient[1]"), ("doum", "gradient[2]"))
    with pytest.raises(SiteLost, match="doum"):
        run(parties(built, records, consortium, lose=lose, folder=tmp_path)[0])
    # A new coordinator and new hosts on the same files.
    again, hosts = parties(built, records, consortium, folder=tmp_path)
    released = run(again)["model"]
    # The drop-out of cedar was closed in round 1; doum, whose ask was open, is in that round again.
    there = lambda number: [n for n in NAMES if n != "cedar" or number < 1]  # noqa: E731
    np.testing.assert_allclose(released, descended(built, records, consortium, there), atol=2e-3)
    draws = {n: [e.kind for e in host.store.ledger.entries()].count("draw") for n, host in hosts.items()}
    assert draws == {"ash": 8, "birch": 8, "cedar": 3, "doum": 8, "elm": 8}


def test_a_resumed_coordinator_gives_the_same_model_and_draws_nothing_twice(tmp_path: Path) -> None:
    records, consortium = make_records("logistic"), make_consortium()
    built = protocol(records=records, rounds=3)
    first, hosts = parties(built, records, consortium, folder=tmp_path)
    carry, asked = cast(Any, first.channel).carry, []

    class Killed(Exception):
        pass

    def until_killed(messages: Any) -> Any:
        asked.append(1)
        if len(asked) == 12:
            raise Killed
        return carry(messages)

    cast(Any, first.channel).carry = until_killed
    with pytest.raises(Killed):
        run(first)
    again, _ = parties(built, records, consortium, folder=tmp_path, hosts=hosts)
    resumed = run(again)["model"]
    np.testing.assert_allclose(resumed, descended(built, records, consortium), atol=2e-3)
    for host in hosts.values():
        assert [e.kind for e in host.store.ledger.entries()].count("draw") == 7
    np.testing.assert_array_equal(
        run(parties(built, records, consortium, folder=tmp_path, hosts=hosts)[0])["model"], resumed
    )


@pytest.mark.parametrize("solver", ["gradient", "average"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_model_learns_through_every_solver(kind: Any, solver: str) -> None:
    records = make_records(kind, (3000, 2000, 1500, 2500, 1000))
    built = protocol(kind, records, solver=solver, rounds=10)
    test = make_records(kind, (500,) * 5, seed=0)["elm"]
    outcome = simulate(
        built, parties=records, epsilon=2.0, delta=1e-6, unit="record", seed=3, test=test, terms=Terms(hash="ab" * 32)
    )
    constant, pooled = outcome.baseline("constant"), outcome.baseline("pooled")
    assert outcome.error is not None and constant is not None and pooled is not None
    assert outcome.error < 0.75 * constant.error
    assert pooled.error <= outcome.error + 0.03
    assert isinstance(outcome.model, LinearRegressor if kind == "linear" else LinearClassifier)
    assert outcome.guarantee.epsilon <= 2.0 and outcome.guarantee.unit == "a record"


@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_auto_takes_gradients_with_delta_and_the_average_without(delta: float) -> None:
    built = protocol()
    declared = built.declare(make_consortium(Approx(1.0, delta) if delta else Pure(1.0)))
    names = [release.name for release in declared.releases]
    assert names == (
        ["second_moment", "whitened_moment", "whitening", "gradient", "calibration", "iterate", "model", "deviations"]
        if delta
        else ["models", "model"]
    )


def test_records_may_be_added_or_removed_where_sizes_are_lower_bounds() -> None:
    records = make_records("logistic", (300, 200, 150, 250, 100))
    bounds = {name: max(1, len(own) // 2) for name, own in records.items()}
    for delta in (1e-5, 0.0):
        replaced = protocol(records=records, sizes=bounds)
        outcome = simulate(
            replaced,
            parties=records,
            epsilon=4.0,
            delta=delta,
            unit="record",
            seed=1,
            terms=Terms(neighbours="add-remove"),
        )
        assert outcome.guarantee.neighbours == "added or removed"
        assert np.isfinite(outcome.released["model"]).all()


def test_a_party_with_fewer_records_than_said_or_none_takes_part() -> None:
    records, consortium = make_records("logistic"), make_consortium(Pure(1.0))
    few = {**records, "elm": Records(records["elm"].features[:0], cast(Any, records["elm"].labels)[:0])}
    built = protocol(records=records, l2=0.02)
    released = run(parties(built, few, consortium)[0])["model"][0]
    others = {n: r for n, r in records.items() if n != "elm"}
    fits: Any = sum(
        len(r) * built.objective.fit(r.features, built.scale_targets(cast(Any, r.labels)), 0.02).weights
        for r in others.values()
    )
    np.testing.assert_allclose(released, fits / sum(cast(Any, built.sizes).values()), atol=2e-3)
    half = {**records, "ash": Records(records["ash"].features[:30], cast(Any, records["ash"].labels)[:30])}
    released = run(parties(built, half, consortium)[0])["model"][0]
    heavier = built.objective.fit(
        half["ash"].features, built.scale_targets(cast(Any, half["ash"].labels)), 0.04
    ).weights
    rest = {n: r for n, r in records.items() if n != "ash"}
    fits = sum(
        len(r) * built.objective.fit(r.features, built.scale_targets(cast(Any, r.labels)), 0.02).weights
        for r in rest.values()
    )
    np.testing.assert_allclose(released, (60 * heavier + fits) / 200, atol=2e-3)


def test_a_stack_of_parties_contributes_what_single_parties_do() -> None:
    records, consortium = make_records("softmax"), make_consortium()
    built = protocol("softmax", records)
    ledger = Ledger.in_memory(unit=consortium.unit, neighbours=consortium.neighbours)
    stacked = Cohort(
        built,
        consortium,
        blocks=partial(stack_parties, list(records.values())),
        noise=NoNoise(),
        ledger=ledger,
        study="s",
        run="r",
    )
    weights = np.random.default_rng(0).normal(size=built.shape)
    white = Whitening.identity(4).with_stage(0, 2.0, np.array([[0.5, 0.0, 0.0, 0.5]])).factors
    single, _ = parties(built, records, consortium)
    begin(single)
    asks: tuple[tuple[Any, dict[str, Any]], ...] = (
        (built.second_moment, {}),
        (built.whitened_moment, {"whitening": white}),
        (built.gradient, {"iterate": weights, "whitening": white}),
        (built.calibration, {"iterate": weights}),
    )
    for asked, values in asks:
        np.testing.assert_array_equal(single.sum(asked, **values).value, stacked.sum(asked, **values).value)


def test_one_owner_alone_needs_nobody() -> None:
    records = {"ash": make_records("logistic", (500,) * 5)["ash"]}
    outcome = simulate(protocol(records=records), parties=records, epsilon=1.0, delta=1e-5, unit="record", seed=0)
    assert outcome.released["model"].shape == (1, 4)


@pytest.mark.parametrize(
    ("options", "key", "said"),
    [
        ({"sizes": None}, "averaging.sizes", "averaging.sizes is missing"),
        ({"sizes": {"ash": 5}}, "averaging.sizes", "no size for 'birch'"),
        ({"sizes": dict.fromkeys((*NAMES, "oak"), 5)}, "averaging.sizes", "'oak', which is no party"),
        ({"sizes": {**dict.fromkeys(NAMES, 5), "elm": 0}}, "averaging.sizes.elm", "found 0"),
        ({"sizes": 0}, "averaging.sizes", "found 0"),
    ],
)
def test_sizes_are_never_assumed(options: Any, key: str, said: str) -> None:
    with pytest.raises(StudyError, match=said) as found:
        protocol(**options).declare(make_consortium())
    assert found.value.key == key


def test_bad_parameters_are_refused_before_anything_is_spent() -> None:
    with pytest.raises(StudyError, match=r"privacy\.unit"):
        simulate(protocol(), parties=make_records("logistic"), epsilon=1.0, unit="party")
    with pytest.raises(StudyError, match=r"needs privacy\.delta"):
        protocol(solver="gradient").declare(make_consortium(Pure(1.0)))
    for options, said in (
        ({"l2": 0.0}, "averaging.l2"),
        ({"rounds": 0}, "averaging.rounds"),
        ({"clip": -1.0}, "averaging.clip"),
        ({"solver": "newton"}, "averaging.solver"),
    ):
        with pytest.raises(StudyError, match=said):
            protocol(**options)
    with pytest.raises(StudyError, match="two classes"):
        Averaging.over_rows(features=2, model="logistic", classes=("a", "b", "c"), sizes=1)


def test_expectations_say_when_the_noise_drowns_everything() -> None:
    built = protocol(sizes=3)
    assert "useless" in built.expectation(make_consortium(Approx(0.01, 1e-6)))
    assert "useless" in built.expectation(make_consortium(Pure(0.001)))
    assert "useless" not in protocol(sizes=10**6).expectation(make_consortium(Approx(1.0, 1e-6)))


def test_rows_of_features_are_bounded_at_the_site() -> None:
    assert np.linalg.norm(in_unit_ball(np.full((1, 4), 7.0))) == pytest.approx(1)
