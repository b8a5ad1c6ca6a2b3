"""Sensitivity of each statistic by brute force over hostile parties; neutral values, stacks, models of exact sums."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import sqrt
from typing import Any

import numpy as np
import pytest

from comity.federation.declare.bounds import Ball
from comity.federation.owner.rows import Rows
from comity.learn.fits import contrasts, one_hot
from comity.methods.softlabel import record_sums
from comity.methods.softlabel.record_sums import Cells, ClassSums, NamedClass, shrink_cells
from comity.methods.softlabel.self_training import discriminant, posteriors
from comity.methods.softlabel.statistic import Statistic, shrink_towards_frequencies
from comity.methods.softlabel.two_classes import likely_shares, likely_sums
from comity.methods.softlabel.votes import Histograms, Models, Votes, project_on_simplex

WIDTH, ROWS = 4, 60


def public(seed: int = 0, rows: int = ROWS) -> np.ndarray:
    generator = np.random.default_rng(seed)
    found: np.ndarray = generator.normal(size=(rows, WIDTH)) * np.array([3.0, 2.0, 1.0, 0.5])
    return found


def statistics(classes: int) -> list[Statistic]:
    rows = public()
    return [
        Votes.on(rows, classes),
        Votes.on(rows, classes, 2),
        Histograms.on(rows, classes),
        ClassSums.on(rows, classes, records_per_party=3),
        ClassSums.on(rows, classes, records_per_party=1, dimensions=2),
        ClassSums.on(rows, classes, records_per_party=5, dimensions=0),
        Cells.on(rows, classes, cells=3),
        Models.on(rows, classes),
        NamedClass.on(rows, classes, records_per_party=5, dimensions=0),
    ]


def hostile(classes: int, seed: int, count: int = 60) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Parties of up to five records: ordinary, of one class, far away, alike, without records; votes of every kind."""
    generator = np.random.default_rng(seed)
    features = generator.normal(size=(count, 5, WIDTH)) * 10 ** generator.uniform(-3, 6, size=(count, 1, 1))
    features[::7] = features[::7, :1]
    labels = generator.integers(0, classes, (count, 5))
    labels[::5] = labels[::5, :1]
    present = generator.random((count, 5)) < 0.7
    present[::11] = False
    votes = generator.dirichlet(np.full(classes, 0.2), (count, ROWS))
    # Opposite corners everywhere, along each direction, and what is no vote at all.
    votes[0], votes[1] = one_hot(np.zeros(ROWS, int), classes), one_hot(np.ones(ROWS, int), classes)
    rows = public()
    for place in range(WIDTH):
        side = (rows[:, place] > 0).astype(int)
        votes[2 + 2 * place], votes[3 + 2 * place] = one_hot(side, classes), one_hot(1 - side, classes)
    votes[12], votes[13], votes[14], votes[15] = 0.0, 50.0, np.nan, -np.inf
    votes[16, :, 0] += 3.0
    present[:17] = True
    return features, labels, present, votes


def enforced(statistic: Statistic, parties: Any) -> np.ndarray:
    return statistic.bound.enforce(statistic.contribution(*parties), statistic.shape)


@pytest.mark.parametrize("classes", [2, 3, 6])
def test_no_two_parties_lie_further_apart_than_the_sensitivity(classes: int) -> None:
    for statistic in statistics(classes):
        values = np.concatenate([enforced(statistic, hostile(classes, seed)) for seed in range(4)])
        flat = values.reshape(len(values), -1)
        squares = (flat**2).sum(1)
        apart = np.sqrt(np.maximum(squares[:, None] + squares - 2 * flat @ flat.T, 0)).max()
        assert apart <= statistic.bound.l2 * (1 + 1e-9), statistic.name
        assert np.isfinite(flat).all() and np.abs(flat).max() <= statistic.bound.limit * (1 + 1e-9)


