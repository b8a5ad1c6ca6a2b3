"""The records that an SQL query returns, by DuckDB (files, its databases), SQLite, or any SQLAlchemy URL.

A source reads and does nothing else: one statement that reads, on a database file that was opened read-only or in a
transaction that is read-only where the database has such (PostgreSQL) and is rolled back everywhere. What a database
says about a query is shown; what it says about a value that it could not convert is not, because it quotes the value.

A database's URL has no password, and no parameters that could carry one or make a driver do more than connect: a study
is copied into run folders, shown in reports and given to others. The password is in a file that only its owner can
read, or where the driver finds it (`~/.pgpass`, `~/.my.cnf`).
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, unquote

from comity.data.schemas.conforming import missing_column
from comity.data.tables.arrow_frames import Batch
from comity.errors import DataError, StudyError

if TYPE_CHECKING:
    import pandas as pd

    from comity.data.tables.arrow_frames import Table

_PARAMETERS = ("host", "port", "sslmode", "sslrootcert", "connect_timeout", "charset", "application_name")
_FORM = re.compile(r"([A-Za-z][A-Za-z0-9_+]*)://(.*)", re.S)


def check_url(url: str, where: str) -> None:
    """Refuse a URL that holds a secret. The sentence does not show it."""
    found = _FORM.fullmatch(url)
    if found is None:
        raise StudyError(
            f"{where}: url: expected dialect+driver://user@host/database, found a text of another form; correct it.",
            key="url",
        )
    address, _, parameters = found.group(2).partition("?")
    # A password may hold any character, so that everything before the last @ is looked at.
    before = found.group(2)[: max(found.group(2).rfind("@"), 0)]
    if ":" in before or ":" in address.rpartition("@")[0]:
        raise StudyError(
            f"{where}: url: expected no password in it, found one; write it into a file that you alone can read and "
            'name that: password_file = "...". A study and its runs are shown to others.',
            key="url",
        )
    for name, _ in parse_qsl(parameters, keep_blank_values=True):
        if name not in _PARAMETERS:
            raise StudyError(
                f"{where}: url: unknown parameter {name!r}; known here: {', '.join(_PARAMETERS)}. Set others where the "
                "driver looks by itself.",
                key="url",
            )


def file_of(url: str, where: str) -> Path | None:
    """The file of a SQLite or DuckDB URL; None if it is on a server."""
    dialect, _, rest = url.partition("://")
    if dialect.partition("+")[0] not in ("sqlite", "duckdb"):
        return None
    path = unquote(rest.partition("?")[0])
    if not path.startswith("/") or len(path) < 2:
        raise StudyError(
            f"{where}: url: expected {dialect}:///FILE, three slashes before a path and four before one from the root, "
            "found another form; correct it.",
            key="url",
        )
    return Path(path[1:])


def password_in(path: Path, where: str) -> str:
    """The first line of a file that nobody but its owner can read."""
    try:
        with path.open(encoding="utf-8") as file:
            mode = os.fstat(file.fileno()).st_mode
            line = file.readline().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise DataError(
            f"{where}: password_file: {path} can't be read ({reason}); check the path.", key="password_file"
        ) from None
    if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise DataError(
            f"{where}: password_file: {path} can be read by others than you; run: chmod 600 {path}",
            key="password_file",
        )
    if not line:
        raise DataError(
            f"{where}: password_file: {path} expected a password in its first line, found none; write it there.",
            key="password_file",
        )
    return line


_READS = ("select", "with", "values", "table", "from")
# The first word, after blanks, brackets and comments.
_FIRST = re.compile(r"(?:\s|\(|--[^\n]*(?:\n|$)|/\*.*?\*/)*([A-Za-z]*)", re.S)


def check_reads(query: str, where: str) -> None:
    """One statement that begins as reading ones do.

    A second statement could end a read-only transaction and begin another, so that a semicolon stands at the end or
    nowhere, not even in a text: how texts are quoted differs between databases, and a check that gets it wrong is none.
    """
    found = _FIRST.match(query)
    if found is None or found.group(1).lower() not in _READS or ";" in query.rstrip().rstrip(";"):
        raise not_reading(where)


def not_reading(where: str) -> DataError:
    return DataError(
        f"{where}: query: expected one statement that reads (it begins with SELECT, WITH, VALUES, TABLE or FROM and "
        "has no semicolon inside), found another; nothing was run. A source only reads.",
        key="query",
    )


_SQLITE = b"SQLite format 3\x00"
# DuckDB hands out results in vectors of this many rows.
_VECTOR = 2048
# What a value of a CSV file may be taken for in a query. Not a truth value: yes and no are categories.
_CSV_TYPES = ("NULL", "BIGINT", "DOUBLE", "TIME", "DATE", "TIMESTAMP", "VARCHAR")
# Classes of SQLSTATE that speak of the query, the connection or rights. Others (22: data exceptions) quote values.
_ABOUT_THE_QUERY = ("08", "0A", "25", "28", "3D", "3F", "42", "53", "57", "IM")


@dataclass(frozen=True)
class Sql:
    """A query, or a whole table, of `url` (SQLAlchemy), `path` (a DuckDB or SQLite database, or a CSV or Parquet file
    known to the query as `data`), or neither: then DuckDB runs it and the query names its files, relative to `folder`.

    With `confined` a query reads `path` and files of `folder` alone and reaches no network: it came with a study, and a
    study comes from somebody else. A URL holds no password: that is read from `password_file` when the source is,
    or left to the driver.
    """

    query: str | None = None
    table: str | None = None
    url: str | None = field(default=None, repr=False)
    path: Path | None = None
    folder: Path | None = None
    password_file: Path | None = None
    confined: bool = False
    where: str = "the data"

    def __post_init__(self) -> None:
        if (self.query is None) == (self.table is None):
            raise StudyError(f"{self.where}: query: expected query or table, one of the two; correct it.", key="query")
        if self.query is not None:
            check_reads(self.query, self.where)
        if self.url is not None:
            check_url(self.url, self.where)
            if (file := file_of(self.url, self.where)) is not None:
                # Every database file is opened read-only.
                object.__setattr__(self, "path", file)
                object.__setattr__(self, "url", None)

    def read(self, columns: Sequence[str] | None = None) -> pd.DataFrame:
        import pandas as pd

        return pd.concat(list(self.batches(columns)), ignore_index=True)

    def batches(self, columns: Sequence[str] | None = None, rows: int = 100_000) -> Iterator[pd.DataFrame]:
        """Frames of at most `rows` records; at least one, also without records."""
        if rows < 1:
            raise ValueError(f"a batch has at least one row, found {rows}")
        for frame in self._alchemy(rows) if self._by_alchemy else self._duckdb(rows):
            yield self._selected(frame, columns)

    def pieces(self, columns: Sequence[str] | None = None, rows: int = 1 << 16) -> Iterator[Table]:
        """As `batches`, made for encoding: DuckDB hands over Arrow batches, without an object for each value."""
        if self._by_alchemy:
            yield from self.batches(columns, rows)
            return
        for batch in self._duckdb(rows, arrow=True):
            for name in columns or ():
                if name not in batch.columns:
                    raise missing_column(self.where, name, batch.columns)
            yield batch

    def rows_at_most(self, columns: int) -> None:
        """How many a query returns is known when it was read."""

    def _selected(self, frame: pd.DataFrame, columns: Sequence[str] | None) -> pd.DataFrame:
        for name in columns or ():
            if name not in frame.columns:
                raise missing_column(self.where, name, list(map(str, frame.columns)))
        return frame if columns is None else frame[list(columns)]

    @property
    def _by_alchemy(self) -> bool:
        return self.url is not None or (self.path is not None and _starts_with(self.path, _SQLITE))

    def _duckdb(self, rows: int, *, arrow: bool = False) -> Iterator[Any]:
        duckdb = _optional("duckdb")
        file = self.path if self.path is not None and self.path.suffix.lower() in (".csv", ".parquet") else None
        # What these say is about names, syntax and rights; the others speak of values.
        about = (
            duckdb.CatalogException,
            duckdb.BinderException,
            duckdb.ParserException,
            duckdb.PermissionException,
            duckdb.IOException,
        )
        with self._explained(duckdb.Error, str(self.path or "DuckDB"), lambda error: isinstance(error, about)):
            database = ":memory:" if self.path is None or file is not None else str(self.path)
            connection = duckdb.connect(database, read_only=database != ":memory:")
            try:
                # A time with a zone reads the same on every machine.
                connection.execute("SET TimeZone = 'UTC'")
                if file is not None:
                    connection.execute(f"CREATE VIEW data AS SELECT * FROM {_as_table(connection, file.resolve())}")
                self._enclose(connection)
                query = self.query or f"SELECT * FROM {_name(self.table)}"
                if [one.type for one in connection.extract_statements(query)] != [duckdb.StatementType.SELECT]:
                    raise not_reading(self.where)
                if arrow:
                    yield from _arrow_batches(connection.sql(query), rows)
                else:
                    yield from _frames(connection.execute(query), rows)
            finally:
                connection.close()

    def _enclose(self, connection: Any) -> None:
        if self.confined:
            inside = "" if self.folder is None else _quoted(self.folder.resolve())
            connection.execute(f"SET allowed_directories = [{inside}]")
            connection.execute("SET enable_external_access = false")
        elif self.folder is not None:
            connection.execute(f"SET file_search_path = {_quoted(self.folder)}")
        connection.execute("SET lock_configuration = true")

    def _alchemy(self, rows: int) -> Iterator[pd.DataFrame]:
        alchemy = _optional("sqlalchemy")
        url, secret = self._address(alchemy)
        shown = str(self.path) if self.url is None else url.render_as_string(hide_password=True)
        try:
            engine = alchemy.create_engine(url)
        except (alchemy.exc.ArgumentError, ImportError) as error:
            reason = "its dialect is not known"
            if isinstance(error, ImportError) and not isinstance(error, alchemy.exc.ArgumentError):
                reason = f"its driver {error.name or ''} is not installed".replace("  ", " ")
            raise DataError(
                f"{self.where}: url can't be used: {reason}; write dialect+driver://user@host/database, and install "
                "the driver with pip.",
                key="url",
            ) from None
        try:
            with self._explained(alchemy.exc.SQLAlchemyError, shown, lambda _: True, secret=secret):
                connection = engine.connect()
            with (
                connection,
                self._explained(alchemy.exc.SQLAlchemyError, shown, _about_the_query, secret=secret),
            ):
                yield from self._streamed(alchemy, connection, rows)
        finally:
            engine.dispose()

    def _streamed(self, alchemy: ModuleType, connection: Any, rows: int) -> Iterator[pd.DataFrame]:
        import pandas as pd

        if connection.dialect.name == "postgresql":
            connection = connection.execution_options(postgresql_readonly=True)
            # A time with a zone reads the same on every machine.
            connection.execute(alchemy.text("SET TIME ZONE 'UTC'"))
        quoting = connection.dialect.identifier_preparer.initial_quote
        query = self.query or f"SELECT * FROM {_name(self.table, quoting)}"
        # A colon is a colon: a source takes no parameters.
        statement = alchemy.text(query.replace(":", "\\:"))
        result = connection.execute(statement, execution_options={"stream_results": True})
        names = list(result.keys())
        empty = True
        for part in result.partitions(rows):
            empty = False
            yield pd.DataFrame([tuple(row) for row in part], columns=names)
        if empty:
            yield pd.DataFrame(columns=names)

    def _address(self, alchemy: ModuleType) -> tuple[Any, str | None]:
        """The URL with its password, and the password, which no text may hold."""
        if self.url is None:
            return _read_only(alchemy, self.path), None
        try:
            url = alchemy.engine.make_url(self.url)
        except alchemy.exc.ArgumentError:
            raise DataError(
                f"{self.where}: url can't be used: its form is not known; write dialect+driver://user@host/database.",
                key="url",
            ) from None
        if self.password_file is None:
            return url, None
        secret = password_in(self.password_file, self.where)
        return url.set(password=secret), secret

    @contextmanager
    def _explained(
        self, kind: type[Exception], shown: str, speaks_of_query: Any, secret: str | None = None
    ) -> Iterator[None]:
        """One sentence instead of the library's error, which is not chained: its text may quote a value."""
        try:
            yield
        except kind as error:
            text = str(getattr(error, "orig", None) or error).strip()
            first = text.splitlines()[0] if text else type(error).__name__
            if not speaks_of_query(error):
                first = f"{type(error).__name__}, whose text may quote a record and is not shown"
            raise DataError(
                f"{self.where}: the query on {shown} can't be read "
                f"({first.replace(secret, '***') if secret else first}); check query, and that the database is there.",
                key="query",
            ) from None


