"""The pair (what training released, the evaluation) on a record in either part: no more than the study's loss.

An adversary sees both releases of one owner, knows every record but one, and even which part that one lies in: the
strongest guess of its content loses no more than the claim. Twins that break the rules are found out: an evaluation
that reads what was trained on and charges nothing, and a split by what a record says. Draws are seeded, bounds are
taken at a confidence of 1 − 1e-7.
"""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import Any

import numpy as np
import pytest

from comity.audit.bound import mu_lower_bound
from comity.data import Records
from comity.federation.declare.consortium import Consortium
from comity.federation.declare.evaluation import split_budget
from comity.federation.evaluation.holdout import holdout_mask, select_records
from comity.methods.averaging import Averaging
from comity.privacy.accounting import gaussian_budget
from comity.privacy.loss import Approx
from comity.privacy.permit import simulated_permit
from comity.privacy.randomness import SeededNoise
from comity.privacy.unit import Neighbours, Unit
from tests.averaging.default_consortium import make_consortium

SURE, TRIALS, WIDTH = 1 - 1e-7, 12_000, 3
LOSS = Approx(4, "1e-5")
CLAIM = sqrt(float(gaussian_budget(LOSS).square))


def terms(neighbours: Neighbours = Neighbours.REPLACE) -> Consortium:
    loss, evaluation = split_budget(LOSS, Unit.RECORD, neighbours, share=0.4)
    return replace(make_consortium(LOSS, neighbours=neighbours.value), loss=loss, evaluation=evaluation)


METHOD = Averaging.over_rows(features=WIDTH, sizes=5, rounds=1, clip=0.5)
MODEL = np.array([[4.0, 0.0, 0.0]])


def held(label: int | None, changed: int = 0) -> Records:
    """Five records, of which one is of this label or, with None, is not there."""
    rows = np.tile(np.array([0.0, 1.0, 0.0]), (5, 1))
    rows[changed] = [1.0, 0.0, 0.0]
    labels = np.zeros(5, np.int64)
    if label is None:
        keep = np.arange(5) != changed
        return Records(rows[keep], labels[keep])
    labels[changed] = label
    return Records(rows, labels)


def training_sum(records: Records) -> np.ndarray:
    """The gradient at a model that a coordinator chose."""
    assert records.labels is not None
    y, present = records.labels.astype(float), np.ones(len(records), bool)
    return METHOD.objective.gradient(0 * MODEL, records.features, y, present, 0.5).reshape(-1)


def evaluation_sum(records: Records, consortium: Consortium) -> np.ndarray:
    model_evaluation = METHOD.model_evaluation(consortium)
    card = model_evaluation.card(consortium)  # type: ignore[attr-defined]
    return np.asarray(card.sums(METHOD.present({"model": MODEL}, consortium), records.features, records.labels))


def noisy(value: np.ndarray, name: str, consortium: Consortium, seed: int) -> np.ndarray:
    """What a coalition of the coordinator and one party is left with: the honest parts of the noise."""
    release = METHOD.declared(consortium)[name]
    scale, source = release.scale(consortium), SeededNoise(seed)
    total = np.rint(value / scale.grid) + np.zeros((TRIALS, value.size))
    for _ in range(consortium.honest_parts):
        total += source.rounded_gaussian(scale.part, total.shape, permit=simulated_permit(name))
    return total * scale.grid


def weight(name: str, consortium: Consortium) -> float:
    """Of a release in the likelihood ratio: the inverse variance of its noise."""
    release = METHOD.declared(consortium)[name]
    scale = release.scale(consortium)
    return 1.0 / (release.deviation(scale) * scale.grid) ** 2


def measured(one: Records, other: Records, consortium: Consortium, split: object) -> float:
    """The loss that the best test of the two releases together shows. `split` gives (training, evaluated) records."""
    pairs = [split(records) for records in (one, other)]  # type: ignore[operator]
    sums = {
        "gradient": [training_sum(train) for train, _ in pairs],
        "evaluation": [evaluation_sum(aside, consortium) for _, aside in pairs],
    }
    scores = [np.zeros(TRIALS), np.zeros(TRIALS)]
    for at, (name, values) in enumerate(sums.items()):
        direction = (values[1] - values[0]) * weight(name, consortium)
        for side in (0, 1):
            scores[side] += noisy(values[side], name, consortium, 10 * at + side) @ direction
    return mu_lower_bound(*scores, confidence=SURE)


def key_for(changed: int, aside: bool, consortium: Consortium) -> bytes:
    """A key that puts the record into this part."""
    for number in range(100):
        key = number.to_bytes(32, "big")
        mask = holdout_mask(held(0), consortium.evaluation, key, unit=consortium.unit, neighbours=consortium.neighbours)  # type: ignore[arg-type]
        if bool(mask[changed]) == aside:
            return key
    raise AssertionError("no key does")


def honest(key: bytes, consortium: Consortium) -> object:
    def split(records: Records) -> tuple[Any, Any]:
        mask = holdout_mask(records, consortium.evaluation, key, unit=consortium.unit, neighbours=consortium.neighbours)  # type: ignore[arg-type]
        return select_records(records, ~mask), select_records(records, mask)

    return split


@pytest.mark.parametrize("aside", [False, True])
def test_a_replaced_record_loses_the_study_s_loss_in_either_part(aside: bool) -> None:
    consortium = terms()
    found = measured(held(0), held(1), consortium, honest(key_for(0, aside, consortium), consortium))
    assert found <= CLAIM
    # The other rounds' share of training is not spent here; the audit sees what there is.
    assert found > (0.75 if aside else 0.5) * CLAIM


@pytest.mark.parametrize("aside", [False, True])
def test_a_record_that_is_not_there_loses_no_more(aside: bool) -> None:
    """The last record, so that the coins of the others stay theirs: the coupling of the proof."""
    consortium = terms(Neighbours.ADD_REMOVE)
    found = measured(held(1, 4), held(None, 4), consortium, honest(key_for(4, aside, consortium), consortium))
    assert 0.4 * CLAIM < found <= CLAIM


def test_an_evaluation_that_reads_what_was_trained_on_is_found_out() -> None:
    consortium = terms()
    found = measured(held(0), held(1), consortium, lambda records: (records, records))
    assert found > 1.1 * CLAIM


def test_a_split_by_content_is_found_out() -> None:
    """A record that says yes is set aside: how many are tells what it said."""
    consortium = terms()

    def split(records: Records) -> tuple[Any, Any]:
        assert records.labels is not None
        yes = records.labels == 1
        return select_records(records, ~yes), select_records(records, yes)

    assert measured(held(0), held(1), consortium, split) > 1.1 * CLAIM
