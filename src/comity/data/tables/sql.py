"""The records that an SQL query returns, by DuckDB (files, its databases), SQLite, or any SQLAlchemy URL.

The database sends only the columns that are asked for, without records that would be left out because they lack a
value: the query becomes a subquery of one that selects them. Where a database does not keep the order of a subquery, or
the query has two columns of one name, it runs as it is written and the rest is left out here.

A source only reads: it runs one statement that reads. Database files are opened read-only. On a server the transaction
is read-only where the database has such (PostgreSQL), and is rolled back everywhere. Errors show what a database says
about a query, and not what it says about a value that it could not convert, because it quotes the value.

A database's URL has no password, and no parameters that could carry one or make a driver do more than connect: a study
is copied into run folders, shown in reports and given to others. The password is in a file that only its owner can
read, or where the driver finds it (`~/.pgpass`, `~/.my.cnf`).
"""

from __future__ import annotations

import os
import re
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, unquote

from comity.data.tables.source import (
    PIECE_ROWS,
    Columns,
    Kind,
    Place,
    Source,
    require_columns,
    require_key,
    require_rows,
    select_columns,
    split_frames,
)
from comity.data.tables.table import Batch
from comity.errors import DataError, StudyError

if TYPE_CHECKING:
    import pandas as pd

    from comity.data.tables.table import Table

_PARAMETERS = ("host", "port", "sslmode", "sslrootcert", "connect_timeout", "charset", "application_name")
_FORM = re.compile(r"([A-Za-z][A-Za-z0-9_+]*)://(.*)", re.S)


