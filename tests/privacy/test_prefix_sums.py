"""Running sums with correlated noise: the factor by brute force, the noise's law, its error, and one draw for all."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.stats import kstest

from comity.audit import gdp_lower_bound
from comity.errors import Refused, StudyError
from comity.privacy.loss import GDP, Approx, Pure
from comity.privacy.mechanisms import PrefixSums
from comity.privacy.mechanisms import prefix_sums as module
from comity.privacy.mechanisms.prefix_sums import RoundNoise, coefficients, exact_coefficients
from comity.privacy.permit import simulated_permit
from comity.privacy.randomness import ReleasedNoise, SeededNoise

ALARM, SURE, DELTA = 1e-8, 1 - 1e-7, 1e-6


def root(rounds: int) -> np.ndarray:
    c = coefficients(rounds)
    return np.array([[c[t - k] if k <= t else 0.0 for k in range(rounds)] for t in range(rounds)])


def test_the_factor_is_the_square_root_of_summing_up() -> None:
    assert np.allclose(root(40) @ root(40), np.tril(np.ones((40, 40))), rtol=0, atol=1e-13)
    exact = exact_coefficients(300)
    assert exact[:4] == (Fraction(1), Fraction(1, 2), Fraction(3, 8), Fraction(5, 16))
    assert all(abs(Fraction(float(c)) - e) <= e / 2**53 for c, e in zip(coefficients(300), exact, strict=True))
    assert all(a > b > 0 for a, b in itertools.pairwise(exact))


@pytest.mark.parametrize("rounds", [1, 2, 5, 9])
def test_no_rounds_move_the_sequence_further_than_the_factor(rounds: int) -> None:
    """All sets of rounds in which a unit takes part, moves in all directions: the first rounds, alike, are worst."""
    matrix, generator = root(rounds), np.random.default_rng(rounds)
    for most in range(1, rounds + 1):
        factor = PrefixSums(loss=GDP(1), rounds=rounds, participations=most).factor
        norms = []
        for chosen in itertools.combinations(range(rounds), most):
            moves = np.zeros((rounds, 2))
            moves[list(chosen), 0] = 1
            norms.append(np.linalg.norm(matrix @ moves))
            turned = generator.normal(size=(rounds, 2)) * (moves[:, :1] > 0)
            turned /= np.maximum(np.linalg.norm(turned, axis=1, keepdims=True), 1)
            assert np.linalg.norm(matrix @ turned) <= factor
        assert max(norms) == pytest.approx(factor, rel=1e-11)
        assert max(norms) <= factor
    assert PrefixSums(loss=GDP(1), rounds=9, participations=3).factor > PrefixSums(loss=GDP(1), rounds=9).factor


def tree(rounds: int) -> tuple[float, float]:
    """The largest and the root mean square deviation of sums over a binary tree, for Δ/μ = 1 in one round."""
    levels = round(math.log2(rounds)) + 1
    nodes = np.array([bin(t).count("1") for t in range(1, rounds + 1)])
    return math.sqrt(levels * nodes.max()), math.sqrt(levels * nodes.mean())


@pytest.mark.parametrize(("rounds", "worst", "mean"), [(16, 1.944, 1.797), (256, 2.831, 2.669), (4096, 3.714, 3.551)])
def test_errors_against_independent_noise_and_the_binary_tree(rounds: int, worst: float, mean: float) -> None:
    mechanism = PrefixSums(loss=GDP(1), rounds=rounds)
    errors = mechanism.factor * mechanism.deviations
    assert errors.max() == pytest.approx(worst, abs=0.001)
    assert math.sqrt(np.mean(errors**2)) == pytest.approx(mean, abs=0.001)
    assert errors.max() < math.sqrt(rounds) / 2
    largest, usual = tree(rounds)
    assert errors.max() < 0.55 * largest
    assert math.sqrt(np.mean(errors**2)) < 0.65 * usual
    # A unit that takes part in every round moves everything: there independent noise, at T·Δ/μ, is narrower.
    always = PrefixSums(loss=GDP(1), rounds=rounds, participations=rounds)
    assert rounds < (always.factor * always.deviations).max() < 1.6 * rounds


def test_the_noise_is_the_root_times_normals_rounded() -> None:
    mechanism = PrefixSums(loss=GDP(1), rounds=12)
    scale = mechanism.scale(sensitivity=1.0, shape=(3, 50))
    noise = mechanism.noise(bytes(32), scale, (3, 50))
    released = np.array([noise.of(t) for t in range(12)])
    assert released.shape == (12, 3, 50)
    ideal = np.tensordot(root(12), noise._doubles[:12].reshape(12, 3, 50), 1)
    assert np.abs(released - ideal).max() <= 0.5 + 1e-6
    # What correlates the rounds, taken away, leaves independent normals.
    z = np.tensordot(np.linalg.inv(root(12)), released, 1) / scale.total
    assert kstest(z.ravel(), "norm").pvalue > ALARM
    assert abs(np.corrcoef(z[:-1].ravel(), z[1:].ravel())[0, 1]) < 6 / math.sqrt(z.size)


def test_a_resumed_run_draws_nothing_twice() -> None:
    mechanism = PrefixSums(loss=GDP(1), rounds=6)
    scale = mechanism.scale(sensitivity=1.0, shape=(4,))
    seed = mechanism.begin(ReleasedNoise(), permit=simulated_permit("sums"))
    first = [mechanism.noise(seed, scale, (4,)).of(t) for t in (5, 0, 3)]
    resumed = mechanism.noise(seed, scale, (4,))
    assert all(np.array_equal(a, b) for a, b in zip(first, [resumed.of(t) for t in (5, 0, 3)], strict=True))
    assert seed != mechanism.begin(ReleasedNoise(), permit=simulated_permit("sums"))


@pytest.mark.parametrize("source", [ReleasedNoise(), SeededNoise(1)], ids=["released", "seeded"])
def test_one_permit_for_the_whole_sequence(source: Any) -> None:
    once = simulated_permit("sums")
    mechanism = PrefixSums(loss=GDP(1), rounds=3)
    assert len(mechanism.begin(source, permit=once)) == 32
    with pytest.raises(Refused):
        mechanism.begin(source, permit=once)


def test_sums_that_doubles_leave_open_are_rounded_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    """With every sum settled by exact bounds the noise is the same, also where doubles settle none."""
    fast = RoundNoise(bytes(32), 900.0, (6,), 9)
    expected = [fast.of(t) for t in (0, 4, 8)]
    slow = RoundNoise(bytes(32), 900.0, (6,), 9)
    assert [[slow._exact(t, i) for i in range(6)] for t in (0, 4, 8) if slow.of(t) is not None] == [
        e.tolist() for e in expected
    ]
    calls: Any = []
    wide = RoundNoise(bytes(32), 2.0**49, (2,), 9)
    exact = RoundNoise._exact
    monkeypatch.setattr(module.RoundNoise, "_exact", lambda self, *a: calls.append(a) or exact(self, *a))
    drawn = wide.of(8)
    assert len(calls) == 2
    for index in range(2):
        bounds = [wide._drawn[k].between(index, 400) for k in range(9)]
        truth: Any = sum(exact_coefficients(9)[8 - k] * least for k, (least, _) in enumerate(bounds))
        assert abs(int(drawn[index]) - truth) <= Fraction(1, 2)


def sequence_scores(
    mechanism: PrefixSums, sigma: float, moves: np.ndarray[Any, Any], grid: int, count: int, seed: int
) -> list[Any]:
    """Log likelihood ratios of all noisy sums, of rows without and with the moves: what the best guess goes by."""
    rounds = mechanism.rounds
    noise = RoundNoise(seed.to_bytes(32, "big"), sigma, (2, count), rounds)
    released = np.array([noise.of(t) for t in range(rounds)]).astype(float)
    released[:, 1] += np.cumsum(moves)[:, None] * grid
    direction = root(rounds) @ moves
    return list(np.tensordot(direction @ np.linalg.inv(root(rounds)), released, 1))


@pytest.mark.parametrize("participations", [1, 3])
def test_the_whole_sequence_holds_its_claim_and_fewer_participations_than_there_are_do_not(participations: int) -> None:
    mechanism = PrefixSums(loss=Approx(1, DELTA), rounds=6, participations=participations)
    scale = mechanism.scale(sensitivity=1.0, shape=(1,))
    shift = math.floor(1 / scale.grid + 1)

    def measured(took: int, number: int) -> float:
        moves = np.array([1.0] * took + [0.0] * (6 - took))
        return gdp_lower_bound(
            *sequence_scores(mechanism, scale.total, moves, shift, 100_000, number), delta=DELTA, confidence=SURE
        )

    assert 0.5 <= measured(participations, 1) <= 1
    assert measured(min(6, 3 * participations), 2) > 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: PrefixSums(loss=Pure(1), rounds=3),
        lambda: PrefixSums(loss=GDP(0), rounds=3),
        lambda: PrefixSums(loss=GDP(1), rounds=0),
        lambda: PrefixSums(loss=GDP(1), rounds=3, participations=4),
        lambda: PrefixSums(loss=GDP(1), rounds=3, participations=0),
        lambda: PrefixSums(loss=GDP(1), rounds=3).scale(sensitivity=math.nan, shape=(1,)),
        lambda: RoundNoise(bytes(32), 10.0, (1,), 3).of(3),
        lambda: RoundNoise(bytes(32), 10.0, (1,), 3).of(-1),
    ],
)
def test_what_can_not_be_laid_out_is_refused(make: Any) -> None:
    with pytest.raises(StudyError):
        make()


def test_the_scale_pays_for_rounding_and_the_factor() -> None:
    mechanism = PrefixSums(loss=GDP(2), rounds=64, participations=4)
    scale = mechanism.scale(sensitivity=3.0, shape=(10, 10))
    assert (3 / scale.grid + 10) * mechanism.factor / scale.total <= 2
    assert scale.total * scale.grid <= 1.0011 * 3 * mechanism.factor / 2
    assert (scale.loss, mechanism.charged) == (GDP(2), GDP(2))
