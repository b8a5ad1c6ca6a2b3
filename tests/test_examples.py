"""The example in the docstring of every public name runs as it stands."""

from __future__ import annotations

import textwrap
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import comity
import comity.privacy
from comity.data import clinic_schema, clinics, public_cohort
from comity.data.schemas.columns import Classes, Numeric
from comity.privacy import Approx, Neighbours, Unit


def read_example(value: Any) -> str:
    """The paragraphs behind the first that are indented by more than the docstring, up to one that is not."""
    text = value.__doc__ or ""
    inside = " " * (len(text) - len(text.rstrip(" ")) + 4)
    code = []
    for paragraph in text.rstrip().split("\n\n")[1:]:
        if not all(line.startswith(inside) for line in paragraph.split("\n") if line):
            break
        code.append(textwrap.dedent(paragraph))
    return "\n\n".join(code)


def write_run(folder: Path) -> None:
    """A study and its result, as `comity new` and `comity simulate --to runs/triage` leave them."""
    from comity.methods import entry_of, load_object

    load_object(entry_of("averaging").starter)(folder)
    result = comity.simulate(folder / "study.toml", seed=1)
    result.save(folder / "runs" / "triage")
    dataset = comity.Dataset(clinics(1, 20)["clinic-01"].drop(columns="disposition"), clinic_schema("readmitted"))
    from comity.artefacts.artefact import save_artefact

    save_artefact(dataset, folder / "runs" / "visits" / "data")


def names_for(name: str, folder: Path) -> dict[str, Any]:
    """What an example takes for granted: a schema, the parties' frames, arrays."""
    generator = np.random.default_rng(0)
    schema, frames = clinic_schema("readmitted"), dict(zip(("north", "south", "east"), clinics(3, 60).values()))
    names: dict[str, Any] = {"comity": comity, "schema": schema, "frames": frames, "frame": frames["north"], **frames}
    names |= {"public": public_cohort(40), "public_records": public_cohort(40)}
    if name == "Summary":
        names["frames"] = dict(zip(("north", "south", "clinic"), clinics(3, 400).values()))
    if name == "Vertical":
        names["schema"] = comity.Schema(
            (Numeric("age", 0, 100), Numeric("lactate", 0, 10)), Classes("readmitted", ("no", "yes")), "patient"
        )
        people = [f"p{place}" for place in range(80)]
        hospital = {"patient": people, "age": generator.uniform(20, 90, 80), "readmitted": ["no", "yes"] * 40}
        names["hospital"] = pd.DataFrame(hospital)
        names["lab"] = pd.DataFrame({"patient": people, "lactate": generator.uniform(0, 9, 80)})
    if name in ("Result", "load_model"):
        names["frame"] = pd.read_parquet(folder / "records.parquet")
    X = generator.uniform(0, 1, (60, 3))
    return names | {"X": X, "y": (X[:, 0] > 0.5).astype(int), "public_rows": X[:20]}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("examples")
    write_run(folder)
    terms: dict[str, Any] = {"grant": Approx(30, 1e-5), "unit": Unit.RECORD, "neighbours": Neighbours.REPLACE}
    comity.Ledger.create(folder / "table.ledger", dataset="table", **terms)
    return folder


@pytest.mark.parametrize("name", sorted({*comity.__all__} - {"__version__"}))
def test_the_example_of_a_public_name_runs(name: str, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example = read_example(getattr(comity, name))
    assert "comity." in example, f"comity.{name} shows no example"
    monkeypatch.chdir(run)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(example, name, "exec"), names_for(name, run))


def test_the_example_of_privacy_runs() -> None:
    exec(compile(read_example(comity.privacy), "comity.privacy", "exec"), {})


@pytest.mark.parametrize("name", ["comity.privacy", "comity.protocol", "comity.learn", "comity.data"])
def test_every_name_of_a_public_package_is_there(name: str) -> None:
    package = __import__(name, fromlist=["*"])
    assert [one for one in package.__all__ if getattr(package, one, None) is None] == []
    assert sorted(package.__all__) == dir(package)
