"""Table 2 on a made dataset: every row is there, and the schemas of the real ones can be counted."""

from __future__ import annotations

import pytest

from comity.privacy.loss import Approx
from comity.protocols.synthetic import SyntheticData
from comity.reproduce import synthetic_datasets, synthetic_table2
from comity.reproduce.synthetic_datasets import SOURCES, Source
from tests.synthetic.made import consortium, frame, schema


def test_rows_of_a_made_dataset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(synthetic_datasets._READ, "Made", lambda: frame(3000))
    rows = list(synthetic_table2.rows_of(Source("Made", schema(), (0.1, 0.2, 0.3), owners=4), 1, 1))
    assert [(row["method"], row["epsilon"]) for row in rows] == [
        ("constant", None),
        ("non-private", None),
        ("default", 1.0),
        ("default", 0.5),
        ("default", 0.1),
    ]
    assert rows[1]["error"] <= rows[2]["error"] + 0.02 < rows[0]["error"]
    assert rows[2]["two-way TV"] < rows[4]["two-way TV"] and rows[4]["paper"] == 0.3


@pytest.mark.parametrize("source", SOURCES, ids=lambda one: one.name)
def test_the_schemas_can_be_counted(source: Source) -> None:
    counting = SyntheticData(schema=source.schema, rows=10_000).counting(consortium(Approx(1.0, 1e-6)))
    assert counting.bins == 8 and len(counting.cells.names) >= 13


def test_a_declared_number_of_rows_is_round() -> None:
    assert [synthetic_table2._round(count) for count in (48_842, 1_151, 17_379)] == [49_000, 1_200, 17_000]
