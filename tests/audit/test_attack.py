"""The attack on one shift: close to the truth, never above it, and beyond the claim where noise is too narrow."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

from comity.audit.attack import attack, rounding_margin, sharpest_group
from comity.audit.bound import epsilon_of_event, gaussian_epsilon, mu_of_test
from comity.audit.shift import Shift, Twin, design_epsilon, design_mu
from comity.errors import StudyError
from comity.privacy.loss import Approx, Pure
from comity.privacy.mechanisms import Noise
from comity.privacy.mechanisms.gaussian import Gaussian
from comity.privacy.mechanisms.laplace import Laplace
from comity.privacy.mechanisms.spherical import Spherical
from comity.privacy.randomness import SeededNoise

SURE = 1 - 1e-7
DELTA = 1e-6


def make_shift(noise: Noise, *, parts: int = 1, group: int = 1, coordinates: int = 1) -> Shift:
    """Every coordinate moves equally far, all together by the sensitivity of `group` units."""
    scale = noise.scale(sensitivity=1.0, shape=(coordinates,), parts=parts)
    each = 1 / coordinates if noise.norm == "l1" else 1 / math.sqrt(coordinates)
    units = np.full(coordinates, group * int(each / scale.grid), np.int64)
    return Shift("release", noise, scale, parts, coordinates, units)


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("coordinates", [1, 5])
def test_gaussian_noise_is_measured_close_to_its_claim(parts: int, coordinates: int) -> None:
    shift = make_shift(Gaussian(Approx(1, DELTA)), parts=parts, group=17, coordinates=coordinates)
    twins = (Twin("narrow", shrink=1.2), *((Twin("part", missing_part=True),) if parts > 1 else ()))
    honest, *broken = attack([shift], SeededNoise(3), delta=DELTA, group=17, draws=40_000, confidence=SURE, twins=twins)
    assert 0.93 < honest.epsilon <= 1
    assert all(twin.epsilon > 1 for twin in broken)


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("coordinates", [1, 4])
def test_laplace_noise_is_measured_close_to_its_claim(parts: int, coordinates: int) -> None:
    group = 4 * coordinates
    shift = make_shift(Laplace(Pure(1)), parts=parts, group=group, coordinates=coordinates)
    honest, narrow = attack(
        [shift],
        SeededNoise(5),
        delta=0.0,
        group=group,
        draws=60_000,
        confidence=SURE,
        twins=(Twin("narrow", shrink=1.2),),
    )
    assert 0.9 < honest.epsilon <= 1
    assert narrow.epsilon > 1


def test_spherical_noise_of_one_number_is_measured_close_to_its_claim() -> None:
    shift = make_shift(Spherical(Pure(1)), group=2)
    honest, half = attack(
        [shift], SeededNoise(7), delta=0.0, group=2, draws=20_000, confidence=SURE, twins=(Twin("half", shrink=2.0),)
    )
    assert 0.85 < honest.epsilon <= 1 < half.epsilon


def test_many_parts_are_drawn_as_two_and_measured_as_if_drawn_one_by_one() -> None:
    """Merged parts are as wide as their sum, and the rounding that they spare is counted against the attack."""
    shift = make_shift(Gaussian(Approx(1, DELTA)), parts=40, group=17, coordinates=5)
    assert shift.merges_parts and not make_shift(Gaussian(Approx(1, DELTA)), parts=3).merges_parts
    drawn = shift.draw(SeededNoise(2), 20_000)
    part = shift.scale.part
    assert drawn.rest.var() == pytest.approx(39 * part**2, rel=0.02)
    assert drawn.last.var() == pytest.approx(part**2, rel=0.02)
    one_by_one = sum(shift._part(SeededNoise(seed), 2_000, 5) for seed in range(40))
    assert np.var(one_by_one) == pytest.approx(40 * part**2, rel=0.05)
    honest, narrow = attack(
        [shift], SeededNoise(3), delta=DELTA, group=17, draws=40_000, confidence=SURE, twins=(Twin("n", shrink=1.2),)
    )
    assert 0.93 < honest.epsilon <= 1 < narrow.epsilon


def test_many_coordinates_are_drawn_in_blocks() -> None:
    shift = make_shift(Gaussian(Approx(1, DELTA)), group=17, coordinates=5_000)
    assert len(shift.weights) == 1_000 and shift.drawn_numbers == 1_000
    assert np.linalg.norm(shift.weights) == pytest.approx(np.linalg.norm(shift.units.astype(float)))
    honest, narrow = attack(
        [shift], SeededNoise(3), delta=DELTA, group=17, draws=10_000, confidence=0.99, twins=(Twin("n", shrink=1.2),)
    )
    assert 0.93 < honest.epsilon <= 1 < narrow.epsilon


def test_the_margin_for_merged_parts_covers_their_rounding() -> None:
    """Sums of rounded parts lie within the margin of the rounded sum, in every one of many draws."""
    shift = make_shift(Gaussian(Approx(1, DELTA)), parts=40, coordinates=3)
    generator = np.random.default_rng(1)
    exact = generator.normal(0, shift.scale.part, (4_000, 39, 3))
    apart = (np.rint(exact).sum(axis=1) - np.rint(exact.sum(axis=1))) @ shift.units
    margin = shift.rounding(1e-12)
    assert np.abs(apart).max() < margin < 20 * np.abs(apart).max()
    assert rounding_margin([shift]) == pytest.approx(margin / (shift.scale.part**2 * 40))
    assert rounding_margin([make_shift(Gaussian(Approx(1, DELTA)), parts=3)]) == 0


def test_losses_of_several_releases_add_up() -> None:
    one = make_shift(Gaussian(Approx(1, DELTA)), group=10)
    assert design_mu([one, one]) == pytest.approx(math.sqrt(2) * design_mu([one]))
    pure = make_shift(Laplace(Pure(1)), group=10)
    assert design_epsilon([pure, pure]) == pytest.approx(2 * design_epsilon([pure]))
    both, alone = (
        attack(shifts, SeededNoise(1), delta=DELTA, group=10, draws=20_000, confidence=SURE)[0].epsilon
        for shifts in ([one, one], [one])
    )
    assert both > 1.2 * alone


def test_coordinates_that_do_not_move_tell_nothing() -> None:
    still = make_shift(Gaussian(Approx(1, DELTA)), group=0)
    moving = make_shift(Gaussian(Approx(1, DELTA)), group=10)
    found = attack([still, moving], SeededNoise(1), delta=DELTA, group=10, draws=20_000, confidence=SURE)[0]
    alone = attack([moving], SeededNoise(1), delta=DELTA, group=10, draws=20_000, confidence=SURE)[0]
    assert found.epsilon == alone.epsilon and found.design == alone.design


def test_gaussian_and_pure_noise_in_one_run_are_refused() -> None:
    shifts = [make_shift(Gaussian(Approx(1, DELTA))), make_shift(Laplace(Pure(1)))]
    with pytest.raises(StudyError, match="both"):
        attack(shifts, SeededNoise(1), delta=DELTA, draws=100, confidence=0.95)
    with pytest.raises(StudyError):
        attack([], SeededNoise(1), delta=DELTA, draws=100, confidence=0.95)


def test_bounds_agree_with_the_known_errors_of_the_best_test() -> None:
    """With endless draws the bound is the truth: μ = −2Φ⁻¹(error) for the Gaussian, ln(p/q) for an event."""
    draws = 10**9
    error = norm.cdf(-0.5)
    found = mu_of_test(missed=int(error * draws), false=int(error * draws), draws=draws, confidence=0.999)
    assert 0.999 < found <= 1
    event = epsilon_of_event(hits=draws // 2, hits_other=int(draws / 2 / math.e), draws=draws, confidence=0.999)
    assert 0.999 < event <= 1
    # The curve of Balle and Wang (2018) for μ = 1 at δ = 1e-5.
    assert gaussian_epsilon(1.0, 1e-5) == pytest.approx(4.3773, abs=2e-3)


def test_a_group_is_as_large_as_its_loss_wants_and_as_allowed() -> None:
    assert sharpest_group(0.237, largest=60) == 17
    assert sharpest_group(0.01, largest=60) == 60
    assert sharpest_group(9.0, largest=60) == sharpest_group(0.0, largest=60) == 1
