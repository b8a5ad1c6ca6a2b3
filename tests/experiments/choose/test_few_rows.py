"""The rule for few rows is read off runs, and the best one is found without the dataset that is left out."""

from __future__ import annotations

import numpy as np
import pytest

from comity.methods.vertical import method
from experiments.choose import few_rows
from experiments.choose.few_rows import COUNTED, DEARER, ROUNDS, Rule, Run, choose, shortfall

RULE = Rule(counted=0.08, rounds=0.05, dearer=4.0)


def run(noise: float, *, columns: float, rounds: float, constant: float = 0.7) -> Run:
    """Log losses are those of a constant."""
    known, quadratic, descended = (np.array([one, 0.6]) for one in (constant, columns, rounds))
    return Run(noise, noise, known, known, quadratic, descended)


def test_a_rule_counts_and_makes_rounds_by_the_noise() -> None:
    assert run(0.09, columns=0.9, rounds=0.9).by(RULE)[0] == 0.7
    assert run(0.06, columns=0.9, rounds=0.8).by(RULE)[0] == 0.9
    assert run(0.01, columns=0.9, rounds=0.8).by(RULE)[0] == 0.8
    assert RULE.makes_rounds(0.012 / 2**0.5, 0.012) and not RULE.makes_rounds(0.013 / 2**0.5, 0.013)


def test_the_rule_of_the_method_is_among_those_that_were_tried() -> None:
    assert method.COUNTED_FROM in COUNTED and method.ROUNDS_UP_TO in ROUNDS and method.DEARER in DEARER


def test_what_falls_short_counts_and_the_best_rule_is_found_without_a_dataset(monkeypatch: pytest.MonkeyPatch) -> None:
    low, high = [run(0.06, columns=0.5, rounds=0.5)], [run(0.06, columns=0.9, rounds=0.9)]
    counts, keeps = Rule(0.05, 0.006, 0.0), Rule(0.25, 0.006, 0.0)
    assert shortfall(low, counts) == 0 < shortfall(low, keeps)
    assert shortfall(high, keeps) == 0 < shortfall(high, counts)
    monkeypatch.setattr(few_rows, "COUNTED", (0.05, 0.25))
    monkeypatch.setattr(few_rows, "ROUNDS", (0.006,))
    monkeypatch.setattr(few_rows, "DEARER", (0.0,))
    said = list(choose({"low": [low], "high": [high]}))
    assert "without low: Rule(counted=0.25" in said[1] and "without high: Rule(counted=0.05" in said[2]
