"""`bench stream`: every row from one run, the same passes on both sides."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from experiments.__main__ import main
from experiments.bench.running import stream


@pytest.mark.long
def test_the_command_measures_time_checking_and_memory(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def here(work: Callable[[Path, int], dict[str, float]], path: Path, rows: int) -> dict[str, float]:
        asked.append((work.__name__, rows))
        return work(path, rows)

    # In this process: starting others would take longer than what they measure.
    monkeypatch.setattr(stream, "_apart", here)
    monkeypatch.setattr(stream, "SMALL", 1000)
    assert main(["bench", "stream", "--rows", "3000", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["rows"]
    assert asked == [("_ours", 3000), ("_anchor", 3000)] * 3
    assert [row["case"] for row in found] == ["averaging 3000x20", "checking 3000x20", "memory 3000x20"]
    for row in found:
        assert row["ours"] > 0 and row["anchor"] > 0
        assert row["ratio"] == pytest.approx(row["ours"] / row["anchor"])
