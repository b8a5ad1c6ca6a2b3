"""Two passes, exchanged values and determined columns: each against what it replaces, on small cases."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from comity.entropy import Stream
from comity.methods.synthetic import synthesis
from comity.methods.synthetic.consistency import ConsistentTables, denoise_determined, make_consistent
from comity.methods.synthetic.counts import Layout
from comity.methods.synthetic.synthesis import Mixture, Synthesis

from .test_maths import make_rows, related, two_way


def off(layout: Layout, model: Mixture, codes: np.ndarray) -> float:
    true = layout.tables(layout.count(codes))
    gaps = [np.abs(model.pair(i, j) - true[i, j] / len(codes)).sum() / 2 for i, j in layout.pairs]
    return float(np.mean(gaps))


def noisy(layout: Layout, codes: np.ndarray, sigma: float, seed: int) -> ConsistentTables:
    values = layout.count(codes) + np.random.default_rng(seed).normal(0, sigma, layout.counts)
    return make_consistent(layout, layout.tables(values), layout.deviations(sigma))


def test_a_weak_relation_of_many_columns_is_found_from_all_tables_at_once() -> None:
    layout = Layout((4,) * 8)
    codes = related(4000, layout.sizes)
    gains = []
    for seed in range(2):
        consistent = noisy(layout, codes, 300.0, seed)
        alone = synthesis.fit_mixture(layout, consistent, Stream.public("alone", seed), components=30, steps=400)
        gains.append(off(layout, synthesis.fit_two_passes(layout, consistent, Stream.public("passes", seed)), codes))
        gains[-1] /= off(layout, alone, codes)
    assert np.mean(gains) < 0.9


def test_a_strong_relation_of_two_columns_stays_and_pure_noise_does_not() -> None:
    layout, chance = Layout((5,) * 6), np.random.default_rng(3)
    codes = chance.integers(0, 5, (4000, 6))
    codes[:, 1] = codes[:, 0]
    consistent = noisy(layout, codes, 80.0, 4)
    model = synthesis.fit_two_passes(layout, consistent, Stream.public("passes"))
    assert np.trace(model.pair(0, 1)) > 0.9
    unrelated = np.abs(model.pair(2, 3) - 0.04).sum() / 2
    opened = np.abs(consistent.noisy[2, 3] / consistent.total - 0.04).sum() / 2
    assert unrelated < 0.5 * opened


@pytest.mark.parametrize("pull", [0.3, 1.0])
def test_components_that_are_drawn_together_tell_less(pull: float) -> None:
    layout, codes = Layout((3, 4, 2), 2), related(2000)
    consistent = noisy(layout, codes, 60.0, 0)
    free, pulled = (
        synthesis.fit_mixture(
            layout, consistent, Stream.public("pull"), pull=strength, components=10, steps=300
        ).probabilities
        for strength in (0.0, pull)
    )
    assert pulled.var(0).sum() < free.var(0).sum()


def test_exchanges_end_where_no_exchange_of_two_rows_would_help() -> None:
    """Every order of one column's values is tried: none that is two values away from the end is nearer."""
    layout = Layout((3, 3))
    model = Mixture(layout, np.array([[0.2, 0.3, 0.5, 0.5, 0.3, 0.2]]))
    wanted = model.pair(0, 1) * 6

    def miss(codes: np.ndarray) -> float:
        return float(((layout.tables(layout.count(codes))[0, 1] - wanted) ** 2).sum())

    codes = np.array([[0, 0], [1, 0], [1, 0], [2, 1], [2, 1], [2, 2]])
    before = miss(codes)
    for turn in range(40):
        synthesis.balance_pairs(model, codes, np.zeros(6, np.int64), Stream.public("exchange", turn))
    best = min(miss(np.column_stack([codes[:, 0], order])) for order in set(permutations(codes[:, 1])))
    assert best <= miss(codes) < before
    for one in range(6):
        for other in range(one):
            tried = codes.copy()
            tried[[one, other], 1] = tried[[other, one], 1]
            assert miss(tried) >= miss(codes) - 1e-9


def test_exchanges_bring_rows_nearer_to_the_model_and_keep_what_components_are_like(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    layout, codes = Layout((3, 4, 2, 5), 2), related(3000, (3, 4, 2, 5))
    model = synthesis.fit_mixture(layout, noisy(layout, codes, 1.0, 0), Stream.public("fit"), components=20, steps=300)
    kept = []
    with monkeypatch.context() as patched:
        patched.setattr(
            synthesis, "balance_pairs", lambda model, found, groups, chance: kept.append((found.copy(), groups))
        )
        # An odd number for every component, so some neighbours in the order belong to two.
        synthesis.sample_mixture(model, 3100, Stream.public("rows"))
    plain, groups = kept[0]
    moved = plain.copy()
    synthesis.balance_pairs(model, moved, groups, Stream.public("exchange"))

    def gap(found: np.ndarray) -> float:
        return off(layout, model, found)

    assert gap(moved) < 0.3 * gap(plain)
    for group in range(20):
        for k in range(4):
            assert (np.sort(plain[groups == group, k]) == np.sort(moved[groups == group, k])).all()


def test_a_determined_column_keeps_the_cells_that_stand_out_of_the_noise() -> None:
    table = np.array([[900.0, 12.0, -8.0], [30.0, 700.0, 400.0], [5.0, -3.0, 9.0]])
    kept = denoise_determined(table, 20.0)
    assert (kept > 0).tolist() == [[True, False, False], [False, True, True], [False, False, True]]


def test_noise_does_not_spread_a_column_that_follows_another() -> None:
    layout, chance = Layout((8, 4, 3, 2), 3, {1: 0}), np.random.default_rng(0)
    codes = related(8000, (8, 4, 3, 2))
    codes[:, 1] = codes[:, 0] // 2
    values = layout.count(codes) + chance.normal(0, 150, layout.counts)
    found = make_rows(Synthesis(layout, "mixture", classified=True), values, 150.0)
    assert (found[:, 1] == found[:, 0] // 2).mean() > 0.99
    assert two_way(layout, codes, found) < 0.06
