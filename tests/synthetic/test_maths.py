"""From noisy counts to rows: small exact cases and properties of each part."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from comity.entropy import Stream
from comity.methods.synthetic import labels, synthesis
from comity.methods.synthetic.consistency import (
    double_centre,
    make_consistent,
    project_onto_simplex,
    shrink_singular_values,
)
from comity.methods.synthetic.counts import Layout
from comity.methods.synthetic.synthesis import Synthesis

TINY = 1e-6


def related(count: int, sizes: Any = (3, 4, 2), seed: int = 0) -> np.ndarray:
    chance = np.random.default_rng(seed)
    hidden = chance.normal(size=count)
    found = [np.clip((hidden + chance.normal(size=count) + 2) / 4 * size, 0, size - 1) for size in sizes]
    return np.column_stack(found).astype(np.int64)


def two_way(layout: Layout, one: np.ndarray, other: np.ndarray) -> float:
    first, second = (layout.tables(layout.count(codes)) for codes in (one, other))
    gaps = [np.abs(first[key] / len(one) - second[key] / len(other)).sum() / 2 for key in first if len(key) == 2]
    return float(np.mean(gaps))


def make_rows(
    built: Synthesis, weighted: np.ndarray, deviation: float, label: str = "rows", count: int | None = None
) -> np.ndarray:
    """Rows of noisy weighted counts, as many as these imply unless `count` says otherwise."""
    layout = built.layout
    consistent = make_consistent(layout, layout.tables(weighted), layout.deviations(deviation))
    return built.make_rows(consistent, Stream.public(label), count or max(1, round(consistent.total)))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-50, 50), min_size=1, max_size=8), st.floats(0.5, 100))
def test_the_nearest_table_without_negative_counts(values: Any, total: float) -> None:
    found = project_onto_simplex(np.array(values), total)
    assert (found >= 0).all() and found.sum() == pytest.approx(total)
    # Nothing on the simplex is nearer: the optimality condition, min over cells of the slope where mass is.
    slope = found - np.array(values)
    assert np.allclose(slope[found > 1e-9], slope.min(), atol=1e-8)


def test_exact_counts_agree_with_themselves() -> None:
    layout, codes = Layout((3, 4, 2), 2), related(2000)
    exact = layout.tables(layout.count(codes))
    found = make_consistent(layout, exact, layout.deviations(TINY))
    assert found.total == pytest.approx(2000)
    for key, table in exact.items():
        told = found.singles[key[0]] if len(key) == 1 else found.pairs[cast(Any, key)]
        assert np.allclose(told, table, atol=1e-3)


def test_a_number_that_several_tables_imply_is_known_better_than_from_one() -> None:
    layout, codes = Layout((3, 4, 2), 2), related(3000)
    exact, sigma = layout.count(codes), 60.0
    gaps, raw = [], []
    for seed in range(40):
        noisy = exact + np.random.default_rng(seed).normal(0, sigma, exact.shape)
        found = make_consistent(layout, layout.tables(noisy), layout.deviations(sigma))
        true = layout.tables(exact)[1,]
        gaps.append(np.abs(found.singles[1] - true).mean())
        raw.append(np.abs(layout.tables(noisy)[1,] - true).mean())
    assert np.mean(gaps) < 0.6 * np.mean(raw)


def test_a_public_number_of_records_is_kept() -> None:
    layout = Layout((3, 4, 2), 2)
    noisy = layout.count(related(3000)) + np.random.default_rng(0).normal(0, 50, layout.counts)
    found = make_consistent(layout, layout.tables(noisy), layout.deviations(50), total=3000)
    assert found.total == 3000
    assert all(table.sum() == pytest.approx(3000) for table in (*found.singles.values(), *found.pairs.values()))


def test_shrinking_removes_pure_noise_and_keeps_a_strong_interaction() -> None:
    chance = np.random.default_rng(0)
    noise = double_centre(chance.normal(0, 1, (8, 9)))
    assert np.linalg.norm(shrink_singular_values(noise, 1.0)) < 0.2 * np.linalg.norm(noise)
    strong = double_centre(100 * np.outer(chance.normal(size=8), chance.normal(size=9)))
    assert np.linalg.norm(shrink_singular_values(strong + noise, 1.0) - strong) < np.linalg.norm(noise)


def test_the_gradient_that_the_mixture_descends_ends_where_a_general_solver_ends() -> None:
    layout, codes = Layout((2, 2)), related(500, (2, 2))
    consistent = make_consistent(layout, layout.tables(layout.count(codes)), layout.deviations(TINY))
    fitted = synthesis.fit_mixture(layout, consistent, Stream.public("fit"), components=2, steps=800)
    table = consistent.pairs[0, 1] / consistent.total

    def miss(logits: Any) -> float:
        raised = np.exp(logits.reshape(2, 2, 2))
        p = raised / raised.sum(2, keepdims=True)
        return float((((p[:, 0].T @ p[:, 1]) / 2 - table) ** 2).sum())

    best = min(minimize(miss, np.random.default_rng(k).normal(size=8)).fun for k in range(3))
    assert ((fitted.pair(0, 1) - table) ** 2).sum() <= best + 1e-7
    assert np.allclose(fitted.single(0), consistent.singles[0] / consistent.total, atol=1e-3)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 300), st.integers(1, 5), st.integers(1, 6), st.integers(0, 99))
def test_systematic_rows_come_as_often_as_their_share_to_within_one(
    count: int, groups: int, cells: int, seed: int
) -> None:
    chance = np.random.default_rng(seed)
    shares = chance.random((groups, cells))
    of = chance.integers(0, groups, count)
    found = synthesis.draw_systematically(shares, of, Stream.public("rows", seed))
    for group in range(groups):
        mine = np.bincount(found[of == group], minlength=cells)
        wanted = shares[group] / shares[group].sum() * (of == group).sum()
        assert (np.abs(mine - wanted) < 1 + 1e-6).all()


def test_labels_follow_all_columns_and_keep_their_counts() -> None:
    chance = np.random.default_rng(1)
    codes = np.column_stack([chance.integers(0, 3, 20_000), chance.integers(0, 4, 20_000), np.zeros(20_000, int)])
    odds = 1 / (1 + np.exp(-(codes[:, 0] - 1) * 1.5 - (codes[:, 1] - 1.5)))
    codes[:, 2] = chance.random(20_000) < odds
    layout = Layout((3, 4, 2), 2)
    consistent = make_consistent(layout, layout.tables(layout.count(codes)), layout.deviations(5.0))
    drawn = codes.copy()
    drawn[:, 2] = labels.redraw_labels(layout, consistent, codes, Stream.public("labels"), ordered={0: 3, 1: 4})
    assert two_way(layout, codes, drawn) < 0.005
    # Where both columns push the same way, labels are as sure as in the records: pairs alone do not say so.
    corner = (codes[:, 0] == 2) & (codes[:, 1] == 3)
    assert abs(drawn[corner, 2].mean() - codes[corner, 2].mean()) < 0.02


def test_more_rows_than_effects_are_fitted_on_are_labelled_by_them(monkeypatch: pytest.MonkeyPatch) -> None:
    layout, codes = Layout((3, 4, 2), 2), related(6000)
    consistent = make_consistent(layout, layout.tables(layout.count(codes)), layout.deviations(5.0))
    monkeypatch.setattr(labels, "_FITTED", 2000)
    drawn = np.column_stack([codes[:, :2], labels.redraw_labels(layout, consistent, codes, Stream.public("labels"))])
    assert two_way(layout, codes, drawn) < 0.02


@pytest.mark.parametrize("classes", [2, 3])
def test_drawn_labels_are_as_frequent_as_their_probabilities(classes: int) -> None:
    probabilities = np.random.default_rng(0).dirichlet(np.ones(classes), 5000)
    found = np.bincount(labels.draw_labels(probabilities, Stream.public("draw")), minlength=classes)
    slack = 1.01 if classes == 2 else 4 * np.sqrt(5000)
    assert (np.abs(found - probabilities.sum(0)) <= slack).all()


def test_naive_bayes_has_the_counts_with_the_label_and_nothing_else() -> None:
    layout, codes = Layout((3, 4, 2), 2, sparse=True), related(4000)
    consistent = make_consistent(layout, layout.tables(layout.count(codes)), layout.deviations(TINY))
    made = synthesis.sample_naive_bayes(layout, consistent, 4000, Stream.public("bayes"))
    assert two_way(layout, codes, made) < 0.002
    given_no = made[made[:, 2] == 0]
    dependence = np.corrcoef(given_no[:, 0], given_no[:, 1])[0, 1]
    assert abs(dependence) < 0.06 < np.corrcoef(codes[:, 0], codes[:, 1])[0, 1]


def make_repeated(copies: int, count: int = 4000) -> tuple[Layout, np.ndarray]:
    """A number in 5 cells, and one column of 4 that tells a little of it, so many times over."""
    chance = np.random.default_rng(3)
    target = chance.integers(0, 5, count)
    column = np.clip((target + chance.normal(0, 3, count) + 2) / 9 * 4, 0, 3).astype(np.int64)
    codes = np.column_stack([column] * copies + [target])
    return Layout((4,) * copies + (5,), copies, sparse=True), codes


def error_of(made: np.ndarray, codes: np.ndarray, columns: int) -> float:
    """Of least squares on made rows, on the records themselves, as a share of a constant's."""
    learned, tested = (labels.one_hot(rows, range(columns), (4,) * columns) for rows in (made, codes))
    slopes = np.linalg.solve(learned.T @ learned + np.eye(4 * columns), learned.T @ (made[:, -1] - made[:, -1].mean()))
    missed = codes[:, -1] - made[:, -1].mean() - tested @ slopes
    return float((missed**2).mean() / codes[:, -1].var())