def test_declared_sensitivities_are_those_of_the_page() -> None:
    two, six = statistics(2), statistics(6)
    assert two[0].bound.l2 == 1.0 and six[0].bound.l2 == sqrt(2)
    assert two[2].bound.l2 == six[2].bound.l2 == sqrt(2 * ROWS)
    assert six[3].bound.l2 == pytest.approx(2 * sqrt(5 / 6 * (5 / 3 + 0.3 * 2 / 3)))
    assert six[6].bound.l2 == sqrt(2) and six[7].bound.l2 == 2.0


@pytest.mark.parametrize("classes", [2, 3])
def test_votes_reach_their_sensitivity_on_the_constant(classes: int) -> None:
    """All for one class against all for another: nothing smaller could be declared."""
    votes = Votes.on(public(), classes)
    one, other = (one_hot(np.full(ROWS, c), classes)[None] for c in (0, 1))
    rest = np.zeros((1, 1, WIDTH)), np.zeros((1, 1), int), np.ones((1, 1), bool)
    apart = np.linalg.norm(votes.contribution(*rest, one) - votes.contribution(*rest, other))
    assert apart == pytest.approx(votes.bound.l2, rel=1e-9)


def test_every_set_of_hard_votes_on_few_rows_stays_within() -> None:
    """All 3^4 votes of three classes on four rows, pair by pair."""
    rows = np.array([[1.0, 0.3], [-1.0, 0.2], [0.4, -1.0], [0.1, 0.7]])
    votes = Votes.on(rows, 3)
    every = one_hot(np.array(list(product(range(3), repeat=4))), 3)
    rest = np.zeros((81, 1, 2)), np.zeros((81, 1), int), np.ones((81, 1), bool)
    flat = votes.contribution(*rest, every).reshape(81, -1)
    apart = np.linalg.norm(flat[:, None] - flat, axis=-1)
    assert sqrt(2) * (1 - 1e-9) <= apart.max() <= sqrt(2)


def test_cells_and_class_sums_and_models_reach_theirs() -> None:
    cells = Cells.on(public(), 3, cells=3)
    place = cells.map.mean + 0 * public()[:1]
    there = np.stack([place, place])
    got = cells.contribution(there, np.array([[0], [1]]), np.ones((2, 1), bool))
    assert np.linalg.norm(got[0] - got[1]) == pytest.approx(sqrt(2))
    sums = ClassSums.on(public(), 3, records_per_party=50, dimensions=3)
    row = public()[:1]
    opposite = np.stack([row, 2 * sums.map.mean - row])
    pair = sums.bound.enforce(
        50 * sums.contribution(opposite, np.zeros((2, 1), int), np.ones((2, 1), bool)), sums.shape
    )
    assert isinstance(sums.bound, Ball)
    assert np.linalg.norm(pair, axis=(1, 2)) == pytest.approx(sums.bound.radius)
    two = ClassSums.on(public(), 2, records_per_party=50, dimensions=3)
    turned = enforced(two, (np.stack([row, row]), np.array([[0], [1]]), np.ones((2, 1), bool)))
    assert np.linalg.norm(turned[0] - turned[1]) == pytest.approx(two.bound.l2)
    models = Models.on(public(), 2)
    unit = models.contribution(
        np.stack([public()[:4]] * 2), np.array([[0, 1, 0, 1], [1, 0, 1, 0]]), np.ones((2, 4), bool)
    )
    assert np.linalg.norm(unit[0] - unit[1]) == pytest.approx(2.0)


@pytest.mark.parametrize("classes", [2, 4])
def test_a_party_without_records_contributes_the_neutral_value(classes: int) -> None:
    features, labels, _, votes = hostile(classes, 3)
    for statistic in statistics(classes):
        got = enforced(statistic, (features[:2], labels[:2], np.zeros((2, 5), bool), votes[:2]))
        np.testing.assert_array_equal(got, np.stack([statistic.bound.neutral(statistic.shape)] * 2))


