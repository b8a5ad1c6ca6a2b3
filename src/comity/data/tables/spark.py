"""A table of an owner's Spark engine, by Spark Connect: `pyspark-client` at the site, no Java.

The workers need Python, and this package with numpy and scipy, all of the versions that the site has. A task says so
before it reads a record. Pickled functions go from the site to the workers, which is how `mapInArrow` works: engine and
site belong to one owner.
"""

from __future__ import annotations

import logging
import re
import socket
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from comity.data.tables.source import Columns, Kind, Place, Source, require_key
from comity.data.tables.sql import check_reads, read_password
from comity.errors import BadInput, DataError, StudyError, did_you_mean

if TYPE_CHECKING:
    import pandas as pd

log = logging.getLogger("comity.data")

ENGINES = ("spark",)
_KEYS = ("kind", "url", "token_file")
_URL = re.compile(r"sc://(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:]+\])(?P<port>:\d{1,5})?/?(?P<rest>(;[^;]*)*)")
_PARAMETERS = ("use_ssl", "user_id")
_DEFAULT_PORT = 15002
_SECONDS = 10.0


@dataclass(frozen=True)
class SparkTable(Source):
    """A table of the engine, or a query that reads there."""

    url: str = field(repr=False)
    query: str | None = None
    table: str | None = None
    token_file: Path | None = None
    where: str = "the data"

    def read(self, columns: Columns = None) -> pd.DataFrame:
        self._stay()

    def batches(self, columns: Columns = None, rows: int = 100_000) -> Iterator[pd.DataFrame]:
        self._stay()

    def _stay(self) -> NoReturn:
        raise DataError(
            f"{self.where}: engine: the records stay on the engine, where sums over them run; to look at them, use the "
            "engine's own tools.",
            key="engine",
        )

    def run(self, task: tuple[Any, ...], columns: list[str]) -> list[dict[str, Any]]:
        """The rows that `sum_partition` returns of each partition, for these columns of the records."""
        from comity.data.tables.engine_records import RESULT

        self._require_reachable()
        with warnings.catch_warnings():
            # It warns of pandas, which no task uses.
            warnings.simplefilter("ignore")
            errors, cloudpickle, builder = _import_client()
            try:
                payload = cloudpickle.dumps(task)
            except Exception as error:
                raise DataError(
                    f"{self.where}: engine: a step of this method can't be sent to the workers ({error}).", key="engine"
                ) from None
            session = None
            try:
                session = builder.remote(self._address()).create()
                frame = session.table(self.table) if self.query is None else session.sql(self.query)
                found = frame.select(*map(_quoted, columns)).mapInArrow(_task(payload, _versions()), RESULT).toArrow()
            except errors.PySparkException as error:
                raise self._translated(error) from None
            finally:
                if session is not None:
                    session.stop()
        rows: list[dict[str, Any]] = found.to_pylist()
        return rows

    def _translated(self, error: Exception) -> DataError:
        text = str(error)
        kind = type(error).__name__
        if "PYTHON_VERSION_MISMATCH" in text or "bad marshal data" in text:
            return DataError(
                f"{self.where}: engine: the workers have another Python than this site; install the same.", key="engine"
            )
        if kind == "AnalysisException":
            return DataError(
                f"{self.where}: engine: query or table can't be read ({text.strip().splitlines()[0][:200]}); correct "
                "it, or the schema's names of columns.",
                key="engine",
            )
        # A task's text may quote a record.
        log.error("%s: the engine stopped: %s", self.where, kind)
        return DataError(
            f"{self.where}: engine: the engine stopped with {kind}, whose text may quote a record and is not shown; "
            "see the engine's own log.",
            key="engine",
        )

    def _require_reachable(self) -> None:
        host, port = _host_of(self.url)
        try:
            socket.create_connection((host, port), timeout=_SECONDS).close()
        except OSError as error:
            raise DataError(
                f"{self.where}: engine: {host}:{port} can't be reached ({error.strerror or 'no answer'}); check "
                "engine.url, and that the Spark Connect server runs.",
                key="engine",
            ) from None

    def _address(self) -> str:
        if self.token_file is None:
            return self.url
        return f"{self.url if ';' in self.url else self.url.rstrip('/') + '/'};token={self._token()}"

    def _token(self) -> str:
        assert self.token_file is not None
        return read_password(self.token_file, self.where)


