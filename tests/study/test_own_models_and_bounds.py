"""What an owner's records say of its own model does not depend on the bounds of a schema."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from comity.data import Bounded, Classes, Encoding, Numeric, Schema
from comity.learn.classifiers import LinearClassifier
from comity.learn.regressor import LinearRegressor
from comity.methods.own_adaptation import adapt_linear
from tests.learn.test_baselines_and_bounds import NAMES, make_table

TABLE = make_table(600, 1)


@pytest.mark.parametrize("numbers", [False, True], ids=["classes", "numbers"])
def test_wide_bounds_make_no_owners_own_model_worse(numbers: bool) -> None:
    """The adapted model has what the owner's own records say, whatever bounds were agreed on."""
    errors = []
    for high in (40.0, 40_000.0):
        target = Bounded("risk", -8, 8) if numbers else Classes("ill", ("no", "yes"))
        schema = Schema(tuple(Numeric(name, 0, high) for name in NAMES), target)
        encoding = Encoding(schema, scaling="symmetric", rows="scaled", intercept=True)
        records = encoding.encode(TABLE.assign(risk=np.log(TABLE[NAMES]) @ [1.5, -1.0, 0.8, 0.0])).records
        weights = np.zeros((1, encoding.width))
        joint: Any = (
            LinearRegressor(weights[0], low=-8, high=8, encoding=encoding)
            if numbers
            else LinearClassifier(weights, classes=("no", "yes"), encoding=encoding)
        )
        found = adapt_linear(joint, records)
        assert found is not None
        errors.append((found.comparison.alone, found.comparison.adapted))
    assert errors[1] == pytest.approx(errors[0], rel=0.1)