@pytest.mark.parametrize("classes", [2, 4])
def test_a_stack_gives_what_its_parties_give_and_padding_is_not_read(classes: int) -> None:
    features, labels, present, votes = hostile(classes, 5, count=20)
    features = np.clip(features, -30, 30)
    labels = np.where(present, labels, 77)
    for statistic in statistics(classes):
        stacked = statistic.contribution(features, labels, present, votes)
        assert stacked.shape == (20, *statistic.shape)
        for place in (0, 1, 14, 17, 19):
            own = present[place]
            single = statistic.contribution(
                features[place][own], labels[place][own], np.ones(own.sum(), bool), votes[place]
            )
            np.testing.assert_allclose(stacked[place], single, atol=1e-6)


def blobs(classes: int, parties: int = 200, each: int = 6) -> Any:
    generator = np.random.default_rng(8)
    centres = 4 * generator.normal(size=(classes, WIDTH))

    def drawn(*shape: int) -> Any:
        y = generator.integers(0, classes, shape)
        return centres[y] + generator.normal(size=(*shape, WIDTH)), y

    return drawn(parties, each), drawn(400)[0], drawn(500)


@pytest.mark.parametrize("classes", [2, 3])
def test_exact_means_give_good_models(classes: int) -> None:
    """Every statistic sorts most of the test rows of separate clusters; votes come from the nearest own record."""
    (features, labels), rows, (test, truth) = blobs(classes)
    closest = np.linalg.norm(rows[None, :, None] - features[:, None], axis=-1).argmin(-1)
    votes = one_hot(np.take_along_axis(labels, closest, axis=1), classes)
    present = np.ones(labels.shape, bool)
    for statistic in (
        Votes.on(rows, classes),
        Histograms.on(rows, classes),
        ClassSums.on(rows, classes, records_per_party=6),
        Cells.on(rows, classes, cells=3 * classes),
        Models.on(rows, classes),
    ):
        mean = enforced(statistic, (features, labels, present, votes)).mean(0)
        weights = statistic.model(mean, 1e-6)
        assert weights.shape == (classes, statistic.map.dimensions)
        assert np.mean((statistic.map(test) @ weights.T).argmax(1) == truth) > 0.9, statistic.name


def unequal(share: float = 0.8, seed: int = 3) -> Any:
    """Two classes of which the first has this share, told apart in part by the first direction: parties, rows, test."""
    generator = np.random.default_rng(seed)

    def drawn(*shape: int) -> Any:
        y = (generator.random(shape) > share).astype(int)
        return generator.normal(size=(*shape, WIDTH)) + 0.8 * y[..., None] * np.array([1.0, 0, 0, 0]), y

    return drawn(300, 10), drawn(400)[0], drawn(2000)


def test_a_model_of_two_classes_says_their_likely_frequencies_on_average() -> None:
    (features, labels), rows, _ = unequal()
    filled = np.ones(labels.shape, bool)
    for dimensions in (0, 2):
        two = ClassSums.on(rows, 2, records_per_party=10, dimensions=dimensions)
        for deviation in (1e-3, 0.1):
            mean = enforced(two, (features, labels, filled)).mean(0)
            said = posteriors(two.model(mean, deviation), two.rows[:, :-1]).mean(axis=0)
            if dimensions:
                likely = likely_sums(mean, deviation, two._expected).shares
            else:
                likely = likely_shares(mean, deviation, 10)
            np.testing.assert_allclose(said, likely, atol=1e-4)
            # Parties of 80 and 20 % are shortened, or all name the first class: the posterior means know it.
            assert likely[0] == pytest.approx(np.mean(labels == 0), abs=0.03 if deviation < 0.01 else 0.12)


