"""The records that an SQL query returns, by DuckDB (files, its databases), SQLite, or any SQLAlchemy URL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import quote

import pandas as pd

from comity.data.nearest import did_you_mean
from comity.errors import DataError

_SQLITE = b"SQLite format 3\x00"
# DuckDB hands out results in vectors of this many rows.
_VECTOR = 2048


@dataclass(frozen=True)
class Sql:
    """A query over `url` (SQLAlchemy), `path` (a DuckDB or SQLite database, or a CSV or Parquet file known
    to the query as `data`), or neither: then DuckDB runs it and the query names its files, relative to
    `folder`.

    A database file is opened read-only. The URL is kept out of `repr`, since it may hold a password.
    """

    query: str
    url: str | None = field(default=None, repr=False)
    path: Path | None = None
    folder: Path | None = None
    where: str = "the data"

    def read(self, columns: Sequence[str] | None = None) -> pd.DataFrame:
        return pd.concat(list(self.batches(columns)), ignore_index=True)

    def batches(self, columns: Sequence[str] | None = None, rows: int = 100_000) -> Iterator[pd.DataFrame]:
        """Frames of at most `rows` records; at least one, also without records."""
        if rows < 1:
            raise ValueError(f"a batch has at least one row, found {rows}")
        for frame in self._alchemy(rows) if self._by_alchemy else self._duckdb(rows):
            for name in columns or ():
                if name not in frame.columns:
                    raise DataError(
                        f"{self.where}: the query returns no column {name!r}"
                        f"{did_you_mean(name, map(str, frame.columns))}",
                        code="missing-column",
                        key=name,
                    )
            yield frame if columns is None else frame[list(columns)]

    @property
    def _by_alchemy(self) -> bool:
        return self.url is not None or (self.path is not None and _starts_with(self.path, _SQLITE))

    def _duckdb(self, rows: int) -> Iterator[pd.DataFrame]:
        duckdb = _optional("duckdb")
        is_file = self.path is not None and self.path.suffix.lower() in (".csv", ".parquet")
        with self._explained(duckdb.Error, str(self.path or "DuckDB")):
            database = ":memory:" if self.path is None or is_file else str(self.path)
            connection = duckdb.connect(database, read_only=database != ":memory:")
            try:
                if self.folder is not None:
                    connection.execute(f"SET file_search_path = {_quoted(self.folder)}")
                if is_file:
                    connection.execute(f"CREATE VIEW data AS SELECT * FROM {_quoted(self.path)}")
                result = connection.execute(self.query)
                first = True
                while True:
                    chunk = result.fetch_df_chunk(max(1, rows // _VECTOR))
                    if len(chunk) or first:
                        for start in range(0, max(len(chunk), 1), rows):
                            yield chunk.iloc[start : start + rows].reset_index(drop=True)
                    if not len(chunk):
                        return
                    first = False
            finally:
                connection.close()

    def _alchemy(self, rows: int) -> Iterator[pd.DataFrame]:
        alchemy = _optional("sqlalchemy")
        try:
            url = alchemy.engine.make_url(self.url or _read_only(alchemy, self.path))
            shown = url.render_as_string(hide_password=True)
            engine = alchemy.create_engine(url)
        except (alchemy.exc.ArgumentError, ImportError) as error:
            # The text of a URL that can't be parsed may hold a password, so it is not shown.
            driver = isinstance(error, ImportError)
            reason = f"its driver is not installed ({error})" if driver else "its form or dialect is not known"
            raise DataError(
                f"{self.where}: url can't be used: {reason}; write dialect+driver://user@host/database, "
                "and install the driver with pip.",
                key="url",
            ) from None
        with self._explained(alchemy.exc.SQLAlchemyError, shown, secret=url.password):
            try:
                with engine.connect().execution_options(stream_results=True) as connection:
                    result = connection.execute(alchemy.text(self.query))
                    names = list(result.keys())
                    empty = True
                    for part in result.partitions(rows):
                        empty = False
                        yield pd.DataFrame([tuple(row) for row in part], columns=names)
                    if empty:
                        yield pd.DataFrame(columns=names)
            finally:
                engine.dispose()

    @contextmanager
    def _explained(self, kind: type[Exception], shown: str, secret: str | None = None) -> Iterator[None]:
        try:
            yield
        except kind as error:
            first = str(error).strip().splitlines()[0]
            raise DataError(
                f"{self.where}: the query on {shown} can't be read "
                f"({first.replace(secret, '***') if secret else first}); check query, and that the "
                "database is there.",
                key="query",
            ) from (None if secret else error)


def _optional(module: str) -> ModuleType:
    try:
        return import_module(module)
    except ImportError as error:
        raise DataError(
            f"an SQL source needs {module}, which is not installed; run: pip install 'comity[sql]'.",
            key="source",
        ) from error


def _starts_with(path: Path, magic: bytes) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(magic)) == magic
    except OSError:
        return False


def _read_only(alchemy: ModuleType, path: Path | None) -> Any:
    """The URL of a SQLite file that can't be written to."""
    database = f"file:{quote(str(path))}"
    return alchemy.engine.URL.create("sqlite", database=database, query={"mode": "ro", "uri": "true"})


def _quoted(value: Any) -> str:
    return "'" + str(value).replace("'", "''") + "'"
