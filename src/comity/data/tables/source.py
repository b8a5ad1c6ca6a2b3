"""What all sources of records have in common.

A source only reads. Its errors are for the owner's terminal; none shows a password.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from comity.data.tables.table import missing_column
from comity.errors import ComityError, DataError, StudyError, nearest_name
from comity.untrusted.file_names import has_control_characters, is_inside

if TYPE_CHECKING:
    import pandas as pd

    from comity.data.tables.table import Table

Columns = Sequence[str] | None

PIECE_ROWS = 1 << 16
"""Records of a piece that is read for encoding."""


class Source(ABC):
    """Where an owner's records are. A new source implements `read` and `batches`."""

    @abstractmethod
    def read(self, columns: Columns = None) -> pd.DataFrame:
        """All records."""

    @abstractmethod
    def batches(self, columns: Columns = None, rows: int = 100_000) -> Iterator[pd.DataFrame]:
        """Frames of at most `rows` records. There is at least one, also without records: its columns are checked."""

    def pieces(self, columns: Columns = None, rows: int = PIECE_ROWS) -> Iterator[Table]:
        """`batches` for encoding: Arrow batches where the source has any."""
        return self.batches(columns, rows)

    def names(self) -> list[str] | None:
        """The names of all columns, where they are known without reading records."""
        return None

    def row_count(self) -> int | None:
        """The number of records, where it is known without reading them."""
        return None

    def rows_at_most(self, columns: int) -> int | None:
        """A bound on the number of records of so many columns, where one is known without reading them."""
        return self.row_count()

    def without_blanks(self, columns: Sequence[str]) -> Source:
        """The source, which may leave out records without a value in one of these columns. It need not: a file is read
        anyway."""
        return self

    def files(self) -> list[Path]:
        """The files that the source reads. A change of one during a run is detected."""
        return []


@dataclass(frozen=True, eq=False)
class Frame(Source):
    """A pandas DataFrame in memory."""

    frame: pd.DataFrame
    where: str = "the data"

    def read(self, columns: Columns = None) -> pd.DataFrame:
        return select_columns(self.frame, columns, self.where)

    def batches(self, columns: Columns = None, rows: int = 100_000) -> Iterator[pd.DataFrame]:
        return split_frames([self.read(columns)], rows)

    def names(self) -> list[str]:
        return [str(name) for name in self.frame.columns]

    def row_count(self) -> int:
        return len(self.frame)


@dataclass(frozen=True)
class Place:
    """The file that names a source: `where` it is in errors, the folder `base` at which its relative paths start, and
    whether they are `confined` to that folder."""

    where: str
    base: Path | None
    confined: bool

    def resolve(self, path: Path, key: str) -> Path:
        """The full path. It need not exist."""
        full = path if self.base is None else self.base / path
        if has_control_characters(str(path)):
            raise StudyError(
                f"{self.where}: {key}: {str(path)!r} has a control or invisible character; rename the file.", key=key
            )
        if self.confined and self.base is not None and not is_inside(self.base, full):
            raise StudyError(
                f"{self.where}: {key}: expected a path inside {self.base}, found {path}; a study comes from somebody "
                "else and reads only files of its folder. Put the file there.",
                key=key,
            )
        return full

    def find_file(self, path: Path, key: str) -> Path:
        """The full path of a file that exists."""
        full = self.resolve(path, key)
        if not full.is_file():
            beside = [entry.name for entry in full.parent.iterdir()] if full.parent.is_dir() else []
            close = nearest_name(full.name, beside)
            hint = f"beside it is {close!r}" if close and close != full.name else "check the path"
            about = "" if self.where == str(full) else f"{self.where}: "
            raise DataError(f"{about}{full} can't be opened: there is no such file; {hint}.", key=key)
        return full


def require_key(table: Mapping[str, Any], key: str, where: str) -> None:
    if key not in table:
        raise StudyError(f'{where}: {key}: expected a value, found none; add {key} = "...".', key=key)


def _require_path(table: Mapping[str, Any], where: str) -> None:
    require_key(table, "path", where)


@dataclass(frozen=True)
class Kind:
    """A kind of source as a table of a study or site file names it, by `source = "..."`.

    `open` makes the source, and looks for its files. `check` looks for none: it refuses combinations of keys. A file
    is recognised by its suffix where the kind has one, which is then the kind's name.
    """

    keys: tuple[str, ...]
    open: Callable[[Mapping[str, Any], Place], Source]
    check: Callable[[Mapping[str, Any], str], None] = _require_path
    has_suffix: bool = True


@contextmanager
def translate_errors(path: Path, *, all_errors: bool = False) -> Iterator[None]:
    """Raise errors of a file library as one sentence about the file. `all_errors` takes every error for one of its
    errors."""
    try:
        yield
    except Exception as error:
        import pyarrow as pa

        known = isinstance(error, OSError | pa.ArrowException | UnicodeDecodeError)
        if isinstance(error, ComityError) or not (known or (all_errors and not isinstance(error, MemoryError))):
            raise
        system = isinstance(error, OSError) and error.strerror
        raise DataError(
            f"{path} can't be read ({system or 'it is damaged, or of another kind'}); check that the file is complete, "
            "readable, and of the kind that its suffix says.",
            key="path",
        ) from None


def select_columns(frame: pd.DataFrame, columns: Columns, where: str) -> pd.DataFrame:
    if columns is None:
        return frame
    if frame.shape == (0, 0):
        import pandas as pd

        return pd.DataFrame(columns=list(columns), dtype=object)
    require_columns(columns, [str(name) for name in frame.columns], where)
    return frame[list(columns)]


def require_columns(columns: Columns, present: Sequence[str], where: str) -> None:
    for name in columns or ():
        if name not in present:
            raise missing_column(where, name, present)


def split_frames(frames: Iterable[pd.DataFrame], rows: int) -> Iterator[pd.DataFrame]:
    """Frames of at most `rows` records, at least one for each."""
    size = require_rows(rows)
    for frame in frames:
        for start in range(0, max(len(frame), 1), size):
            yield frame.iloc[start : start + size].reset_index(drop=True)


def require_rows(rows: int) -> int:
    if rows < 1:
        raise ValueError(f"a batch has at least one row, found {rows}")
    return rows
