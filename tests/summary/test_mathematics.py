"""Features, discrepancy and herding against what they are defined as."""

from __future__ import annotations

from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest

from comity.entropy import Stream
from comity.errors import DataError
from comity.methods.summary.features import LENGTH, FourierFeatures, gamma_of_records, squared_distances
from comity.methods.summary.herding import (
    CLASS_WEIGHT,
    exchange,
    herd,
    herd_features,
    herd_towards,
    herd_weighted,
    kernel,
    mean_kernel,
    mmd2,
)
from comity.methods.summary.ratio import Ratio, Spectrum


def _rows(count: int, columns: int, seed: str = "rows") -> np.ndarray:
    return Stream.public("summary tests", seed).normal((count, columns))


def _kernel(one: np.ndarray, two: np.ndarray, gamma: float) -> np.ndarray:
    found: np.ndarray = np.exp(-gamma * ((one[:, None, :] - two[None, :, :]) ** 2).sum(-1))
    return found


def test_features_have_length_one_whatever_the_row_is() -> None:
    features = FourierFeatures.draw(5, 40, 0.3, Stream.public("length"))
    rows = np.concatenate([_rows(300, 5), 1e6 * _rows(300, 5), 1e30 * _rows(300, 5)])
    lengths = np.linalg.norm(features(rows), axis=1)
    assert lengths.max() <= LENGTH
    assert lengths.min() >= 2 - LENGTH


def test_a_row_that_is_not_finite_becomes_zero_and_spoils_no_other() -> None:
    features = FourierFeatures.draw(3, 8, 0.3, Stream.public("finite"))
    rows = _rows(4, 3)
    broken = rows.copy()
    broken[1, 2], broken[3, 0] = np.nan, np.inf
    assert (features(broken)[[1, 3]] == 0).all()
    assert features(broken)[[0, 2]] == pytest.approx(features(rows)[[0, 2]], abs=1e-6)
    # Where no frequency looks at the entry, too.
    blind = FourierFeatures(np.array([[0.0, 0.0], [1.0, 2.0]]))
    assert (blind(np.array([[np.inf, 0.5], [0.1, 0.5]])) == 0).all(axis=1).tolist() == [True, False]


def test_a_longer_row_than_one_is_divided_by_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a library's cosine gives: the sensitivity rests on the length alone."""
    features = FourierFeatures.draw(3, 8, 0.3, Stream.public("long"))
    cosine = np.cos
    monkeypatch.setattr("comity.methods.summary.features.np.cos", lambda angles: 1.01 * cosine(angles))
    assert np.linalg.norm(features(_rows(200, 3)), axis=1).max() <= LENGTH


@pytest.mark.parametrize("dimensions", [4000, 20000])
def test_inner_products_are_about_the_kernel(dimensions: int) -> None:
    rows = _rows(30, 12)
    gamma = 0.05
    mapped = FourierFeatures.draw(12, dimensions, gamma, Stream.public("kernel"))(rows)
    assert np.abs(mapped @ mapped.T - _kernel(rows, rows, gamma)).max() < 6 / np.sqrt(dimensions)


def test_frequencies_are_orthogonal_in_blocks_and_vary_less_than_independent_ones() -> None:
    drawn = FourierFeatures.draw(6, 2 * 15, 0.5, Stream.public("orthogonal"))
    assert drawn.frequencies.shape == (6, 15)
    for start in (0, 6, 12):
        block = drawn.frequencies[:, start : start + 6]
        products = block.T @ block
        assert np.abs(products - np.diag(np.diag(products))).max() < 1e-9
    lengths = np.linalg.norm(FourierFeatures.draw(6, 2 * 3000, 0.5, Stream.public("lengths")).frequencies, axis=0)
    # The squares of normal vectors' lengths: 6 columns of variance 2γ each.
    assert (lengths**2).mean() == pytest.approx(6 * 2 * 0.5, rel=0.05)

    rows, exact = _rows(40, 6), _kernel(_rows(40, 6), _rows(40, 6), 0.1)
    errors: dict[str, list[float]] = {"orthogonal": [], "independent": []}
    for repeat in range(20):
        stream = Stream.public("variance", repeat)
        independent = FourierFeatures(stream.normal((6, 30)) * np.sqrt(0.2))
        for name, one in (("orthogonal", FourierFeatures.draw(6, 60, 0.1, stream)), ("independent", independent)):
            mapped = one(rows)
            errors[name].append(float(((mapped @ mapped.T - exact) ** 2).mean()))
    assert np.mean(errors["orthogonal"]) < 0.8 * np.mean(errors["independent"])


def test_the_same_seed_gives_the_same_features_and_another_one_others() -> None:
    one, same, other = (FourierFeatures.draw(4, 10, 1.0, Stream.public(name)) for name in ("a", "a", "b"))
    assert np.array_equal(one.frequencies, same.frequencies)
    assert not np.array_equal(one.frequencies, other.frequencies)


