"""Theorems 4.2 to 4.4 and 6.1 of Pathak, Rane and Raj (2010): counterexamples to the printed bounds, and the bounds
that hold, on records for which everything can be computed exactly.

All records of a small case have x = 1 in one dimension, so a party is described by its number of records and its share
p of labels 1: its minimiser solves p − σ(w) = λw.
"""

from __future__ import annotations

from math import exp, inf, log, sqrt

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import expit

from comity.learn import fit_logistic
from experiments.papers.averaging.bounds import (
    distance_of_any,
    distance_of_random,
    excess,
    generalised,
    noise_length,
    printed_distance,
    printed_excess,
    printed_true_excess,
)

DELTA = 0.05
L2 = 1.0


def minimiser(share: float, l2: float = L2) -> float:
    return float(brentq(lambda w: share - expit(w) - l2 * w, -1 / l2 - 1, 1 / l2 + 1, xtol=1e-15))


def averaged(sizes: tuple[int, ...], shares: tuple[float, ...], l2: float = L2) -> tuple[float, float]:
    """ŵ and w*."""
    pooled = float(np.average(shares, weights=sizes))
    return float(np.mean([minimiser(share, l2) for share in shares])), minimiser(pooled, l2)


def objective(w: float, share: float, l2: float = L2) -> float:
    """J of records of which this share has label 1, and J̃ where labels are drawn with this probability."""
    return share * log(1 + exp(-w)) + (1 - share) * log(1 + exp(w)) + l2 * w * w / 2


# One party has all labels 1, the other, of twice the size, all labels 0.


@pytest.mark.parametrize("size", [10_000, 1_000_000, 100_000_000])
def test_theorem_4_2_fails_where_parties_differ(size: int) -> None:
    """The distance is that of the shares of labels alone: no bound that falls with the records can hold."""
    sizes = (size, 2 * size)
    mean, pooled = averaged(sizes, (1.0, 0.0))
    assert abs(mean - pooled) == pytest.approx(0.1334, abs=5e-5)
    assert printed_distance(sizes, L2) == pytest.approx(1 / size)
    assert abs(mean - pooled) <= distance_of_any(2, L2)


def test_theorem_4_3_fails_where_parties_differ_even_without_noise() -> None:
    sizes = (10_000, 20_000)
    mean, pooled = averaged(sizes, (1.0, 0.0))
    found = objective(mean, 1 / 3) - objective(pooled, 1 / 3)
    assert found > 1e5 * printed_excess(sizes, L2, width=1, epsilon=inf, delta=DELTA)
    assert found <= excess(abs(mean - pooled), L2) <= excess(distance_of_any(2, L2), L2)


def test_theorem_4_4_fails_where_parties_differ() -> None:
    """Labels are drawn with probability 1/3, and then dealt by label: J and J̃ agree as the records grow."""
    sizes = (1_000_000, 2_000_000)
    mean, pooled = averaged(sizes, (1.0, 0.0))
    found = objective(mean, 1 / 3) - objective(pooled, 1 / 3)
    assert found > 10 * printed_true_excess(sizes, L2, width=1, epsilon=inf, delta=DELTA)
    empirical = excess(distance_of_any(2, L2), L2)
    assert found <= generalised(empirical, sum(sizes), L2, DELTA)


# Labels by the same coin at both parties.


def coins(sizes: tuple[int, ...], runs: int = 400) -> list[tuple[float, float, float]]:
    """ŵ, w* and the pooled share of labels 1 of each run."""
    generator = np.random.default_rng(5)
    found = []
    for _ in range(runs):
        shares = tuple(generator.binomial(size, 0.5) / size for size in sizes)
        found.append((*averaged(sizes, shares), float(np.average(shares, weights=sizes))))
    return found


@pytest.mark.parametrize("size", [1000, 100_000])
def test_theorems_4_2_and_4_3_fail_for_records_of_one_distribution_and_unequal_sizes(size: int) -> None:
    """The distance falls with the root of the records, the printed bound with the records."""
    sizes = (size, 9 * size)
    runs = coins(sizes)
    apart = np.array([abs(mean - pooled) for mean, pooled, _ in runs])
    lost = np.array([objective(mean, share) - objective(pooled, share) for mean, pooled, share in runs])
    assert np.mean(apart > printed_distance(sizes, L2)) > 0.8
    assert np.mean(lost > printed_excess(sizes, L2, width=1, epsilon=inf, delta=DELTA)) > 0.8
    assert sqrt(size) * apart.mean() == pytest.approx(0.135, abs=0.02)
    assert np.mean(apart > distance_of_random(sizes, L2, DELTA)) <= DELTA
    # What averaging loses falls with the records too, so the last term of Theorem 4.4 covers it.
    true = np.array([objective(mean, 0.5) - objective(0.0, 0.5) for mean, _, _ in runs])
    assert np.all(true <= printed_true_excess(sizes, L2, width=1, epsilon=inf, delta=DELTA))


