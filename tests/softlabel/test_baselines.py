"""What a run is compared with: a constant, each party alone and all records, as scikit-learn would fit them."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from comity.data import Records
from comity.data.records import stack_records
from comity.methods.softlabel.baselines import fit_baselines, pooled_regression

SIZES = (0, 1, 5, 6, 7, 25, 31, 40)


def drawn(generator: np.random.Generator, count: int, classes: int) -> Records:
    features = generator.normal(size=(count, 4))
    scores = features @ np.arange(4 * classes).reshape(4, classes) + generator.normal(size=(count, classes))
    return Records(features / 4, scores.argmax(axis=1))


@pytest.mark.parametrize("classes", [2, 3])
def test_parties_and_all_records_err_as_by_scikit_learn(classes: int) -> None:
    generator = np.random.default_rng(classes)
    train, test = [drawn(generator, size, classes) for size in SIZES], drawn(generator, 400, classes)

    def error(records: Records) -> float:
        labels = np.asarray(records.labels)
        if len(np.unique(labels)) < 2:
            return float(np.mean(test.labels != labels[0]))
        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(records.features, labels)
        return float(1 - model.score(test.features, test.labels))

    found = {one.name: one for one in fit_baselines(train, test, tuple("abc"[:classes]))}
    each = [error(records) for records in train if len(records)]
    assert found["own data"].error == pytest.approx(np.mean(each), abs=0.003)
    assert found["own data"].spread == pytest.approx(np.std(each), abs=0.005)
    pooled = Records(np.concatenate([r.features for r in train]), np.concatenate([r.labels for r in train]))
    assert found["pooled"].error == pytest.approx(error(pooled), abs=0.003)


def test_records_are_fitted_without_the_methods_penalty() -> None:
    """A feature of a thousandth of the others' size that tells all: divided by its deviation, it is found."""
    generator = np.random.default_rng(4)
    features = generator.normal(size=(400, 3)) * np.array([1.0, 1.0, 1e-3])
    records = Records(features, (features[:, 2] > 0).astype(np.int64))
    errors = {one.name: one.error for one in fit_baselines([records], records, ("a", "b"))}
    assert errors["pooled"] < 0.05 and errors["own data"] < 0.05
    pooled = pooled_regression(records, records, 2)
    assert pooled.auc is not None and pooled.auc > 0.99
    assert pooled.log_loss is not None and 0 < pooled.log_loss < 0.2


def test_pooled_records_of_one_class_give_that_class() -> None:
    one, test = Records(np.ones((3, 2)), np.array([1, 1, 1])), Records(np.ones((4, 2)), np.array([1, 0, 0, 2]))
    assert pooled_regression(one, test, 3).error == 0.75


def test_a_stack_says_which_rows_are_records() -> None:
    few, more = Records(np.ones((1, 2)), np.array([1])), Records(np.full((3, 2), 2.0), np.array([0, 1, 1]))
    features, labels, present = stack_records([few, more])
    assert features.shape == (2, 3, 2) and features[0, 1:].sum() == 0 and (features[1] == 2).all()
    assert present.tolist() == [[True, False, False], [True, True, True]]
    assert labels.tolist() == [[1, 0, 0], [0, 1, 1]]
    alone = stack_records([more])
    assert alone[0].base is more.features and alone[1].tolist() == [[0, 1, 1]] and alone[2].all()
    assert stack_records([Records(np.zeros((0, 2)))])[2].tolist() == [[False]]
