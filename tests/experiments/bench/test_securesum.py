"""What whole sums cost: the figures are of runs that happened, and a party alone is not helped by the others' work."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from nacl import bindings

from comity.entropy import derive
from experiments.bench.kernels import securesum, securesum_runs
from experiments.bench.kernels.securesum_runs import Cost, _growth, measure_runs, run_once


def test_a_run_has_a_row_for_itself_its_dearest_party_and_its_coordinator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(securesum_runs, "_QUICK", ((4, 10),))
    rows = {row["case"]: row for row in measure_runs(quick=True)}
    assert list(rows) == ["run 4x10", "run 4x10, dearest party", "run 4x10, coordinator", "run 4x10, apart"]
    assert rows["run 4x10, apart"]["ours"] >= rows["run 4x10, dearest party"]["ours"]
    assert all(row["ours"] > 0 and row["unit"] == "s" for row in rows.values())
    assert "MB crossed" in rows["run 4x10"]["note"]


def test_every_partys_masks_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(securesum, "measure_runs", lambda quick: [])
    masked, really = [], securesum._mask

    def counting(vector: Any, seeds: Any) -> Any:
        masked.append(len(seeds))
        return really(vector, seeds)

    monkeypatch.setattr(securesum, "_mask", counting)
    vectors, seeds = [np.ones(50, "<u8") for _ in range(5)], [derive(b"bench", place) for place in range(5)]
    row = securesum._all_parties("5x50", vectors, seeds, [1.0], 1)
    # Each of five, and the coordinator.
    assert masked == [5] * 6 and row["case"] == "5x50, all parties" and row["wall"] >= row["ours"] > 0


def test_growth_is_along_each_axis_with_several_sizes() -> None:
    def cost(seconds: float) -> Cost:
        return Cost(seconds, seconds, seconds, seconds**2, seconds, 0.0, 1)

    found = _growth({(10, 100): cost(1.0), (20, 100): cost(2.0), (20, 1000): cost(20.0)})
    assert {row["case"]: round(row["ours"], 6) for row in found} == {
        "growth with parties, all apart": 1.0,
        "growth with parties, dearest party": 2.0,
        "growth with parties, coordinator": 1.0,
        "growth with numbers, all apart": 1.0,
        "growth with numbers, dearest party": 2.0,
        "growth with numbers, coordinator": 1.0,
    }


def test_a_party_is_measured_as_it_would_be_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """All parties in one process verify nothing that it signed; apart from each other they verify everything."""
    counts, really = [], bindings.crypto_sign_open

    def counting(signed: Any, public: Any) -> bytes:
        counts.append(public)
        return really(signed, public)

    monkeypatch.setattr(bindings, "crypto_sign_open", counting)
    securesum_runs._measured(4, 10, alone=False)
    assert counts == []
    securesum_runs._measured(4, 10, alone=True)
    # Ask, reply and head of several asks to each of four parties, beside keys, letters and lists.
    assert len(counts) > 4 * 5 * 3


def seconds(parties: Any, length: Any) -> float:
    return min(run_once(parties, length).whole for _ in range(3))


@pytest.mark.long
def test_a_hundred_parties_sum_ten_thousand_numbers_within_three_seconds_of_processor_time() -> None:
    assert seconds(100, 10_000) <= 3.0


@pytest.mark.long
def test_the_work_of_a_party_does_not_grow_with_the_square_of_the_parties() -> None:
    few, many = run_once(60, 100), run_once(240, 100)
    assert many.whole < 8 * few.whole
    assert many.crossed < 8 * few.crossed
