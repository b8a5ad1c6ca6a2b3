"""Sums over records on a Spark Connect server (Sail, which needs no Java): the same to the last bit as at the site,
whatever the partitions, also after a task was lost and repeated."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from comity import Averaging
from comity.data import Classes, Encoding, LocalRecords, Numeric, Schema, digest_records, open_source
from comity.data.exact_sums import round_factor
from comity.data.tables import spark
from comity.data.tables.engine_records import EngineRecords
from comity.errors import DataError, Refused
from comity.federation.owner.rows import Rows
from comity.protocol import RunOptions, simulate
from tests.federation.test_total import _Site

pytestmark = [
    pytest.mark.deploy,
    pytest.mark.skipif(
        find_spec("pysail") is None or find_spec("pyspark") is None,
        reason="no Spark Connect server: pip install 'comity[spark-try]'",
    ),
]
SCHEMA = Schema(tuple(Numeric(f"x{at}", -1, 1) for at in range(4)), Classes("y", ("0", "1")))
ENCODING = Encoding(SCHEMA, scaling="symmetric", rows="scaled", intercept=True)
ROWS = 30_000


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # Workers import the tests' functions too.
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "RUST_LOG": "error"}
    command = [str(Path(sys.executable).parent / "sail"), "spark", "server", "--port", str(port)]
    server = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(300):
            with socket.socket() as tried:
                if tried.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"sc://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    generator = np.random.default_rng(0)
    numbers = generator.uniform(-1.2, 1.2, size=(ROWS, 4))
    labels = (numbers[:, :2].sum(axis=1) + generator.normal(size=ROWS) > 0).astype(int)
    table = pd.DataFrame(numbers, columns=[f"x{at}" for at in range(4)]).assign(y=labels)
    found = tmp_path_factory.mktemp("warehouse") / "visits.parquet"
    table.to_parquet(found)
    return found


def on_engine(url: str, query: str) -> EngineRecords:
    source = open_source({"engine": {"kind": "spark", "url": url}, "query": query})
    return EngineRecords.scan(source, ENCODING, where="north")


def partitioned(path: Path, partitions: int) -> str:
    return f"SELECT /*+ REPARTITION({partitions}) */ * FROM parquet.`{path}`"


def products(rows: Rows) -> np.ndarray:
    factors = round_factor(rows.features / 3)
    return np.asarray(factors.T @ factors)


@pytest.mark.parametrize("partitions", [1, 2, 7])
def test_a_sum_on_the_engine_is_that_of_the_site_to_the_last_bit(url: str, path: Path, partitions: int) -> None:
    whole = ENCODING.encode(pd.read_parquet(path)).records
    records = on_engine(url, partitioned(path, partitions))
    assert len(records) == ROWS
    assert records.digest == on_engine(url, f"SELECT * FROM parquet.`{path}`").digest
    assert digest_records(records) and len(records.add_up(lambda block: [])) == 0
    found = _Site(records).total(products, exact=True)
    assert found.tobytes() == _Site(whole).total(products, exact=True).tobytes()


def test_a_whole_run_releases_the_same_model(url: str, path: Path) -> None:
    whole = ENCODING.encode(pd.read_parquet(path)).records
    protocol = Averaging.over_rows(features=ENCODING.width, sizes=ROWS, solver="gradient", rounds=3, encoding=ENCODING)
    released = []
    for own in (whole, on_engine(url, partitioned(path, 2))):
        parties: dict[str, LocalRecords] = {"a": own, "b": whole, "c": whole}
        options = RunOptions(baselines=False, hosts=True)
        found = simulate(protocol, parties=parties, epsilon=1.0, delta=1e-6, unit="record", seed=3, options=options)
        released.append(np.asarray(found.model.weights).tobytes())
    assert released[0] == released[1]


def test_a_lost_task_is_repeated_and_changes_nothing(url: str, path: Path, tmp_path: Path) -> None:
    lost = tmp_path / "lost"

    def part(rows: Rows) -> np.ndarray:
        try:
            lost.touch(exist_ok=False)
        except FileExistsError:
            return products(rows)
        raise MemoryError("this task is lost")

    records = on_engine(url, partitioned(path, 7))
    whole = _Site(ENCODING.encode(pd.read_parquet(path)).records)
    try:
        found = _Site(records).total(part, exact=True)
    except Refused as error:
        # An engine that does not repeat a task: nothing was contributed, and the ask is repeated.
        assert error.code == "stopped" and "is lost" not in str(error)
        found = _Site(records).total(part, exact=True)
    assert lost.exists() and found.tobytes() == whole.total(products, exact=True).tobytes()


def test_records_that_change_or_dont_fit_stop_the_step(url: str, tmp_path: Path) -> None:
    table, found = pd.DataFrame(np.zeros((50, 4)), columns=[f"x{at}" for at in range(4)]).assign(y=1), tmp_path / "t"
    found.mkdir()
    table.to_parquet(found / "a.parquet")
    records = on_engine(url, f"SELECT * FROM parquet.`{found}`")
    table.assign(x0=0.5).to_parquet(found / "a.parquet")
    with pytest.raises(Refused, match="records changed") as caught:
        _Site(records).total(products, exact=True)
    assert caught.value.code == "stopped"
    table.assign(x0=np.nan).to_parquet(found / "a.parquet")
    with pytest.raises(DataError, match="x0"):
        on_engine(url, f"SELECT * FROM parquet.`{found}`")
    with pytest.raises(DataError, match="can't be read"):
        on_engine(url, f"SELECT x1 FROM parquet.`{found}`")


def test_other_versions_and_secrets_are_refused(url: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = on_engine(url, f"SELECT * FROM parquet.`{path}`")
    site = _Site(records)

    def part(rows: Rows) -> np.ndarray:
        return products(rows) * len(site.party)

    with pytest.raises(Refused, match="this site's keys"):
        site.total(part, exact=True)
    with pytest.raises(Refused, match="stay there"):
        site.total(products)
    versions: Callable[[], dict[str, str]] = spark._versions
    monkeypatch.setattr(spark, "_versions", lambda: {**versions(), "comity": "0.0.1"})
    with pytest.raises(DataError, match=r"a worker has comity .* and the site 0\.0\.1"):
        on_engine(url, f"SELECT * FROM parquet.`{path}`")


def test_translated_values_are_translated_by_the_workers(url: str, path: Path) -> None:
    source = open_source(
        {
            "engine": {"kind": "spark", "url": url},
            "query": f"SELECT x0 AS first, x1, x2, x3, y FROM parquet.`{path}`",
            "rename": {"first": "x0"},
        }
    )
    records = EngineRecords.scan(source, ENCODING, where="north")
    assert records.digest == on_engine(url, f"SELECT * FROM parquet.`{path}`").digest
