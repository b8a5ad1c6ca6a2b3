"""Sums over records on a Spark Connect server (Sail, which needs no Java): the same to the last bit as at the site,
whatever the partitions. `test_spark_cluster.py` has workers in processes of their own, and tasks that are lost."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from comity.data import Classes, Encoding, Numeric, Schema, digest_records, open_source
from comity.data.exact_sums import round_factor
from comity.data.tables import spark
from comity.data.tables.engine_records import EngineRecords, engine_of
from comity.errors import DataError, Refused
from comity.federation.owner.rows import Rows
from tests.federation.test_total import _Site
from tests.support.sail import serve

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
    with serve() as address:
        yield address


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("warehouse") / "visits.parquet"
    make_table().to_parquet(found)
    return found


def make_table(rows: int = ROWS) -> pd.DataFrame:
    generator = np.random.default_rng(0)
    numbers = generator.uniform(-1.2, 1.2, size=(rows, 4))
    labels = (numbers[:, :2].sum(axis=1) + generator.normal(size=rows) > 0).astype(int)
    return pd.DataFrame(numbers, columns=[f"x{at}" for at in range(4)]).assign(y=labels)


def on_engine(url: str, query: str) -> EngineRecords:
    source = open_source({"engine": {"kind": "spark", "url": url}, "query": query})
    return EngineRecords.scan(source, ENCODING, where="north")


def partitioned(table: pd.DataFrame, folder: Path, partitions: int) -> str:
    """A query of this table whose tasks are so many: a file and a part of the union for each."""
    folder.mkdir(exist_ok=True)
    for place, rows in enumerate(np.array_split(np.arange(len(table)), partitions)):
        table.iloc[rows].to_parquet(folder / f"{partitions}-{place}.parquet")
    parts = (folder / f"{partitions}-{place}.parquet" for place in range(partitions))
    return " UNION ALL ".join(f"SELECT * FROM parquet.`{part}`" for part in parts)


def count_tasks(records: EngineRecords) -> int:
    """How many tasks a pass over these records has: each returns a row."""
    table = engine_of(records.source)
    assert table is not None
    return len(table.run((None, records.encoding, "here", None, []), list(records.encoding.reads)))


def products(rows: Rows) -> np.ndarray:
    factors = round_factor(rows.features / 3)
    return np.asarray(factors.T @ factors)


@pytest.mark.parametrize("partitions", [1, 2, 7])
def test_a_sum_on_the_engine_is_that_of_the_site_to_the_last_bit(
    url: str, path: Path, tmp_path: Path, partitions: int
) -> None:
    whole = ENCODING.encode(pd.read_parquet(path)).records
    records = on_engine(url, partitioned(pd.read_parquet(path), tmp_path, partitions))
    assert len(records) == ROWS and count_tasks(records) == partitions
    assert records.digest == on_engine(url, f"SELECT * FROM parquet.`{path}`").digest
    assert digest_records(records) and len(records.add_up(lambda block: [])) == 0
    found = _Site(records).total(products, exact=True)
    assert found.tobytes() == _Site(whole).total(products, exact=True).tobytes()


@pytest.mark.parametrize("main", [{}, {"__file__": "started.py"}])
def test_the_client_is_imported_whatever_the_main_module_is(main: dict[str, str]) -> None:
    """The client would end a process whose main module has neither a file nor a spec."""
    imports = f"import __main__; vars(__main__).update({main}); from comity.data.tables import spark"
    same = f"assert vars(__main__).get('__file__') == {main.get('__file__')!r}"
    subprocess.run([sys.executable, "-W", "ignore", "-c", f"{imports}; spark._import_client(); {same}"], check=True)


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