@pytest.mark.parametrize(("columns", "dimensions", "gamma"), [(0, 4, 1.0), (3, 5, 1.0), (3, 0, 1.0), (3, 4, 0.0)])
def test_what_makes_no_features_is_refused(columns: int, dimensions: int, gamma: float) -> None:
    with pytest.raises(DataError):
        FourierFeatures.draw(columns, dimensions, gamma, Stream.public("refused"))


def test_the_width_is_that_of_the_median_public_pair() -> None:
    public = _rows(50, 3)
    apart = [((public[i] - public[j]) ** 2).sum() for i, j in combinations(range(50), 2)]
    assert gamma_of_records(public) == pytest.approx(1 / np.median(apart))
    # Scaling the columns does not change what two typical records are to each other.
    assert gamma_of_records(7 * public) * 49 == pytest.approx(gamma_of_records(public))
    # Copies say nothing.
    assert gamma_of_records(np.concatenate([public, public])) == pytest.approx(gamma_of_records(public), rel=0.02)


@pytest.mark.parametrize("public", [np.ones((5, 2)), np.ones((1, 2)), np.array([[1.0], [np.nan]])])
def test_public_rows_without_a_width_are_refused(public: Any) -> None:
    with pytest.raises(DataError) as refused:
        gamma_of_records(public)
    assert refused.value.key == "summary.gamma"


def test_discrepancy_is_that_of_all_pairs() -> None:
    first, second = _rows(30, 4, "first"), 0.5 + _rows(41, 4, "second")
    gamma, weights = 0.2, np.linspace(1, 2, 30) / np.linspace(1, 2, 30).sum()
    for share, found in (
        (np.full(30, 1 / 30), mmd2(first, second, gamma)),
        (weights, mmd2(first, second, gamma, weights)),
    ):
        flat = np.full(41, 1 / 41)
        exact = (
            share @ _kernel(first, first, gamma) @ share
            - 2 * share @ _kernel(first, second, gamma) @ flat
            + flat @ _kernel(second, second, gamma) @ flat
        )
        assert found == pytest.approx(exact, abs=1e-6)
    assert mmd2(first, first, gamma) == pytest.approx(0, abs=1e-6)
    assert kernel(first, second, gamma) == pytest.approx(_kernel(first, second, gamma))
    assert squared_distances(first, first).min() >= 0


def test_discrepancy_of_features_comes_close_to_the_exact_one() -> None:
    first, second = _rows(60, 4, "first"), 0.5 + _rows(60, 4, "second")
    mapped = FourierFeatures.draw(4, 6000, 0.2, Stream.public("mmd"))
    found = float(((mapped(first).mean(axis=0) - mapped(second).mean(axis=0)) ** 2).sum())
    assert found == pytest.approx(mmd2(first, second, 0.2), rel=0.1)


def test_blocks_of_pairs_have_the_values_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, others = _rows(50, 3), _rows(20, 3, "others")
    whole = mean_kernel(rows, others, 0.4)
    monkeypatch.setattr("comity.methods.summary.herding._KERNEL_ROWS", 7)
    assert mean_kernel(rows, others, 0.4) == pytest.approx(whole, abs=1e-6)


def test_each_choice_is_the_one_that_brings_the_discrepancy_down_most() -> None:
    rows, target = _rows(25, 3), 0.4 + _rows(10, 3, "target")
    chosen: list[Any]
    gamma, chosen = 0.3, []
    for _ in range(6):
        best = min(
            (i for i in range(25) if i not in chosen),
            key=lambda i: mmd2(rows[[*chosen, i]].astype(np.float64), target, gamma),
        )
        chosen.append(best)
    assert herd_towards(rows, target, 6, gamma).tolist() == chosen
    assert len(set(herd_towards(rows, target, 25, gamma).tolist())) == 25


def test_herding_towards_weights_comes_close_to_the_weighted_distribution() -> None:
    rows = _rows(200, 2)
    weights = np.where(rows[:, 0] > 0, 1.0, 0.0)
    weights /= weights.sum()
    chosen = herd_weighted(rows, weights, 30, 0.5)
    kept = rows[weights > 0]
    assert mmd2(rows[chosen], kept, 0.5) < 0.3 * mmd2(kept[:30], kept, 0.5)


def test_classes_are_chosen_as_often_as_they_weigh_where_rows_do_not_tell_them() -> None:
    rows, chance = _rows(300, 2), np.random.default_rng(7)
    labels, weights = chance.integers(0, 2, 300), np.full(300, 1.0)
    weights[labels == 0] = 3.0
    weights /= weights.sum()
    near = [np.hypot(*(rows[:, :2] - centre).T) < 1.0 for centre in ((0.6, 0.6), (-0.6, -0.6))]
    missed = {}
    for known in (None, labels):
        chosen = herd_weighted(rows, weights, 40, 0.5, known)
        assert len(set(chosen.tolist())) == 40
        gaps = [
            abs(weights[side & (labels == 0)].sum() - (labels[chosen[side[chosen]]] == 0).sum() / 40) for side in near
        ]
        missed[known is None] = sum(gaps)
    assert missed[False] < 0.5 * missed[True]


