"""Single floats of rows: towards zero, once and for all, and the same from both functions."""

from __future__ import annotations

import numpy as np
import pytest

from comity.data.singles import round_to_singles, truncate_to_singles


@pytest.mark.parametrize("shape", [(1, 1), (3, 700), (5, 256), (2, 0)])
def test_no_number_grows_and_none_changes_twice(shape: tuple[int, int]) -> None:
    generator = np.random.default_rng(0)
    values = generator.normal(size=shape) * 10.0 ** generator.integers(-20, 20, shape)
    found = np.empty(shape, np.float32)
    round_to_singles(values, found)
    wide = found.astype(np.float64)
    assert (np.abs(wide) <= np.abs(values)).all() and (np.abs(wide) >= np.abs(values) * (1 - 2.0**-23)).all()
    np.testing.assert_array_equal(found, truncate_to_singles(values))
    np.testing.assert_array_equal(truncate_to_singles(wide), found)


def test_what_no_single_float_holds() -> None:
    values = np.array([[np.inf, -np.inf, np.nan, 1e300, -1e39, 1e-300, -0.0, 1e-45, np.nextafter(1.0, 2.0)]])
    found = np.empty(values.shape, np.float32)
    round_to_singles(values, found)
    expected = [np.inf, -np.inf, np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, 1.0]
    np.testing.assert_array_equal(found[0], np.array(expected, np.float32))
    np.testing.assert_array_equal(truncate_to_singles(values), found)
