"""What is presented: saved without pickle, loaded as it was, refused whatever is wrong with its files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest

from comity.artefacts.arrays import write_arrays
from comity.artefacts.artefact import load_artefact, save_artefact
from comity.errors import DataError
from comity.methods.synthetic.artefact import SyntheticDataset, _moved
from comity.methods.synthetic.counts import expected_errors
from comity.study.simulation.simulate import Terms, simulate

from .consortia import NAMES, build_synthetic, make_frame, make_schema


@pytest.fixture(scope="module")
def presented() -> SyntheticDataset:
    held = {name: make_frame(300, k) for k, name in enumerate(NAMES[:3])}
    built = build_synthetic(schema=make_schema(), rows=900)
    found = simulate(
        built, parties=held, epsilon=2.0, delta=1e-6, unit="record", seed=1, terms=Terms(neighbours="add-remove")
    )
    made: SyntheticDataset = found.presented
    return made


def test_it_loads_as_it_was_saved(presented: SyntheticDataset, tmp_path: Path) -> None:
    save_artefact(presented, tmp_path / "data")
    names = {path.name for path in (tmp_path / "data").iterdir()}
    assert names == {"artefact.json", "counts.json", "counts.npz", "data.parquet", "schema.toml"}
    again = load_artefact(tmp_path / "data")
    assert isinstance(again, SyntheticDataset)
    pd.testing.assert_frame_equal(again.frame, presented.frame, check_dtype=False)
    assert (again.counts.values == presented.counts.values).all()
    assert again.counts.digest == presented.counts.digest
    # Rows that are made again are the same ones.
    pd.testing.assert_frame_equal(again.counts.frame(), presented.frame)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("deviation", -1.0),
        ("model", "tree"),
        ("bins", 1),
        ("sparse", 1),
        ("total", 0),
        ("format", "x"),
        ("parties", "3"),
    ],
)
def test_a_damaged_page_is_one_clear_error(presented: SyntheticDataset, tmp_path: Path, key: str, value: Any) -> None:
    save_artefact(presented, tmp_path)
    page = json.loads((tmp_path / "counts.json").read_text())
    (tmp_path / "counts.json").write_text(json.dumps({**page, key: value}))
    with pytest.raises(DataError, match=r"no counts can be read here.*fetch the folder again"):
        load_artefact(tmp_path)


@pytest.mark.parametrize("wrong", [np.zeros(3), np.full(10_000, np.nan), np.full(10_000, 1e300), np.array(["a"])])
def test_counts_of_another_layout_are_refused(presented: SyntheticDataset, tmp_path: Path, wrong: Any) -> None:
    save_artefact(presented, tmp_path)
    if wrong.dtype.kind == "f" and len(wrong) > 3:
        wrong = np.full(len(presented.counts.values), wrong[0])
    write_arrays(tmp_path / "counts.npz", {"counts": wrong})
    with pytest.raises(DataError, match="no counts can be read here"):
        load_artefact(tmp_path)


def test_its_card_says_what_it_is_and_what_to_expect(presented: SyntheticDataset) -> None:
    card = presented.card()
    assert card.title == "synthetic dataset" and "noise alone moves" in card.parts["Expected error"]
    assert "counts.npz" in card.parts["Files"] and "mixture" in card.parts["How it was made"]


def test_its_section_shows_columns_and_expected_errors(presented: SyntheticDataset) -> None:
    section = presented.section()
    assert [grid.heads[0] for grid in section.tables] == ["column", "table"]
    drawn = cast(Any, section.plots[0])
    assert drawn.named == ("public: all cells alike", "dataset")
    assert [panel.label for panel in drawn.panels] == list(presented.counts.counting.cells.names)[: len(drawn.panels)]
    sizes = presented.counts.counting.layout.sizes
    for panel, size in zip(drawn.panels, sizes):
        assert len(panel.cells) == len(panel.first) == len(panel.second) == min(size, 8)
        assert panel.first == pytest.approx([1 / size] * len(panel.first))
        assert sum(panel.second) == pytest.approx(1) or size > 8
    assert all(str(row[2]).endswith(("%", "too few records to tell")) for row in section.tables[1].rows)


def test_a_table_that_noise_drowns_is_said_to_tell_nothing() -> None:
    assert _moved(0.51).endswith("too few records to tell") and _moved(0.042) == "4.2%"


def test_the_expected_error_is_that_of_the_noise() -> None:
    built = build_synthetic(schema=make_schema())
    held = {name: make_frame(2000, k) for k, name in enumerate(NAMES[:3])}
    found = simulate(
        built, parties=held, epsilon=1.0, delta=1e-6, unit="record", seed=5, terms=Terms(neighbours="add-remove")
    )
    counts = found.presented.counts
    layout = counts.counting.layout
    exact = layout.tables(sum(layout.count(built.encoding.encode(own).records.features) for own in held.values()))
    told = expected_errors(layout, counts.deviations, 6000)
    real = {key: np.abs(counts.tables[key] - exact[key]).sum() / 2 / 6000 for key in exact}
    assert np.mean(list(real.values())) == pytest.approx(np.mean(list(told.values())), rel=0.1)


def test_rows_beyond_any_limit_are_refused(presented: SyntheticDataset) -> None:
    with pytest.raises(DataError, match="rows must lie between 1 and"):
        presented.counts.frame(0)
