"""At the same noise, owners of columns get what owners of rows get: counts, tables and rows of one distribution.

By rows under replacement, with as many parties and colluders, counts carry noise of the same width: exactly with a
dealer, and up to the carry with rlwe.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from math import sqrt
from typing import Any

import numpy as np
import pytest
from scipy import stats

from comity.federation.coordinator.lifecycle import run
from comity.methods.synthetic.artefact import SyntheticDataset
from comity.methods.synthetic.fidelity import total_variation
from comity.privacy.loss import Approx, Pure
from comity.privacy.randomness import SeededNoise
from comity.privacy.unit import Neighbours
from tests.support.vertical import host_parties

from .by_columns import build_columns, count_exactly, make_consortium_of, make_people, run_hosts
from .consortia import build_synthetic, make_schema

ROWS = 240
LOSSES: dict[str, Any] = {"delta": Approx(1.0, 1e-6), "pure": Pure(1.0)}


def by_columns(seed: Any, products: Any, loss: Any, rows: Any) -> SyntheticDataset:
    tried = build_columns(3, products=products, model="mixture")
    consortium = make_consortium_of(tried, LOSSES[loss])
    return tried.present({"tables": run_hosts(tried, consortium, make_people(rows), SeededNoise(seed))}, consortium)


def by_rows(seed: Any, loss: Any, rows: Any, neighbours: Any = Neighbours.REPLACE) -> SyntheticDataset:
    tried = build_synthetic(schema=make_schema(), rows=rows, model="mixture")
    consortium = replace(make_consortium_of(build_columns(3), LOSSES[loss]), neighbours=neighbours)
    whole = tried.encoding.encode(make_people(rows)).records
    held = {
        party: type(whole)(whole.features[at::3], None if whole.labels is None else whole.labels[at::3])
        for at, party in enumerate(consortium.parties)
    }
    parties, _ = host_parties(tried, held, consortium, SeededNoise(seed))
    return tried.present(run(parties), consortium)


@cache
def found(how: Any, loss: Any, runs: int = 3) -> list[Any]:
    """Datasets of several runs: by rows, by rows of records that come and go, or by a method of products."""
    if how == "rows":
        return [by_rows(seed, loss, ROWS) for seed in range(runs)]
    if how == "come and go":
        return [by_rows(seed, loss, ROWS, Neighbours.ADD_REMOVE) for seed in range(runs)]
    return [by_columns(1000 + seed, how, loss, ROWS) for seed in range(runs)]


def gaps(datasets: Any) -> np.ndarray:
    tried = build_columns(3, model="mixture")
    return np.concatenate(
        [one.counts.values - one.counts.counting.layout.count(_cells(tried, make_people(ROWS))) for one in datasets]
    )


def _cells(tried: Any, given: Any) -> Any:
    return tried.encoding.encode(given).records.features


def check(ours: Any, theirs: Any) -> None:
    """Fewer than 4 standard errors between the two deviations, and one shape by Kolmogorov and Smirnov: the noise of
    every count is independent of all others."""
    ours, theirs = gaps(ours), gaps(theirs)
    kurtosis = float(np.mean((theirs / theirs.std()) ** 4))
    assert ours.std() / theirs.std() == pytest.approx(1, abs=4 * sqrt((kurtosis - 1) / len(ours) / 2))
    assert stats.ks_2samp(ours, theirs).pvalue > 1e-3


@pytest.mark.parametrize(("products", "loss"), [("rlwe", "delta"), ("dealer", "delta"), ("dealer", "pure")])
def test_counts_have_the_distribution_that_they_have_by_rows(products: str, loss: str) -> None:
    ours, theirs = found(products, loss), found("rows", loss)
    assert ours[0].counts.deviation == pytest.approx(theirs[0].counts.deviation, rel=2e-3)
    assert {one.counts.total for one in (*ours, *theirs)} == {ROWS}
    check(ours, theirs)


def test_positive_control_narrower_noise_is_told_apart() -> None:
    with pytest.raises(AssertionError):
        check(found("dealer", "delta"), found("come and go", "delta"))


def test_without_noise_the_release_is_the_one_by_rows() -> None:
    tried = build_columns(3, products="dealer")
    consortium, given = make_consortium_of(tried), make_people(ROWS)
    by_row = build_synthetic(schema=make_schema()).counting(consortium).layout
    assert by_row == tried.counting(consortium).layout
    np.testing.assert_array_equal(
        run_hosts(tried, consortium, given)["counts"], count_exactly(tried, consortium, given)
    )


def compared(distances: Any, runs: Any, rows: Any) -> None:
    """One distance for each run, since what agrees within a run hangs together; the narrower noise is the control."""
    ours = np.array([distances(by_columns(1000 + seed, "dealer", "delta", rows)) for seed in range(runs)])
    theirs = np.array([distances(by_rows(seed, "delta", rows)) for seed in range(runs)])
    narrower = [distances(by_rows(2000 + seed, "delta", rows, Neighbours.ADD_REMOVE)) for seed in range(runs)]
    assert stats.ks_2samp(ours, theirs).pvalue > 1e-3
    assert abs(ours.mean() - theirs.mean()) < 4 * sqrt((ours.var() + theirs.var()) / runs)
    assert stats.ks_2samp(ours, narrower).pvalue < 1e-3


@pytest.mark.long
def test_tables_that_agree_are_as_true_as_those_by_rows() -> None:
    truth = _cells(build_columns(3), make_people(ROWS))

    def distance(one: Any) -> Any:
        exact = one.counts.counting.layout.tables(one.counts.counting.layout.count(truth))
        return np.mean([np.abs(table - exact[key]).sum() for key, table in one.counts.consistent.pairs.items()])

    compared(distance, 60, ROWS)


@pytest.mark.long
def test_rows_are_as_true_as_those_by_rows() -> None:
    """Two-way total variation of the rows against the records."""
    truth = _cells(build_columns(3), make_people(3000)).astype(np.int64)

    def distance(one: Any) -> float:
        made = one.counts.counting.encoding.encode(one.frame).records.features.astype(np.int64)
        return total_variation(one.counts.counting, made, truth, 2)

    compared(distance, 16, 3000)