def _task(payload: bytes, versions: Mapping[str, str]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """What a worker runs. It is sent whole, and uses nothing of this package before it has compared versions."""

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        import importlib
        import platform

        import pyarrow as pa

        found = {"Python": ".".join(platform.python_version_tuple()[:2])}
        for name in versions:
            if name != "Python":
                try:
                    found[name] = importlib.import_module(name).__version__
                except ImportError:
                    found[name] = "not installed"
        wrong = [
            f"{name} {found[name]} and the site {wanted}" for name, wanted in versions.items() if found[name] != wanted
        ]
        if wrong:
            sentence = f"engine\nengine: a worker has {', '.join(wrong)}; install the site's versions on every worker."
            names = ["records", "digest", "high", "low", "shape", "error"]
            values = [pa.array([0], pa.int64()), *[pa.array([b""], pa.binary())] * 3]
            texts = [pa.array([one], pa.string()) for one in ("none", sentence)]
            yield pa.RecordBatch.from_arrays([*values, *texts], names)
            return
        from pyspark import cloudpickle

        from comity.data.tables.engine_records import sum_partition

        # The site that made it and this worker belong to one owner.
        yield sum_partition(cloudpickle.loads(payload), batches)

    return run


def _versions() -> dict[str, str]:
    import platform

    import numpy
    import scipy

    from comity._version import __version__

    return {
        "Python": ".".join(platform.python_version_tuple()[:2]),
        "comity": __version__,
        "numpy": numpy.__version__,
        "scipy": scipy.__version__,
    }


def _import_client() -> tuple[Any, Any, Any]:
    try:
        with _named_main():
            from pyspark import cloudpickle, errors
            from pyspark.sql.connect.session import SparkSession
    except ImportError:
        raise BadInput(
            "an engine of kind spark needs the extra spark (pyspark-client is missing); run: pip install "
            "'comity[spark]'",
            code="extra",
            key="engine",
        ) from None
    return errors, cloudpickle, SparkSession.builder


@contextmanager
def _named_main() -> Iterator[None]:
    """`pyspark` takes a process for its doctests, looks for a Java installation and ends it, if the main module has
    neither a file nor a spec: under `python -c`, and in processes that another program started."""
    main = sys.modules["__main__"]
    if hasattr(main, "__file__"):
        yield
        return
    main.__file__ = "-c"
    try:
        yield
    finally:
        del main.__file__


def _host_of(url: str) -> tuple[str, int]:
    found = _URL.fullmatch(url)
    assert found is not None
    return found["host"].strip("[]"), int(found["port"][1:]) if found["port"] else _DEFAULT_PORT


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _check(table: Mapping[str, Any], where: str) -> None:
    if "query" in table and "table" in table:
        raise StudyError(f"{where}: table: expected query or table, found both; remove one.", key="table")
    if "table" not in table:
        require_key(table, "query", where)
        check_reads(str(table["query"]), where)
    _check_engine(table["engine"], where)


def _check_engine(engine: Any, where: str) -> None:
    if not isinstance(engine, Mapping):
        raise StudyError(
            f'{where}: engine: expected {{kind = "spark", url = "sc://HOST:PORT"}}, found {type(engine).__name__}.',
            key="engine",
        )
    for key, value in engine.items():
        if key not in _KEYS:
            raise StudyError(f"{where}: engine: unknown key {key!r}{did_you_mean(str(key), _KEYS)}", key="engine")
        if not isinstance(value, str):
            raise StudyError(f"{where}: engine.{key}: expected text; write it in quotes.", key="engine")
    kind = engine.get("kind")
    if kind not in ENGINES:
        raise StudyError(
            f"{where}: engine.kind: unknown engine {kind!r}{did_you_mean(str(kind), ENGINES)}; known is spark.",
            key="engine",
        )
    _check_url(engine.get("url", ""), where)


def _check_url(url: str, where: str) -> None:
    found = _URL.fullmatch(url)
    if found is None:
        # The URL is not shown: it may contain a token.
        raise StudyError(
            f"{where}: engine.url: expected sc://HOST:PORT, found a text of another form; correct it.", key="engine"
        )
    for parameter in found["rest"].split(";"):
        name = parameter.partition("=")[0]
        if name == "token":
            raise StudyError(
                f"{where}: engine.url: expected no token in it, found one; write it into a file that only you can "
                'read, and name that file: token_file = "...".',
                key="engine",
            )
        if name and name not in _PARAMETERS:
            raise StudyError(
                f"{where}: engine.url: unknown parameter {name!r}; known here: {', '.join(_PARAMETERS)}.", key="engine"
            )


def _open(table: Mapping[str, Any], place: Place) -> SparkTable:
    if place.confined:
        raise StudyError(
            f"{place.where}: engine: a study names no engine: functions are sent to it, and only its owner may say "
            "where; put engine into the data table of a site file.",
            key="engine",
        )
    engine, secret = table["engine"], table["engine"].get("token_file")
    return SparkTable(
        url=engine["url"],
        query=table.get("query"),
        table=table.get("table"),
        token_file=None if secret is None else place.find_file(Path(secret), "engine"),
        where=place.where,
    )


ENGINE = Kind(keys=("source", "engine", "query", "table"), open=_open, check=_check, has_suffix=False)