def test_class_sums_keep_the_frequencies_of_the_classes() -> None:
    """The last column is the mean of the labels' contrasts, whatever the records are; a model of it names the larger
    class where nothing else is known."""
    (features, labels), rows, (test, truth) = unequal()
    for dimensions in (0, 2):
        sums = ClassSums.on(rows, 2, records_per_party=10, dimensions=dimensions)
        exact = sums.part(Rows(features, labels, np.ones(labels.shape, bool))).mean(0)
        assert exact[0, -1] == pytest.approx(np.mean(labels == 0) / sqrt(2) - np.mean(labels == 1) / sqrt(2))
        mean = enforced(sums, (features, labels, np.ones(labels.shape, bool))).mean(0)
        found = (sums.map(test) @ sums.model(mean, 1e-3).T).argmax(1)
        assert np.mean(found == 0) > 0.8
        assert np.mean(found == truth) >= np.mean(truth == 0) - 0.005
    # Without the constant's column the classes would be taken for equal.
    mean[:, -1] = 0
    assert np.mean((sums.map(test) @ sums.model(mean, 1e-3).T).argmax(1) == truth) < np.mean(truth == 0) - 0.02


def test_without_directions_a_party_names_its_most_frequent_class() -> None:
    sums = ClassSums.on(public(), 3, records_per_party=5, dimensions=0)
    labels = np.array([[0, 0, 2, 1, 0], [1, 1, 2, 2, 0], [2, 2, 0, 0, 0], [0, 1, 2, 9, 9], [9, 9, 9, 9, 9]])
    present = np.array(
        [[True] * 5, [True] * 5, [True, True, True, False, False], [True] * 3 + [False] * 2, [False] * 5]
    )
    got = sums.contribution(np.zeros((5, 5, WIDTH)), labels, present)
    named = np.array([[1, 0, 0], [0, 0.5, 0.5], [0, 0, 1], [1 / 3] * 3, [1 / 3] * 3])
    np.testing.assert_allclose(got[..., 0] @ contrasts(3) + 1 / 3, named, atol=1e-12)
    # Corners of the simplex: nothing smaller could be declared, for two classes either.
    assert np.linalg.norm(got[0] - got[2]) == pytest.approx(sums.bound.l2) == pytest.approx(sqrt(2))


def test_every_party_of_few_records_names_within_the_sensitivity() -> None:
    """All labels of up to four records of three classes, pair by pair."""
    sums = ClassSums.on(public(), 3, records_per_party=4, dimensions=0)
    every = np.array(list(product(range(-1, 3), repeat=4)))
    flat = enforced(sums, (np.zeros((256, 4, WIDTH)), every, every >= 0)).reshape(256, -1)
    assert np.linalg.norm(flat[:, None] - flat, axis=-1).max() <= sqrt(2) * (1 + 1e-9)


def test_directions_of_noise_are_shrunk_to_the_class_frequencies() -> None:
    """Labels that have nothing to do with the records: slopes are noise, and without them the constant is left."""
    (features, _), rows, (test, _) = unequal()
    generator = np.random.default_rng(9)
    labels, truth = ((generator.random(shape) > 0.6).astype(int) for shape in ((300, 10), 2000))
    sums = ClassSums.on(rows, 2, records_per_party=10, dimensions=4)
    mean = enforced(sums, (features, labels, np.ones(labels.shape, bool))).mean(0)
    deviation = 0.06
    noisy = mean + deviation * generator.normal(size=(30, *sums.shape))
    best = np.mean(truth == 0)

    def accuracy(one: np.ndarray) -> float:
        return float(np.mean((sums.map(test) @ sums.model(one, deviation).T).argmax(1) == truth))

    assert np.mean([accuracy(one) for one in noisy]) > best - 0.02
    with pytest.MonkeyPatch.context() as without:
        without.setattr(
            record_sums,
            "likely_sums",
            lambda moments, noise, expected: replace(likely_sums(moments, noise, expected), directions=moments[:, :-1]),
        )
        assert np.mean([accuracy(one) for one in noisy]) < best - 0.02


