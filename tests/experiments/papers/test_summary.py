"""Reproductions of summaries: tasks as they are described, rows with their baselines; the bars where the data are."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from experiments.papers import PAPERS
from experiments.papers.summary import rows as summary_rows
from experiments.papers.summary.rows import BARS, BASE, Size, ours, reproduced
from experiments.papers.summary.tasks import OWNERS, SOURCES, Source, task


def clouds() -> Source:
    """Two kinds of records of two classes each: 600 at the owners, 300 wanted."""
    chance = np.random.default_rng(0)
    wanted = np.repeat([False, True], [600, 300])
    labels = chance.integers(0, 2, 900) + 2 * wanted
    rows = 0.1 * chance.normal(size=(900, 5)) + np.stack([wanted, labels % 2, *np.zeros((3, 900))], axis=1) * 0.5
    return Source(rows, labels, ~wanted, wanted, np.ones(900, bool), (400, 200))


@pytest.mark.parametrize("layout", ["one owner", "classes split", "spread evenly"])
def test_a_task_deals_every_record_once(layout: Any) -> None:
    source = clouds()
    one = task(source, 3, layout, "test")
    assert len(one.owners) == OWNERS
    assert sum(map(len, one.owners.values())) == 400 + 140
    assert (len(one.consumer), len(one.test)) == (15, 45)
    rows = np.concatenate([part.features for part in (*one.owners.values(), one.consumer, one.test)])
    assert len(np.unique(rows, axis=0)) == len(rows) == 600
    share = [float((cast(Any, part.labels) >= 2).mean()) for part in one.owners.values()]
    if layout == "one owner":
        assert share[0] > 0.5 and max(share[1:]) == 0
    elif layout == "spread evenly":
        assert max(share) - min(share) < 0.02
    else:
        of_owners: list[Any] = [part.labels for part in one.owners.values()]
        assert [set(labels[labels >= 2]) for labels in of_owners] == [{2}, {3}, set(), set()]
    again = task(source, 3, layout, "test")
    assert np.array_equal(again.consumer.features, one.consumer.features)
    assert not np.array_equal(task(source, 4, layout, "test").consumer.features, one.consumer.features)


def test_rows_stand_beside_baselines_of_the_same_run_and_are_drawn(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(SOURCES, "cps", clouds)
    monkeypatch.setattr(summary_rows, "QUICK", Size(1, 1))
    monkeypatch.setattr(summary_rows, "COUNTS", (20, 100))
    monkeypatch.setattr(summary_rows, "EPSILONS", (1.0, 3.0))
    # A round takes its time whatever it is about: eight of them show a row as well as a hundred.
    traded, laid_out = summary_rows.auctions, summary_rows._laid_out
    monkeypatch.setattr(summary_rows, "auctions", lambda one, epsilon, count: traded(one, epsilon, 8))
    monkeypatch.setattr(summary_rows, "_laid_out", lambda one, count: {**laid_out(one, count), "dimensions": 40})
    rows = reproduced("cps", quick=True, out=tmp_path)
    base = {row["choice"]: row for row in rows if (row["layout"], row["records"]) == (BASE[0], 100)}
    seeing = {"uniform", "largest owner", "greedy", "greedy, features", "classifier weights"}
    assert set(base) == {*summary_rows.PRIVATE, *seeing}
    assert base["published"]["reference"] == "0.163/0.78" and "not private as claimed" in base["published"]["note"]
    assert min(base[name]["MMD2"] for name in ("published", "published, as printed")) > 0
    assert base["greedy"]["MMD2"] < base["uniform"]["MMD2"]
    mine = [row for row in rows if row["choice"] == "ours"]
    assert [(row["records"], row["epsilon"]) for row in mine] == [(100, 1.0), (100, 3.0), (20, 1.0)]
    assert mine[0]["bar"] == "0.0045" and mine[0]["reference"] == "0.0033/0.797"
    assert all("quick" in row["note"] for row in rows)
    drawn = {path.name for path in tmp_path.iterdir()}
    assert drawn == {f"summary-cps-{key}.{kind}" for key in ("mmd2", "accuracy") for kind in ("svg", "png")}


def test_each_source_has_its_command() -> None:
    assert {f"summary-{name}" for name in SOURCES} <= set(PAPERS) and set(BARS) == set(SOURCES)


@pytest.mark.long
@pytest.mark.parametrize("name", SOURCES)
def test_ours_reaches_its_bars(name: Any) -> None:
    if not Path(os.environ.get("COMITY_DATA", "/nowhere")).is_dir():
        pytest.skip("COMITY_DATA names no folder of the data, as in CI")
    found = [ours(task(SOURCES[name](), number, "one owner", name), 1.0, 100) for number in range(8)]
    most, least = BARS[name]
    assert np.mean([one.mmd2 for one in found]) <= most
    assert least is None or np.mean([one.accuracy for one in found]) >= least
