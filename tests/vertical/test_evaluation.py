"""A vertical model on rows that all owners set aside: sensitivity by trying, exact sums, the same rows everywhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from comity.data import Records
from comity.errors import StudyError
from comity.federation.declare.evaluation import split_budget
from comity.methods.vertical import Vertical, VerticalRegression
from comity.methods.vertical.evaluation import (
    L1,
    L2,
    REACH,
    SQUARES,
    ErrorParts,
    ErrorsByColumns,
    Moments,
    estimate_accuracy,
    find_consistent_moments,
)
from comity.privacy.loss import Approx, Pure
from comity.privacy.unit import Neighbours, Unit
from comity.study.records.encoding import encode_records
from comity.study.simulation.simulate import Terms, simulate
from tests.evaluation.consortia import of_vertical
from tests.support.vertical import HELD, make_people, make_schema


def method(size: int = 2, *, linear: bool = True, **given: Any) -> VerticalRegression:
    options = {"solver": "quadratic", "products": "dealer", **given}
    return Vertical.over_columns(schema=make_schema(linear=linear), columns=HELD[size], **options)


def entries(parts: ErrorParts, rows: dict[str, Records]) -> np.ndarray:
    """Each record's own addition to the opened sums, all columns in one place."""
    held = {party: parts.matrix(records, party) for party, records in rows.items()}
    e, t = sum(matrix[:, 0] for matrix in held.values()), held[parts.design.label_at][:, 1]
    return np.stack([e, t, SQUARES * e * e, e * t, t * t], 1)


@pytest.mark.parametrize("linear", [True, False])
@pytest.mark.parametrize("size", [2, 3, 4])
def test_no_record_moves_the_sums_further_than_declared_whatever_the_model(linear: bool, size: int) -> None:
    built, generator = method(size, linear=linear), np.random.default_rng(size)
    width, largest = built.design.encoding.width, 0.0
    for scale in (0.01, 0.3, 2.0, 1e6):
        coef = scale * generator.normal(size=width)
        rows = {}
        for party in built.design.parties:
            shape = (60, built.design.encoding_of(party).width)
            # Whatever a record may hold, far outside of every bound.
            x = generator.choice([-1.0, 1.0, 0.0, 50.0, np.nan], size=shape)
            y = generator.choice([0.0, 10.0, 5.0, 99.0] if linear else [0, 1], size=60)
            rows[party] = Records(x, y if party == built.design.label_at else None)
        found = entries(ErrorParts(built.design, coef), rows)
        assert np.abs(found[:, 0]).max() <= 1 and np.abs(found[:, 1]).max() <= 1
        steps = found[:, None] - found[None]
        assert np.sqrt((steps**2).sum(-1)).max() <= L2 and np.abs(steps).sum(-1).max() <= L1
        largest = max(largest, float(np.sqrt((steps**2).sum(-1)).max()))
    assert largest > 0.5 * L2


def test_the_bound_is_that_of_the_square() -> None:
    """Every pair on a grid of (e, t): what the proof adds up."""
    side = np.linspace(-1, 1, 25)
    e, t = (one.reshape(-1) for one in np.meshgrid(side, side))
    found = np.stack([e, t, SQUARES * e * e, e * t, t * t], 1)
    steps = found[:, None] - found[None]
    assert 0.7 * L2 < np.sqrt((steps**2).sum(-1)).max() <= L2
    assert 0.8 * L1 < np.abs(steps).sum(-1).max() <= L1


@pytest.mark.parametrize("largest", [1e300, 1.7e308])
def test_weights_of_any_size_leave_limits_that_are_numbers(largest: float) -> None:
    """A finite model whose sums are not finite: a part was cut down to 0 times infinity."""
    design = method(3, linear=False).design
    coef = np.zeros(design.encoding.width)
    coef[0], coef[-1] = largest, -largest
    for weights in (coef, np.full(design.encoding.width, largest)):
        parts = ErrorParts(design, weights)
        limits = np.array(list(parts.limits.values()))
        assert np.isfinite(limits).all() and (limits >= 0).all() and limits.sum() <= REACH * (1 + 1e-9)
        assert 1 < parts.scale <= 1 + REACH * (1 + 1e-9)


