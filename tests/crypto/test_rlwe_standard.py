"""The rings that are allowed lie within the table of the homomorphic encryption standard, in modulus and in error."""

from __future__ import annotations

from math import pi, sqrt

import numpy as np
import pytest

from comity.crypto.rlwe import ALLOWED, ERROR_VARIANCE, errors, ternary
from comity.entropy import Stream

# Degree to the largest log2 of a modulus at 128 bits, ternary secrets (Albrecht et al. 2018, table 1).
LARGEST_MODULUS = {4096: 109, 8192: 218}
# The deviation that the table is for: 8 / sqrt(2 pi).
DEVIATION = 8 / sqrt(2 * pi)


@pytest.mark.parametrize("parameters", ALLOWED, ids=lambda parameters: str(parameters.degree))
def test_no_modulus_is_larger_than_the_standard_allows(parameters):
    assert 32 * parameters.words <= LARGEST_MODULUS[parameters.degree]


def test_errors_are_as_wide_as_the_standard_counts_on():
    drawn = errors(Stream(bytes(32)), 64, 4096).astype(float)
    assert sqrt(ERROR_VARIANCE) >= DEVIATION
    # 262,144 draws: a standard error of 0.14 %.
    assert drawn.std() == pytest.approx(sqrt(ERROR_VARIANCE), rel=0.007)
    assert abs(drawn.mean()) < 0.03


def test_secrets_are_uniform_on_three_values():
    drawn = ternary(Stream(bytes(32)), 64, 4096).reshape(-1)
    counts = np.bincount(drawn.astype(int) + 1, minlength=3) / drawn.size
    np.testing.assert_allclose(counts, 1 / 3, atol=0.005)
