"""Sums of one pass: the bits that numpy makes, the same for a record in any batch, bounded, and those of the losses."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

from comity.data import Records
from comity.data.exact_sums import FACTOR_PLACES, PLACES
from comity.learn.record_sum import in_unit_ball
from comity.methods.averaging import Averaging, calibration, objectives, row_kernels
from comity.methods.averaging.calibration import calibration_sums, limits_of, logistic_sums
from comity.methods.averaging.objectives import objective_of
from comity.methods.averaging.second_moments import Whitening
from comity.study.simulation.simulate import RunOptions, simulate

KINDS: list[Any] = ["logistic", "svm", "linear"]
# Weights as they may be received, far beyond what an honest coordinator sends, and none.
SCALES = [1.0, 30.0, 2.0**40, -1e300, 0.0, np.nan]


def batch(width: int, count: int = 700) -> Any:
    generator = np.random.default_rng(width)
    rows = in_unit_ball(generator.normal(size=(count, width)) * generator.uniform(0, 2, (count, 1)) / np.sqrt(width))
    along = Whitening.identity(width).map_on_grid(rows)
    return rows, along, generator.integers(0, 2, count), generator.random(count) > 0.1


def sums(kind: Any, scale: float, width: int, part: slice = slice(None), clip: float = 0.6) -> np.ndarray:
    rows, along, labels, filled = (one[part] for one in batch(width))
    objective = objective_of(kind, 0 if kind == "linear" else 2)
    weights = objective.clip_coefficients(scale * np.cos(np.arange(1.0, width + 1))[None])
    targets = labels - 0.3 if kind == "linear" else labels
    return objective.sum_margins(weights, rows, targets, filled, clip, along)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [1, 21, 256])
def test_the_kernel_and_numpy_agree_to_the_last_bit(kind: Any, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [sums(kind, scale, width) for scale in SCALES]
    monkeypatch.setattr(objectives, "sum_residuals", row_kernels._sum_residuals_in_numpy)
    for one, scale in zip(found, SCALES, strict=True):
        np.testing.assert_array_equal(one, sums(kind, scale, width))
        assert np.isfinite(one).all()


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_record_adds_is_the_same_in_any_batch_and_on_the_grid(kind: Any) -> None:
    for scale in SCALES:
        each = np.array([sums(kind, scale, 21, slice(at, at + 1)) for at in range(700)])
        units = each * 2.0**PLACES
        np.testing.assert_array_equal(units, np.rint(units))
        for part in (slice(None), slice(3, 259), slice(0, 256), slice(255, 700), slice(0, 0)):
            np.testing.assert_array_equal(sums(kind, scale, 21, part), each[part].sum(0))
        assert (np.linalg.norm(each, axis=(-2, -1)) <= 0.6 * (1 + 1e-12)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_it_sums_the_residuals_of_the_loss(kind: Any) -> None:
    rows, along, labels, filled = batch(21)
    objective = objective_of(kind, 0 if kind == "linear" else 2)
    weights = 3 * np.cos(np.arange(1.0, 22))[None]
    targets = labels - 0.3 if kind == "linear" else labels
    exact = objective.gradient(weights, rows, targets.astype(float), filled, 0.6, along)
    found = objective.sum_margins(objective.clip_coefficients(weights), rows, targets, filled, 0.6, along)
    # Each residual loses at most a step of the grid, and single floats of a row half of their last bit.
    np.testing.assert_allclose(found, exact, atol=len(rows) * (2.0**-FACTOR_PLACES + 1e-6))


@pytest.mark.parametrize("kind", KINDS)
def test_owners_of_a_stack_have_their_own_sums_and_padding_adds_nothing(kind: Any) -> None:
    rows, along, labels, filled = batch(21)
    objective = objective_of(kind, 0 if kind == "linear" else 2)
    weights = objective.clip_coefficients(np.cos(np.arange(1.0, 22))[None])
    shapes = [one.reshape(7, 100, *one.shape[1:]) for one in (rows, labels, filled, along)]
    x, y, present, u = shapes
    stacked = objective.sum_margins(weights, x, y, present, 0.6, u)
    for place in range(7):
        alone = objective.sum_margins(weights, x[place], y[place], present[place], 0.6, u[place])
        np.testing.assert_array_equal(stacked[place], alone)
        kept = present[place]
        few = objective.sum_margins(weights, x[place][kept], y[place][kept], kept[kept], 0.6, u[place][kept])
        np.testing.assert_array_equal(alone, few)
    assert stacked.shape == (7, 1, 21)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [1, 21, 256])
def test_rows_that_are_whitened_on_the_way_have_the_same_sum(
    kind: Any, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, _, labels, filled = batch(width)
    rows = rows * 0.99
    generator = np.random.default_rng(width)
    some = generator.normal(size=(3, width)) / np.sqrt(width)
    start = Whitening.identity(width)
    objective = objective_of(kind, 0 if kind == "linear" else 2)
    targets = labels - 0.3 if kind == "linear" else labels
    for whitening in (start, start.with_stage(0, 2.5, some), start.with_stage(0, -1e300, 1e300 * some)):
        along = whitening.map_on_grid(rows)
        for scale in SCALES:
            weights = objective.clip_coefficients(scale * np.cos(np.arange(1.0, width + 1))[None])

            def whitened(part: slice, weights: Any = weights, whitening: Whitening = whitening) -> Any:
                own = rows[part], targets[part], filled[part]
                return objective.sum_whitened(weights, *own, 0.6, *whitening.factors_of_kernel)

            for part in (slice(None), slice(5, 70), slice(0, 1), slice(0, 0)):
                made = objective.sum_margins(weights, rows[part], targets[part], filled[part], 0.6, along[part])
                np.testing.assert_array_equal(whitened(part), made)
            with monkeypatch.context() as without:
                without.setattr(objectives, "sum_whitened", row_kernels._sum_whitened_in_numpy)
                np.testing.assert_array_equal(
                    whitened(slice(5, 70)),
                    objective.sum_margins(weights, rows[5:70], targets[5:70], filled[5:70], 0.6, along[5:70]),
                )
    for value in (1.1, np.nan, -np.inf):
        rows[433, 0] = value
        weights = np.ones((1, width))
        assert objective.sum_whitened(weights, rows, targets, filled, 0.6, *start.factors_of_kernel) is None


def test_a_target_that_is_no_number_adds_nothing() -> None:
    rows, along, labels, filled = batch(21)
    targets = labels - 0.3
    targets[::5] = np.nan
    rest = np.isfinite(targets)
    objective = objective_of("linear", 0)
    weights = np.ones((1, 21))
    np.testing.assert_array_equal(
        objective.sum_margins(weights, rows, targets, filled, 1.0, along),
        objective.sum_margins(weights, rows[rest], targets[rest], filled[rest], 1.0, along[rest]),
    )


@pytest.mark.parametrize("width", [1, 21])
def test_calibration_sums_of_one_pass(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, _, labels, filled = batch(width)
    objective = objective_of("logistic", 2)
    limits = limits_of(objective)

    def of(scale: float, part: slice = slice(None)) -> np.ndarray:
        weights = objective.clip_coefficients(scale * np.cos(np.arange(1.0, width + 1))[None])
        return logistic_sums(weights, rows[part], labels[part], filled[part], limits)

    for scale in SCALES:
        each = np.array([of(scale, slice(at, at + 1)) for at in range(700)])
        for part in (slice(None), slice(3, 259), slice(255, 700), slice(0, 0)):
            np.testing.assert_array_equal(of(scale, part), each[part].sum(0))
        inside = (each >= [limits.least, 0.0]) & (each <= [limits.most, limits.growth])
        assert inside.all() and (each[~filled] == 0).all()
        weights = scale * np.cos(np.arange(1.0, width + 1))[None]
        if abs(scale) < 100:
            exact = calibration_sums(objective, weights, rows, labels.astype(float), filled)
            np.testing.assert_allclose(of(scale), exact, atol=1e-4)
    found = [of(scale) for scale in SCALES]
    monkeypatch.setattr(calibration, "sum_calibrations", row_kernels._sum_calibrations_in_numpy)
    for one, scale in zip(found, SCALES, strict=True):
        np.testing.assert_array_equal(one, of(scale))
    weights, flags = np.ones((1, width)), filled.reshape(7, 100)
    stacked = logistic_sums(weights, rows.reshape(7, 100, width), labels.reshape(7, 100), flags, limits)
    alone = logistic_sums(weights, rows[300:400], labels[300:400], filled[300:400], limits)
    assert stacked.shape == (7, 2)
    np.testing.assert_array_equal(stacked[3], alone)


def test_the_sigmoid_is_that_of_the_library() -> None:
    scores = np.concatenate([np.linspace(-700, 700, 10_001), np.linspace(-2, 2, 10_001), [0.0, -0.0, 708.0, -708.0]])
    decay = row_kernels._decay_in_numpy(scores)
    np.testing.assert_allclose(np.where(scores >= 0, 1.0, decay) / (1 + decay), expit(scores), rtol=2.0**-50)
    far = row_kernels._decay_in_numpy(np.array([1e30, -1e300]))
    assert ((far > 0) & (far < 1e-300)).all()


def run_on_rows() -> bytes:
    """The released weights of a seeded run."""
    generator = np.random.default_rng(5)
    parties: dict[str, Any] = {
        name: Records(in_unit_ball(generator.normal(size=(300, 4)) / 2), generator.integers(0, 2, 300))
        for name in "abc"
    }
    protocol = Averaging.over_rows(features=4, sizes=300, solver="gradient")
    options = RunOptions(baselines=False)
    found = simulate(protocol, parties=parties, epsilon=5.0, delta=1e-6, unit="record", seed=1, options=options)
    return np.asarray(found.released["model"], np.float64).tobytes()


def test_a_run_without_the_compiler_has_the_same_bits() -> None:
    # The compiler is looked for once in a process.
    code = (
        "import sys; sys.modules['numba'] = None\n"
        "import comity.compiled as c; c.has_compiler.cache_clear(); c.find_spec = lambda name: None\n"
        "from tests.averaging.test_row_kernels import run_on_rows\n"
        "print(run_on_rows().hex())"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert said.stdout.strip() == run_on_rows().hex(), said.stderr
