"""Averaging over records that stream: the same sums, the same guarantee, and a refusal where all are needed at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from comity.data import Encoding, Records, StreamedRecords, clinic_schema, clinics, open_source
from comity.errors import DataError, Refused
from comity.methods.averaging import Averaging
from comity.study.records.party_data import load_party_data
from comity.study.simulation.simulate import run_study, simulate
from comity.study.study import Study

STUDY = """
[study]
name = "small"
protocol = "averaging"
schema = "schema.toml"
[privacy]
unit = "record"
epsilon = 4.0
delta = 1e-6
[averaging]
sizes = 300
rounds = 3
[parties.a]
[parties.b]
[parties.c]
[simulation]
data = {data}
test = "test.parquet"
memory = {memory}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("study")
    for name, table in zip(["a", "b", "c", "test"], clinics(4, 300, "streamed").values()):
        table.to_parquet(place / f"{name}.parquet")
    (place / "schema.toml").write_text(clinic_schema("readmitted").to_toml())
    return place


def study(folder: Path, memory: float) -> Study:
    files = ", ".join(f'{name} = "{name}.parquet"' for name in "abc")
    (folder / "study.toml").write_text(STUDY.format(data="{" + files + "}", memory=memory))
    return Study.load(folder / "study.toml")


def test_a_run_over_blocks_gives_the_model_of_a_run_in_memory(folder: Path, tmp_path: Path) -> None:
    whole, blocks = study(folder, 1.0), study(folder, 1e-6)
    inside, outside = load_party_data(whole), load_party_data(blocks)
    assert all(isinstance(one, Records) for one in inside.parties.values())
    assert all(isinstance(one, StreamedRecords) for one in outside.parties.values())
    assert whole.hash == blocks.hash and any("read in blocks" in one for one in outside.warnings)
    first, second = (
        run_study(one, seed=3, data=party_data) for one, party_data in ((whole, inside), (blocks, outside))
    )
    # Sums are exact, and rows in memory are rounded to the single floats that the cache holds.
    caches = [one.cache for one in outside.parties.values() if isinstance(one, StreamedRecords)]
    assert all(cache is not None and cache.singles for cache in caches)
    assert first.released["model"].tobytes() == second.released["model"].tobytes()
    assert first.guarantee == second.guarantee and first.error == second.error
    assert first.baselines and not second.baselines


def test_a_run_is_resumed_with_the_same_records_in_blocks(folder: Path, tmp_path: Path) -> None:
    blocks = study(folder, 1e-6)
    run_study(blocks, seed=3, folder=tmp_path, run_id="r")
    run_study(blocks, seed=3, folder=tmp_path, run_id="r")
    known = json.loads((tmp_path / "records.json").read_text())
    table = pd.read_parquet(folder / "b.parquet")
    try:
        table.iloc[::-1].to_parquet(folder / "b.parquet")
        with pytest.raises(Refused, match=r"records of b\)"):
            run_study(blocks, seed=3, folder=tmp_path, run_id="r")
    finally:
        table.to_parquet(folder / "b.parquet")
    assert set(known) == {"records of a", "records of b", "records of c", "test records"}


def test_local_fits_need_all_records_and_say_so_before_a_ledger_hears_of_it(folder: Path) -> None:
    encoding = Encoding(clinic_schema("readmitted"), rows="scaled", intercept=True)
    parties = {
        name: StreamedRecords.scan(open_source(folder / f"{name}.parquet"), encoding, where=name, limit=1000)
        for name in "abc"
    }
    averaged = Averaging.over_rows(features=encoding.width, sizes=300, solver="average", encoding=encoding)
    terms: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "unit": "record", "seed": 1}
    with pytest.raises(DataError, match="needs all records of an owner at once"):
        simulate(averaged, parties=parties, **terms)
    enough = {
        name: StreamedRecords.scan(one.source, encoding, where=name, limit=1 << 20) for name, one in parties.items()
    }
    assert simulate(averaged, parties=enough, **terms).guarantee.epsilon <= 1.0 + 1e-9


def test_one_file_that_is_dealt_to_the_parties_is_read_at_once_or_the_study_is_refused(folder: Path) -> None:
    pd.concat([pd.read_parquet(folder / f"{name}.parquet") for name in "abc"]).to_parquet(folder / "all.parquet")
    # 300 records of each party take about 30 kB, and less than that is left for each of three.
    for memory, enough in ((1e-3, True), (1e-6, False)):
        (folder / "dealt.toml").write_text(STUDY.format(data='"all.parquet"', memory=memory))
        dealt = Study.load(folder / "dealt.toml")
        if enough:
            assert sum(map(len, load_party_data(dealt).parties.values())) == 900
            continue
        with pytest.raises(DataError, match="read at once") as caught:
            load_party_data(dealt)
        assert caught.value.key == "simulation.memory"