def test_shrinking_keeps_what_stands_out_and_the_constant() -> None:
    moments = np.array([[3.0, 4.0, 0.7]])
    np.testing.assert_allclose(shrink_towards_frequencies(moments, 0.0), moments)
    np.testing.assert_allclose(shrink_towards_frequencies(moments, 2.5), [[1.5, 2.0, 0.7]])
    np.testing.assert_allclose(shrink_towards_frequencies(moments, 5.0), [[0.0, 0.0, 0.7]])
    np.testing.assert_array_equal(shrink_towards_frequencies(moments[:, 2:], 1.0), moments[:, 2:])


def test_self_training_begins_where_noise_exceeds_a_quarter_of_the_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    sums, took = ClassSums.on(public(), 3, records_per_party=6), []
    monkeypatch.setattr(record_sums, "self_train", lambda rows, shares, rounds: took.append(rounds))
    quarter = 0.25 / sums.noise_to_signal(1.0)
    for deviation in (0.5 * quarter, 0.99 * quarter, 1.01 * quarter, 10 * quarter):
        sums.model(np.zeros(sums.shape), deviation)
    assert took == [1, 1, 2, 2]


def test_histograms_carry_as_much_noise_into_the_moments_as_votes_have() -> None:
    rows = public(rows=400)
    histograms, votes = Histograms.on(rows, 3), Votes.on(rows, 3)
    assert histograms.noise_to_signal(histograms.bound.l2 / 50) == pytest.approx(
        votes.noise_to_signal(votes.bound.l2 / 50), rel=1e-9
    )
    shares = np.random.default_rng(0).dirichlet(np.ones(3), 400)
    exact = Votes.on(rows, 3).contribution(rows[:1], np.zeros(1, int), np.ones(1, bool), shares)
    np.testing.assert_allclose(histograms.model(shares, 1e-3 * sqrt(400)), votes.model(exact, 1e-3), atol=1e-6)


def test_soft_labels_are_distributions_near_the_noisy_rows() -> None:
    noisy = np.random.default_rng(1).normal(1 / 3, 0.5, (200, 3))
    found = project_on_simplex(noisy)
    np.testing.assert_allclose(found.sum(1), 1)
    assert (found >= 0).all()
    # No other distribution is nearer.
    for other in np.random.default_rng(2).dirichlet(np.ones(3), 50):
        assert (np.linalg.norm(found - noisy, axis=1) <= np.linalg.norm(other - noisy, axis=1) + 1e-12).all()
    histograms = Histograms.on(public(), 3)
    for deviation in (0.01, 5.0):
        soft = histograms.soft_labels(np.abs(noisy[:ROWS]), deviation)
        assert soft.shape == (ROWS, 3) and (soft >= 0).all()
        np.testing.assert_allclose(soft.sum(1), 1)


def test_noise_to_signal_grows_with_the_noise() -> None:
    votes = Votes.on(public(), 3)
    assert votes.noise_to_signal(0.02) == pytest.approx(2 * votes.noise_to_signal(0.01))


def test_a_cell_is_half_decided_and_half_in_proportion() -> None:
    generator = np.random.default_rng(4)
    rows = np.concatenate([generator.normal(-2, 1, (150, 3)), generator.normal(2, 1, (150, 3))])
    statistic = Cells.on(rows, 3, cells=2)
    mean, deviation = np.array([[0.5, 0.1], [0.2, -0.1], [0.1, 0.4]]), 0.1
    likely = shrink_cells(mean, deviation)
    counted = np.maximum(likely, 0) + deviation / 2
    decided = np.exp(likely / deviation)
    shares = np.sqrt(counted / counted.sum(0) * decided / decided.sum(0))
    shares = (shares / shares.sum(0)).T[statistic.member]
    found = statistic.model(mean, deviation)
    np.testing.assert_allclose(found, discriminant(statistic.rows, shares), rtol=1e-9, atol=1e-9)
    # By its likeliest label alone a cell would be surer of it.
    alone = discriminant(statistic.rows, (decided / decided.sum(0)).T[statistic.member])
    sure = [posteriors(weights, statistic.rows).max(axis=1).mean() for weights in (found, alone)]
    assert sure[0] < sure[1]