def check_url(url: str, where: str) -> None:
    """Refuse a URL that holds a password. The error does not show it."""
    found = _FORM.fullmatch(url)
    if found is None:
        raise StudyError(
            f"{where}: url: expected dialect+driver://user@host/database, found a text of another form; correct it.",
            key="url",
        )
    address, _, parameters = found.group(2).partition("?")
    # A password may hold any character: everything before the last @ is searched.
    before = found.group(2)[: max(found.group(2).rfind("@"), 0)]
    if ":" in before or ":" in address.rpartition("@")[0]:
        raise StudyError(
            f"{where}: url: expected no password in it, found one; write it into a file that only you can read, and "
            'name that file: password_file = "...". A study and its runs are shown to others.',
            key="url",
        )
    for name, _ in parse_qsl(parameters, keep_blank_values=True):
        if name not in _PARAMETERS:
            raise StudyError(
                f"{where}: url: unknown parameter {name!r}; known here: {', '.join(_PARAMETERS)}. Set others where the "
                "driver looks for them.",
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


def read_password(path: Path, where: str) -> str:
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
    """Refuse all but one statement that begins like those that read.

    A second statement could end a read-only transaction and begin another. So a semicolon is allowed only at the end,
    and not even within a text: databases quote texts differently, and a check that misreads a quote is no check.
    """
    found = _FIRST.match(query)
    if found is None or found.group(1).lower() not in _READS or ";" in query.rstrip().rstrip(";"):
        raise _not_reading(where)


def _not_reading(where: str) -> DataError:
    return DataError(
        f"{where}: query: expected one statement that reads (it begins with SELECT, WITH, VALUES, TABLE or FROM and "
        "has no semicolon inside), found another; nothing was run. A source only reads.",
        key="query",
    )


_SQLITE = b"SQLite format 3\x00"
# DuckDB returns results in vectors of this many rows.
_VECTOR_ROWS = 2048
# Types that a query may give to the values of a CSV file. Not BOOLEAN: yes and no are categories.
_CSV_TYPES = ("NULL", "BIGINT", "DOUBLE", "TIME", "DATE", "TIMESTAMP", "VARCHAR")
# Classes of SQLSTATE about the query, the connection or rights. Others (22: data exceptions) quote values.
_QUERY_STATES = ("08", "0A", "25", "28", "3D", "3F", "42", "53", "57", "IM")


@dataclass(frozen=True)
class Sql(Source):
    """A query, or a whole table, of `url` (SQLAlchemy), of `path` (a DuckDB or SQLite database, or a CSV or Parquet
    file, which the query calls `data`), or of neither: then DuckDB runs a query that names its files, relative to
    `folder`.

    A `confined` query reads only `path` and files of `folder`, and reaches no network: it came with a study, and a
    study comes from somebody else. A URL holds no password: the source reads it from `password_file` when it connects,
    or the driver finds it.
    """

    query: str | None = None
    table: str | None = None
    url: str | None = field(default=None, repr=False)
    path: Path | None = None
    folder: Path | None = None
    password_file: Path | None = None
    confined: bool = False
    where: str = "the data"
    present: tuple[str, ...] = ()
    """Columns without which a record is not needed: the database may leave such records out."""

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

    def read(self, columns: Columns = None) -> pd.DataFrame:
        import pandas as pd

        return pd.concat(list(self.batches(columns)), ignore_index=True)

    def batches(self, columns: Columns = None, rows: int = 100_000) -> Iterator[pd.DataFrame]:
        rows = require_rows(rows)
        with self._connect() as database:
            for frame in database.frames(self._narrow(database, columns), rows):
                yield select_columns(frame, columns, self.where)

    def pieces(self, columns: Columns = None, rows: int = PIECE_ROWS) -> Iterator[Table]:
        """DuckDB returns Arrow batches, without an object for each value."""
        rows = require_rows(rows)
        with self._connect() as database:
            for piece in database.pieces(self._narrow(database, columns), rows):
                if isinstance(piece, Batch):
                    require_columns(columns, piece.columns, self.where)
                    yield piece
                else:
                    yield select_columns(piece, columns, self.where)

    def names(self) -> list[str]:
        with self._connect() as database:
            return database.names(database.query)

    def row_count(self) -> int | None:
        """The database counts the records. It leaves out none that lack a value: `present` need not be obeyed."""
        with self._connect() as database:
            inner = database.as_subquery()
            return None if inner is None else database.count(f"SELECT count(*) FROM {inner}")

    def without_blanks(self, columns: Sequence[str]) -> Sql:
        return replace(self, present=tuple(columns))

    def _narrow(self, database: _Database, columns: Columns) -> str:
        """The query for some of its columns, or as it is written where another would not be the same."""
        inner = database.as_subquery()
        if (columns is None and not self.present) or inner is None:
            return database.query
        names = database.names(database.query)
        require_columns(columns, names, self.where)
        # Some databases take two names that differ in case only for one, and refuse two of one name.
        if len({name.casefold() for name in names}) < len(names):
            return database.query
        chosen = ", ".join(map(database.quote, names if columns is None else columns))
        needed = [f"{database.quote(name)} IS NOT NULL" for name in self.present if name in names]
        return f"SELECT {chosen} FROM {inner}" + (f" WHERE {' AND '.join(needed)}" if needed else "")

    def files(self) -> list[Path]:
        return [] if self.path is None else [self.path]

    @property
    def _by_alchemy(self) -> bool:
        return self.url is not None or (self.path is not None and _starts_with(self.path, _SQLITE))

    def _connect(self) -> AbstractContextManager[_Database]:
        return self._connect_alchemy() if self._by_alchemy else self._connect_duckdb()

    @contextmanager
    def _connect_duckdb(self) -> Iterator[_Database]:
        duckdb = _import_optional("duckdb")
        file = self.path if self.path is not None and self.path.suffix.lower() in (".csv", ".parquet") else None
        # These are about names, syntax and rights. The others may quote values.
        about = (
            duckdb.CatalogException,
            duckdb.BinderException,
            duckdb.ParserException,
            duckdb.PermissionException,
            duckdb.IOException,
        )
        with self._explain_errors(duckdb.Error, str(self.path or "DuckDB"), lambda error: isinstance(error, about)):
            database = ":memory:" if self.path is None or file is not None else str(self.path)
            connection = duckdb.connect(database, read_only=database != ":memory:")
            try:
                # A time with a zone reads the same on every machine.
                connection.execute("SET TimeZone = 'UTC'")
                if file is not None:
                    connection.execute(f"CREATE VIEW data AS SELECT * FROM {_as_table(connection, file.resolve())}")
                self._confine(connection)
                query = self.query or f"SELECT * FROM {_quote_table(self.table)}"
                if [one.type for one in connection.extract_statements(query)] != [duckdb.StatementType.SELECT]:
                    raise _not_reading(self.where)
                yield _DuckDb(connection, query)
            finally:
                connection.close()

    def _confine(self, connection: Any) -> None:
        if self.confined:
            inside = "" if self.folder is None else _quoted(self.folder.resolve())
            connection.execute(f"SET allowed_directories = [{inside}]")
            connection.execute("SET enable_external_access = false")
        elif self.folder is not None:
            connection.execute(f"SET file_search_path = {_quoted(self.folder)}")
        connection.execute("SET lock_configuration = true")

    @contextmanager
    def _connect_alchemy(self) -> Iterator[_Database]:
        alchemy = _import_optional("sqlalchemy")
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
            with self._explain_errors(alchemy.exc.SQLAlchemyError, shown, lambda _: True, secret=secret):
                connection = engine.connect()
            with (
                connection,
                self._explain_errors(alchemy.exc.SQLAlchemyError, shown, _is_about_query, secret=secret),
            ):
                yield self._prepare(alchemy, connection)
        finally:
            engine.dispose()

    def _prepare(self, alchemy: ModuleType, connection: Any) -> _Alchemy:
        if connection.dialect.name == "postgresql":
            connection = connection.execution_options(postgresql_readonly=True)
            # A time with a zone reads the same on every machine.
            connection.execute(alchemy.text("SET TIME ZONE 'UTC'"))
        quoting = connection.dialect.identifier_preparer.initial_quote
        table = None if self.table is None else _quote_table(self.table, quoting)
        return _Alchemy(alchemy, connection, self.query or f"SELECT * FROM {table}", table)

    def _address(self, alchemy: ModuleType) -> tuple[Any, str | None]:
        """The URL with its password, and the password, which no error may show."""
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
        secret = read_password(self.password_file, self.where)
        return url.set(password=secret), secret

    @contextmanager
    def _explain_errors(
        self,
        kind: type[Exception],
        shown: str,
        is_about_query: Callable[[Exception], bool],
        secret: str | None = None,
    ) -> Iterator[None]:
        """Raise the library's errors as one sentence. They are not chained: their text may quote a value."""
        try:
            yield
        except kind as error:
            text = str(getattr(error, "orig", None) or error).strip()
            first = text.splitlines()[0] if text else type(error).__name__
            if not is_about_query(error):
                first = f"{type(error).__name__}, whose text may quote a record and is not shown"
            raise DataError(
                f"{self.where}: the query on {shown} can't be read "
                f"({first.replace(secret, '***') if secret else first}); check query, and that the database is there.",
                key="query",
            ) from None


class _Database(ABC):
    """An open connection, and the query as its owner wrote it."""

    query: str

    @abstractmethod
    def as_subquery(self) -> str | None:
        """The query after FROM, if a query around it returns its records in the same order."""

    @abstractmethod
    def names(self, query: str) -> list[str]:
        """The names of a query's columns. Nothing but names is read."""

    @abstractmethod
    def count(self, query: str) -> int:
        """The only value that a query returns."""

    @abstractmethod
    def frames(self, query: str, rows: int) -> Iterator[pd.DataFrame]: ...

    def pieces(self, query: str, rows: int) -> Iterator[Table]:
        return self.frames(query, rows)

    def quote(self, name: str) -> str:
        return _quote_name(name)


@dataclass(frozen=True, eq=False)
class _DuckDb(_Database):
    connection: Any
    query: str

    def as_subquery(self) -> str:
        # DuckDB keeps the order of records, that of a sorted subquery too.
        return _bracketed(self.query)

    def names(self, query: str) -> list[str]:
        return list(self.connection.sql(query).columns)

    def count(self, query: str) -> int:
        return int(self.connection.execute(query).fetchone()[0])

    def frames(self, query: str, rows: int) -> Iterator[pd.DataFrame]:
        return _frames(self.connection.execute(query), rows)

    def pieces(self, query: str, rows: int) -> Iterator[Table]:
        return _arrow_batches(self.connection.sql(query), rows)


@dataclass(frozen=True, eq=False)
class _Alchemy(_Database):
    """`table` is the table that the query reads whole, as SQL, if it is one that does."""

    alchemy: ModuleType
    connection: Any
    query: str
    table: str | None

    def as_subquery(self) -> str | None:
        dialect = self.connection.dialect
        if dialect.requires_name_normalize:
            # It reports names in another case than it stores them: quoted, they would not be found.
            return None
        if self.table is not None:
            return self.table
        plain = _FIRST.match(self.query)
        nested = dialect.name in _NESTING and plain is not None and plain.group(1).lower() in ("select", "with")
        # The SQL standard gives a subquery no order.
        return _bracketed(self.query) if nested and _SORTS.search(self.query) is None else None

    def names(self, query: str) -> list[str]:
        inner = self.as_subquery()
        known = query if inner is None or query != self.query else f"SELECT * FROM {inner} WHERE 1 = 0"
        with self._execute(known) as result:
            return list(result.keys())

    def count(self, query: str) -> int:
        with self._execute(query) as result:
            return int(result.scalar_one())

    def frames(self, query: str, rows: int) -> Iterator[pd.DataFrame]:
        import pandas as pd

        with self._execute(query) as result:
            names = list(result.keys())
            empty = True
            for part in result.partitions(rows):
                empty = False
                yield pd.DataFrame([tuple(row) for row in part], columns=names)
            if empty:
                yield pd.DataFrame(columns=names)

    def quote(self, name: str) -> str:
        return _quote_name(name, self.connection.dialect.identifier_preparer.initial_quote)

    def _execute(self, query: str) -> Any:
        # A colon is a colon: a source takes no parameters.
        statement = self.alchemy.text(query.replace(":", "\\:"))
        return self.connection.execute(statement, execution_options={"stream_results": True})


# Databases known to take any query as a subquery that reads.
_NESTING = ("postgresql", "sqlite", "mysql", "mariadb")
_SORTS = re.compile(r"\border\s+by\b", re.I)


def _bracketed(query: str) -> str:
    # The last line may be a comment.
    return f"(\n{query.rstrip().rstrip(';')}\n) AS comity_records"


def _as_table(connection: Any, file: Path) -> str:
    """A file as a table of a query. In a CSV file only numbers and dates are recognised, as where it is read without a
    query: `yes` is no truth value, and `007` stays text."""
    if file.suffix.lower() != ".csv":
        return _quoted(file)
    options = f"{_quoted(file)}, header = true, auto_type_candidates = [{', '.join(map(_quoted, _CSV_TYPES))}]"
    found = connection.execute(f"DESCRIBE SELECT * FROM read_csv({options})").fetchall()
    numbers = [str(row[0]) for row in found if row[1] in ("BIGINT", "DOUBLE")]
    if not numbers:
        return f"read_csv({options})"
    # The texts tell: a number has lost its leading zeros.
    asked = ", ".join(f"bool_or(regexp_matches({_quote_name(name)}, '^\\s*[+-]?0[0-9]'))" for name in numbers)
    texts = f"read_csv({_quoted(file)}, header = true, all_varchar = true)"
    zeros = connection.execute(f"SELECT {asked} FROM {texts}").fetchone()
    codes = [name for name, zero in zip(numbers, zeros) if zero]
    types = ", ".join(f"{_quoted(name)}: 'VARCHAR'" for name in codes)
    return f"read_csv({options}, types = {{{types}}})" if codes else f"read_csv({options})"


def _frames(result: Any, rows: int) -> Iterator[pd.DataFrame]:
    vectors = max(1, rows // _VECTOR_ROWS)

    def chunks() -> Iterator[pd.DataFrame]:
        yield result.fetch_df_chunk(vectors)
        while len(chunk := result.fetch_df_chunk(vectors)):
            yield chunk

    return split_frames(chunks(), rows)


def _arrow_batches(relation: Any, rows: int) -> Iterator[Batch]:
    import pyarrow as pa

    # Older versions of DuckDB have another name for it.
    open_reader = getattr(relation, "to_arrow_reader", None) or relation.fetch_arrow_reader
    reader, is_empty = open_reader(rows), True
    for batch in reader:
        if batch.num_rows:
            is_empty = False
            yield Batch(batch)
    if is_empty:
        yield Batch(pa.RecordBatch.from_pylist([], schema=reader.schema))


def _is_about_query(error: Exception) -> bool:
    original: Any = getattr(error, "orig", None)
    if original is None:
        return True
    state = getattr(original, "sqlstate", None)
    if state is None and type(original).__module__ == "sqlite3":
        return type(original).__name__ in ("OperationalError", "ProgrammingError")
    return isinstance(state, str) and state.startswith(_QUERY_STATES)


def _import_optional(module: str) -> ModuleType:
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
    """The URL that opens a SQLite file read-only."""
    database = f"file:{quote(str(path))}"
    return alchemy.engine.URL.create("sqlite", database=database, query={"mode": "ro", "uri": "true"})


def _quote_table(table: str | None, quoting: str = '"') -> str:
    """A table's name as SQL, each part between dots in quotes."""
    return ".".join(_quote_name(part, quoting) for part in str(table).split("."))


def _quote_name(name: str, quoting: str = '"') -> str:
    closing = "]" if quoting == "[" else quoting
    return f"{quoting}{name.replace(closing, closing * 2)}{closing}"


def _quoted(value: Any) -> str:
    return "'" + str(value).replace("'", "''") + "'"


def _check_keys(table: Mapping[str, Any], where: str) -> None:
    """A query or a table, of a file or of a server at a URL."""
    _require_one_of(table, "query", "table", where)
    if "path" in table:
        _require_one_of(table, "path", "url", where)
    if "url" in table:
        check_url(str(table["url"]), where)
    elif "password_file" in table:
        raise StudyError(
            f"{where}: password_file: expected url beside it, found none; a file needs no password.",
            key="password_file",
        )
    if "query" in table:
        check_reads(str(table["query"]), where)
    elif "path" not in table:
        require_key(table, "url", where)


def _require_one_of(table: Mapping[str, Any], first: str, second: str, where: str) -> None:
    if first in table and second in table:
        raise StudyError(f"{where}: {second}: expected {first} or {second}, found both; remove one.", key=second)
    if second not in table:
        require_key(table, first, where)


def _open(table: Mapping[str, Any], place: Place) -> Sql:
    url = None if "url" not in table else str(table["url"])
    file = table.get("path") if url is None else file_of(url, place.where)
    secret = table.get("password_file")
    if place.confined and file is None and url is None:
        raise StudyError(
            f"{place.where}: path: expected path or url beside query, found neither; a study's query reads the file "
            "that path names, and calls it data.",
            key="path",
        )
    return Sql(
        query=None if "query" not in table else str(table["query"]),
        table=None if "table" not in table else str(table["table"]),
        url=url if file is None else None,
        path=None if file is None else place.find_file(Path(file), "path" if url is None else "url"),
        folder=place.base,
        password_file=None if secret is None else place.find_file(Path(secret), "password_file"),
        confined=place.confined,
        where=place.where,
    )


SQL = Kind(
    keys=("source", "path", "url", "query", "table", "password_file"), open=_open, check=_check_keys, has_suffix=False
)
