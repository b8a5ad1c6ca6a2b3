from __future__ import annotations

import pytest

from experiments.bench import BENCHES
from experiments.bench.methods import summary


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summary, "COLUMNS", 12)
    monkeypatch.setattr(summary, "FEATURES", 20)
    monkeypatch.setattr(summary, "WISHED", 100)


def test_the_bench_measures_runs_beside_greedy_choice_and_memory(small: None) -> None:
    rows = summary._measured(2000, 20)
    assert [row["unit"] for row in rows] == ["CPU s", "CPU s", "MB", "exponent"]
    assert all(row["ours"] > 0 and row["anchor"] > 0 for row in rows[:3])
    assert (
        rows[3]["case"] == "growth with records 250 to 2000"
        and "20 features, p=20" in rows[0]["case"]
        and "summary" in BENCHES
    )


def test_a_tenth_of_every_owner_is_of_the_consumers_kind(small: None) -> None:
    held = summary.generated(2000)
    assert [len(one) for one in held.values()] == [200] * summary.OWNERS + [100]
    assert abs(held["owner-3"].features[:20].mean() - held["buyer"].features.mean()) < 0.1
