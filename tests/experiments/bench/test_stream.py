"""`bench stream`: every row from one run, the same passes on both sides."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from experiments.__main__ import main
from experiments.bench import processors
from experiments.bench.running import stream


@pytest.mark.long
def test_the_command_measures_time_checking_memory_and_growth(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def here(work: Callable[[Path, int], dict[str, float]], path: Path, rows: int, cores: int = 1) -> dict[str, float]:
        asked.append((work.__name__, rows, cores))
        return work(path, rows)

    # In this process: starting others would take longer than what they measure.
    monkeypatch.setattr(stream, "_apart", here)
    monkeypatch.setattr(stream, "SMALL", 1000)
    monkeypatch.setattr(processors, "count", lambda: 2)
    assert main(["bench", "stream", "--rows", "20000", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["rows"]
    beside = [("_ours", 20_000, 1), ("_anchor", 20_000, 1), ("_doubles", 20_000, 1)]
    assert asked == beside * 3 + [("_ours", 10_000, 1)] * 3 + [("_ours", 20_000, 2)] * 3
    *measured, growth = found
    assert [row["case"] for row in measured] == [
        f"{name} 20000x20" for name in ("averaging", "averaging, from doubles", "checking", "memory", "two cores")
    ]
    assert growth["case"].startswith("growth with records 10000 to 20000")
    for row in measured:
        assert row["ours"] > 0 and row["anchor"] > 0
    for row in measured[2:]:
        assert row["ratio"] == pytest.approx(row["ours"] / row["anchor"], rel=1e-6)
