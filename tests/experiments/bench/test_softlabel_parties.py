from __future__ import annotations

import numpy as np

from experiments.bench.methods.softlabel_parties import connections, measure


def test_the_records_are_what_the_bound_needs() -> None:
    data = connections(60, 22, 119, 30)
    assert data.features.shape == (60, 22, 119)
    assert data.auxiliary.shape == (30, 119)
    assert np.linalg.norm(data.features, axis=-1).max() <= 1
    one_class = (data.labels == data.labels[:, :1]).all(1)
    assert one_class.any() and not one_class.all()
    assert np.array_equal(data.features, connections(60, 22, 119, 30).features)


def test_rows_hold_both_times_and_the_exactness() -> None:
    fit, compiled, vote, study, *processor = measure(parties=300, records=8, features=30, auxiliary=40, quick=True)
    assert [row["case"] for row in (fit, compiled, vote)] == ["fit", "fit liblinear", "vote"]
    for row in (fit, compiled, vote):
        assert row["ratio"] == row["anchor"] / row["ours"] > 1
        assert row["unit"] == "s" and row["better"] == "higher" and row["repeats"] >= 3
        assert "scaled to" in row["note"]
    assert fit["gradient_norm"] <= 1e-9
    assert study["case"] == "study" and study["ours"] > 0 and study["anchor"] > 0
    assert [row["case"] for row in processor] == [
        "study, CPU",
        "study default, CPU",
        "hosts 5 default, CPU",
        "hosts 10 default, CPU",
        "growth with hosts, default",
    ]
    assert all(row["ours"] > 0 and row["anchor"] > 0 for row in processor)
    assert all(row["wall"] > 0 for row in processor[:-1])
