"""Figures 3 and 4 of the published method, on a small stand-in; on Adult it is a long test."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from comity.data import Categorical, Classes, Numeric, Schema
from comity.reproduce import REPRODUCTIONS
from comity.reproduce.synthetic_fidelity import Agents, Size, distances, reproduced

SCHEMA = Schema(
    (Numeric("age", 0, 100), *(Categorical(f"c{k}", tuple("abcdefgh")) for k in range(4)), Numeric("dose", 0, 1)),
    Classes("ill", ("no", "yes")),
)
folder = os.environ.get("COMITY_DATA", "")


def stand_in(count=1500):
    chance = np.random.default_rng(0)
    age = chance.uniform(0, 100, count)
    words = {f"c{k}": chance.choice(list("abcdefgh"), count) for k in range(4)}
    ill = np.where(age + chance.normal(0, 5, count) > 60, "yes", "no")
    return pd.DataFrame({"age": age, **words, "dose": chance.random(count), "ill": ill})


@pytest.fixture(scope="module")
def agents():
    return Agents.of(stand_in(), SCHEMA, 8)


def test_sizes_hold_by_least_squares_and_explode_without(agents, tmp_path):
    rows = reproduced(agents, Size(8, 3, (4, 6), (2, 4), 3), tmp_path, quick=True)
    found = {row["case"]: row["ours"] for row in rows}
    assert found["sizes, PFDS h=6"] < 40 and found["sizes, PFDS- h=6"] > 1000
    assert all(row["repeats"] and np.isfinite(row["ours"]) for row in rows)
    assert {row["constant"] is not None for row in rows if row["case"].startswith("sharers")} == {True}
    assert {"sharers, NP-Agt", "sharers, PFDS n=4", "sharers, PFDS(s) n=4", "sharers, DP-Pred n=4"} <= set(found)
    plots = {path.name for path in tmp_path.iterdir()}
    assert {f"synthetic-{one}.svg" for one in ("sizes", "wasserstein", "seconds", "sharers")} <= plots


def test_the_distance_of_records_to_themselves_is_nothing_and_to_others_something(agents):
    values = agents.attributes.values(agents.test.features)
    other = values.copy()
    other[:, 0] = 0.0
    assert list(distances(agents.attributes, values, values, 5)) == [0.0] * 5
    assert max(distances(agents.attributes, values, other, 5)) > 0


@pytest.mark.long
@pytest.mark.skipif(not (folder and (Path(folder) / "adult.parquet").is_file()), reason="COMITY_DATA has no Adult")
def test_on_adult_sizes_reproduce_and_what_is_learned_is_a_constant():
    rows = REPRODUCTIONS["synthetic-fidelity"].run(quick=True, out=None)
    found = {row["case"]: row for row in rows}
    assert found["sizes, PFDS h=8"]["ours"] < 20 and found["sizes, PFDS- h=8"]["ours"] > 20_000
    all_share = found["sharers, PFDS n=100"]
    assert abs(all_share["ours"] - all_share["constant"]) < 0.01 < all_share["ours"] - all_share["non_private"]
