"""Choices, counts, bits and histograms that a site computes: exact chances of small cases, audits, broken twins."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import chisquare
from tests.support.noise import make_permit

from comity.audit import epsilon_lower_bound, gdp_lower_bound
from comity.errors import DataError, Refused, StudyError
from comity.federation.messages.codec import decode, encode
from comity.privacy.loss import GDP, Approx, Pure
from comity.privacy.mechanisms import ExponentialMechanism, NoisyCounts, NoisyMax, NoisyThreshold
from comity.privacy.randomness import NoiseSource, ReleasedNoise, SeededNoise
from comity.privacy.sampling import lazy_bits
from comity.privacy.sampling.lazy_bits import LazyWords, exponential_choice, permute_and_flip

ALARM, SURE = 1e-8, 1 - 1e-7
SOURCES = [pytest.param(ReleasedNoise(), id="released"), pytest.param(SeededNoise(7), id="seeded")]


def chances(scores: np.ndarray, scale: float) -> np.ndarray:
    """Permute-and-flip, by all orders: candidates are kept in turn with probability exp(−gap/scale)."""
    keep = np.exp((scores - scores.max()) / scale)
    out = np.zeros(len(scores))
    orders = list(itertools.permutations(range(len(scores))))
    for order in orders:
        passed = 1.0
        for candidate in order:
            out[candidate] += passed * keep[candidate] / len(orders)
            passed *= 1 - keep[candidate]
    return out


def worst_choice(scale: float, reach: int, directions: tuple[int, ...]) -> float:
    """The largest log ratio of the chances of three scores and of all that lie within `reach` units of them."""
    worst, moves = 0.0, range(-reach, reach + 1)
    for scores in itertools.product(range(-reach - 1, reach + 2), repeat=2):
        base = np.log(chances(np.array([*scores, 0]), scale))
        for move in itertools.product(moves, repeat=3):
            if len({np.sign(m) for m in move if m} | set(directions)) <= len(directions):
                moved = np.log(chances(np.array([*scores, 0]) + move, scale))
                worst = max(worst, float(np.abs(base - moved).max()))
    return worst


def test_choices_are_within_their_loss_for_all_small_scores() -> None:
    scale = NoisyMax(loss=Pure(1), sensitivity=1.0, grid=1.0).scale.total
    assert 0.8 < worst_choice(scale, 2, (-1, 1)) <= 1
    assert worst_choice(scale / 2, 2, (-1, 1)) > 1.4
    monotone = NoisyMax(loss=Pure(1), sensitivity=1.0, grid=1.0, monotone=True).scale.total
    assert monotone == pytest.approx(scale / 2)
    assert 0.5 < max(worst_choice(monotone, 2, (sign,)) for sign in (-1, 1)) <= 1


@pytest.mark.parametrize("source", SOURCES)
def test_rows_are_chosen_independently_with_the_chances_of_permute_and_flip(source: Any) -> None:
    scores = np.array([[0, 3, 5, 5], [4, 4, -900, 2]])
    won = source.noisy_max(np.tile(scores, (10_000, 1, 1)), 4.0, permit=make_permit())
    assert won.shape == (10_000, 2)
    for row in range(2):
        expected = chances(scores[row], 4.0) * 10_000
        seen = np.bincount(won[:, row], minlength=4)
        assert chisquare(seen[expected > 1e-6], expected[expected > 1e-6]).pvalue > ALARM
    together = np.bincount(4 * won[:, 0] + won[:, 1], minlength=16)
    wanted = np.outer(chances(scores[0], 4.0), chances(scores[1], 4.0)).ravel() * 10_000
    seen, wanted = together[wanted > 1], wanted[wanted > 1]
    assert chisquare(seen, wanted * seen.sum() / wanted.sum()).pvalue > ALARM


# The exponential mechanism.


def exponential_chances(scores: np.ndarray, scale: float) -> np.ndarray:
    weights = np.exp((scores - scores.max()) / scale)
    return np.asarray(weights / weights.sum())


@pytest.mark.parametrize("source", SOURCES)
def test_the_exponential_mechanism_names_scores_in_proportion_to_their_weights(source: Any) -> None:
    scores = np.array([[0, 3, 5, 5], [4, 4, -900, 2]])
    won = source.exponential_choice(np.tile(scores, (10_000, 1, 1)), 4.0, permit=make_permit())
    assert won.shape == (10_000, 2)
    for row in range(2):
        expected = exponential_chances(scores[row], 4.0) * 10_000
        seen = np.bincount(won[:, row], minlength=4)
        assert chisquare(seen[expected > 1e-6], expected[expected > 1e-6]).pvalue > ALARM
    # Permute-and-flip, which names better scores more often, is told apart by the same test.
    assert chisquare(np.bincount(won[:, 0], minlength=4), chances(scores[0], 4.0) * 10_000).pvalue < ALARM


def test_the_exponential_mechanism_is_within_its_loss_for_all_small_scores() -> None:
    """Three scores and all that a unit turns them into; half of the noise is found out."""

    def worst(scale: float, *, monotone: bool) -> float:
        found = 0.0
        for base in itertools.product((0, 2, 60), repeat=3):
            for move in itertools.product((-1, 0, 1), repeat=3):
                if monotone and {-1, 1} <= set(move):
                    continue
                chances_of = (exponential_chances(np.array(base) + step, scale) for step in (0, np.array(move)))
                found = max(found, float(np.abs(np.subtract(*map(np.log, chances_of))).max()))
        return found

    for monotone in (False, True):
        scale = ExponentialMechanism(loss=Pure(1), sensitivity=1.0, monotone=monotone).scale
        width = scale.total * scale.grid
        assert 0.95 < worst(width, monotone=monotone) <= 1
        assert worst(width / 2, monotone=monotone) > 1.4


def test_exact_exponential_choices_are_those_of_the_doubles(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = np.random.default_rng(1).integers(-9, 9, (60, 5))
    words = [LazyWords(bytes(32)) for _ in range(2)]
    fast = exponential_choice(scores, 3.7, words[0])
    monkeypatch.setattr(lazy_bits, "SLACK", 2.0)
    assert np.array_equal(fast, exponential_choice(scores, 3.7, words[1]))


def test_words_beyond_the_largest_multiple_are_drawn_again() -> None:
    class Large(LazyWords):
        def take(self, rows: Any, count: Any) -> Any:
            start, words = super().take(rows, count)
            if not hasattr(self, "large"):
                self.large, words = True, np.full_like(words, 2**64 - 1)
            return start, words

    drawn = lazy_bits._draw_below(10, 4000, Large(bytes(32)))
    assert chisquare(np.bincount(drawn, minlength=10)).pvalue > ALARM


@pytest.mark.parametrize("mechanism", [NoisyMax, ExponentialMechanism])
def test_choices_with_much_budget_name_the_largest_score(mechanism: Any) -> None:
    made = mechanism(loss=Pure(200), sensitivity=0.5)
    scores = np.array([[[0.0, 7.5, 3.0], [9.0, 1.0, 2.0]]])
    assert made.run(ReleasedNoise(), scores, permit=make_permit()).tolist() == [[1, 0]]


def test_exact_coins_are_those_of_the_doubles(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = np.random.default_rng(1).integers(-9, 9, (60, 5))
    words = [LazyWords(bytes(32)) for _ in range(2)]
    fast = permute_and_flip(scores, 3.7, words[0])
    monkeypatch.setattr(lazy_bits, "SLACK", 2.0)
    assert np.array_equal(fast, permute_and_flip(scores, 3.7, words[1]))


def test_tied_keys_are_drawn_again() -> None:
    class Tied(LazyWords):
        def take(self, rows: Any, count: Any) -> Any:
            start, words = super().take(rows, count)
            if not hasattr(self, "tied"):
                self.tied, words = True, np.full_like(words, 7)
            return start, words

    won = lazy_bits._choose_marked(np.ones((4000, 4), bool), Tied(bytes(32)))
    assert chisquare(np.bincount(won, minlength=4)).pvalue > ALARM


def measured_choices(mechanism: NoisyMax, source: NoiseSource, scale: float, count: int) -> float:
    shift = math.floor(1 / mechanism.scale.grid + 1)
    won = (
        source.noisy_max(np.tile(scores, (count, 1, 1)), scale, permit=make_permit())
        for scores in (np.array([[0, 0], [0, 0]]), np.array([[-shift, shift], [-shift, shift]]))
    )
    return epsilon_lower_bound(*(w.sum(axis=1) for w in won), confidence=SURE)


@pytest.mark.parametrize("source", SOURCES)
def test_a_unit_in_two_rows_is_within_the_loss_of_both(source: Any) -> None:
    mechanism = NoisyMax(loss=Pure(1), sensitivity=1.0, touched=2)
    assert 0.7 <= measured_choices(mechanism, source, mechanism.scale.total, 60_000) <= 1
    alone = NoisyMax(loss=Pure(1), sensitivity=1.0)
    assert measured_choices(mechanism, source, alone.scale.total, 60_000) > 1.2


def test_scores_are_put_on_the_grid_and_rows_keep_their_shape() -> None:
    mechanism = NoisyMax(loss=Pure(200), sensitivity=0.5)
    scores = np.array([[[0.0, 7.5, 3.0], [9.0, 1.0, 2.0]]])
    assert mechanism.run(ReleasedNoise(), scores, permit=make_permit()).tolist() == [[1, 0]]
    assert int(mechanism.run(ReleasedNoise(), np.array([1, 2, 30]), permit=make_permit())) == 2
    assert mechanism.charged == Pure(200)


def log_laplace(z: np.ndarray, width: float) -> np.ndarray:
    return np.asarray(-np.abs(z) / width + math.log(math.tanh(1 / (2 * width))))


@pytest.mark.parametrize("sensitivity", [1, 2, 3])
def test_counts_pay_for_what_a_unit_moves_and_for_no_rounding(sensitivity: int) -> None:
    scale = NoisyCounts(loss=Pure(1), sensitivity=sensitivity).scale
    z = np.arange(-200, 201.0)
    ratios = log_laplace(z, scale.total) - log_laplace(z - sensitivity, scale.total)
    assert 1 - 1e-9 < np.abs(ratios).max() <= 1
    gaussian = NoisyCounts(loss=GDP(1), sensitivity=math.sqrt(sensitivity))
    assert gaussian.scale.total == pytest.approx(math.sqrt(sensitivity), rel=1e-9)
    assert gaussian.scale.total >= math.sqrt(sensitivity)
    assert (gaussian.norm, NoisyCounts(loss=Pure(1), sensitivity=1).norm) == ("l2", "l1")
    assert isinstance(NoisyCounts(loss=Approx(1, 1e-6), sensitivity=1).charged, GDP)


@pytest.mark.parametrize("source", SOURCES)
def test_noisy_histograms_hold_their_claim(source: Any) -> None:
    """A record moves from one cell to another: two counts change by one each."""
    before, after = np.array([5, 5]), np.array([4, 6])
    mechanism = NoisyCounts(loss=Pure(1), sensitivity=2)

    def measured(claim: NoisyCounts, count: int = 8000) -> float:
        views = (claim.run(source, np.tile(table, (count, 1)), permit=make_permit()) for table in (before, after))
        # How far each count lies beyond what it would be in the other table.
        scores = (np.clip(v - [5, 5], -1, 1) @ [-1, 1] for v in views)
        return epsilon_lower_bound(*scores, confidence=SURE)

    assert 0.4 <= measured(mechanism) <= 1
    assert measured(replace(mechanism, sensitivity=0.6)) > 1

    def gaussian(claim: NoisyCounts, count: int = 200_000) -> float:
        views = (claim.run(source, np.tile(table, (count, 1)), permit=make_permit()) for table in (before, after))
        return gdp_lower_bound(*(v[:, 1] - v[:, 0] for v in views), delta=1e-6, confidence=SURE)

    assert 0.5 <= gaussian(NoisyCounts(loss=Approx(1, 1e-6), sensitivity=math.sqrt(2))) <= 1
    assert gaussian(NoisyCounts(loss=Approx(1, 1e-6), sensitivity=0.8)) > 1


def reached(value: int, threshold: int, width: float) -> float:
    """P[value + noise >= threshold] for discrete Laplace noise."""
    ratio, gap = math.exp(-1 / width), threshold - value
    tail = ratio ** abs(gap) / (1 + ratio)
    return tail if gap > 0 else 1 - ratio * tail


def worst_bit(width: float, reach: int) -> float:
    pairs = [(reached(v, 0, width), reached(v + m, 0, width)) for v in range(-20, 20) for m in range(-reach, reach + 1)]
    return max(max(abs(math.log(a / b)), abs(math.log((1 - a) / (1 - b)))) for a, b in pairs)


def test_a_bit_is_within_its_loss_for_all_small_values() -> None:
    width = NoisyThreshold(loss=Pure(1), sensitivity=1.0, threshold=0.0, grid=1.0).scale.total
    assert 0.9 < worst_bit(width, 2) <= 1 + 1e-9
    assert worst_bit(width / 2, 2) > 1.5


@pytest.mark.parametrize("source", SOURCES)
def test_bits_of_rows(source: Any) -> None:
    mechanism = NoisyThreshold(loss=Pure(1), sensitivity=1.0, threshold=3.0, grid=1.0, touched=2)
    assert mechanism.scale.total == pytest.approx(4)
    values = np.array([0, 3, 5])
    bits = mechanism.run(source, np.tile(values, (4000, 1)), permit=make_permit())
    assert set(np.unique(bits)) == {0, 1}
    for row, value in enumerate(values.tolist()):
        chance = reached(value, 3, 4.0)
        assert chisquare(np.bincount(bits[:, row], minlength=2), np.array([1 - chance, chance]) * 4000).pvalue > ALARM

    def measured(width: float) -> float:
        drawn = (v + source.discrete_laplace(width, (8000, 2), permit=make_permit()) >= 3 for v in (3, 1))
        return epsilon_lower_bound(*(d.sum(axis=1).astype(float) for d in drawn), confidence=SURE)

    assert 0.4 <= measured(4.0) <= 1
    assert measured(1.5) > 1


# What all of them refuse, before the permit is used.

COMPUTATIONS: list[Any] = [
    NoisyMax(loss=Pure(1), sensitivity=1.0),
    NoisyCounts(loss=Pure(1), sensitivity=1),
    NoisyThreshold(loss=Pure(1), sensitivity=1.0, threshold=0.0),
]


@pytest.mark.parametrize("mechanism", COMPUTATIONS, ids=lambda m: m.name)
@pytest.mark.parametrize("values", [[], [math.nan], [math.inf], [1e300], ["a"], [1j]])
def test_bad_values_are_refused_before_the_permit_is_used(mechanism: Any, values: Any) -> None:
    once = make_permit()
    with pytest.raises(DataError):
        mechanism.run(SeededNoise(1), np.array(values), permit=once)
    with pytest.raises(DataError):
        mechanism.check(np.array(values))
    assert not once.used


@pytest.mark.parametrize("mechanism", COMPUTATIONS, ids=lambda m: m.name)
def test_what_is_computed_at_a_site_can_be_sent(mechanism: Any) -> None:
    made = mechanism.run(SeededNoise(1), np.array([1, 2, 3, 4]), permit=make_permit())
    assert np.array_equal(decode(encode({"made": made}))["made"], made)


@pytest.mark.parametrize("mechanism", COMPUTATIONS, ids=lambda m: m.name)
def test_one_permit_is_one_run(mechanism: Any) -> None:
    once = make_permit()
    values = np.array([1, 2, 3, 4])
    mechanism.run(SeededNoise(1), values, permit=once)
    with pytest.raises(Refused):
        mechanism.run(SeededNoise(1), values, permit=once)


@pytest.mark.parametrize(
    "make",
    [
        lambda: NoisyMax(loss=Pure(0), sensitivity=1.0),
        lambda: NoisyMax(loss=Pure(1), sensitivity=0.0),
        lambda: NoisyMax(loss=Pure(1), sensitivity=1.0, touched=0),
        lambda: NoisyMax(loss=cast(Any, Approx(1, 1e-6)), sensitivity=1.0),
        lambda: NoisyCounts(loss=Pure(0), sensitivity=1),
        lambda: NoisyCounts(loss=Pure(1), sensitivity=math.nan),
        lambda: NoisyThreshold(loss=Pure(1), sensitivity=1.0, threshold=math.nan),
        lambda: NoisyThreshold(loss=cast(Any, GDP(1)), sensitivity=1.0, threshold=0.0),
    ],
)
def test_what_can_not_be_laid_out_is_refused(make: Any) -> None:
    with pytest.raises(StudyError):
        make()


def test_counts_that_are_not_whole_are_refused() -> None:
    """Noise on the integers tells the fraction of what it is added to."""
    with pytest.raises(DataError, match="whole"):
        NoisyCounts(loss=Pure(1), sensitivity=1).run(SeededNoise(1), np.array([0.5]), permit=make_permit())


def test_rounded_gaussian_counts_keep_their_curve() -> None:
    sigma = NoisyCounts(loss=GDP(2), sensitivity=1).scale.total
    z = np.abs(np.arange(-30, 31.0))
    one = ndtr((0.5 - z) / sigma) - ndtr((-0.5 - z) / sigma)
    first, second = np.append(one, 0.0), np.append(0.0, one)
    for epsilon in (0.0, 1.0, 3.0):
        charged = ndtr(1 - epsilon / 2) - math.exp(epsilon) * ndtr(-1 - epsilon / 2)
        assert np.maximum(0, first - math.exp(epsilon) * second).sum() <= charged + 1e-12
