"""The measurements of intersections and sealed messages give rows that mean what they say."""

from __future__ import annotations

import sys

import pytest

from comity.crypto import psi_keyed
from experiments.bench.kernels import psi, seal


def test_the_rows_of_both_measurements_have_figures_and_say_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    # None in place of a module makes its import fail, as on a machine without it.
    monkeypatch.setitem(sys.modules, psi._OPENMINED, None)
    rows = psi.measure(keyed=3000, blinded=40, quick=True)
    growth = [row for row in rows if row["unit"] == "exponent"]
    assert [row["case"] for row in growth] == [
        "growth with ids 375 to 3000, keyed",
        "growth with ids 5 to 40, ecdh",
    ]
    rows = [row for row in rows if row not in growth]
    assert [row["case"].split(":")[0] for row in rows] == ["keyed", "keyed", "ecdh"]
    assert rows[2]["anchor"] is None and rows[2]["ratio"] is None and "not installed" in rows[2]["note"]
    assert [row.get("bytes") for row in rows] == [None, 2 * 3000 * 16, 4 * 40 * 32]
    sealed = seal.measure(size=100_000, quick=True)
    assert [row["case"] for row in sealed][:2] == ["seal 100000 bytes", "open 100000 bytes"]
    for row in [*rows[:2], *sealed]:
        assert row["ours"] > 0 and row["ratio"] == pytest.approx(row["ours"] / row["anchor"])


def test_a_wrong_matching_is_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    real = psi_keyed.match_lists
    monkeypatch.setattr(
        psi_keyed, "match_lists", lambda *a: {n: p[::-1] if n == "0" else p for n, p in real(*a).items()}
    )
    with pytest.raises(ArithmeticError, match="wrongly"):
        psi._keyed(100, 2)
