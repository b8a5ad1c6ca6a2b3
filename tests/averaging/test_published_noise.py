"""How much noise the published average needs: by brute force on small cases, and by looking at many draws."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
import pytest

from comity.audit import epsilon_lower_bound
from comity.learn.fits import fit_logistic
from comity.learn.norm_bound import vector_radius
from comity.methods.averaging.published.noise import TOLERANCE, PublishedNoise, _max_fit_norm, gradient_diameter
from comity.privacy.permit import simulated_permit
from comity.privacy.randomness import SeededNoise

SURE = 1 - 1e-7


def noise(
    kind: str = "spherical", *, parties: int = 1, width: int = 64, l2: float = 10.0, epsilon: float = 1.0
) -> PublishedNoise:
    return PublishedNoise(kind, parties, width, l2, epsilon, 1 << 20)  # type: ignore[arg-type]


# Sensitivity.


def gradients(w: np.ndarray, u: np.ndarray) -> np.ndarray:
    found: np.ndarray = u / (1 + np.exp(u @ w))[:, None]
    return found


@pytest.mark.parametrize(("l2", "known"), [(1.0, 1.02), (0.1, 1.21), (0.01, 1.64), (1e-3, 1.91)])
def test_gradients_of_two_records_are_no_further_apart_than_c(l2: float, known: float) -> None:
    c = gradient_diameter(l2)
    assert c == pytest.approx(known, abs=0.005)
    generator = np.random.default_rng(7)
    furthest = 0.0
    for length in np.linspace(0.05, 1.0, 12) * _max_fit_norm(l2):
        w = np.array([length, 0.0, 0.0])
        u = generator.normal(size=(400, 3))
        u /= np.linalg.norm(u, axis=1, keepdims=True)
        u = np.concatenate([u, u * generator.uniform(0, 1, (400, 1))])
        g = gradients(w, u)
        furthest = max(furthest, float(np.linalg.norm(g[:, None] - g[None], axis=2).max()))
    # The search comes near, so that the bound is not a loose one.
    assert 0.95 * c <= furthest <= c


@pytest.mark.parametrize("l2", [3.0, 1.0, 0.1, 1e-3])
def test_no_fit_is_longer_than_the_longest(l2: float) -> None:
    assert _max_fit_norm(l2) <= vector_radius(l2) * (1 + 1e-8)
    lengths = [fit_logistic(np.array([[a]]), np.ones(1), l2).weights[0] for a in np.linspace(0.01, 1.0, 200)]
    assert 0.999 * _max_fit_norm(l2) <= max(lengths) <= _max_fit_norm(l2)


@pytest.mark.parametrize("l2", [0.01, 0.1, 1.0, 10.0])
@pytest.mark.parametrize("size", [1, 3, 10])
def test_replacing_a_record_moves_a_model_by_no_more_than_c_over_n_l2(l2: float, size: int) -> None:
    generator = np.random.default_rng(size)
    bound, largest = gradient_diameter(l2) / (size * l2), 0.0
    for _ in range(60):
        x = generator.normal(size=(size, 2))
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        y = generator.integers(0, 2, size).astype(float)
        other, label = x.copy(), y.copy()
        other[0] = -x[0] if generator.uniform() < 0.3 else generator.permutation(x[0]) * generator.choice([-1, 1], 2)
        label[0] = generator.integers(0, 2)
        moved = fit_logistic(x, y, l2).weights - fit_logistic(other, label, l2).weights
        largest = max(largest, float(np.linalg.norm(moved)))
    # A small penalty leaves the curvature of the other records to hold the model; a large one does not.
    assert (0.6 if l2 >= 1 else 0.0) * bound <= largest <= bound + 2e-10 / l2


def test_noise_shrinks_with_the_records_and_grows_with_the_parties() -> None:
    assert noise().sensitivity(10) == pytest.approx(noise().sensitivity(1) / 10)
    assert noise(parties=5).sensitivity(10) == pytest.approx(5 * noise().sensitivity(10))
    # Replacing a record of any party, however large, is covered by the noise of the smallest.
    for parties in (2, 5, 50):
        terms = noise(parties=parties, l2=1e-3)
        assert terms.sensitivity(100) > gradient_diameter(1e-3) / (100 * 1e-3) + 2e-10 / 1e-3


@pytest.mark.parametrize("kind", ["spherical", "literal"])
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 20.0])
def test_the_common_grid_serves_the_smallest_and_the_largest_party(kind: str, epsilon: float) -> None:
    terms = noise(kind, parties=5, width=124, l2=1e-2, epsilon=epsilon)
    for size in (1, 1000, 1 << 20, 1 << 30):
        sensitivity = terms.sensitivity(size)
        scale = terms.mechanism.scale(sensitivity=sensitivity, shape=(124,), grid=terms.grid)
        # Rounding costs little even where the noise is smallest.
        assert scale.grid == terms.grid
        published = 5 * 2 / (min(size, 1 << 20) * 1e-2 * epsilon) / terms.grid
        assert published <= scale.total <= 1.003 * published


# Audit. One record turned round moves every weight by the same amount, the furthest that L1 allows for an L2 bound.


def neighbours(terms: PublishedNoise) -> tuple[np.ndarray, np.ndarray]:
    """Models of one record and of its opposite, on the grid."""
    x = np.full((1, terms.width), 1 / sqrt(terms.width))
    models = [fit_logistic(sign * x, np.ones(1), terms.l2).weights for sign in (1, -1)]
    return tuple(np.rint(model / terms.grid).astype(np.int64) for model in models)  # type: ignore[return-value]


def draws(terms: PublishedNoise, count: int, seed: int) -> np.ndarray:
    scale = terms.mechanism.scale(sensitivity=terms.sensitivity(1), shape=(terms.width,), grid=terms.grid)
    source = SeededNoise(seed)
    if terms.kind == "literal":
        return source.discrete_laplace(scale.total, (count, terms.width), permit=simulated_permit("noise"))
    return source._lattice_rows(scale.total, count, terms.width)


def scores(terms: PublishedNoise, released: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The log likelihood ratio, up to its scale."""

    def norm(z: Any) -> Any:
        return np.abs(z).sum(1) if terms.kind == "literal" else np.linalg.norm(z, axis=1)

    return np.asarray(norm((released - second).astype(float)) - norm((released - first).astype(float)))


