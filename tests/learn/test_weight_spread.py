"""A solution with little of the ridge in it, and how far it is off by repeating the release."""

from __future__ import annotations

from typing import Any

import numpy as np

from comity.learn.quadratic import spectral_norm
from comity.learn.weight_spread import repeat_release, unshrink


def test_an_unshrunk_solution_leaves_out_the_cube_of_the_ridges_share() -> None:
    gram = np.diag([500.0, 30.0, 10.0, 0.0, -5.0])
    found = unshrink(gram, np.array([500.0, 30.0, 10.0, 0.0, -5.0]), 20.0)
    share = {500.0: 0.0, 30.0: 0.0, 10.0: 0.5, 0.0: 1.0, -5.0: 1.0}
    expected = np.array([share[one] for one in np.linalg.eigvalsh(gram)]) ** 3
    np.testing.assert_allclose(found.shrunk, expected, atol=1e-9)
    np.testing.assert_allclose(found.weights, [1.0, 1.0, 1 - 0.5**3, 0.0, -5 * 3 / 10])


def test_repetitions_are_off_as_far_as_noisy_solutions_are_where_noise_is_not_small() -> None:
    """Three of eight eigenvalues are within twice the noise's norm: the deviations of repetitions from one noisy Gram
    matrix are, on average over many, within a quarter of those of fresh noise; to first order they are too small."""
    generator = np.random.default_rng(11)
    values = np.array([90.0, 70.0, 60.0, 400.0, 500.0, 700.0, 900.0, 2000.0])
    axes = np.linalg.qr(generator.normal(size=(8, 8)))[0]
    gram, weights = (axes * values) @ axes.T, np.array([1.0, -1.0, 0.5, 0.0, 0.3, -0.2, 0.8, -0.4])
    variances, moment_variances = np.full((8, 8), 64.0), np.full(8, 64.0)
    norm = spectral_norm(variances)
    off: list[Any] = []
    claimed: list[Any] = []
    for _ in range(200):
        noise = np.triu(generator.normal(size=(8, 8)) * 8.0)
        noisy = gram + noise + np.triu(noise, 1).T
        found = unshrink(noisy, gram @ weights + 8.0 * generator.normal(size=8), norm)
        off.append(found.weights - weights)
        if len(claimed) < 40:
            repeated = repeat_release(noisy, weights, variances, moment_variances, residual=0.0, norm=norm)
            claimed.append((repeated**2).mean(axis=0))
    ratio = np.sqrt(np.median(claimed, axis=0) / (np.array(off) ** 2).mean(axis=0))
    assert ratio.min() > 0.75 and ratio.max() < 1.4