def moments_of(t: np.ndarray, g: np.ndarray) -> np.ndarray:
    e = t - g
    return np.array([e.mean(), t.mean(), (e * e).mean(), (e * t).mean(), (t * t).mean()])


UNITS = np.array([3.0, 1.0, 3.0, 3.0, 1.0])


def test_moments_of_rows_are_left_as_they_are_and_others_become_some() -> None:
    generator = np.random.default_rng(2)
    for two_classes in (True, False):
        for _ in range(10):
            t = np.where(generator.uniform(size=200) < 0.4, 1.0, -1.0) if two_classes else generator.uniform(-1, 1, 200)
            g = np.clip(0.6 * t + 0.5 * generator.normal(size=200), -2, 2)
            exact = moments_of(t, g)
            same = find_consistent_moments(exact, UNITS, limit=2.0, two_classes=two_classes)
            assert np.abs(np.array([same.e, same.t, same.ee, same.et, same.tt]) - exact).max() < 2e-3
            noisy = exact + 0.5 * UNITS * generator.normal(size=5)
            found = find_consistent_moments(noisy, UNITS, limit=2.0, two_classes=two_classes)
            assert found.ee >= found.e**2 - 1e-6 and found.tt - found.t**2 >= -1e-6
            assert (found.et - found.e * found.t) ** 2 <= (found.ee - found.e**2) * (found.tt - found.t**2) + 1e-3
            assert not two_classes or found.tt == pytest.approx(1.0, abs=1e-4)


def test_the_accuracy_that_moments_allow_holds_that_of_the_rows() -> None:
    """Brute force over rows of any shape, and the two inequalities at the lower end: Cantelli's and Markov's."""
    generator = np.random.default_rng(3)
    for kind in (0, 1, 2) * 6:
        t = np.where(generator.uniform(size=300) < generator.uniform(), 1.0, -1.0)
        shapes = (
            generator.choice([-2.0, 0.1, 2.0], size=300),
            0.8 * t + 0.7 * generator.normal(size=300),
            t * generator.exponential(0.5, 300) - 0.2,
        )
        g = np.clip(shapes[kind], -2, 2)
        exact, right = moments_of(t, g), float(((g > 0) == (t > 0)).mean())
        found = estimate_accuracy(exact, np.full(5, 1e-3), Moments.of(exact), limit=2.0)
        assert found.low <= right <= found.high and found.low <= found.value <= found.high
        margin, square = float((t * g).mean()), float((g * g).mean())
        if margin > 0.05:
            assert found.low >= margin**2 / square - 0.05
        # An answer that is wrong is off by 1 at least.
        assert 1 - found.low <= exact[2] + 0.01


def test_the_accuracy_is_one_that_the_consistent_moments_allow() -> None:
    """The squared error beside it is read off the same moments."""
    # Margins of -2 and 2 alone, whose mean and mean square leave one accuracy: 3/4, where normal margins had .72.
    t, g = np.ones(400), np.where(np.arange(400) < 300, 2.0, -2.0)
    exact = moments_of(t, g)
    for spread in (1e-6, 3.0):
        found = estimate_accuracy(exact, np.full(5, spread), Moments.of(exact), limit=2.0)
        assert found.value == pytest.approx(0.75, abs=2e-3) and found.low <= found.value <= found.high


def test_a_classifier_s_evaluation_says_how_many_answers_are_right() -> None:
    made, truth = of_vertical(1, linear=False)
    found = made.evaluation
    assert found is not None and list(found.figures) == ["accuracy", "squared error", "R²"]
    accuracy = found["accuracy"]
    assert accuracy.is_informative and 0 < accuracy.low <= truth["accuracy"] <= accuracy.high
    assert abs(accuracy.value - truth["accuracy"]) < 0.1
    assert 1 - accuracy.value <= 4 * found["squared error"].value + 1e-6
    assert "inf" not in " ".join(map(str, found.figures.values()))


