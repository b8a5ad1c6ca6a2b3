"""Figures 3 and 4 of the published method, on a small stand-in; on Adult it is a long test."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from comity.data import Bounded, Categorical, Classes, Numeric, Schema
from experiments.papers import PAPERS
from experiments.papers.synthetic.agents import Agents, Size
from experiments.papers.synthetic.fidelity import distances, reproduced

SCHEMA = Schema(
    (Numeric("age", 0, 100), *(Categorical(f"c{k}", tuple("abcdefgh")) for k in range(4)), Numeric("dose", 0, 1)),
    Classes("ill", ("no", "yes")),
)
folder = os.environ.get("COMITY_DATA", "")


def stand_in(count: int = 1500) -> pd.DataFrame:
    chance = np.random.default_rng(0)
    age = chance.uniform(0, 100, count)
    words = {f"c{k}": chance.choice(list("abcdefgh"), count) for k in range(4)}
    ill = np.where(age + chance.normal(0, 5, count) > 60, "yes", "no")
    return pd.DataFrame({"age": age, **words, "dose": chance.random(count), "ill": ill})


@pytest.fixture(scope="module")
def agents() -> Agents:
    return Agents.of(stand_in(), SCHEMA, 8)


@pytest.fixture(scope="module")
def by_number() -> Agents:
    frame = stand_in(600)
    schema = Schema(SCHEMA.columns, Bounded("cost", 0, 100))
    return Agents.of(frame.assign(cost=frame["age"]), schema, 4)


def test_sizes_hold_by_least_squares_and_explode_without(agents: Any, by_number: Any, tmp_path: Path) -> None:
    rows = reproduced(agents, by_number, Size(8, 3, (4, 6), (2, 4), 3), tmp_path, quick=True)
    found = {row["case"]: row["ours"] for row in rows}
    assert found["sizes, PFDS h=6"] < 40 and found["sizes, PFDS- h=6"] > 1000
    assert all(row["repeats"] and np.isfinite(row["ours"]) for row in rows)
    kinds = ("logistic", "svm", "linear")
    assert {row["constant"] is not None for row in rows if row["case"].startswith(kinds)} == {True}
    for kind in kinds:
        assert {f"{kind}, {one}" for one in ("NP-Agt", "PFDS n=4", "PFDS(s) n=4", "DP-Pred n=4")} <= set(found)
    assert {f"{panel}, DiffGen h=6" for panel in ("sizes", "wasserstein", "seconds")} <= set(found)
    page = (tmp_path / "synthetic-fidelity.html").read_text()
    assert page.count("<img alt=") == page.count("data:image/svg+xml;base64,") == 6
    # The page asks nobody for anything and runs nothing.
    assert not re.search(r"(src|href)=[\"'](?!data:)|<script|url\(", page) and "sizes, DiffGen h=6" in page


def test_the_distance_of_records_to_themselves_is_nothing_and_to_others_something(agents: Any) -> None:
    values = agents.attributes.values(agents.test.features)
    other = values.copy()
    other[:, 0] = 0.0
    assert list(distances(agents.attributes, values, values, 5)) == [0.0] * 5
    assert max(distances(agents.attributes, values, other, 5)) > 0


@pytest.mark.long
@pytest.mark.skipif(
    not (folder and (Path(folder) / "adult.parquet").is_file()), reason="COMITY_DATA has no Adult, as in CI"
)
def test_on_adult_sizes_reproduce_and_what_is_learned_is_a_constant() -> None:
    rows = PAPERS["synthetic-fidelity"].run(quick=True, out=None)
    found = {row["case"]: row for row in rows}
    assert found["sizes, PFDS h=8"]["ours"] < 20 and found["sizes, PFDS- h=8"]["ours"] > 20_000
    all_share = found["logistic, PFDS n=100"]
    assert abs(all_share["ours"] - all_share["constant"]) < 0.01 < all_share["ours"] - all_share["non_private"]
