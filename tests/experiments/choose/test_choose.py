"""Constants are chosen on training rows, one dataset left out at a time, by runs that are the product's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest

from comity.data import Schema
from comity.data.schemas.columns import Classes, Numeric
from comity.methods.averaging import descent
from comity.methods.averaging.assessment import measure_error
from comity.privacy.randomness import SeededNoise
from experiments.accuracy import averaging as compared
from experiments.accuracy import training_rows
from experiments.accuracy.tables import Table
from experiments.choose import averaging, softlabel
from experiments.choose.leaving_out import Choice, replace_constants


def made(rows: int = 1200) -> Table:
    generator = np.random.default_rng(0)
    x = generator.uniform(-1, 1, (rows, 3))
    y = np.where(x @ [2.0, -1.0, 0.5] > 0, "yes", "no")
    frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "ill": y})
    schema = Schema(tuple(Numeric(one, -1, 1) for one in "abc"), Classes("ill", ("no", "yes")))
    return Table("made", schema, frame.iloc[: rows // 2], frame.iloc[rows // 2 :])


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(training_rows, "table", lambda name: made())
    training_rows.split_training_rows.cache_clear()
    averaging.load_table.cache_clear()
    yield
    training_rows.split_training_rows.cache_clear()
    averaging.load_table.cache_clear()


def test_rows_of_a_choice_are_training_rows_and_no_test_row(tables: None) -> None:
    whole, found = made(), training_rows.split_training_rows("made")

    def key(frame: pd.DataFrame) -> set[tuple[Any, ...]]:
        return {tuple(row) for row in frame[["a", "b", "c"]].to_numpy()}

    learned, looked_at = key(found.train), key(found.test)
    assert learned | looked_at == key(whole.train) and not learned & looked_at
    assert not (learned | looked_at) & key(whole.test) and len(learned) == 3 * len(looked_at)


def test_the_best_value_is_found_without_the_dataset_that_is_left_out() -> None:
    worth = {1: {"A": {"a": 0.9, "b": 0.7}, "B": {"c": 0.1}}, 2: {"A": {"a": 0.6, "b": 0.6}, "B": {"c": 0.4}}}
    found = Choice("_CONSTANT", (1, 2), lambda value: worth[value], 1).try_values()
    worse: Any = {"A": ("2", pytest.approx(0.2)), "B": ("1", pytest.approx(0.3))}
    assert found.best(("A", "B")) == "2" and found.without == worse
    assert "without B: 1, worth 0.3000 less" in str(found) and found.as_json()["best"] == "2"


def test_a_tried_constant_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    before = descent.ROUNDS
    with pytest.raises(RuntimeError), replace_constants({"averaging.descent.ROUNDS": 3}):
        assert descent.count_rounds(5, 0.1) == 3
        raise RuntimeError
    assert before == descent.ROUNDS


def test_runs_in_one_place_are_what_a_simulated_run_releases(tables: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """At so large an ε that draws of the noise do not matter."""
    own = averaging.load_table("made")
    consortium = own.on_terms(2000.0, 1e-6)
    weights = averaging.run_descent(own, consortium, SeededNoise(1))
    run = compared._run(
        compared.make_consortium(training_rows.split_training_rows("made", averaging._ROWS)), 2000.0, 1e-6, 1
    )
    error = measure_error(own.protocol.objective, weights, *own.test)
    assert run.repeats is not None
    assert error == pytest.approx(run.repeats.values["error"][0], abs=0.007) and error < 0.1


def test_every_choice_names_constants_that_exist() -> None:
    for module in (averaging, softlabel):
        for choice in module.choices():
            assert choice.values and choice.now is not None
            assert len(set(map(str, choice.values))) == len(choice.values)
            assert any(str(choice.now) == str(value) for value in choice.values), choice.constant
