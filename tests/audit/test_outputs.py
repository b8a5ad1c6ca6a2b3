"""Outputs told apart by a classifier: never above the truth, and beyond the claim where a mechanism is broken."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from comity.audit.outputs import attack_outputs, group_epsilon
from comity.errors import DataError

Floats = NDArray[np.float64]
SURE = 0.999


def outputs_of(value: float, *, scale: float, seed: int, draws: int = 6_000) -> Floats:
    """A mechanism whose form the attack does not know: Laplace noise, folded and turned, beside numbers that say
    nothing."""
    generator = np.random.default_rng(seed)
    noisy = value + generator.laplace(scale=scale, size=draws)
    return np.column_stack([np.sinh(noisy / 4), generator.normal(size=draws), np.cos(3 * noisy)])


def test_a_hidden_mechanism_is_measured_and_its_broken_twin_caught() -> None:
    honest = attack_outputs(
        outputs_of(0.0, scale=1.0, seed=1), outputs_of(1.0, scale=1.0, seed=2), claimed=1.0, delta=0.0, confidence=SURE
    )
    assert 0.5 < honest.epsilon <= 1 and honest.design == 1 and honest.draws == 6_000
    broken = attack_outputs(
        outputs_of(0.0, scale=0.5, seed=3), outputs_of(1.0, scale=0.5, seed=4), claimed=1.0, delta=0.0, confidence=SURE
    )
    assert broken.epsilon > 1


def test_outputs_of_one_distribution_show_nothing() -> None:
    same = attack_outputs(
        outputs_of(0.0, scale=1.0, seed=1, draws=2_000),
        outputs_of(0.0, scale=1.0, seed=2, draws=2_000),
        claimed=1.0,
        delta=0.0,
        confidence=SURE,
    )
    assert same.epsilon < 0.05


def test_a_group_divides_what_is_shown() -> None:
    assert group_epsilon(0.5, 0.5 / math.e, delta=0.0, group=1) == pytest.approx(1)
    assert group_epsilon(0.5, 0.5 / math.e, delta=0.0, group=4) == pytest.approx(0.25)
    assert group_epsilon(0.5, 0.5, delta=0.0, group=4) == group_epsilon(0.1, 0.0, delta=0.2, group=1) == 0
    # What (ε, δ) allows a group of three is met exactly: e^(3ε) q + δ (e^(3ε) − 1)/(e^ε − 1).
    epsilon, delta, other = 0.3, 0.01, 0.2
    certain = math.exp(0.9) * other + delta * math.expm1(0.9) / math.expm1(0.3)
    assert group_epsilon(certain, other, delta=delta, group=3) == pytest.approx(epsilon)


def test_too_few_outputs_are_refused() -> None:
    with pytest.raises(DataError):
        attack_outputs(np.zeros((3, 2)), np.zeros((3, 2)), claimed=1.0, delta=0.0, confidence=SURE)
