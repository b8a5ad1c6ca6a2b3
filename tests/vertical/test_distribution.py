"""What is opened has the centralised distribution for any number of parties at t = 0, and at t = 1 that of K/(K − 1)
times the variance. Whole secure runs over hosts, for two, four and eight owners of the same columns.
"""

from __future__ import annotations

from functools import cache
from math import sqrt
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from comity.data import Bounded, Numeric, Schema
from comity.federation.declare.consortium import Consortium
from comity.methods.vertical import Vertical, VerticalRegression
from comity.privacy.loss import Approx, Pure
from comity.privacy.permit import simulated_permit
from comity.privacy.randomness import SeededNoise
from tests.support.vertical import make_consortium

from .test_run import exact, opened

NAMES = tuple(f"x{place}" for place in range(24))
RUNS = 6
ROWS = 40


def owned_by(parties: Any, *, pure: Any) -> VerticalRegression:
    held = {f"p{k}": (*NAMES[k::parties], *(("y",) if k == 0 else ())) for k in range(parties)}
    schema = Schema(tuple(Numeric(name, -1, 1) for name in NAMES), Bounded("y", -1, 1))
    return Vertical.over_columns(
        solver="quadratic", schema=schema, columns=held, pure=pure, products="dealer", max_rows=1 << 10
    )


def rows() -> pd.DataFrame:
    generator = np.random.default_rng(4)
    return pd.DataFrame({name: generator.uniform(-1, 1, ROWS) for name in (*NAMES, "y")})


def terms(tried: Any, colluders: Any) -> Consortium:
    return make_consortium(tried, Pure(1) if tried.pure else Approx(1, 1e-5), colluders=colluders)


@cache
def errors(parties: Any, colluders: Any, *, pure: Any) -> Any:
    """Opened less exact entries of many secure runs, in one row."""
    tried, frame = owned_by(parties, pure=pure), rows()
    plain, consortium = exact(tried, frame), terms(tried, colluders)
    found = [opened(tried, frame, consortium, SeededNoise(10_000 * parties + seed))[0] for seed in range(RUNS)]
    return (np.array(found) - plain).reshape(-1)


@cache
def centralised(*, pure: Any) -> np.ndarray:
    """A trusted curator's noise on the same entries: one whole draw, no parts."""
    tried = owned_by(2, pure=pure)
    release = tried.moments(terms(tried, 0).loss)
    assert release.noise is not None
    scale = release.noise.scale(sensitivity=release.sensitivity, shape=release.shape, grid=release.grid)
    drawn = release.noise.draw(SeededNoise(1), scale, (100, *release.shape), permit=simulated_permit("moments"))
    return (drawn * scale.grid).reshape(-1)


def check(found: Any, central: Any, factor: Any, *, shape: bool = True) -> None:
    """Deviation within 3.5 standard errors of the claimed one, and the same shape by Kolmogorov and Smirnov."""
    kurtosis = np.mean((central / central.std()) ** 4)
    error = sqrt((kurtosis - 1) / len(found)) / 2
    assert found.std() / (central.std() * sqrt(factor)) == pytest.approx(1, abs=3.5 * error)
    if shape:
        assert stats.ks_2samp(found / sqrt(factor), central).pvalue > 1e-3


@pytest.mark.parametrize("pure", [False, True])
@pytest.mark.parametrize("parties", [2, 4, pytest.param(8, marks=pytest.mark.long)])
def test_without_colluders_the_distribution_is_the_centralised_one(parties: int, pure: bool) -> None:
    check(errors(parties, 0, pure=pure), centralised(pure=pure), 1.0)


@pytest.mark.parametrize("parties", [2, 4, pytest.param(8, marks=pytest.mark.long)])
def test_with_one_colluder_it_is_that_of_more_variance(parties: int) -> None:
    check(errors(parties, 1, pure=False), centralised(pure=False), parties / (parties - 1))


def test_with_one_colluder_pure_noise_has_that_variance_too() -> None:
    """Parts of Laplace noise: their sum is a Laplace variable for the number laid out for, and no other."""
    check(errors(4, 1, pure=True), centralised(pure=True), 4 / 3, shape=False)


@pytest.mark.parametrize("parties", [2, 4])
def test_positive_control_noise_for_fewer_parts_is_told_from_the_centralised_one(parties: int) -> None:
    """At eight parties the deviations differ by 7 %, too little for so few draws."""
    with pytest.raises(AssertionError):
        check(errors(parties, 1, pure=False), centralised(pure=False), 1.0)


def test_the_entries_are_the_same_whoever_holds_the_columns() -> None:
    frame = rows()
    found = []
    for parties in (2, 4, 8):
        tried = owned_by(parties, pure=False)
        matrix = tried.entries.assemble(exact(tried, frame), ROWS)
        names = [piece.column for piece in tried.design.pieces] + ["(constant)"]
        found.append(pd.DataFrame(matrix, names, names).loc[[*NAMES, "y"], [*NAMES, "y"]].to_numpy())
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
