"""A vertical model on rows that all owners set aside: sensitivity by trying, exact sums, the same rows everywhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from comity.data import Records
from comity.errors import StudyError
from comity.federation.declaring.evaluation import divided
from comity.privacy.loss import Approx, Pure
from comity.privacy.unit import Neighbours, Unit
from comity.protocols.vertical import GradientRegression, VerticalRegression
from comity.protocols.vertical.evaluation import L1, L2, SQUARES, ErrorsByColumns, Parts
from comity.runtime.records.encodings import encoded
from comity.runtime.simulation.simulate import simulate
from tests.evaluation.consortia import of_vertical
from tests.vertical.consortia import HELD, people, schema


def method(size: int = 2, *, linear: bool = True, **given: Any) -> VerticalRegression:
    return VerticalRegression(schema=schema(linear=linear), columns=HELD[size], products="dealer", **given)


def entries(parts: Parts, rows: dict[str, Records]) -> np.ndarray:
    """Each record's own addition to the opened sums, all columns in one place."""
    held = {party: parts.matrix(records, party) for party, records in rows.items()}
    e, t = sum(matrix[:, 0] for matrix in held.values()), held[parts.layout.label_at][:, 1]
    return np.stack([e, t, SQUARES * e * e, e * t, t * t], 1)


@pytest.mark.parametrize("linear", [True, False])
@pytest.mark.parametrize("size", [2, 3, 4])
def test_no_record_moves_the_sums_further_than_declared_whatever_the_model(linear: bool, size: int) -> None:
    built, generator = method(size, linear=linear), np.random.default_rng(size)
    width, largest = built.layout.encoding.width, 0.0
    for scale in (0.01, 0.3, 2.0, 1e6):
        coef = scale * generator.normal(size=width)
        rows = {}
        for party in built.layout.parties:
            shape = (60, built.layout.encoding_of(party).width)
            # Whatever a record may hold, far outside of every bound.
            x = generator.choice([-1.0, 1.0, 0.0, 50.0, np.nan], size=shape)
            y = generator.choice([0.0, 10.0, 5.0, 99.0] if linear else [0, 1], size=60)
            rows[party] = Records(x, y if party == built.layout.label_at else None)
        found = entries(Parts(built.layout, coef), rows)
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


@pytest.mark.parametrize("products", ["dealer", "rlwe"])
@pytest.mark.parametrize("aligned", [False, True])
def test_figures_are_those_of_the_rows_that_were_set_aside(aligned: bool, products: Any) -> None:
    """At an epsilon that leaves next to no noise: the error of the released model on other rows of the same kind."""
    agreed, frame = schema(linear=True, identifier=aligned), people(1500, linear=True)
    built = VerticalRegression(
        schema=agreed, columns=HELD[2], products=products, alignment="keyed" if aligned else "none"
    )
    frames = {"ash": frame, "birch": frame.sample(frac=1, random_state=1) if aligned else frame}
    made = simulate(
        built,
        parties=frames if aligned else {name: one.drop(columns="person") for name, one in frames.items()},
        schema=agreed,
        epsilon=2000.0,
        delta=1e-6,
        unit="record",
        seed=3,
        evaluation={"share": 0.4},
    )
    found, truth = made.evaluation, people(20_000, seed=99, linear=True)
    assert found is not None
    wrong = float(((truth["sick"] - made.model.predict(truth)) ** 2).mean())
    assert found["mean squared error"].value == pytest.approx(wrong, rel=0.15)
    assert found["R²"].value == pytest.approx(1 - wrong / truth["sick"].var(), abs=0.05)
    assert found["slope"].value == pytest.approx(1.0, abs=0.15)
    assert found.records == 600 or (aligned and 500 < found.records < 700)


def test_the_model_after_rounds_is_the_one_that_is_measured() -> None:
    frame = people(900).drop(columns="person")
    made = simulate(
        GradientRegression(quadratic=method(linear=False), rounds=2),
        parties=dict.fromkeys(HELD[2], frame),
        schema=schema(),
        epsilon=2000.0,
        delta=1e-6,
        unit="record",
        seed=3,
        evaluation={"share": 0.4},
    )
    found, truth = made.evaluation, people(5000, seed=99)
    assert found is not None
    score = made.model.encoding.encode(truth).records.features @ made.model.weights[0]
    wrong = float(((truth["sick"] == "yes") - np.clip(0.5 + score / 4, -0.5, 1.5)).pow(2).mean())
    assert found["squared error"].value == pytest.approx(wrong, rel=0.2)


def test_a_seeded_simulation_is_repeatable() -> None:
    one, other = (of_vertical(4)[0].evaluation for _ in range(2))
    assert one == other and one is not None


def test_ceilings_about_one_party_s_columns_are_refused() -> None:
    built = method(pure=True, party_epsilon={"ash": 0.9})
    loss, terms = divided(Pure(1), Unit.RECORD, Neighbours.REPLACE)
    from comity.federation.declaring.consortium import Consortium

    who = Consortium(parties=tuple(HELD[2]), loss=loss, unit=Unit.RECORD, evaluation=terms)
    with pytest.raises(StudyError, match="party_epsilon"):
        ErrorsByColumns(built, built).declare(who)
    with pytest.raises(StudyError, match=r"privacy\.colluders"):
        ErrorsByColumns(method(pure=True), method(pure=True)).declare(replace(who, colluders=0))


def test_nothing_to_measure_on_leaves_the_model() -> None:
    frame = people(4, linear=True).drop(columns="person")
    made = simulate(
        method(), parties=dict.fromkeys(HELD[2], frame), schema=schema(linear=True), epsilon=1.0, delta=1e-6,
        unit="record", seed=1, grant=1.0, evaluation={"share": 0.1},
    )  # fmt: skip
    assert made.evaluation is None and made.model is not None
    assert "quality" not in made.released


def test_encoded_parts_add_up_to_the_model_s_own_error() -> None:
    built = method(3)
    frame, layout = people(40, linear=True), built.layout
    coef = 0.1 * np.random.default_rng(0).normal(size=layout.encoding.width)
    rows = {party: encoded(built, frame, party, party=party) for party in layout.parties}
    parts = Parts(layout, coef)
    e = entries(parts, rows)[:, 0] * parts.scale
    target = 2 * frame["sick"].to_numpy() / 10 - 1
    guess = layout.encoding.encode_features(frame) @ coef
    assert e == pytest.approx(target - guess, abs=0.01)
    assert Approx(1, "1e-6").delta > 0
