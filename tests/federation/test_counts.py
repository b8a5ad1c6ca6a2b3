"""Sums over records: how far one record moves them, by trying every pair of neighbours, and what is enforced."""

from __future__ import annotations

from itertools import product
from math import sqrt
from typing import Any, cast

import numpy as np
import pytest

from comity.errors import Refused, StudyError
from comity.federation.declare.bounds import Counts, RecordSum
from comity.federation.declare.consortium import COORDINATOR, EVERY_PARTY, Consortium
from comity.federation.declare.declaration import Release
from comity.federation.declare.protection import Summed
from comity.federation.declare.release import Array
from comity.privacy.loss import GDP, Approx, Pure
from comity.privacy.mechanisms import Gaussian, Laplace
from comity.privacy.unit import Neighbours, Unit

SIZES = (2, 3)


def tables(records: tuple[tuple[int, ...], ...], weights: tuple[int, ...]) -> np.ndarray:
    found = [np.zeros(size) for size in SIZES]
    for record in records:
        for table, cell, weight in zip(found, record, weights):
            table[cell] += weight
    return np.concatenate(found)


@pytest.mark.parametrize("weights", [(1, 1), (1, 2), (3, 1)])
@pytest.mark.parametrize("replaced", [False, True])
def test_the_sensitivity_of_counts_is_the_largest_there_is(weights: tuple[int, ...], replaced: bool) -> None:
    every = list(product(*map(range, SIZES)))
    bound = Counts(weights, replaced, 10)
    apart = []
    for rest in product(every, repeat=2):
        with_one = [tables((*rest, one), weights) for one in every]
        others = with_one if replaced else [tables(rest, weights)]
        apart += [bound.enforce(a, a.shape) - bound.enforce(b, b.shape) for a in with_one for b in others]
    assert max(np.abs(one).sum() for one in apart) == bound.l1
    assert max(float(np.linalg.norm(one)) for one in apart) <= bound.l2 <= sqrt(bound.l2**2) * (1 + 1e-15)
    assert bound.l2 == pytest.approx(max(float(np.linalg.norm(one)) for one in apart), rel=1e-15)


def test_cutting_brings_no_two_tables_further_apart() -> None:
    bound, generator = Counts((1, 1), False, 3), np.random.default_rng(2)
    for _ in range(200):
        a, b = generator.integers(-2, 9, (2, 5)).astype(float)
        before, after = a - b, bound.enforce(a, (5,)) - bound.enforce(b, (5,))
        assert np.linalg.norm(after) <= np.linalg.norm(before) and np.abs(after).sum() <= np.abs(before).sum()
    assert bound.limit == 3 and not bound.neutral_within and not bound.neutral((5,)).any()


@pytest.mark.parametrize("wrong", [0.5, np.nan, np.inf - np.inf])
def test_what_is_no_count_is_refused(wrong: float) -> None:
    with pytest.raises(Refused, match="whole numbers"):
        Counts((1,), True, 3).enforce(np.array([1.0, wrong]), (2,))
    weights: Any
    for weights, records in (((), 3), ((0,), 3), ((1.5,), 3), ((1,), 0), ((1,), 2**53)):
        with pytest.raises(StudyError, match="whole weight"):
            Counts(weights, True, records)


@pytest.mark.parametrize("loss", [Pure(1), Approx(1, 1e-6)])
@pytest.mark.parametrize("parties", [2, 50])
def test_counts_lie_on_the_grid_and_pay_for_no_rounding(loss: Pure | Approx, parties: int) -> None:
    consortium = Consortium(
        parties=tuple(f"p{k}" for k in range(parties)),
        loss=loss,
        unit=Unit.RECORD,
        neighbours=Neighbours.ADD_REMOVE,
    )
    noise = Laplace(loss) if isinstance(loss, Pure) else Gaussian(loss)
    size, bound = 400, Counts((1,) * 9, False, 1000)
    summed: dict[str, Any] = {
        "name": "tables",
        "source": EVERY_PARTY,
        "to": COORDINATOR,
        "protection": Summed(noise),
        "form": Array((size,), "<i8"),
    }
    exact = Release(bound=bound, **summed).scale(consortium)
    assert 1 / exact.grid == int(1 / exact.grid) and exact.grid <= 1
    ideal = bound.l1 if isinstance(loss, Pure) else bound.l2
    per_unit = exact.total * exact.grid / ideal
    rounded = noise.scale(sensitivity=ideal, shape=(size,), parts=consortium.honest_parts, grid=exact.grid)
    # Rounding a table of 400 cells would have cost as much as the records themselves, on the same grid.
    assert exact.total < rounded.total
    unit = 1 / float(loss.epsilon) if isinstance(loss, Pure) else 1 / sqrt(float(cast(GDP, noise.charged).square))
    assert per_unit == pytest.approx(unit, rel=1e-9) and per_unit >= unit


def test_a_sum_of_records_is_projected_and_a_failed_party_is_not_neutral() -> None:
    bound = RecordSum(1.0, 2.0, 5)
    assert np.linalg.norm(bound.enforce(np.array([3.0, 4.0]), (2,))) <= 2.0 * (1 + 1e-12)
    assert bound.l2 >= 1.0 and not bound.neutral_within
