"""The kernel makes the bits that numpy makes, of any rows, factors, layouts and batches."""

from __future__ import annotations

import numpy as np
import pytest

from comity.data.exact_sums import round_factor
from comity.data.row_products import in_blocks
from comity.data.singles import truncate_to_singles
from comity.learn.record_sum import in_unit_ball
from comity.methods.averaging import row_kernels, second_moments
from comity.methods.averaging.objectives import _clip_residuals
from comity.methods.averaging.row_kernels import MAX_FEATURES, single_columns, unit_columns
from comity.methods.averaging.second_moments import MAX_DIRECTIONS, Whitening, sum_products, sum_single_products


def rows_of(width: int, count: int = 150) -> np.ndarray:
    generator = np.random.default_rng(width)
    rows = generator.normal(size=(count, width))
    rows[::7] = 0.0
    rows[3] *= 1e-200
    return in_unit_ball(rows * generator.uniform(0, 1, (count, 1)))


def factors(width: int) -> list[Whitening]:
    """None, one direction, all of them, some that are zero, and what no honest coordinator sends."""
    generator = np.random.default_rng(width + 1)
    some = generator.normal(size=(MAX_DIRECTIONS, width)) / np.sqrt(width)
    gaps = some.copy()
    gaps[[0, 4, 9]] = 0.0
    start = Whitening.identity(width)
    return [
        start,
        start.with_stage(0, 3.7, some[:1]),
        start.with_stage(0, 0.9, some),
        start.with_stage(0, 2.0**30, gaps),
        start.with_stage(0, -1e300, 1e300 * some),
        start.with_stage(0, np.nan, np.full((2, width), np.nan)),
        start.with_stage(0, 1.0, 1e-300 * some),
    ]


def by_products(whitening: Whitening, rows: np.ndarray) -> np.ndarray:
    """As rows are whitened that are too wide for the kernel."""
    return in_blocks(lambda block: in_unit_ball(whitening._map(block)), rows, rows.shape[-1])