def measured(terms: PublishedNoise, count: int = 40_000) -> float:
    first, second = neighbours(terms)
    both = [
        scores(terms, model + draws(terms, count, seed), first, second) for seed, model in enumerate((first, second))
    ]
    return epsilon_lower_bound(*both, confidence=SURE)


def test_literal_noise_is_caught_as_losing_more_than_it_claims() -> None:
    terms = noise("literal", width=50, epsilon=2.0)
    assert 2.0 < measured(terms, 200_000) <= terms.true_epsilon


def test_spherical_noise_of_the_same_scale_is_not() -> None:
    assert measured(noise("spherical", width=50, epsilon=2.0)) <= 2.0


def test_the_loss_of_literal_noise_is_attained() -> None:
    """Where every weight of what is released lies beyond both models, the likelihood ratio is the declared loss."""
    terms = noise("literal", parties=2, width=123, l2=1e3)
    first, second = neighbours(terms)
    scale = terms.mechanism.scale(sensitivity=terms.sensitivity(1), shape=(123,), grid=terms.grid)
    ratio = np.abs(first - second).sum() / scale.total
    # At this penalty a fit has no room, and gradients are apart by 1.0005.
    assert 0.98 * terms.true_epsilon <= ratio <= terms.true_epsilon
    assert terms.true_epsilon == pytest.approx(sqrt(123) / 4, rel=1e-3)


def test_noise_that_is_multiplied_by_the_parties_after_the_draw_shows_the_sum_modulo_them() -> None:
    """The paper's K·η on a lattice: a reader tells neighbours apart in every draw. Ours is drawn on the sum's grid."""
    terms = noise("spherical", parties=5, width=8)
    first, _ = neighbours(terms)
    neighbour = first + 1
    multiplied = 5 * draws(terms, 50, 1)
    assert np.array_equal((first + multiplied) % 5, np.tile(first % 5, (50, 1)))
    assert not np.array_equal((neighbour + multiplied) % 5, np.tile(first % 5, (50, 1)))
    ours = (first + draws(terms, 4000, 2)) % 5
    assert np.bincount(ours[:, 0], minlength=5).min() > 650


# The true loss.


@pytest.mark.parametrize("parties", [2, 10])
@pytest.mark.parametrize("l2", [1.0, 0.1, 0.01])
def test_the_true_loss_of_spherical_noise_is_approached_and_never_exceeded(l2: float, parties: int) -> None:
    """n − 1 equal records hold the model at its longest; one across them takes its two positions that are furthest
    apart. All parties have n records, so that the noise is that of n."""
    terms, c = noise(parties=parties, width=2, l2=l2), gradient_diameter(l2)
    longest = _max_fit_norm(l2)
    along = min(1.0, 1.2784645427610738 / longest)
    cosines = np.linspace(0.0, 1.0, 2001)
    cosine = cosines[(np.sqrt(1 - cosines**2) / (1 + np.exp(-longest * cosines))).argmax()]
    reached = []
    for size in (20, 2000):
        moved = []
        for across in (1.0, -1.0):
            x = np.tile([along, 0.0], (size, 1))
            x[0] = [-cosine, across * np.sqrt(1 - cosine**2)]
            moved.append(fit_logistic(x, np.ones(size), l2).weights)
        apart = float(np.linalg.norm(moved[0] - moved[1]))
        assert apart <= c / (size * l2) + 2e-10 / l2
        # Spherical noise of scale β loses the L2 distance over β.
        reached.append(apart * terms.epsilon / terms.sensitivity(size))
    assert max(reached) <= terms.true_epsilon and reached[1] >= 0.98 * terms.true_epsilon
    assert terms.true_epsilon == pytest.approx(c / (2 * parties), rel=2e-4)


@pytest.mark.parametrize("kind", ["spherical", "literal"])
def test_the_true_loss_counts_the_solvers_inexactness_at_every_size(kind: str) -> None:
    terms = noise(kind, parties=3, width=5, l2=0.1)
    root = sqrt(5) if kind == "literal" else 1.0
    shares = []
    for size in (1, 1000, terms.most):
        scaled = noise("spherical", parties=3, width=5, l2=0.1).sensitivity(size)
        # What two fits that are each off by the tolerance may be apart, in the norm of the noise.
        apart = gradient_diameter(0.1) / (size * 0.1) + 2 * TOLERANCE / 0.1
        shares.append(root * apart * terms.epsilon / scaled)
    assert shares == sorted(shares) and terms.true_epsilon == pytest.approx(shares[-1], rel=3e-9)
    assert terms.true_epsilon >= shares[-1]


def test_a_tenth_of_the_claim_is_used_by_ten_parties() -> None:
    assert noise(parties=10, l2=0.01).true_epsilon == pytest.approx(0.082, abs=5e-4)
    literal = noise("literal", parties=10, l2=0.01, width=9)
    assert literal.true_epsilon == pytest.approx(3 * noise(parties=10, l2=0.01).true_epsilon)
