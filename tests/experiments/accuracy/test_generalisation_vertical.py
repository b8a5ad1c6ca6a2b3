"""Rows of vertical regressions in the comparison: over a table of our own, with classes and with a number."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from comity.data import Schema
from comity.data.schemas.columns import Bounded
from experiments.accuracy import rows as generalisation_rows
from experiments.accuracy.vertical import Dealt, of_case

from .test_generalisation import FIELDS, made


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generalisation_rows, "_diffprivlib", lambda name: None)


@pytest.mark.parametrize("colluders", [0, 1])
def test_rounds_and_the_quadratic_stand_beside_each_other(colluders: int) -> None:
    rounds, quadratic = of_case(Dealt(made(rows=6000), 2), colluders, 5.0, 2, quick=False)
    assert rounds["case"] == f"vertical made K=2 t={colluders} eps=5" and set(rounds) >= FIELDS
    assert quadratic["case"].startswith("vertical-quadratic made")
    assert rounds["pooled"] == quadratic["pooled"] > rounds["own"] > rounds["constant"]
    assert abs(rounds["below_pooled"]) < 0.02 and abs(rounds["pooled"] - rounds["sklearn"]) < 0.02
    # The tangent's probabilities are far off where classes are clear; those of the rounds are near the pooled ones.
    assert abs(rounds["log_loss"] - rounds["pooled_log_loss"]) < 0.5 * abs(
        quadratic["log_loss"] - rounds["pooled_log_loss"]
    )


def test_a_number_is_learnt_by_least_squares_alone() -> None:
    table = made(rows=3000)
    frames = [part.assign(ill=part["a"] - part["b"]) for part in (table.train, table.test)]
    numbers = replace(
        table, schema=Schema(table.schema.columns, Bounded("ill", -2, 2)), train=frames[0], test=frames[1]
    )
    (found,) = of_case(Dealt(numbers, 3), 1, 5.0, 2, quick=True)
    assert found["case"] == "vertical made K=3 t=1 eps=5" and found["log_loss"] is None
    assert found["ours"] > 0.9 and found["pooled"] == pytest.approx(1.0) and found["constant"] == 0.0
    assert np.isclose(found["below_pooled"], found["pooled"] - found["ours"])
