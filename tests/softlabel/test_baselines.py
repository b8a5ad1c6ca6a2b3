"""What a run is compared with: classifiers of parties of different sizes, fitted together, are those of each alone."""

from __future__ import annotations

import numpy as np
import pytest

from comity.data import Records
from comity.data.padded import padded
from comity.learn.models import LinearClassifier
from comity.protocols.softlabel.baselines import baselines, wrong
from comity.protocols.softlabel.local_classifier import linear_weights

SIZES = (0, 1, 5, 6, 7, 25, 31, 40)


def drawn(generator: np.random.Generator, count: int, classes: int) -> Records:
    features = generator.normal(size=(count, 4))
    scores = features @ np.arange(4 * classes).reshape(4, classes) + generator.normal(size=(count, classes))
    return Records(features / 4, scores.argmax(axis=1))


@pytest.mark.parametrize("classes", [2, 3])
def test_parties_that_are_fitted_together_err_as_each_alone(classes):
    generator = np.random.default_rng(classes)
    train, test = [drawn(generator, size, classes) for size in SIZES], drawn(generator, 400, classes)
    names = tuple("abc"[:classes])

    def alone(records: Records) -> float:
        present = np.ones(len(records), bool)
        weights, _ = linear_weights(records.features, np.asarray(records.labels), present, classes, 0.01)
        return wrong(LinearClassifier(weights, classes=names), test)

    found = {one.name: one for one in baselines(train, test, names, 0.01)}
    each = [alone(records) for records in train if len(records)]
    assert found["own data"].error == pytest.approx(np.mean(each), abs=1e-12)
    assert found["own data"].spread == pytest.approx(np.std(each), abs=1e-12)
    pooled = Records(np.concatenate([r.features for r in train]), np.concatenate([r.labels for r in train]))
    assert found["pooled"].error == alone(pooled)


def test_a_stack_says_which_rows_are_records():
    few, more = Records(np.ones((1, 2)), np.array([1])), Records(np.full((3, 2), 2.0), np.array([0, 1, 1]))
    features, labels, present = padded([few, more])
    assert features.shape == (2, 3, 2) and features[0, 1:].sum() == 0 and (features[1] == 2).all()
    assert present.tolist() == [[True, False, False], [True, True, True]]
    assert labels.tolist() == [[1, 0, 0], [0, 1, 1]]
    alone = padded([more])
    assert alone[0].base is more.features and alone[1].tolist() == [[0, 1, 1]] and alone[2].all()
    assert padded([Records(np.zeros((0, 2)))])[2].tolist() == [[False]]
