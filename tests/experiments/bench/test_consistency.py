from __future__ import annotations

from experiments.bench.methods.consistency import measure


def test_the_bench_names_its_anchors_and_never_reaches_a_worse_objective() -> None:
    rows = measure(quick=True)
    assert {row["anchor_name"] for row in rows} == {"OSQP", "Clarabel"}
    for row in rows:
        if row["case"].endswith("time"):
            assert row["ours"] > 0 and (row["anchor"] is not None or "not installed" in row["note"])
        else:
            assert row["ratio"] >= 1 - 1e-6
