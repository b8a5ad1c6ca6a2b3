"""The reproduction and the bench on Adult: their rows on a stand-in, their figures on the real data where these are."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from comity.data import Records
from comity.entropy import Stream
from comity.privacy.accounting import zcdp_rho
from experiments.bench import BENCHES
from experiments.bench.methods import averaging_anchors
from experiments.bench.methods.averaging import compared
from experiments.data.adult_bins import A9A, CATEGORIES, QUINTILES, Adult, adult
from experiments.papers import PAPERS
from experiments.papers.averaging.adult import BARS, EPSILONS, HARDEST, SPLITS, Size, pooled, reproduced, split_of

data_folder = os.environ.get("COMITY_DATA", "")
needs_adult = pytest.mark.skipif(
    not data_folder or not (Path(data_folder) / "adult.parquet").is_file(),
    reason="COMITY_DATA names no folder with adult.parquet, as in CI",
)


@pytest.fixture(scope="module")
def stand_in() -> Adult:
    generator = np.random.default_rng(2)
    x = generator.normal(size=(3000, 5))
    x /= np.linalg.norm(x, axis=1, keepdims=True) * (1 + 1e-9)
    y = (x @ generator.normal(size=5) + 0.2 * generator.normal(size=3000) > 0).astype(np.int64)
    return Adult(Records(x[:2000], y[:2000]), Records(x[2000:], y[2000:]))


def test_both_layouts_have_123_features_and_one_constant() -> None:
    for edges in (QUINTILES, A9A):
        assert sum(len(cuts) + 1 for cuts in edges.values()) + sum(map(len, CATEGORIES.values())) == 123


def test_the_splits_are_the_papers() -> None:
    assert all(sizes is None or sum(sizes) == 32561 for sizes in SPLITS.values())
    assert min(SPLITS[HARDEST] or ()) / 32561 == pytest.approx(0.1, abs=1e-4)


@pytest.mark.long
def test_rows_and_plot_on_a_stand_in(stand_in: Adult, tmp_path: Path) -> None:
    rows = reproduced(stand_in, Size(runs=1, runs_elsewhere=0, draws=2, a9a=False), tmp_path)
    cases = {row["case"]: row for row in rows}
    for epsilon in EPSILONS:
        for kind in ("default", "default, average", "pure", "pure, svm", "literal", "spherical"):
            assert 0 <= cases[f"{kind} eps={epsilon:g} split={HARDEST}"]["ours"] <= 1
    for row in rows:
        assert {"case", "ours", "spread", "repeats", "paper", "reference", "bar", "note"} <= set(row)
        if row["case"].startswith(("literal", "paper")):
            assert "NOT PRIVATE AS CLAIMED" in row["note"]
    assert cases["default eps=1 split=10 %"]["bar"] == BARS["default"][2]
    # The default learns something.
    assert cases["default eps=1 split=10 %"]["ours"] < cases["pooled without noise"]["constant"]
    assert ElementTree.parse(tmp_path / "averaging-adult.svg").getroot().tag.endswith("svg")
    assert (tmp_path / "averaging-adult.png").stat().st_size > 10_000


def test_splits_deal_every_row_once(stand_in: Adult) -> None:
    for name in SPLITS:
        split = split_of(stand_in, name)
        assert sum(split.sizes.values()) == 2000 and len(split.parties) == 5
    assert split_of(stand_in, HARDEST).sizes["p0"] == 200


def test_the_anchors_learn_where_noise_is_small_and_not_where_it_is_large(stand_in: Adult) -> None:
    parties = split_of(stand_in, "even").parties

    def error(weights: Any) -> float:
        return float(np.mean((stand_in.test.features @ weights > 0) != (np.asarray(stand_in.test.labels) > 0)))

    for method in (averaging_anchors.client_noise, averaging_anchors.local_noise):
        found = [
            error(method(parties, rho, rounds=10, length=8.0, stream=Stream.public("test", str(rho))))
            for rho in (1e6, 1e-7)
        ]
        assert found[0] < 0.2 < found[1]
    stream = Stream.public("test", "objective")
    assert error(averaging_anchors.objective_perturbation(stand_in.train, 50.0, 1e-2, stream)) < 0.2
    # So small an epsilon that the penalty has to grow.
    weights = averaging_anchors.objective_perturbation(stand_in.train, 1e-3, 1e-4, stream)
    assert np.isfinite(weights).all()


def test_bench_rows_on_a_stand_in(stand_in: Adult) -> None:
    rows = compared(stand_in, 5, repeats=1, quick=True)
    for row in rows:
        assert row["ratio"] == pytest.approx(row["anchor"] / row["ours"])
        assert row["megabytes"] > row["anchor_megabytes"] > 0 and row["seconds"] > 0
    assert "averaging" in BENCHES and "averaging-adult" in PAPERS
    assert zcdp_rho(1.0, 1e-5) > 0


@needs_adult
def test_the_real_rows_and_what_they_allow_without_noise() -> None:
    data = adult()
    assert data.features == 124 and len(data.train) == 32561 and len(data.test) == 16281
    assert np.linalg.norm(data.train.features, axis=1).max() <= 1
    assert pooled(data) == pytest.approx(0.1403, abs=0.001)


@needs_adult
@pytest.mark.long
def test_the_bars_on_the_real_data(tmp_path: Path) -> None:
    rows = reproduced(adult(), Size(runs=20, runs_elsewhere=0, draws=1, a9a=False), None)
    found = {row["case"]: row for row in rows}
    for kind, bars in BARS.items():
        for epsilon, bar in zip(EPSILONS, bars):
            assert found[f"{kind} eps={epsilon:g} split={HARDEST}"]["ours"] <= bar