@pytest.mark.parametrize("products", ["dealer", "rlwe"])
@pytest.mark.parametrize("aligned", [False, True])
def test_figures_are_those_of_the_rows_that_were_set_aside(aligned: bool, products: Any) -> None:
    """At an epsilon that leaves next to no noise: the error of the released model on other rows of the same kind."""
    agreed, frame = make_schema(linear=True, identifier=aligned), make_people(1500, linear=True)
    built = Vertical.over_columns(
        solver="quadratic", schema=agreed, columns=HELD[2], products=products, alignment="keyed" if aligned else "none"
    )
    frames = {"ash": frame, "birch": frame.sample(frac=1, random_state=1) if aligned else frame}
    made = simulate(
        built,
        parties=frames if aligned else {name: one.drop(columns="person") for name, one in frames.items()},
        epsilon=2000.0,
        delta=1e-6,
        unit="record",
        seed=3,
        terms=Terms(schema=agreed, evaluation={"share": 0.4}),
    )
    found, truth = made.evaluation, make_people(20_000, seed=99, linear=True)
    assert found is not None
    wrong = float(((truth["sick"] - made.model.predict(truth)) ** 2).mean())
    assert found["mean squared error"].value == pytest.approx(wrong, rel=0.15)
    assert found["R²"].value == pytest.approx(1 - wrong / truth["sick"].var(), abs=0.05)
    assert found["slope"].value == pytest.approx(1.0, abs=0.15)
    assert found.records == 600 or (aligned and 500 < found.records < 700)


def test_the_model_after_rounds_is_the_one_that_is_measured() -> None:
    frame = make_people(900).drop(columns="person")
    made = simulate(
        method(linear=False, solver="gradient", rounds=2),
        parties=dict.fromkeys(HELD[2], frame),
        epsilon=2000.0,
        delta=1e-6,
        unit="record",
        seed=3,
        terms=Terms(schema=make_schema(), evaluation={"share": 0.4}),
    )
    found, truth = made.evaluation, make_people(5000, seed=99)
    assert found is not None
    score = made.model.encoding.encode(truth).records.features @ made.model.weights[0]
    wrong = float(((truth["sick"] == "yes") - np.clip(0.5 + score / 4, -0.5, 1.5)).pow(2).mean())
    assert found["squared error"].value == pytest.approx(wrong, rel=0.2)


def test_a_seeded_simulation_is_repeatable() -> None:
    one, other = (of_vertical(4)[0].evaluation for _ in range(2))
    assert one == other and one is not None


def test_ceilings_about_one_party_s_columns_are_refused() -> None:
    built = method(pure=True, party_epsilon={"ash": 0.9})
    loss, terms = split_budget(Pure(1), Unit.RECORD, Neighbours.REPLACE)
    from comity.federation.declare.consortium import Consortium

    consortium = Consortium(parties=tuple(HELD[2]), loss=loss, unit=Unit.RECORD, evaluation=terms)
    with pytest.raises(StudyError, match="party_epsilon"):
        ErrorsByColumns(built).declare(consortium)
    with pytest.raises(StudyError, match=r"privacy\.colluders"):
        ErrorsByColumns(method(pure=True)).declare(replace(consortium, colluders=0))


def test_nothing_to_measure_on_leaves_the_model() -> None:
    frame = make_people(4, linear=True).drop(columns="person")
    made = simulate(
        method(),
        parties=dict.fromkeys(HELD[2], frame),
        epsilon=1.0,
        delta=1e-6,
        unit="record",
        seed=1,
        terms=Terms(schema=make_schema(linear=True), grant=1.0, evaluation={"share": 0.1}),
    )
    assert made.evaluation is None and made.model is not None
    assert "quality" not in made.released


def test_encoded_parts_add_up_to_the_model_s_own_error() -> None:
    built = method(3)
    frame, design = make_people(40, linear=True), built.design
    coef = 0.1 * np.random.default_rng(0).normal(size=design.encoding.width)
    rows = {party: encode_records(built, frame, party, party=party) for party in design.parties}
    parts = ErrorParts(design, coef)
    e = entries(parts, rows)[:, 0] * parts.scale
    target = 2 * frame["sick"].to_numpy() / 10 - 1
    guess = design.encoding.encode_features(frame) @ coef
    assert e == pytest.approx(target - guess, abs=0.01)
    assert Approx(1, "1e-6").delta > 0
