from __future__ import annotations

import numpy as np
import pytest

from experiments.bench.kernels import product


@pytest.mark.long
def test_rows_print_ours_the_anchor_and_the_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(product, "_DEALER", ((20_000, 3),))
    monkeypatch.setattr(product, "_RLWE", ((10_000, 2, 12),))
    monkeypatch.setattr(product, "_STREAMED", 1_000_000)
    dealt, everybody, ours, ckks, streamed = product.measure(quick=True)
    assert everybody["case"] == "dealer 2000x3, all three" and everybody["ours"] > dealt["ours"]
    for row in (dealt, everybody, ours):
        assert row["ratio"] == pytest.approx(row["ours"] / row["anchor"])
        assert row["better"] == "lower" and row["repeats"] == 2 and row["spread"] >= 0
    assert dealt["bytes"] == dealt["formula_bytes"] == 2_000 * 6 * 8
    assert ours["bytes"] == ours["formula_bytes"] == 12 * 2 * (4096 + 1_000) + 12 * 2 * (4096 + 2)
    assert ckks["anchor_name"] == "tenseal" and (ckks["anchor"] is None) == (ckks["ratio"] is None)
    assert streamed["unit"] == "MB" and 0 < streamed["ratio"] < 1.5


def test_a_wrong_entry_stops_the_measurement() -> None:
    with pytest.raises(ArithmeticError, match="1 of 4"):
        product._compare(np.array([[1, 2], [3, 4]]), np.array([[1, 2], [3, 5]]))


def test_all_three_work_more_than_the_busier_party() -> None:
    busier, everybody = product._measure_dealer(2_000, 3, 3)
    assert (busier["case"], everybody["case"]) == ("dealer 2000x3", "dealer 2000x3, all three")
    assert everybody["ours"] > busier["ours"] > 0 and everybody["bytes"] == busier["bytes"]
    assert "the busier party" in busier["note"] and "the coordinator" in everybody["note"]


def test_growth_is_by_records_and_by_columns() -> None:
    rows = product._growth([(100, 7, 1.0), (400, 7, 4.0), (400, 14, 16.0), (100, 100, 9.0)])
    assert [row["ours"] for row in rows] == [pytest.approx(1.0), pytest.approx(2.0)]
    assert rows[0]["case"] == "growth with records, dealer x7, all three"
    assert rows[1]["case"] == "growth with columns, dealer 400, all three"