def test_with_one_party_every_bound_on_averaging_is_zero() -> None:
    assert printed_distance((50,), L2) == distance_of_any(1, L2) == distance_of_random((50,), L2, DELTA) == 0


# What holds, on records in several dimensions.


def dealt(seed: int, *, sizes: tuple[int, ...], width: int, sort: bool) -> tuple[list[np.ndarray], list[np.ndarray]]:
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(sum(sizes), width))
    x /= np.maximum(1.0, np.linalg.norm(x, axis=1, keepdims=True))
    y = (x @ generator.normal(size=width) + 0.5 * generator.normal(size=len(x)) > 0).astype(np.float64)
    order = np.argsort(y, kind="stable") if sort else np.arange(len(y))
    ends = np.cumsum(sizes)[:-1]
    return np.split(x[order], ends), np.split(y[order], ends)


@pytest.mark.parametrize("l2", [1.0, 0.1, 0.01])
@pytest.mark.parametrize("sort", [False, True])
def test_the_corrected_distance_and_excess_hold(l2: float, sort: bool) -> None:
    sizes = (40, 60, 200)
    for seed in range(10):
        rows, labels = dealt(seed, sizes=sizes, width=4, sort=sort)
        together, wanted = np.concatenate(rows), np.concatenate(labels)
        mean = np.mean([fit_logistic(x, y, l2).weights for x, y in zip(rows, labels)], axis=0)
        pooled = fit_logistic(together, wanted, l2).weights
        apart = float(np.linalg.norm(mean - pooled))
        assert apart <= distance_of_any(3, l2)
        assert sort or apart <= distance_of_random(sizes, l2, 1e-3)

        def risk(w: np.ndarray, x: np.ndarray = together, y: np.ndarray = wanted) -> float:
            return float(np.mean(np.logaddexp(0, -(2 * y - 1) * (x @ w))) + l2 * (w @ w) / 2)

        assert -1e-9 <= risk(mean) - risk(pooled) <= excess(apart, l2) + 1e-12


def test_parties_apart_come_near_the_corrected_distance() -> None:
    """A small party against a large one of the other class: the bound is not loose by more than a third."""
    mean, pooled = averaged((1, 10**9), (1.0, 0.0))
    assert 0.75 * distance_of_any(2, L2) <= abs(mean - pooled) <= distance_of_any(2, L2)


@pytest.mark.parametrize("kind", ["literal", "spherical"])
@pytest.mark.parametrize("width", [1, 20])
def test_noise_is_as_long_as_its_bound_as_often_as_said(kind: str, width: int) -> None:
    generator = np.random.default_rng(width)
    if kind == "literal":
        lengths = np.linalg.norm(generator.laplace(scale=0.3, size=(4000, width)), axis=1)
    else:
        lengths = generator.gamma(width, 0.3, size=4000)
    bound = noise_length("literal" if kind == "literal" else "spherical", 0.3, width, DELTA)
    assert np.mean(lengths > bound) <= 1.3 * DELTA
    # Both are within the noise term of Theorem 4.3.
    assert bound <= 0.3 * width * log(width / DELTA) * (1 + 1e-12)


# Theorem 6.1 in L1, Lemma 6.2.


@pytest.mark.parametrize("width", [25, 123])
def test_theorem_6_1_fails_in_l1_and_holds_in_l2(width: int) -> None:
    """A record turned round moves every weight alike. A large penalty leaves the fit no room."""
    l2 = 100.0
    row = np.full((1, width), width**-0.5)
    one, other = (fit_logistic(sign * row, np.ones(1), l2).weights for sign in (1, -1))
    printed = 2 / l2
    assert np.abs(one - other).sum() == pytest.approx(sqrt(width) / 2 * printed, rel=0.01) and sqrt(width) / 2 > 1
    assert np.linalg.norm(one - other) <= printed


def test_lemma_6_2_holds() -> None:
    """Minimisers of G and G + g are no further apart than the largest gradient of g over the least curvature of G."""
    generator = np.random.default_rng(1)
    for _ in range(50):
        root = generator.normal(size=(3, 3))
        curvature = root @ root.T + 0.2 * np.eye(3)
        at, push = generator.normal(size=3), generator.normal(size=3)
        # G = ½(w − at)ᵀH(w − at), g = |push|·log cosh along its direction, whose gradient is at most |push|.
        w = at.copy()
        for _ in range(20_000):
            step = curvature @ (w - at) + push * np.tanh(push @ w / np.linalg.norm(push))
            w -= 0.02 * step
            if np.linalg.norm(step) < 1e-10:
                break
        assert np.linalg.norm(w - at) <= np.linalg.norm(push) / np.linalg.eigvalsh(curvature)[0] + 1e-6
