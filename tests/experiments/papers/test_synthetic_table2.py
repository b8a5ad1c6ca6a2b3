"""Table 2 on a made dataset: every row is there, and the schemas of the real ones can be counted."""

from __future__ import annotations

from typing import Any

import pytest

from comity.data import Date, Schema
from comity.privacy.loss import Approx
from experiments.papers.synthetic import datasets as synthetic_datasets
from experiments.papers.synthetic import table2 as synthetic_table2
from experiments.papers.synthetic.datasets import SOURCES, Source
from experiments.papers.synthetic.table2 import Size
from tests.synthetic.consortia import build_synthetic, make_consortium, make_frame, make_schema

REFERENCE = (0.4, 0.5, 0.6)
FIELDS = {
    "case",
    "ours",
    "spread",
    "repeats",
    "unit",
    "paper",
    "published",
    "reference",
    "constant",
    "non_private",
    "note",
}


def made_rows(monkeypatch: pytest.MonkeyPatch, name: str, size: Size) -> list[dict[str, Any]]:
    plain = Schema(tuple(c for c in make_schema().columns if not isinstance(c, Date)), make_schema().target)
    monkeypatch.setitem(synthetic_datasets._READ, name, lambda: make_frame(2000))
    source = Source(name, plain, (0.1, 0.2, 0.3), REFERENCE, owners=4)
    return list(synthetic_table2.rows_of(source, size, quick=True))


def test_rows_of_a_made_dataset(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = made_rows(monkeypatch, "Made", Size(1, 1, 1, (3, 2)))
    assert [row["case"] for row in rows] == [f"Made, 4 owners, eps={epsilon}" for epsilon in ("1", "0.5", "0.1")]
    first, last = rows[0], rows[2]
    assert all(row.keys() >= FIELDS for row in rows)
    # Of 200 test records: chance moves either error by .03.
    assert first["non_private"] - 0.06 <= first["ours"] < first["constant"] - 0.02
    assert first["two-way TV"] < last["two-way TV"] and last["paper"] == 0.3 and last["reference"] == 0.6
    # Every agent adds noise of its own to trees of its own.
    assert first["published"] > first["ours"] and "quick" in first["note"]


def test_census_is_run_with_few_owners_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthetic_table2, "EPSILONS", (1.0,))
    rows = made_rows(monkeypatch, "Census", Size(2, 1, 1, (3, 2)))
    assert [row["case"] for row in rows] == ["Census, 3 owners, eps=1", "Census, 2 owners, eps=1"]
    # Of so few test records two repeats may have the same error.
    assert [row["repeats"] for row in rows] == [2, 2] and any(row["spread"] > 0 for row in rows)


def test_what_is_no_better_than_a_constant_is_said_to_be() -> None:
    source = SOURCES[0]
    assert "no better than a constant" in synthetic_table2._note(source, 0.1, 0.30, 0.30, False)
    assert "no better" not in synthetic_table2._note(source, 0.1, 0.20, 0.30, False)


@pytest.mark.parametrize("source", SOURCES, ids=lambda one: one.name)
def test_the_schemas_can_be_counted(source: Source) -> None:
    counting = build_synthetic(schema=source.schema, rows=10_000).counting(make_consortium(Approx(1.0, 1e-6)))
    assert counting.bins == 8 and len(counting.cells.names) >= 13


def test_a_declared_number_of_rows_is_round() -> None:
    assert [synthetic_table2._round(count) for count in (48_842, 1_151, 17_379)] == [49_000, 1_200, 17_000]
