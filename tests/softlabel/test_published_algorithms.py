"""Algorithms 1 and 2 of Hamm, Cao and Belkin (2016), walked line by line beside a transcription in plain numpy.

The transcription shares nothing with the method: its minimiser is scipy's, on the risk as the paper prints it. Line
numbers count the lines of the pseudo-code after "Begin".
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import pytest
from scipy import optimize, stats

from comity.data import Records
from comity.entropy import Stream
from comity.federation.coordinator.lifecycle import run
from comity.federation.coordinator.released import perturb
from comity.methods.softlabel import PublishedSoftLabel, SoftLabel
from comity.methods.softlabel.published.constants import PAPER
from comity.methods.softlabel.published.method import majority
from comity.privacy.loss import Pure
from comity.privacy.randomness import SeededNoise

from .consortia import host_parties, labels, make_consortium, ordinary

LAMBDA = 1e-4
PARTIES = 6


def risk(w: np.ndarray, x: np.ndarray, alpha: np.ndarray, penalty: float) -> tuple[float, np.ndarray]:
    """Equation 17, which is equation 8 where every α is 0 or 1, with the logistic loss; and its gradient."""
    scores = x @ w
    value = np.mean(alpha * np.logaddexp(0, -scores) + (1 - alpha) * np.logaddexp(0, scores)) + penalty / 2 * w @ w
    return float(value), x.T @ (1 / (1 + np.exp(-scores)) - alpha) / len(x) + penalty * w


def minimiser(x: np.ndarray, alpha: np.ndarray, penalty: float) -> np.ndarray:
    def hessian(w: np.ndarray) -> np.ndarray:
        p = 1 / (1 + np.exp(-(x @ w)))
        found: np.ndarray = (x.T * (p * (1 - p))) @ x / len(x) + penalty * np.eye(x.shape[1])
        return found

    start = np.zeros(x.shape[1])
    found = optimize.minimize(
        risk, start, (x, alpha, penalty), method="trust-exact", jac=True, hess=lambda w, *_: hessian(w), tol=1e-12
    )
    assert np.linalg.norm(risk(found.x, x, alpha, penalty)[1]) < 1e-9
    return np.asarray(found.x)


def local_classifiers(records: Sequence[Records]) -> list[np.ndarray]:
    """h_1, ..., h_M of section 6: logistic regression on a party's own records with the same λ."""
    return [minimiser(own.features, np.asarray(own.labels, float), LAMBDA) for own in records]


def algorithm_1(h: Sequence[np.ndarray], x: np.ndarray, penalty: float) -> tuple[np.ndarray, np.ndarray]:
    """Labels v(x_i), and w_s."""
    v = np.zeros(len(x))
    for i in range(len(x)):  # line 1
        # Line 2, by equation 6: v(x) = 1 if Σ_j I[h_j(x) = 1] >= M/2, else −1.
        v[i] = 1 if sum(1 for w in h if w @ x[i] > 0) >= len(h) / 2 else -1
    return v, minimiser(x, (v + 1) / 2, penalty)  # line 4, equation 8


def algorithm_2(h: Sequence[np.ndarray], x: np.ndarray, penalty: float) -> tuple[np.ndarray, np.ndarray]:
    """Shares α(x_i), and w_s."""
    alpha = np.zeros(len(x))
    for i in range(len(x)):  # line 1
        alpha[i] = sum(1 for w in h if w @ x[i] > 0) / len(h)  # line 2, by equation 10
    return alpha, minimiser(x, alpha, penalty)  # line 4, equation 17


def sample(generator: np.random.Generator, rate: float, dimensions: int) -> np.ndarray:
    """Line 5: η with density proportional to exp(−rate |η|). In d dimensions its radius has density
    r^(d − 1) exp(−rate r), which is Gamma(d), and its direction is uniform."""
    direction = generator.normal(size=dimensions)
    return np.asarray(direction / np.linalg.norm(direction) * generator.gamma(dimensions, 1 / rate))


RATES = {"vote": 0.5 * LAMBDA, "soft": 0.5 * PARTIES * LAMBDA}
"""Of the exponents of line 5, before they are multiplied by ε."""
ALGORITHMS = {"vote": algorithm_1, "soft": algorithm_2}


@pytest.fixture(scope="module")
def records() -> list[Records]:
    """An even number of parties that often disagree, so that some votes tie."""
    return [Records(own.features, np.asarray(own.labels)) for own in ordinary(2, PARTIES, rows=5, width=3, seed=5)]


@pytest.fixture(scope="module")
def auxiliary_rows() -> np.ndarray:
    x = np.random.default_rng(8).normal(size=(30, 3))
    return np.asarray(x / np.linalg.norm(x, axis=1).max())


def published(method: str, rows: np.ndarray) -> PublishedSoftLabel:
    """Nothing but the algorithm is chosen: every constant is the variant's default."""
    return SoftLabel.published_over_rows(auxiliary=rows, classes=labels(2), method=method)


