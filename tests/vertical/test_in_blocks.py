"""Records beyond memory over columns: the result of records in memory, and the same refusals, from files in blocks."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from comity.data import StreamedRecords
from comity.data.tables import row_file
from comity.errors import ComityError, DataError, Refused
from comity.federation.owner.run_state import Effects
from comity.federation.owner.site import Site
from comity.methods.by_columns import products, token_list
from comity.methods.vertical import dealer_rounds, rlwe_rounds
from comity.study.records.party_data import load_party_data
from comity.study.simulation.simulate import run_study
from comity.study.study import Study
from tests.support.vertical import make_people, make_schema

ROWS = 3000
TEXT = """
[study]
name = "sickness"
protocol = "vertical"
schema = "schema.toml"

[privacy]
unit = "record"
epsilon = 2.0
delta = 1e-5
colluders = 1

[vertical]
products = "dealer"
solver = "quadratic"
max_rows = 20000

[parties.north]
columns = ["a*", "sick"]
[parties.south]
columns = ["place", "dose", "sex"]

[simulation]
memory = 1.0
test = "test.parquet"
[simulation.data]
north = "north.parquet"
south = "south.parquet"
"""
TINY = 20_000 / 2**30
"""Gigabytes: a party's records take two to ten times as much."""
OWN = {"north": ["person", "age", "sick"], "south": ["person", "place", "dose", "sex"]}


