"""Synthetic data over columns from records beyond memory: the counts of records in memory, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from comity.data.tables import row_file
from comity.methods.by_columns import token_list
from comity.study.simulation.simulate import run_study

from .by_columns import make_people
from .test_columns_study import FILES, study

OWN = {"clinic": ["age", "stage", "ill"], "registry": ["income", "town", "region"], "lab": ["seen"]}
KINDS = {"clinic": "csv", "registry": "parquet", "lab": "csv"}


@pytest.mark.parametrize("aligned", [False, True])
def test_counts_over_blocks_are_those_of_records_in_memory(
    tmp_path: Path, aligned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_list, "BUCKET_ROWS", 250)
    monkeypatch.setattr(row_file, "_BUCKET_BYTES", 1 << 12)
    frame = make_people(1000)
    frame["person"] = [f"person {number}" for number in range(1000)]
    found: list[Any] = []
    for memory in (1.0, 1e-6):
        built = study(tmp_path, FILES, identifier=aligned, **{"simulation.memory": memory})
        frame.to_parquet(tmp_path / "people.parquet")
        for seed, (name, columns) in enumerate(OWN.items()):
            own = frame[[*(["person"] if aligned else []), *columns]]
            if aligned:
                own = own.iloc[20 * seed : 960 + 20 * seed].sample(frac=1.0, random_state=seed)
            path = tmp_path / f"{name}.{KINDS[name]}"
            own.to_parquet(path) if KINDS[name] == "parquet" else own.to_csv(path, index=False)
        found.append(run_study(built, seed=1))
    whole, blocks = found
    assert not blocks.baselines and any("in blocks" in finding for finding in blocks.findings)
    for name, value in whole.released.items():
        if hasattr(value, "tobytes"):
            assert value.tobytes() == blocks.released[name].tobytes(), name
    assert whole.released.keys() == blocks.released.keys() and "counts" in whole.released
