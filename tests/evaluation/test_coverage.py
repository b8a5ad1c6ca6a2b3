"""Intervals hold the true value of the model on records that nobody has, for each method; 200 runs each are `long`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from tests.evaluation.consortia import coverage, of_averaging, of_soft_labels, of_vertical

METHODS: dict[str, Callable[..., object]] = {
    "averaging": of_averaging,
    "vertical": of_vertical,
    "softlabel": of_soft_labels,
    "averaging, three classes": partial(of_averaging, kind="softmax"),
    "averaging, a number": partial(of_averaging, kind="linear"),
    "averaging, added or removed": partial(of_averaging, neighbours="add-remove"),
    "averaging, pure": partial(of_averaging, delta=0.0),
    "vertical, two classes": partial(of_vertical, linear=False),
    "vertical, aligned": partial(of_vertical, aligned=True),
}
FEW = {"averaging": 2, "vertical": 2, "softlabel": 1, "averaging, three classes": 1, "averaging, a number": 1}


@pytest.mark.parametrize("method", FEW)
def test_intervals_hold_the_truth_in_a_few_runs(method: str) -> None:
    """One figure in twenty may miss, and not every second one."""
    found = coverage(METHODS[method], range(FEW[method]))  # type: ignore[arg-type]
    assert len(found) >= 3 and sum(found.values()) / len(found) > 0.5


@pytest.mark.long
@pytest.mark.parametrize("method", METHODS)
def test_intervals_hold_the_truth_in_93_of_100_runs(method: str) -> None:
    found = coverage(METHODS[method], range(200))  # type: ignore[arg-type]
    assert min(found.values()) >= 0.93, found