@pytest.fixture(autouse=True)
def many_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several buckets, spans and stretches over few rows."""
    monkeypatch.setattr(token_list, "BUCKET_ROWS", 800)
    monkeypatch.setattr(row_file, "_BUCKET_BYTES", 1 << 13)
    monkeypatch.setattr(products, "STRETCH", 1 << 12)
    monkeypatch.setattr(dealer_rounds, "_LARGEST_STRETCH", 700)
    monkeypatch.setattr(rlwe_rounds, "_STRETCH_CHUNKS", 1)


def write(folder: Path, *, aligned: bool, target: str = "sick") -> None:
    frame = make_people(ROWS)
    for seed, (name, columns) in enumerate(OWN.items()):
        own = frame[columns]
        if aligned:
            # Other people and another order at each.
            own = own.iloc[100 * seed : ROWS - 100 * (1 - seed)].sample(frac=1.0, random_state=seed)
        own.to_parquet(folder / f"{name}.parquet")
    make_people(500, seed=5).to_parquet(folder / "test.parquet")


def study(folder: Path, *, memory: float, aligned: bool = True, text: str = TEXT, **overrides: Any) -> Study:
    (folder / "schema.toml").write_text(make_schema(identifier=aligned).to_toml())
    given = {"simulation.memory": memory, **{key.replace("__", "."): value for key, value in overrides.items()}}
    return Study.parse(text, folder=folder, where="study.toml", overrides=given)


def both(folder: Path, **terms: Any) -> Iterator[Any]:
    for memory in (1.0, TINY):
        yield run_study(study(folder, memory=memory, **terms), seed=1)


@pytest.mark.parametrize("aligned", [False, True])
def test_records_in_blocks_give_the_same_model_bit_for_bit(tmp_path: Path, aligned: bool) -> None:
    write(tmp_path, aligned=aligned)
    whole, blocks = both(tmp_path, aligned=aligned)
    for name in ("model", "errors"):
        assert whole.released[name].tobytes() == blocks.released[name].tobytes()
    assert whole.error == blocks.error and whole.baselines and not blocks.baselines
    assert any("is read in blocks" in finding for finding in blocks.findings)
    loaded = load_party_data(study(tmp_path, memory=TINY, aligned=aligned)).parties
    assert all(isinstance(one, StreamedRecords) for one in loaded.values())
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"schema.toml", "north.parquet", "south.parquet", "test.parquet"}, "files of records have no name"


@pytest.mark.parametrize("kind", ["dealer", "rlwe"])
def test_rounds_over_records_in_blocks_are_the_same_rounds(tmp_path: Path, kind: str) -> None:
    write(tmp_path, aligned=True)
    terms = {"vertical__solver": "gradient", "vertical__rounds": 2, "vertical__products": kind}
    whole, blocks = both(tmp_path, **terms)
    # Shares are rounded at random, and with a dealer responses are. A wrong row or label would move weights by tenths.
    tolerance = {"dealer": 0.03, "rlwe": 1e-3}[kind]
    np.testing.assert_allclose(blocks.released["model"], whole.released["model"], atol=tolerance)
    assert abs(whole.error - blocks.error) < 0.01


def test_instruments_labels_and_scores_have_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, aligned=True)
    seen: dict[str, list[tuple[Any, ...]]] = {}
    instruments, scores = dealer_rounds.DealerRounds._instruments, dealer_rounds.DealerRounds._partial_scores

    # The weights and matrices of one run for both: those differ by the rounding of shares.
    weights: dict[str, Any] = {}

    def seeing(self: Any, site: Any, part: slice) -> Any:
        site.keep("rounds.whitening", weights.setdefault(f"whitening {site.party}", site.kept("rounds.whitening")))
        found = instruments(self, site, part)
        held = self._labels(site, part).tolist() if site.party == "north" else []
        seen[key].append((site.party, part.start, found.sum(axis=1).tolist(), sum(held)))
        return found

    def scoring(self: Any, site: Any, given: Any, interval: Any, curve: Any, part: slice) -> Any:
        found = scores(
            self,
            site,
            weights.setdefault(f"weights {site.label}", given),
            weights.setdefault(f"interval {site.party} {site.label}", interval),
            curve,
            part,
        )
        seen[key].append((site.party, np.sort(found).tolist()))
        return found

    monkeypatch.setattr(dealer_rounds.DealerRounds, "_instruments", seeing)
    monkeypatch.setattr(dealer_rounds.DealerRounds, "_partial_scores", scoring)
    # One key and order for both, so that stretches have the same rows.
    monkeypatch.setattr("comity.federation.owner.site.Site.secret", lambda site: bytes(32))
    for key, memory in (("whole", 1.0), ("blocks", TINY)):
        seen[key] = []
        terms: dict[str, Any] = {"vertical__solver": "gradient", "vertical__rounds": 1}
        run_study(study(tmp_path, memory=memory, **terms), seed=1, run_id="run-1")
    assert len(seen["whole"]) > 8 and seen["whole"] == seen["blocks"]


class Killed(BaseException):
    pass


def stop_at(path: str) -> Any:
    def progress(step: str) -> None:
        if step == path:
            raise Killed(step)

    return progress


KILLS = ["align.pseudonyms[1]", "align.place[2]", "product.blind[0]", "rounds.mask[2]", "rounds.respond[3]"]


@pytest.mark.parametrize("path", KILLS)
def test_a_killed_run_goes_on_in_a_new_process_and_draws_nothing_twice(tmp_path: Path, path: str) -> None:
    write(tmp_path, aligned=True)
    terms: dict[str, Any] = {"vertical__solver": "gradient", "vertical__rounds": 2}
    begun, run = tmp_path / "run", "run-1"
    begun.mkdir()
    with pytest.raises(Killed):
        run_study(study(tmp_path, memory=TINY, **terms), seed=1, folder=begun, run_id=run, progress=stop_at(path))
    found = run_study(study(tmp_path, memory=TINY, **terms), seed=1, folder=begun, run_id=run)
    whole = run_study(study(tmp_path, memory=1.0, **terms), seed=1)
    # Responses are rounded at random. A wrong row or label would move weights by tenths.
    np.testing.assert_allclose(found.released["model"], whole.released["model"], atol=0.03)
    assert [one.spent for one in found.accounts] == [one.spent for one in whole.accounts]


def test_a_run_resumes_with_the_records_that_it_began_with(tmp_path: Path) -> None:
    write(tmp_path, aligned=True)
    begun = tmp_path / "run"
    begun.mkdir()
    with pytest.raises(Killed):
        run_study(
            study(tmp_path, memory=TINY), seed=1, folder=begun, run_id="run-1", progress=stop_at("product.blind[0]")
        )
    frame = pd.read_parquet(tmp_path / "south.parquet")
    frame.iloc[::-1].to_parquet(tmp_path / "south.parquet")
    with pytest.raises(Refused, match="records of south"):
        run_study(study(tmp_path, memory=TINY), seed=1, folder=begun, run_id="run-1")


@pytest.mark.parametrize("path", ["align.pseudonyms[0]", "align.place[3]", "product.blind[0]"])
def test_a_file_that_changes_during_a_run_stops_it(tmp_path: Path, path: str, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path, aligned=True)

    def change(step: str) -> None:
        if step == path:
            pd.read_parquet(tmp_path / "south.parquet").to_parquet(tmp_path / "south.parquet", compression="gzip")

    with pytest.raises(ComityError):
        run_study(study(tmp_path, memory=TINY), seed=1, progress=change)
    assert "the records changed after they were checked" in caplog.text


def test_what_is_wrong_with_identifiers_is_said_before_a_ledger_exists(tmp_path: Path) -> None:
    write(tmp_path, aligned=True)
    good = pd.read_parquet(tmp_path / "south.parquet")

    def said(frame: pd.DataFrame) -> str:
        frame.to_parquet(tmp_path / "south.parquet")
        with pytest.raises(DataError) as error:
            load_party_data(study(tmp_path, memory=TINY))
        assert "id2" not in str(error.value), "no identifier is shown"
        return str(error.value)

    twice = good.copy()
    twice.loc[twice.index[2500], "person"] = twice["person"].iloc[17]
    assert "south.parquet: column 'person': an id stands for one row, rows 18 and 2501 have the same" in said(twice)
    missing = good.copy()
    missing.loc[missing.index[2500], "person"] = None
    assert "has no value in" in said(missing)
    assert "share nobody" in said(good.assign(person="x" + good["person"]))
    blank = good.copy()
    blank.loc[blank.index[2500], "person"] = "  "
    assert "has no value in record 2501" in said(blank)


def test_what_needs_all_rows_at_once_is_refused_beyond_memory(tmp_path: Path) -> None:
    write(tmp_path, aligned=True)
    ecdh = study(tmp_path, memory=TINY, vertical__alignment="ecdh")
    with pytest.raises(DataError, match="at once") as error:
        load_party_data(ecdh)
    assert error.value.key == "simulation.memory"
    evaluated = study(tmp_path, memory=TINY, text=TEXT + "[evaluation]\n")
    with pytest.raises(DataError, match="at once"):
        load_party_data(evaluated)


def test_the_count_of_classes_comes_in_blocks_too(tmp_path: Path) -> None:
    write(tmp_path, aligned=True)
    terms = {"vertical__solver": "auto", "vertical__sizes": 2900, "privacy__epsilon": 0.003}
    whole, blocks = both(tmp_path, **terms)
    assert np.count_nonzero(whole.released["model"]) == 1
    assert whole.released["model"].tobytes() == blocks.released["model"].tobytes()


def test_a_step_leaves_its_letters_to_no_collector_of_cycles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cycle of references would keep the letters and the state of every step in memory for many steps."""
    write(tmp_path, aligned=True)
    alive: list[weakref.ref[Effects]] = []
    begin = Site.__init__

    def beginning(self: Site, *given: Any) -> None:
        begin(self, *given)
        alive.append(weakref.ref(self.effects))

    monkeypatch.setattr(Site, "__init__", beginning)
    gc.disable()
    try:
        run_study(study(tmp_path, memory=TINY, vertical__solver="gradient", vertical__rounds=1), seed=1)
        kept = [one for one in alive if one() is not None]
    finally:
        gc.enable()
    assert len(alive) > 50 and not kept
