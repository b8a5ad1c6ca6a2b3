"""What no mechanism can do, checked against mechanisms: the best one found by a linear program never beats the bound,
and the one that the method uses for two classes attains it."""

from __future__ import annotations

from itertools import product
from math import exp
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

from experiments.accuracy.reachable import least_error, reachable_constant


def best_mechanism(parties: Any, classes: Any, epsilon: Any, delta: Any, gain: Any) -> Any:
    """The most that any mechanism for counts of named classes gains in the mean over names, all parties naming one
    class: probabilities of outputs for every table of counts, neighbours one party apart, δ for every set of outputs.
    """
    tables = [one for one in product(range(parties + 1), repeat=classes) if sum(one) == parties]
    place = {one: number for number, one in enumerate(tables)}
    size = len(tables) * classes
    above, limits = [], []
    for table in tables:
        for taken, given in product(range(classes), repeat=2):
            if taken == given or not table[taken]:
                continue
            other = list(table)
            other[taken] -= 1
            other[given] += 1
            for named in product((0, 1), repeat=classes):
                row = np.zeros(size)
                row[place[table] * classes : (place[table] + 1) * classes] += named
                row[place[tuple(other)] * classes : (place[tuple(other)] + 1) * classes] -= exp(epsilon) * np.array(
                    named
                )
                above.append(row)
                limits.append(delta)
    total = np.kron(np.eye(len(tables)), np.ones(classes))
    wanted = np.zeros(size)
    for right in range(classes):
        sure = place[tuple(parties * (one == right) for one in range(classes))]
        # Shares by distance from the right class, so that all names are alike.
        wanted[sure * classes : (sure + 1) * classes] += np.roll(gain, right) / classes
    found = linprog(-wanted, A_ub=np.array(above), b_ub=limits, A_eq=total, b_eq=np.ones(len(tables)), bounds=(0, 1))
    assert found.success
    return -found.fun


@pytest.mark.parametrize(
    ("parties", "classes", "epsilon", "delta"),
    [(2, 2, 0.5, 0.0), (4, 2, 0.3, 0.0), (5, 2, 0.3, 0.0), (6, 2, 0.4, 0.01), (4, 3, 0.4, 0.0), (3, 3, 0.7, 0.02)],
)
def test_the_best_of_all_mechanisms_errs_as_often_as_the_bound_says(
    parties: int, classes: int, epsilon: float, delta: float
) -> None:
    right = best_mechanism(parties, classes, epsilon, delta, np.eye(classes)[0])
    least = least_error(parties, classes, epsilon, delta)
    assert 1 - right >= least - 1e-9
    if classes == 2 and parties % 2 == 0 and not delta:
        # Attained: a bound that is true and empty would pass the line above.
        assert 1 - right == pytest.approx(least, abs=1e-6)


def test_no_mechanism_is_more_accurate_than_the_reachable_constant() -> None:
    shares = [0.5, 0.3, 0.2]
    for parties, epsilon in ((4, 0.2), (4, 0.8)):
        # In the mean over names the two others may come in either order; the linear program has one of them.
        found = best_mechanism(parties, 3, epsilon, 0.0, np.array(shares))
        assert found <= reachable_constant(shares, parties, epsilon, 0.0) + 1e-9


def test_a_reachable_constant_lies_between_chance_and_the_largest_share() -> None:
    shares = (0.764, 0.236)
    assert reachable_constant(shares, 24, 0.1, 1e-6) == pytest.approx(0.6845, abs=2e-4)
    assert reachable_constant(shares, 1000, 1.0, 1e-6) == pytest.approx(0.764)
    assert reachable_constant(shares, 2, 1e-9, 0.0) == pytest.approx(0.5, abs=1e-6)
    assert reachable_constant((0.4, 0.4, 0.2), 24, 0.01, 0.0) == pytest.approx(0.4)
    assert least_error(24, 2, 0.1, 1e-6) == pytest.approx(0.5 * exp(-1.2), abs=1e-4)