def _as_table(connection: Any, file: Path) -> str:
    """A file as a table of a query. Of a CSV file numbers and dates are recognised, and nothing else: `yes` is no truth
    value, and `007` stays text, as where the file is read without a query."""
    if file.suffix.lower() != ".csv":
        return _quoted(file)
    options = f"{_quoted(file)}, header = true, auto_type_candidates = [{', '.join(map(_quoted, _CSV_TYPES))}]"
    found = connection.execute(f"DESCRIBE SELECT * FROM read_csv({options})").fetchall()
    numbers = [str(row[0]) for row in found if row[1] in ("BIGINT", "DOUBLE")]
    if not numbers:
        return f"read_csv({options})"
    # Asked of the texts: the number has lost its zeros.
    asked = ", ".join(f"bool_or(regexp_matches({_name_of(name)}, '^\\s*[+-]?0[0-9]'))" for name in numbers)
    texts = f"read_csv({_quoted(file)}, header = true, all_varchar = true)"
    zeros = connection.execute(f"SELECT {asked} FROM {texts}").fetchone()
    kept = [name for name, zero in zip(numbers, zeros) if zero]
    types = ", ".join(f"{_quoted(name)}: 'VARCHAR'" for name in kept)
    return f"read_csv({options}, types = {{{types}}})" if kept else f"read_csv({options})"


