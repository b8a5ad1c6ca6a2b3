"""The rule for few rows is read off runs, and the best one is found without the dataset that is left out."""

from __future__ import annotations

import numpy as np
import pytest

from comity.methods.vertical import method, moments
from experiments.choose import few_rows
from experiments.choose.few_rows import SHARES, Rule, Run, choose, shortfall

RULE = Rule(counted=0.08, clear=0.03, hidden=0.25, rounds=0.018)


def run(noise: float, *, columns: float, rounds: float, constant: float = 0.7) -> Run:
    """Accuracy goes from the constant's to that of all weights with their share; log losses are those of a constant."""

    def along(accuracy: float) -> np.ndarray:
        shares = np.array(SHARES)
        return np.column_stack([constant + (accuracy - constant) * shares, np.full(len(shares), 0.6)])

    known = np.array([constant, 0.6])
    return Run(noise, noise, known, known, along(columns), along(rounds))


def test_a_rule_counts_shrinks_and_makes_rounds_by_the_noise() -> None:
    assert run(0.09, columns=0.9, rounds=0.9).by(RULE)[0] == 0.7
    assert run(0.02, columns=0.9, rounds=0.8).by(RULE)[0] == pytest.approx(0.9)
    assert run(0.01, columns=0.9, rounds=0.8).by(RULE)[0] == pytest.approx(0.8)
    half = run(float(np.sqrt(0.03 * 0.25)) * 0.9, columns=0.9, rounds=0.8)
    wide = Rule(counted=0.5, clear=0.03, hidden=0.25, rounds=0.018)
    assert 0.8 < half.by(wide)[0] < 0.83


def test_the_share_is_that_of_the_method() -> None:
    for noise in (0.01, 0.031, 0.1, 0.3):
        rule = Rule(method.COUNTED_FROM, moments.CLEAR, moments.HIDDEN, method.ROUNDS_UP_TO)
        assert rule.share(noise) == pytest.approx(moments.trusted_share(noise))
    assert Rule(method.COUNTED_FROM, moments.CLEAR, moments.HIDDEN, method.ROUNDS_UP_TO) == RULE


def test_what_falls_short_counts_and_the_best_rule_is_found_without_a_dataset(monkeypatch: pytest.MonkeyPatch) -> None:
    low, high = [run(0.06, columns=0.5, rounds=0.5)], [run(0.06, columns=0.9, rounds=0.9)]
    counts, keeps = Rule(0.05, 0.01, 0.25, 0.006), Rule(0.25, 0.06, 0.25, 0.006)
    assert shortfall(low, counts) == 0 < shortfall(low, keeps)
    assert shortfall(high, keeps) == 0 < shortfall(high, counts)
    monkeypatch.setattr(few_rows, "COUNTED", (0.05, 0.25))
    monkeypatch.setattr(few_rows, "CLEARS", (0.06,))
    monkeypatch.setattr(few_rows, "HIDDENS", (0.25,))
    monkeypatch.setattr(few_rows, "ROUNDS", (0.006,))
    said = list(choose({"low": [low], "high": [high]}))
    assert "without low: Rule(counted=0.25" in said[1] and "without high: Rule(counted=0.05" in said[2]
