"""A record's part of what leaves is the same whatever records stand beside it, for messages that no honest coordinator
sends: the bound on one record is a bound on its absence only then.

Steps are run with n rows, with n − 1 and with the one that was taken away. Sums may differ by the rounding that their
bound counts, anything else by nothing.
"""

from __future__ import annotations

import sys
from itertools import product
from typing import Any

import numpy as np
import pytest

from comity.data import row_products
from comity.data.row_products import Weights
from comity.methods.averaging import calibration, objectives, row_kernels, second_moments
from comity.methods.averaging import method as averaging
from comity.methods.summary.ratio import Spectrum
from tests.attacks.received_values import CASES, EXEMPT, RECORDS, WIDTHS, Case, batch, beyond, hostile, steps


@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_no_record_changes_the_part_of_another_in_batches_of_any_size(case: Case) -> None:
    chance = np.random.default_rng(7)
    sizes = [(int(chance.integers(2, 301)), int(chance.integers(1, 201))) for _ in range(150)]
    assert max(beyond(case, *size) for size in sizes) <= 1


def test_every_step_that_takes_a_value_is_tried_or_has_its_reason_not_to_be() -> None:
    tried, known = {case.name for case in CASES}, set(steps())
    assert not tried & set(EXEMPT)
    assert known == tried | set(EXEMPT)
    assert {
        "AveragingProtocol.gradient",
        "RecordEvaluation.evaluate",
        "ErrorsByColumns.receive",
        "AuctionSummary.bid",
    } <= known


class Plain(Weights):
    """A broken twin: products as BLAS makes them, or in an order of adding that the number of rows decides."""

    turned = False

    @classmethod
    def of(cls, weights: Any, terms: Any = None) -> Plain:
        weights = np.atleast_2d(np.asarray(weights))
        return cls(weights.T.copy(), np.ones(len(weights)))

    def of_rows(self, rows: Any) -> Any:
        if not self.turned:
            return rows @ self.factor
        order = np.roll(np.arange(rows.shape[1]), len(rows))
        return np.cumsum(rows[:, None, order] * self.factor.T[None, :, order], axis=-1)[..., -1]

    of_unit_rows = of_rows


class Turned(Plain):
    turned = True


def replaced(monkeypatch: pytest.MonkeyPatch, twin: type[Plain]) -> None:
    """Products of the twin, with whatever was received."""
    honest = row_products.clip_received
    for module in list(sys.modules.values()):
        if getattr(module, "clip_received", None) is honest:
            monkeypatch.setattr(module, "clip_received", lambda received, largest=0.0: np.asarray(received))
    monkeypatch.setattr(Spectrum, "in_range", lambda self: self)
    # No kernel takes the place of these products.
    for module in (second_moments, averaging):
        monkeypatch.setattr(module, "is_narrow", lambda features: False)
    monkeypatch.setattr(Weights, "of", twin.of)
    monkeypatch.setattr(Weights, "on_one_grid", twin.of)


_WHOLE = {"RlweRounds.whiten", "DealerRounds.blind", "RlweRounds.weigh", "DealerRounds.weigh"}
"""Their products are of whole numbers, and no `Weights` make them."""

EXACT = [case for case in CASES if case.name not in _WHOLE]


@pytest.mark.parametrize("case", EXACT, ids=lambda case: case.name)
def test_sums_whose_order_follows_the_number_of_rows_are_found_out(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever BLAS a machine has: the test above would see it."""
    replaced(monkeypatch, Turned)
    sizes = [(121, 40), *product((17, 30, 23, 36), (140, 3, 20))]
    assert any(beyond(case, *size) > 1 for size in sizes)


@pytest.mark.parametrize(
    "name", ["AveragingProtocol.whitened_moment", "AveragingProtocol.gradient", "AveragingProtocol.calibration"]
)
def test_kernels_whose_order_follows_the_number_of_rows_are_found_out(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def turned(x: Any, by: Any) -> tuple[Any, Any]:
        return np.ascontiguousarray(np.roll(x, x.shape[1], axis=0)), np.roll(by, x.shape[1], axis=-1).copy()

    def whiten(x: Any, directions: Any, scale: Any, units: Any, out: Any) -> None:
        rows, by = turned(x, directions)
        row_kernels.whiten(rows, by, scale, units, out)
        out[:] = np.roll(out, -x.shape[1], axis=0)

    def sum_residuals(x: Any, along: Any, weights: Any, *others: Any) -> None:
        rows, by = turned(x, weights)
        row_kernels.sum_residuals(rows, np.ascontiguousarray(np.roll(along, x.shape[1], axis=0)), by, *others)
        others[-1][:] = np.roll(others[-1], -x.shape[1], axis=-1)

    def sum_calibrations(x: Any, weights: Any, *others: Any) -> None:
        row_kernels.sum_calibrations(*turned(x, weights), *others)

    monkeypatch.setattr(second_moments, "whiten", whiten)
    monkeypatch.setattr(objectives, "sum_residuals", sum_residuals)
    monkeypatch.setattr(objectives, "sum_whitened", lambda *_: False)
    monkeypatch.setattr(calibration, "sum_calibrations", sum_calibrations)
    tried = next(case for case in CASES if case.name == name)
    assert any(beyond(tried, *size) > 1 for size in [(121, 40), *product((17, 30, 23, 36), (140, 3, 20))])


@pytest.mark.parametrize(
    "name", ["AveragingProtocol.whitened_moment", "AveragingProtocol.gradient", "RecordEvaluation.evaluate"]
)
def test_products_of_blas_are_found_out_where_they_depend_on_the_batch(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = [(records, width) for records, width in product(RECORDS, WIDTHS) if rounds_by_the_batch(records, width)]
    if not sizes:
        pytest.skip("the BLAS of this machine rounds a row alike in all these batches")
    replaced(monkeypatch, Plain)
    tried = next(case for case in CASES if case.name == name)
    assert any(beyond(tried, *size) > 1 for size in sizes)


def rounds_by_the_batch(records: int, width: int) -> bool:
    rows, _ = batch(records, width)
    wide = hostile(rows).__next__()[1]
    return not all(np.array_equal((rows @ by.T)[:-1], rows[:-1] @ by.T) for by in (wide, wide[:1]))


def test_blocks_of_rows_end_where_they_like(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, _ = batch(300, 40)
    message = next(hostile(rows))
    whole = row_products.unit_products(rows, message[1])
    monkeypatch.setattr(row_products, "_BLOCK", 100)
    np.testing.assert_array_equal(row_products.unit_products(rows, message[1]), whole)