def test_rows_and_classes_are_chosen_by_the_product_of_two_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("comity.methods.summary.herding.EXCHANGE_PASSES", 0)
    rows, labels = _rows(25, 2), np.arange(25) % 3
    weights = np.linspace(1, 2, 25) / np.linspace(1, 2, 25).sum()
    gram = _kernel(rows, rows, 0.5) * np.where(labels[:, None] == labels[None], 1.0, 1 - CLASS_WEIGHT)
    assert np.linalg.eigvalsh(gram)[0] > -1e-9
    chosen: list[int] = []
    for _ in range(6):
        apart = {}
        for other in set(range(25)) - set(chosen):
            share = np.bincount([*chosen, other], minlength=25) / (len(chosen) + 1) - weights
            apart[other] = share @ gram @ share
        chosen.append(min(apart, key=apart.__getitem__))
    assert herd_weighted(rows, weights, 6, 0.5, labels).tolist() == chosen


def test_exchanges_end_where_no_single_one_is_better_and_never_go_the_other_way() -> None:
    rows, target, gamma = _rows(30, 2), 0.3 + _rows(20, 2, "target"), 0.5
    attraction, gram = mean_kernel(rows, target, gamma), _kernel(rows, rows, gamma)

    def apart(places: Any) -> float:
        return mmd2(rows[list(places)], target, gamma)

    first = herd_towards(rows, target, 6, gamma)
    values = [apart(exchange(attraction, lambda i: gram[i], first, passes)) for passes in range(4)]
    assert values[0] == apart(first) and values[1] < 0.98 * values[0]
    assert all(after <= before + 1e-12 for before, after in pairwise(values))
    found = exchange(attraction, lambda i: gram[i], first, 50).tolist()
    assert len(set(found)) == 6
    singles = [[*found[:k], other, *found[k + 1 :]] for k in range(6) for other in set(range(30)) - set(found)]
    assert apart(found) <= min(map(apart, singles)) + 1e-9


def test_what_is_taken_is_not_taken_again_in_an_exchange() -> None:
    found = exchange(np.array([3.0, 2.0, 1.0, 0.0]), lambda _: np.zeros(4), np.array([2, 3]), 1)
    assert found.tolist() == [0, 1]


def test_a_set_without_choice_is_left_as_it_is() -> None:
    gram = _kernel(_rows(4, 2), _rows(4, 2), 0.5)
    assert exchange(np.zeros(4), lambda i: gram[i], np.arange(4), 3).tolist() == [0, 1, 2, 3]
    assert exchange(np.zeros(4), lambda i: gram[i], np.zeros(0, np.int64), 3).tolist() == []


def test_features_and_exact_kernel_choose_alike() -> None:
    rows, target = _rows(150, 3), 0.8 + _rows(80, 3, "target")
    mapped = FourierFeatures.draw(3, 4000, 0.3, Stream.public("herding"))
    by_features = herd_features(mapped(rows), mapped(target).mean(axis=0), 15)
    exact = mmd2(rows[herd_towards(rows, target, 15, 0.3)], target, 0.3)
    assert mmd2(rows[by_features], target, 0.3) < 1.3 * exact


def test_more_records_than_there_are_can_not_be_chosen() -> None:
    with pytest.raises(DataError):
        herd(np.zeros(3), lambda _: np.zeros(3), 4)


def test_features_of_a_row_are_the_same_beside_any_other_rows() -> None:
    """Beside one that is not finite, and in batches of which a product by BLAS rounds one row differently."""
    features = FourierFeatures.draw(20, 40, 2.0, Stream.public("batches"))
    chance = np.random.default_rng(8)
    rows = chance.normal(size=(200, 20))
    whole = features(rows)
    spoiled = rows.copy()
    spoiled[-1] = np.nan
    np.testing.assert_array_equal(features(spoiled)[:-1], whole[:-1])
    # Angles of which no digit after the point is left but by the order of adding.
    for scale in (1.0, 1e15, 1e17):
        whole = features(scale * rows)
        for count in (1, 2, 3, 17, 121, 199):
            np.testing.assert_array_equal(features(scale * rows[:count]), whole[:count])


def test_coordinates_and_ratios_of_a_record_are_the_same_beside_any_other_records() -> None:
    chance = np.random.default_rng(9)
    features = FourierFeatures.draw(20, 40, 2.0, Stream.public("batches"))(chance.normal(size=(200, 20)))
    seen = Spectrum(chance.normal(size=40), chance.normal(size=(40, 10)), np.full(10, 1e-12))
    found = Ratio(seen, np.append(1.0, 1e-6 * chance.normal(size=10)))
    for compute in (seen.whitened, seen.in_ball, found):
        whole = compute(features)
        for count in (1, 2, 3, 17, 121, 199):
            np.testing.assert_array_equal(compute(features[:count]), whole[:count])
