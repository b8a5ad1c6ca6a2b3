"""A method that presents a dataset or a table has the same folder, page and card as one that presents a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from comity.artefacts.dataset import Dataset
from comity.artefacts.table import Table
from comity.errors import DataError
from comity.report.page import render_result
from comity.report.result import load_result
from comity.study.results.released import load_received, safe_name
from comity.study.results.result import Result
from comity.study.simulation.simulate import MAX_KEPT_RESULTS, RunOptions, simulate
from tests.artefacts.methods import Drawn, Entrusting, Leaving, records
from tests.report.test_page import Page


def ran(*, as_table: bool = False, parties: int = 3) -> Result:
    data = records(parties)
    return simulate(
        Drawn(as_table=as_table), parties=data, epsilon=50, delta=1e-6, seed=1, test=next(iter(data.values()))
    )


@pytest.fixture(scope="module")
def result() -> Result:
    return ran()


def test_a_dataset_is_saved_with_its_card_and_read_back(result: Result, tmp_path: Path) -> None:
    result.save(tmp_path)
    again = load_result(tmp_path)
    assert isinstance(again.presented, Dataset) and again.presented.frame.equals(result.presented.frame)
    assert again.as_json() == result.as_json()
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == [
        "DATA_CARD.md",
        "artefact.json",
        "data.parquet",
        "schema.toml",
    ]
    card = (tmp_path / "data" / "DATA_CARD.md").read_text()
    assert card.startswith("# study: released dataset") and "2 records with 2 columns, made from the records of" in card
    assert result.guarantee.adversary in card and "mean age" in card and "outside the guarantee" in card
    again.report(tmp_path / "again.html")
    assert (tmp_path / "again.html").read_bytes() == (tmp_path / "report.html").read_bytes()


def test_its_page_has_the_sections_of_dataset_and_assessment(result: Result) -> None:
    text = render_result(result)
    page = Page(text)
    assert page.wrong == [] and page.open == [] and page.loose == []
    assert "A dataset of 2 records with 2 columns, made from the records of 3 parties." in page.text
    assert "Fidelity &lt;of&gt; the dataset" in text and "Marginals agree." in page.text
    assert "mean age" in page.text and "test error" not in page.text and "Left out" not in page.text
    assert "Distances: age 0.100, sex 0.200" in text
    assert "The figures of quality were measured on the private records" in page.text


def test_a_table_lies_in_a_folder_of_its_own(tmp_path: Path) -> None:
    made = ran(as_table=True)
    again = load_result(made.save(tmp_path))
    assert isinstance(again.presented, Table) and again.presented == made.presented
    assert (tmp_path / "table" / "table.csv").read_text().startswith("column,mean")
    assert "Means of the columns" in Page(render_result(again)).text


@pytest.mark.parametrize("parties", [3, 1001])
def test_what_was_released_is_always_there(parties: int, tmp_path: Path) -> None:
    ran(parties=parties).save(tmp_path)
    page = json.loads((tmp_path / "released" / "released.json").read_text())
    assert [(one["name"], one["form"]) for one in page["releases"]] == [
        ("total", "Array(shape=(2,), dtype='<i8')"),
        ("mean", "Array(shape=(2,), dtype='<f8')"),
    ]
    assert load_result(tmp_path).released["mean"].shape == (2,)


@pytest.mark.parametrize("place", ["../data", "/etc", ".", "", "a\\b"])
def test_a_result_reads_artefacts_of_its_own_folder_alone(result: Result, place: str, tmp_path: Path) -> None:
    result.save(tmp_path)
    page = json.loads((tmp_path / "result.json").read_text())
    (tmp_path / "result.json").write_text(json.dumps(page | {"artefacts": {place: "dataset"}, "presented": place}))
    with pytest.raises(DataError, match="lies in a folder of the run"):
        load_result(tmp_path)


# Each party's own results.


@pytest.mark.parametrize("names", [("ash", "a-b", "7")])
def test_each_party_has_a_folder_of_its_own(names: tuple[str, ...], tmp_path: Path) -> None:
    data = dict(zip(names, records(3).values()))
    made = simulate(Drawn(), parties=data, epsilon=50, delta=1e-6, seed=1)
    for _ in range(2):
        made.save(tmp_path)
    folders = {name: tmp_path / "parties" / safe_name(name) for name in names}
    assert sorted((tmp_path / "parties").iterdir()) == sorted(folders.values())
    for folder in folders.values():
        found, artefact = load_received(folder)
        assert isinstance(artefact, Dataset) and artefact.frame.equals(made.presented.frame)
        assert list(found.releases) == ["mean"] and dict(found.own) == {}
        assert (found.releases["mean"] == made.released["mean"]).all()
        page = json.loads((folder / "received.json").read_text())
        assert page["missing"] == [] and page["study"] == made.study_hash


def test_what_a_step_leaves_with_its_owner_is_in_its_folder_alone(tmp_path: Path) -> None:
    made = simulate(Leaving(), parties=records(3), epsilon=50, delta=1e-6, seed=1)
    made.save(tmp_path)
    for place, party in enumerate(records(3)):
        found, _ = load_received(tmp_path / "parties" / party)
        assert (found.own["own-mean"] == (place + 1) / 6).all()
    elsewhere = [path for path in tmp_path.rglob("*") if path.is_file() and "parties" not in path.parts]
    assert elsewhere and not any(b"own-mean" in path.read_bytes() for path in elsewhere)


def test_many_parties_have_folders_when_somebody_asks(tmp_path: Path) -> None:
    data = records(MAX_KEPT_RESULTS + 1)
    settings: dict[str, Any] = {"parties": data, "epsilon": 50, "delta": 1e-6, "seed": 1}
    assert not simulate(Entrusting(), **settings).received
    assert set(simulate(Entrusting(), options=RunOptions(results=True), **settings).received) == set(data)


@pytest.mark.parametrize("text", [None, "{", "[]", '{"format": "x"}', '{"format": "comity-received-1"}'])
def test_a_damaged_results_folder_is_named(result: Result, text: str | None, tmp_path: Path) -> None:
    result.save(tmp_path)
    path = tmp_path / "parties" / "p0" / "received.json"
    path.unlink() if text is None else path.write_text(text)
    with pytest.raises(DataError, match=r"received\.json"):
        load_received(path.parent)


def test_names_of_parties_never_share_a_folder() -> None:
    names = ("a", ".a", "%2Ea", "a/b", "a%2Fb", ".", "..", "x" * 200, "x" * 201, "")
    assert len({safe_name(name) for name in names}) == len(names)
    assert not any("/" in safe_name(name) or safe_name(name).startswith(".") for name in names)
