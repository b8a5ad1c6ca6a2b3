"""A Spark Connect server with two workers, each a process: sums and whole runs equal those at the site to the last bit,
also after a task or a worker was lost."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from comity import Averaging
from comity.data import Encoding, LocalRecords, open_source
from comity.data.tables.engine_records import EngineRecords
from comity.errors import Refused
from comity.federation.owner.rows import Rows
from comity.protocol import RunOptions, Terms, simulate
from tests.federation.test_total import _Site
from tests.support.sail import Cluster, serve_cluster
from tests.synthetic.consortia import build_synthetic, make_frame, make_schema

from .test_spark import ENCODING, count_tasks, make_table, partitioned, products

pytestmark = [
    pytest.mark.deploy,
    pytest.mark.skipif(
        find_spec("pysail") is None or find_spec("pyspark") is None,
        reason="no Spark Connect server: pip install 'comity[spark-try]'",
    ),
]
WORKERS, PARTITIONS, ROWS = 2, 6, 6_000
OPTIONS = RunOptions(baselines=False, hosts=True)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    # Each worker has places for fewer tasks than a pass has: one alone could not run them.
    with serve_cluster(tmp_path_factory.mktemp("cluster"), workers=WORKERS, slots=PARTITIONS - 2) as found:
        yield found


@pytest.fixture(scope="module")
def query(tmp_path_factory: pytest.TempPathFactory) -> str:
    return partitioned(make_table(ROWS), tmp_path_factory.mktemp("warehouse"), PARTITIONS)


def on_cluster(cluster: Cluster, query: str, encoding: Encoding = ENCODING) -> EngineRecords:
    source = open_source({"engine": {"kind": "spark", "url": cluster.url}, "query": query})
    return EngineRecords.scan(source, encoding, where="north")


def at_site() -> bytes:
    whole = ENCODING.encode(make_table(ROWS)).records
    return bytes(np.asarray(_Site(whole).total(products, exact=True)).tobytes())


def test_tasks_run_in_both_workers_and_the_sum_is_that_of_the_site(
    cluster: Cluster, query: str, tmp_path: Path
) -> None:
    records = on_cluster(cluster, query)
    assert count_tasks(records) == PARTITIONS
    folder = str(tmp_path)

    def part(rows: Rows) -> Any:
        (Path(folder) / str(os.getpid())).touch()
        return products(rows)

    found = _Site(records).total(part, exact=True)
    ran = {int(path.name) for path in tmp_path.iterdir()}
    # Each pass is a session, for which the driver starts its workers.
    assert ran == {worker.pid for worker in cluster.workers[-WORKERS:]} and os.getpid() not in ran
    assert found.tobytes() == at_site()


def raise_error() -> None:
    raise MemoryError("this task is lost")


def kill_worker() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("lose", [raise_error, kill_worker])
def test_a_lost_task_is_repeated_and_changes_nothing(
    cluster: Cluster, query: str, tmp_path: Path, lose: Callable[[], None]
) -> None:
    lost = tmp_path / "lost"

    def part(rows: Rows) -> Any:
        try:
            lost.touch(exist_ok=False)
        except FileExistsError:
            pass
        else:
            lose()
        return products(rows)

    records = on_cluster(cluster, query)
    try:
        found = _Site(records).total(part, exact=True)
    except Refused as error:
        # The engine gave the pass up: nothing was contributed, and the ask is repeated.
        assert error.code == "stopped" and "is lost" not in str(error)
        found = _Site(records).total(part, exact=True)
    assert lost.exists() and found.tobytes() == at_site()
    killed = [worker for worker in cluster.workers if worker.poll() == -signal.SIGKILL]
    assert bool(killed) == (lose is kill_worker)


def test_an_averaging_run_releases_the_same_model(cluster: Cluster, query: str) -> None:
    whole = ENCODING.encode(make_table(ROWS)).records
    protocol = Averaging.over_rows(features=ENCODING.width, sizes=ROWS, solver="gradient", rounds=1, encoding=ENCODING)
    released = []
    for own in (whole, on_cluster(cluster, query)):
        parties: dict[str, LocalRecords] = {"a": own, "b": whole, "c": whole}
        found = simulate(protocol, parties=parties, epsilon=1.0, delta=1e-6, unit="record", seed=3, options=OPTIONS)
        released.append(np.asarray(found.model.weights).tobytes())
    assert released[0] == released[1]


def test_a_run_of_synthetic_data_of_whole_records_releases_the_same_tables(cluster: Cluster, tmp_path: Path) -> None:
    """Whole numbers, numbers on a logarithmic scale, missing values, categories, an order and days."""
    built = build_synthetic(schema=make_schema())
    frames = {name: make_frame(900, seed) for seed, name in enumerate(("ash", "birch", "cedar"))}
    whole = {name: built.encoding.encode(frame).records for name, frame in frames.items()}
    engine = on_cluster(cluster, partitioned(frames["ash"], tmp_path, PARTITIONS), built.encoding)
    released = []
    for own in (whole["ash"], engine):
        parties: dict[str, LocalRecords] = {**whole, "ash": own}
        found = simulate(
            built,
            parties=parties,
            epsilon=1.0,
            delta=1e-6,
            unit="record",
            seed=3,
            terms=Terms(neighbours="add-remove"),
            options=OPTIONS,
        )
        released.append(found)
    tables = [one.released["tables"]["counts"] for one in released]
    assert tables[0].any() and tables[0].tobytes() == tables[1].tobytes()
    pd.testing.assert_frame_equal(*(one.presented.frame for one in released))