def test_columns_that_say_the_same_are_not_believed_each_for_itself_about_a_number() -> None:
    layout, codes = make_repeated(12)
    exact = layout.count(codes)
    number, classes = (
        make_rows(Synthesis(layout, "naive-bayes", classified=classified), exact, TINY, "tempered")
        for classified in (False, True)
    )
    assert error_of(classes, codes, 12) > 1.1
    assert error_of(number, codes, 12) < 0.95


def test_a_column_alone_is_believed_and_many_share_what_they_say() -> None:
    for copies in (1, 5):
        layout, codes = make_repeated(copies)
        consistent = make_consistent(layout, layout.tables(layout.count(codes)), layout.deviations(TINY))
        found = synthesis.temper(layout, consistent)
        assert found.singles == consistent.singles
        for pair, table in consistent.pairs.items():
            alone = np.outer(consistent.singles[pair[0]], consistent.singles[pair[1]]) / consistent.total
            raised = alone * (table / alone) ** (1 / copies)
            assert np.allclose(found.pairs[pair], raised * consistent.total / raised.sum(), rtol=1e-3)


def test_a_column_that_follows_another_says_nothing_of_its_own_about_a_number() -> None:
    layout, codes = make_repeated(2)
    with_it = Layout((4, 4, 2, 5), 3, {2: 0}, sparse=True)
    followed = np.column_stack([codes[:, :2], codes[:, 0] // 2, codes[:, 2]])
    found = []
    for one, rows_ in ((layout, codes), (with_it, followed)):
        consistent = make_consistent(one, one.tables(one.count(rows_)), one.deviations(TINY))
        found.append(synthesis.temper(one, consistent).pairs[0, cast(int, one.target)])
    assert np.allclose(found[0], found[1], rtol=1e-3)


def test_columns_that_say_nothing_and_empty_cells_are_tempered_to_finite_tables() -> None:
    layout = Layout((3, 2, 4), 2, sparse=True)
    codes = np.column_stack([np.zeros(40, np.int64), np.arange(40) % 2, np.arange(40) % 4])
    consistent = make_consistent(layout, layout.tables(layout.count(codes)), layout.deviations(TINY))
    found = synthesis.temper(layout, consistent)
    assert all(np.isfinite(table).all() and (table >= 0).all() for table in found.pairs.values())
    assert all(table.sum() == pytest.approx(consistent.total) for table in found.pairs.values())


@pytest.mark.parametrize("model", ["mixture", "naive-bayes"])
@pytest.mark.parametrize("layout", [Layout((3, 4, 2), 2), Layout((3, 4, 2)), Layout((3,)), Layout((2, 3), 1, {})])
def test_rows_for_every_kind_of_layout(model: str, layout: Any) -> None:
    if model == "naive-bayes":
        layout = Layout(layout.sizes, layout.target, layout.follows, sparse=True)
    codes = related(800, layout.sizes)
    built = Synthesis(layout, model, classified=layout.target is not None)
    found = make_rows(built, layout.count(codes), 1.0, count=300)
    assert found.shape == (300, len(layout.sizes))
    assert (found >= 0).all() and (found < np.array(layout.sizes)).all()


def test_a_column_that_follows_is_drawn_from_the_one_that_determines_it() -> None:
    layout = Layout((4, 2, 2), 2, {1: 0})
    codes = related(3000, (4, 2, 2))
    codes[:, 1] = codes[:, 0] // 2
    found = make_rows(Synthesis(layout, "mixture", classified=True), layout.count(codes), 1.0)
    assert (found[:, 1] == found[:, 0] // 2).mean() > 0.999


def test_the_same_chance_gives_the_same_rows() -> None:
    layout = Layout((3, 4, 2), 2)
    noisy = layout.count(related(500)) + np.random.default_rng(0).normal(0, 5, layout.counts)
    made = [make_rows(Synthesis(layout, "mixture"), noisy, 5.0) for _ in range(2)]
    assert (made[0] == made[1]).all()
