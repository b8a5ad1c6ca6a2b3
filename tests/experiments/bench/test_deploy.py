from __future__ import annotations

import pytest

from experiments.bench.running import deploy
from tests.support.relays import needs_server

pytestmark = needs_server


@pytest.mark.deploy
def test_bench_rows_of_a_deployment() -> None:
    rows = {row["case"]: row for row in deploy.measure(quick=True)}
    assert set(rows) == {"empty round 3", "8MB 3", "16MB 1, at 200 ms", "averaging 3"}
    assert all(0 < row["ours"] < 30 for row in rows.values())
    assert all(rows[case]["ratio"] > 1 for case in ("empty round 3", "8MB 3"))
    assert rows["8MB 3"]["relay_mb"] is None or rows["8MB 3"]["relay_mb"] < 100