@pytest.mark.parametrize("method", ["vote", "soft"])
def test_lines_1_to_4_give_the_same_labels_and_the_same_minimiser(
    method: str, records: list[Records], auxiliary_rows: np.ndarray
) -> None:
    found, exact = ALGORITHMS[method](local_classifiers(records), auxiliary_rows, LAMBDA)
    tried = published(method, auxiliary_rows)
    # At this epsilon the grid that the noise lives on is far finer than the minimiser.
    consortium = make_consortium(PARTIES, Pure(10**9))
    parties, _, _ = host_parties(tried, records, consortium=consortium)
    released = run(parties)["model"]
    grid = tried.declare(consortium)["model"].scale(consortium).grid
    assert grid < 1e-3 * np.linalg.norm(exact)
    np.testing.assert_allclose(released[0], exact, atol=grid + 1e-4)
    shares = algorithm_2(local_classifiers(records), auxiliary_rows, LAMBDA)[0]
    if method == "vote":
        np.testing.assert_array_equal(2 * majority(np.stack([1 - shares, shares], axis=1)) - 1, found)
        ties = np.count_nonzero(shares == 0.5)
        assert ties and (found[shares == 0.5] == 1).all()
    else:
        np.testing.assert_array_equal(shares, found)


@pytest.mark.parametrize("method", ["vote", "soft"])
def test_lines_5_and_6_add_noise_of_the_printed_density(method: str, auxiliary_rows: np.ndarray) -> None:
    """The radii of 300 draws of ours and of the transcription are of one distribution, Gamma(d), and not of Gamma(1).

    Kolmogorov and Smirnov at one in a thousand; the noise is seeded, so the outcome is always the same."""
    epsilon, count = 2.0, 300
    tried, consortium = published(method, auxiliary_rows), make_consortium(PARTIES, Pure(2))
    rate = RATES[method] * epsilon
    release = tried.declare(consortium)["model"]
    scale = release.scale(consortium)
    # exp(−ε|η|/Δ) is the printed density where Δ/ε is one over the rate; the grid adds a thousandth at most.
    assert scale.total * scale.grid == pytest.approx(1 / rate, rel=2e-3)
    source, centre = SeededNoise(3), np.full(release.shape, 0.25)
    ours = [perturb(release, 0, centre, consortium, source, lambda _, make: make()) - centre for _ in range(count)]
    dimensions = prod(release.shape)
    generator = np.random.default_rng(1)
    theirs = [np.linalg.norm(sample(generator, rate, dimensions)) for _ in range(count)]
    radii = np.array([np.linalg.norm(one) for one in ours])
    assert stats.ks_2samp(radii, theirs).pvalue > 1e-3
    assert stats.kstest(radii * rate, stats.gamma(dimensions).cdf).pvalue > 1e-3
    assert stats.kstest(radii * rate, stats.gamma(1).cdf).pvalue < 1e-9
    # Directions are uniform: the mean of unit vectors is within six of its deviations of zero.
    mean = np.mean([one.ravel() / np.linalg.norm(one) for one in ours], axis=0)
    assert np.linalg.norm(mean) < 6 / np.sqrt(count)


def test_equation_6_gives_ties_to_the_positive_class_and_of_several_to_the_last() -> None:
    shares = np.array([[0.5, 0.5], [0.51, 0.49], [0.49, 0.51]])
    np.testing.assert_array_equal(majority(shares), [1, 0, 1])
    several = np.array([[0.4, 0.4, 0.2], [0.4, 0.2, 0.4], [0.5, 0.25, 0.25], [1 / 3, 1 / 3, 1 / 3]])
    np.testing.assert_array_equal(majority(several), [1, 2, 0, 2])


def test_the_published_variant_takes_the_papers_constants_and_lists_them() -> None:
    method: Any = SoftLabel(variant="published", auxiliary="public.csv")
    assert (method.method, method.l2, method.sensitivity, method.intercept) == ("soft", 1e-4, "paper", False)
    assert (method.auxiliary_privacy, method.scaling) == ("public", "scaled")
    assert set(method.constants) == set(PAPER) and all(one.is_papers for one in method.constants.values())
    assert all(one.source and one.meaning for one in PAPER.values())
    repaired: Any = SoftLabel(variant="published", auxiliary="public.csv", sensitivity="tight", l2=0.01)
    assert not repaired.constants["sensitivity"].is_papers and repaired.constants["l2"].in_use == 0.01
    default: Any = SoftLabel(auxiliary="public.csv")
    assert default.intercept and not default.constants


def test_the_noise_is_that_of_the_printed_exponents() -> None:
    rows = Stream.public("published constants").normal((4, 3))
    rows = rows / (2 * np.linalg.norm(rows, axis=1).max())
    for method, sensitivity in (("vote", 2 / 1e-4), ("soft", 2 / (1000 * 1e-4))):
        assert published(method, rows).sensitivity(1000) == pytest.approx(sensitivity, rel=1e-12)
