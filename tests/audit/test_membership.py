"""Membership inference finds records that were learned by heart, finds little under noise, and decides nothing."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import comity
from comity.audit import membership
from comity.audit.membership import illustrate_membership, uniform_rows
from comity.audit.row import Audit, Claim, Membership
from comity.data import Bounded, Categorical, Classes, Numeric, Schema

SMALL = Schema((Numeric("x", -1, 1), Numeric("n", 0, 9, integer=True)), Classes("sick", ("no", "yes")))
NAMES = ("ash", "birch", "cedar")


def test_a_dataset_of_the_records_themselves_gives_them_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken release, which is a copy of the records, beside the real one."""
    study = comity.Synthetic(SMALL).study(NAMES, epsilon=1.0, delta=1e-6)
    (private,) = illustrate_membership(study, seconds=0.0)
    assert private.kind == "dataset" and 0.35 < private.right < 0.7 and private.runs == 1

    def copied(study: object, frames: dict[str, object], seed: int) -> object:
        return SimpleNamespace(frame=frames["ash"])

    monkeypatch.setattr(membership, "_simulate", copied)
    (leaked,) = illustrate_membership(study, seconds=0.0)
    assert leaked.right > 0.6 and leaked.rates[0] > 0.3


def test_a_model_is_attacked_by_its_errors() -> None:
    study = comity.Averaging(SMALL, sizes=40).study(NAMES, epsilon=1.0, delta=1e-6)
    (found,) = illustrate_membership(study, seconds=0.0)
    assert found.kind == "model" and "no bound" in found.sentence and abs(found.right - 0.5) < 6 * found.error


def test_illustrations_decide_nothing() -> None:
    claim = Claim("ours", 1.0, 0.9, 0.95, 0.0, "a reader", "a pair")
    shown = Membership("model", "the error of the model", 0.9, 0.01, (0.8, 0.1), 3, 500)
    audit = Audit("t", 0.999, (claim,), illustrations=(shown,))
    assert audit.passed
    assert audit.as_json()["rows"][-1]["case"] == "illustration membership in a model, the error of the model"
    assert "90% of the time" in shown.sentence
    assert "succeeds on 80.0%" in replace(shown, pairs=False).sentence


def test_uniform_rows_lie_in_the_schema() -> None:
    schema = Schema((Numeric("x", 0, 9, integer=True), Categorical("c", ("u", "v"))), Bounded("y", 2, 5), "id")
    rows = uniform_rows(schema, 50, "a")
    assert rows["id"].is_unique and rows["x"].between(0, 9).all() and set(rows["c"]) == {"u", "v"}
    assert rows["y"].between(2, 5).all() and np.unique(rows["y"]).size == 50
