"""The published method on one split, as tables call it: errors of both kinds of targets, with their comparisons."""

from __future__ import annotations

from dataclasses import fields
from math import isnan
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest

from comity.data import Bounded, Categorical, Classes, Numeric, Records, Schema
from comity.errors import DataError, StudyError
from comity.methods.synthetic.published.baselines import encode_records, published_errors
from comity.privacy.randomness import SeededNoise

COLUMNS = (Numeric("age", 0, 100), Categorical("sex", ("f", "m")), Numeric("dose", 0, 1))
TARGETS: dict[str, Any] = {
    "two": Classes("y", ("no", "yes")),
    "three": Classes("y", ("a", "b", "c")),
    "number": Bounded("y", 0, 100),
}


def split(kind: Any, count: int = 3000) -> tuple[Schema, Records, Records]:
    chance = np.random.default_rng(0)
    age = chance.uniform(0, 100, count)
    y = {
        "two": np.where(age > 40, "yes", "no"),
        "three": np.array(["a", "b", "c"])[np.minimum(age // 34, 2).astype(int)],
        "number": age,
    }[kind]
    frame = pd.DataFrame({"age": age, "sex": chance.choice(["f", "m"], count), "dose": chance.random(count), "y": y})
    schema = Schema(COLUMNS, TARGETS[kind])
    found = encode_records(schema, frame)
    cut = count // 5
    return (
        schema,
        Records(found.features[cut:], cast(Any, found.labels)[cut:]),
        Records(found.features[:cut], cast(Any, found.labels)[:cut]),
    )


def errors(kind: str = "two", **more: Any) -> Any:
    options = {"epsilon": 1.0, "owners": 4, "noise": SeededNoise(1), "seed": b"seed", **more}
    return published_errors(*split(kind), **options)


@pytest.mark.parametrize("kind", TARGETS)
def test_at_an_epsilon_that_protects_nobody_the_method_learns(kind: Any) -> None:
    """What is wrong with it is its noise: without it the errors are far from a constant's, for every kind of target."""
    found = errors(kind, epsilon=500.0)
    assert max(found.pfds, found.shared) < found.constant / 2 and found.pooled <= found.shared + 0.02
    assert abs(found.rows - 2400) < 20 and 0 < found.seconds < 60
    assert (found.private is None) is (kind == "three")


def test_noise_and_public_chance_decide_everything() -> None:
    first, again, other = errors(), errors(), errors(seed=b"other")
    same = [one.name for one in fields(first) if one.name != "seconds"]
    assert [getattr(first, name) for name in same] == [getattr(again, name) for name in same]
    assert first.rows != other.rows or first.own_labels != other.own_labels
    fresh = [errors(noise=None, seed=None, epsilon=0.2).own_labels for _ in range(3)]
    assert len(set(fresh)) > 1


def test_any_number_of_owners_may_share() -> None:
    one, all_of_them = errors(sharers=1), errors(sharers=None)
    assert one.rows < all_of_them.rows / 2 and one.constant == all_of_them.constant


def test_svm_and_a_run_without_comparisons() -> None:
    found = errors(learner="svm", compared=False, epsilon=500.0)
    assert isnan(found.own) and isnan(found.own_labels) and isnan(found.private) and found.pfds < found.constant / 2


def test_records_without_labels_and_learners_of_another_target_are_refused() -> None:
    schema, train, test = split("two")
    with pytest.raises(DataError, match="encode_records"):
        published_errors(schema, Records(train.features, None), test, epsilon=1.0)
    with pytest.raises(StudyError, match="learner"):
        errors("number", learner="logistic")
