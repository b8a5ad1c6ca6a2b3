"""What plans by gradients warn of: noise that may leave no more than a constant; and how many rounds they take."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from comity.data import Records
from comity.federation.evaluation.assessment import log_loss
from comity.methods.averaging import Averaging
from comity.methods.averaging.descent import count_rounds
from comity.privacy.loss import Approx
from comity.study.simulation.simulate import RunOptions, simulate
from tests.averaging.default_consortium import make_consortium
from tests.averaging.test_several_classes import CLASSES, table
from tests.support.consortia import NAMES

ALL = tuple(map(str, range(CLASSES)))
LOUD = "no more accurate than the most frequent class"


def averaging(size: int, features: int = 13, model: str = "softmax", **options: Any) -> Any:
    classes = {"softmax": ALL, "linear": ()}.get(model, ALL[:2])
    kind: Any = model
    return Averaging.over_rows(features=features, sizes=size, classes=classes, model=kind, **options)


@pytest.mark.parametrize(("rows", "warned"), [(600, True), (15_000, False)])
def test_a_model_that_noise_makes_worse_than_frequencies_is_warned_of(rows: int, warned: bool) -> None:
    train, test = table(1, rows), table(2, 5_000)
    assert train.labels is not None and test.labels is not None
    truth, parties = test.labels.astype(np.int64), NAMES
    method = averaging(rows // len(parties))
    found = simulate(
        method,
        parties={
            name: Records(train.features[at :: len(parties)], train.labels[at :: len(parties)])
            for at, name in enumerate(parties)
        },
        epsilon=1.0,
        delta=1e-6,
        unit="record",
        seed=5,
        options=RunOptions(baselines=False, hosts=False),
    )
    model: Any = found.presented
    shares = np.bincount(train.labels.astype(np.int64), minlength=CLASSES) / rows
    constant = log_loss(np.tile(np.maximum(shares, 1 / rows), (len(truth), 1)), truth)
    worse = log_loss(np.asarray(model.predict_proba(test.features)), truth) > constant
    sentences = method.warnings(make_consortium(Approx(1.0, 1e-6)))
    assert worse == warned == any(LOUD in one for one in sentences)


def test_classes_and_features_bring_noise_and_records_take_it() -> None:
    terms = make_consortium(Approx(1.0, 1e-6))

    def is_warned(method: Any) -> bool:
        return any(LOUD in one for one in method.warnings(terms))

    assert is_warned(averaging(200)) and not is_warned(averaging(2_000))
    assert not is_warned(averaging(200, model="logistic")) and is_warned(averaging(200, 400, "logistic"))
    (sentence,) = averaging(40, model="svm").warnings(terms)
    assert LOUD in sentence and "probabilities" not in sentence
    assert not is_warned(averaging(40, model="linear", solver="gradient", low=0.0, high=1.0))


@pytest.mark.parametrize(
    ("features", "noise", "rounds"),
    [(400, 0.001, 20), (400, 1.0, 20), (401, 0.001, 40), (401, 0.012, 40), (401, 0.05, 20), (401, 0.2, 40)],
)
def test_wide_records_take_twice_the_rounds_where_noise_is_little_or_much(
    features: int, noise: float, rounds: int
) -> None:
    assert count_rounds(features, noise) == rounds


def test_the_rounds_of_a_plan_follow_the_noise_and_what_the_study_says_stands() -> None:
    rounds = {}
    for epsilon in (0.1, 1.0, 10.0):
        terms, method = make_consortium(Approx(epsilon, 1e-6)), averaging(6_000, 603, "logistic")
        rounds[epsilon] = method.round_count(terms)
        declared = method.declare(terms)
        assert declared["gradient"].times == rounds[epsilon]
        assert f"{rounds[epsilon]} rounds are averaged" in method.expectation(terms)
        assert averaging(6_000, 603, "logistic", rounds=7).declare(terms)["gradient"].times == 7
    assert rounds == {0.1: 20, 1.0: 40, 10.0: 40}
