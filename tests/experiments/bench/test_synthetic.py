"""The bench beside MST and AIM: both sides are judged by the same measures, and what is absent is said."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.bench import BENCHES
from experiments.bench.methods.synthetic import MEASURES, Split, compared
from experiments.bench.methods.synthetic_anchors import ABSENT, anchors
from experiments.data.adult import census_schema
from tests.synthetic.consortia import build_synthetic, make_frame, make_schema

folder = os.environ.get("COMITY_DATA", "")


@pytest.fixture(scope="module")
def split() -> Split:
    method = build_synthetic(schema=make_schema(), rows=3000)
    return Split.of(method, method.encoding.encode(make_frame(3000)).records)


def test_an_anchor_that_gives_the_records_themselves_is_nearer_than_any_private_one(split: Any) -> None:
    def copied(codes: Any, sizes: Any, epsilon: Any, delta: Any) -> Any:
        assert (codes.max(axis=0) < sizes).all() and (epsilon, delta) == (1.0, 1e-6)
        return codes

    rows = compared(split, 1.0, 3, {"copy": copied})
    found = {row["case"].partition(", ")[2]: row for row in rows}
    assert set(found) == set(MEASURES) and found["two-way TV"]["anchor"] == 0.0 < found["two-way TV"]["ours"] < 0.5
    for name in ("logistic error", "tree error"):
        assert 0 < found[name]["anchor"] < 0.5 and 0 < found[name]["ours"] < 0.5
        assert found[name]["ratio"] == found[name]["ours"] / found[name]["anchor"]


def test_an_anchor_of_noise_is_judged_to_be_noise(split: Any) -> None:
    chance = np.random.default_rng(0)

    def noise(codes: Any, sizes: Any, epsilon: Any, delta: Any) -> np.ndarray:
        return np.column_stack([chance.integers(0, size, len(codes)) for size in sizes])

    found = {row["case"].partition(", ")[2]: row for row in compared(split, 1.0, 3, {"noise": noise})}
    assert found["two-way TV"]["anchor"] > 2 * found["two-way TV"]["ours"]


def test_without_the_anchors_ours_stands_alone_and_the_note_says_why(split: Any) -> None:
    rows = compared(split, 1.0, 3, {})
    assert [row["anchor"] for row in rows] == [None] * len(MEASURES) and {row["note"] for row in rows} == {ABSENT}
    assert "synthetic" in BENCHES and bool(anchors()) is (find_spec("mbi") is not None)


@pytest.mark.long
@pytest.mark.skipif(
    not (folder and (Path(folder) / "adult.parquet").is_file()), reason="COMITY_DATA has no Adult, as in CI"
)
def test_on_adult_the_logistic_error_is_below_the_bar() -> None:
    from comity.data.public.datasets import dataset

    method = build_synthetic(schema=census_schema(), rows=49_000)
    found = compared(Split.of(method, method.encoding.encode(dataset("adult")).records), 1.0, 20, {})
    assert found[0]["ours"] <= 0.164