def _name_of(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'


def _frames(result: Any, rows: int) -> Iterator[pd.DataFrame]:
    first = True
    while True:
        chunk = result.fetch_df_chunk(max(1, rows // _VECTOR))
        if len(chunk) or first:
            for start in range(0, max(len(chunk), 1), rows):
                yield chunk.iloc[start : start + rows].reset_index(drop=True)
        if not len(chunk):
            return
        first = False


def _arrow_batches(relation: Any, rows: int) -> Iterator[Batch]:
    import pyarrow as pa

    # Older versions of DuckDB call it otherwise.
    open_reader = getattr(relation, "to_arrow_reader", None) or relation.fetch_arrow_reader
    reader, some = open_reader(rows), False
    for batch in reader:
        if batch.num_rows:
            some = True
            yield Batch(batch)
    if not some:
        yield Batch(pa.RecordBatch.from_pylist([], schema=reader.schema))


def _about_the_query(error: Exception) -> bool:
    original: Any = getattr(error, "orig", None)
    if original is None:
        return True
    state = getattr(original, "sqlstate", None)
    if state is None and type(original).__module__ == "sqlite3":
        return type(original).__name__ in ("OperationalError", "ProgrammingError")
    return isinstance(state, str) and state.startswith(_ABOUT_THE_QUERY)


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


def _name(table: str | None, quoting: str = '"') -> str:
    """A table's name as SQL, each part between dots in quotes."""
    closing = "]" if quoting == "[" else quoting
    return ".".join(f"{quoting}{part.replace(closing, closing * 2)}{closing}" for part in str(table).split("."))


def _quoted(value: Any) -> str:
    return "'" + str(value).replace("'", "''") + "'"
