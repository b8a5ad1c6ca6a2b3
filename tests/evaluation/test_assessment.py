"""How good a model is in a simulation: error and baselines, and beside them what its probabilities are worth."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.metrics import log_loss as reference_loss
from sklearn.metrics import roc_auc_score

from comity.artefacts.section import Section
from comity.data import Records, clinics
from comity.federation.evaluation.assessment import Assessment, Baseline, Figure, assess_predictor, auc, log_loss
from comity.learn import LinearClassifier, LinearRegressor
from comity.report.page import render_result
from comity.study.simulation.simulate import RunOptions, simulate
from tests.report.small_run import protocol, simulated


@pytest.mark.parametrize("seed", range(5))
def test_figures_are_those_of_scikit_learn_ties_included(seed: int) -> None:
    chance = np.random.default_rng(seed)
    labels = chance.integers(0, 2, 60)
    scores = np.round(chance.normal(labels, 1.5), 1)
    assert auc(scores, labels > 0) == pytest.approx(roc_auc_score(labels, scores))
    shares = chance.dirichlet([1, 1, 1], 60)
    classes = chance.integers(0, 3, 60)
    assert log_loss(shares, classes) == pytest.approx(reference_loss(classes, shares, labels=[0, 1, 2]))


def test_a_class_that_is_absent_has_no_auc_and_certainty_costs_no_infinity() -> None:
    assert auc(np.ones(3), np.ones(3, bool)) is None and auc(np.ones(3), np.zeros(3, bool)) is None
    assert np.isfinite(log_loss(np.array([[1.0, 0.0]]), np.array([1])))


def test_a_model_with_probabilities_has_both_and_one_without_has_neither() -> None:
    test = Records(np.array([[1.0], [-1.0], [0.5]]), np.array([1, 0, 0]))
    found = assess_predictor(LinearClassifier([[2.0]], ("no", "yes")), test, 0.3, [Baseline("constant", 0.5)])
    assert [figure.name for figure in found.figures] == ["AUC", "log loss"] and found.figures[0].value == 1.0
    assert found.measure == "share of test records that is predicted wrongly" and found.error == 0.3
    three = assess_predictor(LinearClassifier(np.eye(3)[:, :1], ("a", "b", "c")), test, 0.3, [])
    assert [figure.name for figure in three.figures] == ["log loss"]
    regression = assess_predictor(LinearRegressor([1.0]), test, 0.1, [])
    assert regression.figures == () and "squared" in regression.measure
    nobody = assess_predictor(
        LinearClassifier([[2.0]], ("no", "yes")), Records(np.zeros((0, 1)), np.zeros(0)), None, []
    )
    assert nobody.figures == ()


def test_it_comes_back_from_json_and_stands_on_page_and_card() -> None:
    result = simulated(test=clinics(1, 80, "test")["clinic-01"])
    found = result.assessment
    assert [figure.name for figure in found.figures] == ["AUC", "log loss"]
    assert Assessment.from_json(json.loads(json.dumps(found.as_json()))) == found
    text = render_result(result)
    for figure in found.figures:
        assert figure.name in text and f"{figure.value:.3f}" in text


def test_comparisons_are_left_out_where_nobody_asked() -> None:
    result = simulate(
        protocol(),
        parties=clinics(3, 12),
        epsilon=1,
        delta=1e-6,
        seed=3,
        test=clinics(1, 20)["clinic-01"],
        options=RunOptions(baselines=False),
    )
    assert result.baselines == () and result.error is not None and result.assessment.figures


def test_nothing_was_measured_says_so() -> None:
    assert not Assessment().measured and not Assessment(measure="x").measured
    for one in (Assessment(0.0), Assessment(figures=(Figure("a", 1.0),)), Assessment(sections=(Section("x"),))):
        assert one.measured


@pytest.mark.parametrize(
    ("error", "other", "tested", "told"),
    [(0.30, 0.32, 100, False), (0.30, 0.32, 100_000, True), (0.2, 0.4, 1000, True), (0.3, 0.32, 0, True)],
)
def test_a_difference_is_told_where_chance_does_not_explain_it(
    error: float, other: float, tested: int, told: bool
) -> None:
    assert Assessment(error, "share of test records that is predicted wrongly", tested=tested).can_tell(other) is told
    # Chance of test records says nothing about a mean squared error, nor about a figure that is no share.
    assert Assessment(error, "mean squared error", tested=tested).can_tell(other)
    assert Assessment(-1e308, "share of test records", tested=tested).interval is None


def test_parties_alone_have_a_mean_and_a_best() -> None:
    one = Baseline.of_parties([0.3, 0.1, 0.2], "each alone")
    assert (one.name, one.best, one.note) == ("own data", 0.1, "each alone") and abs(one.error - 0.2) < 1e-12
    assert Assessment.from_json(Assessment(0.2, baselines=(one,)).as_json()).baselines == (one,)