@pytest.mark.parametrize("width", [1, 2, 21, 63, MAX_FEATURES])
def test_the_kernel_and_numpy_agree_to_the_last_bit(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rows_of(width)
    made = [(one.map_into_ball(rows), one.map_on_grid(rows)) for one in factors(width)]
    monkeypatch.setattr(second_moments, "whiten", row_kernels._whiten_in_numpy)
    for (found, on_grid), whitening in zip(made, factors(width), strict=True):
        # Equal as numbers: the sign of a zero may differ, which no sum shows.
        np.testing.assert_array_equal(found, whitening.map_into_ball(rows))
        np.testing.assert_array_equal(on_grid, whitening.map_on_grid(rows))
        assert (np.linalg.norm(found, axis=1) <= 1 + 1e-12).all() and np.isfinite(found).all()


@pytest.mark.parametrize("width", [2, 21, MAX_FEATURES, MAX_FEATURES + 1])
def test_rows_on_the_grid_are_rounded_towards_zero(width: int) -> None:
    rows = rows_of(width)
    for whitening in factors(width):
        whole, on_grid = whitening.map_into_ball(rows), whitening.map_on_grid(rows)
        np.testing.assert_array_equal(on_grid, round_factor(whole))
        assert (np.linalg.norm(whole, axis=1) <= 1 + 1e-12).all()
        assert (np.abs(on_grid) <= np.abs(whole)).all() and (on_grid.dtype == np.float32) == (width <= MAX_FEATURES)


@pytest.mark.parametrize("width", [1, 2, 21, 63, MAX_FEATURES])
def test_the_kernel_maps_rows_as_products_do(width: int) -> None:
    rows = rows_of(width)
    # What no honest coordinator sends may cancel to any digits.
    for place in (0, 1, 2, 5, 6):
        whitening = factors(width)[place]
        # It shortens rows by (d + 8)·2^-24 more, and computes with single floats.
        far = (width + 20) * 2.0**-24
        np.testing.assert_allclose(whitening.map_into_ball(rows), by_products(whitening, rows), atol=far)


@pytest.mark.parametrize("width", [1, 21, 64])
def test_rows_are_single_floats_rounded_towards_zero(width: int) -> None:
    rows = rows_of(width, 500)
    rows[7, 0], rows[8, 0] = 0.5, -0.0
    found = single_columns(rows).T.astype(np.float64)
    assert (np.abs(found) <= np.abs(rows)).all()
    np.testing.assert_allclose(found, rows, rtol=2.0**-23, atol=1e-40)
    np.testing.assert_array_equal(found.T, truncate_to_singles(rows.T))
    # Rounded once more they stay as they are, whatever holds them.
    np.testing.assert_array_equal(single_columns(found).T, found)
    np.testing.assert_array_equal(single_columns(found.astype(np.float32)).T, found)
    out = np.empty((width, 500), np.float32)
    assert single_columns(rows, out) is out
    np.testing.assert_array_equal(out.T, found)


@pytest.mark.parametrize("width", [1, 21])
def test_rows_outside_of_the_ball_are_found_and_no_others(width: int) -> None:
    inside = rows_of(width, 500)
    inside /= np.maximum(1, np.linalg.norm(inside, axis=1))[:, None]
    outside = [inside.copy() for _ in range(6)]
    for rows, value in zip(outside, (1.001, np.nan, np.inf, 1e30, 1e39, -1e300)):
        rows[437, 0] = value
    for check in (row_kernels.are_inside, row_kernels._are_inside_in_numpy):
        assert check(single_columns(inside))
        assert not any(check(single_columns(rows)) for rows in outside)
    for rows in outside:
        found = unit_columns(rows).T.astype(np.float64)
        np.testing.assert_allclose(found, in_unit_ball(rows), rtol=2.0**-22, atol=1e-40)
        assert (np.square(found).sum(1) <= 1).all() and row_kernels.are_inside(unit_columns(rows))
        # Rows beside them are as they were, and each is what it is alone.
        np.testing.assert_array_equal(np.delete(found, 437, 0), single_columns(np.delete(inside, 437, 0)).T)
        np.testing.assert_array_equal(unit_columns(rows[437:438]).T, found[437:438])
    np.testing.assert_array_equal(unit_columns(inside.reshape(5, 100, width)).T, single_columns(inside).T)
    # Single floats of a cache are shortened as rows in memory are.
    for rows in (outside[0], outside[3]):
        cached = np.ascontiguousarray(single_columns(rows)).copy().T
        np.testing.assert_array_equal(unit_columns(cached), unit_columns(rows))


@pytest.mark.parametrize("width", [1, 21, 64, 65])
def test_second_moments_of_any_kernel_and_batch_are_those_of_rows_on_the_grid(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = rows_of(width, 600)
    columns, filled = single_columns(rows).copy(), np.random.default_rng(1).random(600) > 0.1
    grid = round_factor(columns.T.astype(np.float64)) * filled[:, None]
    found = sum_single_products(columns, filled, ())
    np.testing.assert_array_equal(found, sum_products(grid, (slice(0, width),)))
    parts = [sum_single_products(columns[:, part].copy(), filled[part], ()) for part in (slice(257), slice(257, None))]
    np.testing.assert_array_equal(parts[0] + parts[1], found)
    stacked = sum_single_products(columns, filled.reshape(3, 200), (3,))
    assert stacked.shape == (3, found.size)
    np.testing.assert_array_equal(stacked.sum(0), found)
    monkeypatch.setattr(second_moments, "sum_second_moments", row_kernels._sum_second_moments_in_numpy)
    np.testing.assert_array_equal(sum_single_products(columns, filled.reshape(3, 200), (3,)), stacked)
    assert not sum_single_products(columns[:, :0], filled[:0], ()).any()


@pytest.mark.parametrize("width", [2, 21])
def test_a_row_has_the_same_bits_in_any_tile_batch_and_layout(width: int) -> None:
    rows = rows_of(width)
    for whitening in factors(width):
        whole = whitening.map_into_ball(rows)
        for start, stop in ((0, 1), (1, 2), (63, 65), (64, 128), (5, 150)):
            np.testing.assert_array_equal(whitening.map_into_ball(rows[start:stop]), whole[start:stop])
        np.testing.assert_array_equal(whitening.map_into_ball(np.asfortranarray(rows)), whole)
        np.testing.assert_array_equal(whitening.map_into_ball(rows[::-1])[::-1], whole)
        stacked = whitening.map_into_ball(rows.reshape(3, 50, width))
        np.testing.assert_array_equal(stacked.reshape(-1, width), whole)
    assert Whitening.identity(width).map_into_ball(rows[:0]).shape == (0, width)


def test_directions_that_are_zero_change_no_bit() -> None:
    """They are left out of the products. Others stand before and after them."""
    rows, width = rows_of(21), 21
    some = np.random.default_rng(0).normal(size=(3, width)) / 5
    spread = np.zeros((MAX_DIRECTIONS, width))
    spread[[0, 4, 7]] = some
    packed = Whitening.identity(width).with_stage(0, 2.0, some)
    np.testing.assert_array_equal(
        Whitening.identity(width).with_stage(0, 2.0, spread).map_into_ball(rows), packed.map_into_ball(rows)
    )


def test_clipped_residuals_of_one_and_of_several_margins() -> None:
    values = np.array([0.0, -0.2, 0.5, 0.9, -3.0, np.nan, np.inf, 1e-320, 0.4, 0.7])
    filled = np.array([True] * 8 + [False] * 2)
    one = _clip_residuals(values[:, None], filled, 0.5)
    # A second margin of zero takes the other path, and changes no norm.
    two = _clip_residuals(np.stack([values, np.zeros(10)], axis=1), filled, 0.5)
    np.testing.assert_array_equal(one[:, 0], two[:, 0])
    assert one[:, 0].tolist() == [0.0, -0.2, 0.5, 0.5, -0.5, 0.0, 0.0, 1e-320, 0.0, 0.0]
    assert values[3] == 0.9
