"""What a study leaves is saved without code, comes back equal, and describes itself."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest

from comity.artefacts import artefact as interface
from comity.artefacts.artefact import KINDS, Artefact, Card, kind_of, kinds, load_artefact, save_artefact
from comity.artefacts.dataset import Dataset
from comity.artefacts.section import Bar, Bars, Curve, Curves, Dot, Dots, Grid, Section, read_section, section_page
from comity.artefacts.table import Table
from comity.data import Encoding, clinic_schema, clinics, open_source
from comity.errors import DataError
from comity.learn import ConstantClassifier, LinearClassifier, LinearRegressor
from comity.methods.averaging.published.shares import PublishedShares, Share, Terms
from comity.methods.summary.artefact import Bought, BoughtHashes, BoughtRecords, RatioWeights
from comity.methods.summary.features import FourierFeatures
from comity.methods.summary.ratio import Spectrum
from comity.methods.synthetic.artefact import NoisyCounts, SyntheticDataset
from comity.methods.synthetic.counts import fit_counting
from tests.artefacts.methods import SCHEMA

FRAME = pd.DataFrame({"age": [3.0, 99.5], "sex": ["m", "f"]})
TERMS = Terms("hash", "run", ("a/b", ".."), 2, 0.5, ("no", "yes"))
ENCODING = Encoding(clinic_schema("readmitted"))
COUNTING = fit_counting(SCHEMA)
COUNTS = NoisyCounts(COUNTING, "mixture", np.arange(float(COUNTING.layout.counts)), 1.5, None, 2)
BOUGHT = Bought(("ash", "birch"), (2, 1), (0.75, 0.25), 0.5, 0.1, 100.0, 3, 3)
EVERY: list[Artefact] = [
    LinearClassifier(np.ones((1, ENCODING.width)), ("no", "yes"), ENCODING),
    ConstantClassifier([0.25, 0.75], ("a", "b")),
    LinearRegressor(np.ones(ENCODING.width), 0.0, 9.0, ENCODING, np.full(ENCODING.width, 0.1)),
    Dataset(FRAME, SCHEMA),
    Dataset(FRAME, SCHEMA, "csv"),
    Table(("name", "value"), (("a", 1.5), ("b", None), ("c", True)), "Rates"),
    SyntheticDataset(COUNTS, FRAME),
    BoughtRecords(
        Encoding(SCHEMA, scaling="unit").encode(FRAME).records.features,
        Encoding(SCHEMA, scaling="unit").encode(FRAME).records.labels,
        np.zeros(len(FRAME), np.int64),
        BOUGHT,
        SCHEMA,
    ),
    BoughtRecords(np.linspace(0, 1, 12).reshape(3, 4), None, np.arange(3) % 2, BOUGHT, None, (2, 2)),
    BoughtHashes(np.ones((2, 4)), np.array([0, 1]), np.array([0, 1]), BOUGHT, 0.5, 3),
    RatioWeights(
        FourierFeatures(np.ones((ENCODING.width, 2))),
        Spectrum(np.zeros(4), np.eye(4)[:, :2], np.ones(2)),
        np.ones(3),
        BOUGHT,
        SCHEMA,
    ),
    PublishedShares(tuple(Share(name, np.arange(3, dtype="<u8"), TERMS) for name in TERMS.participants)),
]


@pytest.mark.parametrize("made", EVERY, ids=lambda one: one.kind)
def test_every_kind_comes_back_and_describes_itself(made: Artefact, tmp_path: Path) -> None:
    assert isinstance(made, Artefact)
    save_artefact(made, tmp_path / "there")
    again = load_artefact(tmp_path / "there")
    assert type(again) is type(made)
    assert again.card() == made.card() and again.section(0.5) == made.section(0.5)
    save_artefact(again, tmp_path / "again")
    for path in (tmp_path / "there").iterdir():
        if path.suffix in (".json", ".csv", ".toml"):
            assert (tmp_path / "again" / path.name).read_bytes() == path.read_bytes()
    assert not made.card().what.endswith(".")
    assert read_section(json.loads(json.dumps(section_page(made.section())))) == made.section()


def test_the_registry_knows_every_kind_and_each_class_names_its_own() -> None:
    assert {made.kind for made in EVERY} == set(kinds())
    for kind in kinds():
        assert kind_of(kind, "here").kind == kind


@pytest.mark.parametrize("kind", ["os:system", "Dataset", "datasets", 3, None, "comity.artefacts.dataset:Dataset"])
def test_a_folder_names_a_kind_and_never_a_class(kind: Any, tmp_path: Path) -> None:
    save_artefact(EVERY[3], tmp_path)
    page = json.loads((tmp_path / "artefact.json").read_text())
    (tmp_path / "artefact.json").write_text(json.dumps(page | {"kind": kind}))
    with pytest.raises(DataError, match="no kind of artefact"):
        load_artefact(tmp_path)


@pytest.mark.parametrize("text", [None, "{", "[]", '{"kind": "dataset"}', " " * (1 << 20) + "{}"])
def test_a_damaged_page_is_named(text: str | None, tmp_path: Path) -> None:
    save_artefact(EVERY[3], tmp_path)
    path = tmp_path / "artefact.json"
    path.unlink() if text is None else path.write_text(text)
    with pytest.raises(DataError, match=r"artefact\.json"):
        load_artefact(tmp_path)


@dataclass(frozen=True)
class Failing:
    kind: ClassVar[str] = "table"
    place: ClassVar[str] = "table"
    fails: bool = True

    def save(self, folder: Path) -> None:
        (folder / "half").write_text("x")
        if self.fails:
            raise OSError("no space")

    @classmethod
    def load(cls, folder: Path) -> Failing:
        return cls()

    def card(self) -> Card:
        return Card("", "")

    def section(self, noise: float | None = None) -> Section:
        return Section("")


def test_a_save_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    save_artefact(EVERY[5], tmp_path / "table")
    with pytest.raises(OSError, match="no space"):
        save_artefact(Failing(), tmp_path / "table")
    assert load_artefact(tmp_path / "table") == EVERY[5]
    assert [path.name for path in tmp_path.iterdir()] == ["table"]


def test_saving_leaves_nothing_of_what_was_there_before(tmp_path: Path) -> None:
    save_artefact(EVERY[3], tmp_path)
    save_artefact(EVERY[5], tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["artefact.json", "table.csv", "table.json"]


def test_only_registered_kinds_are_saved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mine = type("Mine", (Failing,), {"kind": "mine"})(False)
    with pytest.raises(ValueError, match="'mine' is not registered"):
        save_artefact(mine, tmp_path)
    monkeypatch.setattr(interface, "KINDS", {**KINDS, "mine": f"{__name__}:Failing"})
    save_artefact(mine, tmp_path)
    assert isinstance(load_artefact(tmp_path), Failing)


# Datasets.


@pytest.mark.parametrize("stored", ["parquet", "csv"])
def test_a_dataset_loads_as_any_input_does(stored: Any, tmp_path: Path) -> None:
    visits = clinics(1, 30)["clinic-01"]
    made = Dataset(visits, clinic_schema("readmitted"), stored)
    save_artefact(made, tmp_path)
    again = load_artefact(tmp_path)
    assert isinstance(again, Dataset) and again.schema == made.schema and len(again) == 30
    from_file = open_source(tmp_path / f"data.{stored}").read()
    encoding = Encoding(made.schema)
    for frame in (again.frame, from_file):
        np.testing.assert_allclose(
            encoding.encode(frame, where="x").records.features, encoding.encode(visits, where="x").records.features
        )


def test_records_that_do_not_fit_their_schema_are_no_dataset(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="do not fit their schema"):
        Dataset(FRAME.drop(columns="sex"), SCHEMA)
    save_artefact(Dataset(FRAME, SCHEMA), tmp_path)
    FRAME.assign(age="old").to_parquet(tmp_path / "data.parquet", index=False)
    with pytest.raises(DataError, match=r"data\.parquet.*do not fit"):
        load_artefact(tmp_path)
    (tmp_path / "schema.toml").write_text("columns = 3")
    with pytest.raises(DataError, match=r"schema\.toml"):
        load_artefact(tmp_path)
    (tmp_path / "data.parquet").write_bytes(b"PAR1")
    save_artefact(Dataset(FRAME.iloc[:0], SCHEMA), tmp_path / "empty")
    assert len(load_artefact(tmp_path / "empty")) == 0  # type: ignore[arg-type]


# Tables.


def test_a_table_is_rectangular_and_finite(tmp_path: Path) -> None:
    for heads, rows in [
        (("a",), (("x", 1),)),
        (("a", "a"), ()),
        ((), ()),
        (("a",), ((float("nan"),),)),
        (("a",), (([1],),)),
    ]:
        with pytest.raises(DataError):
            Table(heads, rows)  # type: ignore[arg-type]
    save_artefact(EVERY[5], tmp_path)
    for text in ("[]", '{"format": "comity-table-1"}', '{"format": "x"}', "{"):
        (tmp_path / "table.json").write_text(text)
        with pytest.raises(DataError, match=r"table\.json"):
            load_artefact(tmp_path)
    assert EVERY[5].column("value") == (1.5, None, True)  # type: ignore[attr-defined]


# Sections.


def test_sections_come_back_from_json() -> None:
    section = Section(
        "A",
        ("b",),
        (
            Bars("x", "y", (Bar("a", 1.0, 0.5, True),)),
            Dots("x", "y", (Dot("a", -1.0),), 0.25),
            Curves("x", "y", "z", (Curve("a", (1.0, 2.0), (3.0, 4.0), (0.1, 0.2)),), (Dot("p", 0.5),), True),
        ),
        (Grid(("a", "b"), ((1, "x"), (None, 2.5)), "n"),),
    )
    assert read_section(json.loads(json.dumps(section_page(section)))) == section
    page = section_page(section)
    for wrong in ({"heading": 3}, {"plots": [{"kind": "code"}]}, {"tables": [{"heads": ["a"]}]}):
        with pytest.raises((KeyError, TypeError, ValueError)):
            read_section(page | wrong)
