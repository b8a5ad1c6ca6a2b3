"""The kinds of sources, and how one is opened: from a DataFrame, a path, or a table of a study or site file.

A new kind of source is a module with a `Source` and a `Kind`, and a line in `KINDS`. The module is imported when a
source of its kind is named.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from comity.data.tables.source import Frame, Kind, Place, Source
from comity.data.tables.translation import KEYS, TranslatedSource, read_translation
from comity.errors import DataError, StudyError, did_you_mean

KINDS = {"parquet": "parquet_file:PARQUET", "csv": "csv_file:CSV", "sql": "sql:SQL", "engine": "spark:ENGINE"}
"""Where each kind is, in this package."""


@cache
def _kind(name: str) -> Kind:
    module, _, attribute = KINDS[name].partition(":")
    kind: Kind = getattr(import_module(f"comity.data.tables.{module}"), attribute)
    return kind


def open_source(value: Any, where: str = "the data", *, base: Path | None = None, confined: bool = False) -> Source:
    """A source from a DataFrame, a path by its suffix, or a table as under [data] in a site file.

    Relative paths start at `base`, the folder of the file that names them, and do not leave it where they are
    `confined`. A missing file is an error now, before anything is approved or reserved. A file without records is not.
    """
    if isinstance(value, Source):
        return value
    if not isinstance(value, str | Path | Mapping):
        import pandas as pd

        if isinstance(value, pd.DataFrame):
            return Frame(value, where)
    if isinstance(value, str | Path):
        value = {"source": _kind_of(Path(value), where, base), "path": value}
    if not isinstance(value, Mapping):
        raise DataError(
            f"{where}: expected a DataFrame, a path or a table with source = ..., found "
            f"{type(value).__name__}; give one of these."
        )
    kind, translation = check_table(value, where), read_translation(value, where)
    place = Place(where, base, confined)
    if translation is None:
        return _kind(kind).open(value, place)
    inner = _kind(kind).open({key: entry for key, entry in value.items() if key not in KEYS}, place)
    from comity.data.tables.csv_file import Csv

    if isinstance(inner, Csv):
        # The reader needs to know these before it takes a column for numbers, or for text.
        inner = replace(inner, missing=translation.missing, blanks=translation.blanks, texts=translation.texts)
    # A record without a value is incomplete whatever the translation of that column.
    inner = inner.without_blanks([translation.own_name(name) for name in translation.complete])
    return TranslatedSource(inner, translation, f"{where} ({value['path']})" if "path" in value else where)


def check_table(table: Mapping[str, Any], where: str) -> str:
    """Check the keys of a table and return the kind of source that it names. No file is looked for. Errors show no
    value, because it may be a password in a wrong place."""
    kind = table.get("source")
    if kind is None and "engine" in table:
        kind = "engine"
    if kind is None and isinstance(table.get("path"), str | Path) and not {"query", "table", "url"} & set(table):
        kind = _suffix(Path(table["path"]))
    if not isinstance(kind, str) or kind not in KINDS:
        raise StudyError(f"{where}: source: unknown source {kind!r}{did_you_mean(str(kind), KINDS)}", key="source")
    known = (*_kind(kind).keys, *KEYS)
    for key, entry in table.items():
        if key not in known:
            raise StudyError(f"{where}: {key}: unknown key {key!r}{did_you_mean(str(key), known)}", key=str(key))
        if key in KEYS or key == "engine":
            continue
        # A tab is blank, and is a separator.
        if not isinstance(entry, str | Path) or not (str(entry).strip() or key == "separator"):
            form = "a blank one" if isinstance(entry, str) else type(entry).__name__
            raise StudyError(f"{where}: {key}: expected text, found {form}; write it in quotes.", key=key)
    _kind(kind).check(table, where)
    read_translation(table, where)
    return kind


def kind_by_suffix(path: Path) -> str | None:
    kind = _suffix(path)
    return kind if kind in KINDS and _kind(kind).has_suffix else None


def _suffix(path: Path) -> str:
    return path.suffix.lower().lstrip(".")


def _kind_of(path: Path, where: str, base: Path | None) -> str:
    # A path folds the two slashes of a URL into one.
    if re.match(r"[A-Za-z][A-Za-z0-9+_]+:/", str(path)):
        # The URL is not shown: it may contain a password.
        raise StudyError(
            f'{where}: expected a file, found a URL; give a table {{source = "sql", url = "...", table = "..."}}.',
            key="url",
        )
    if not path.suffix and (path if base is None else base / path).is_dir():
        return "parquet"
    kind = kind_by_suffix(path)
    if kind is None:
        suffixes = " or ".join(f".{name}" for name in sorted(KINDS) if _kind(name).has_suffix)
        *others, last = (f'"{name}"' for name in sorted(KINDS))
        raise DataError(
            f"{where}: {path} is not recognised by its suffix; expected {suffixes}. Convert it, or give a table with "
            f"source = {', '.join(others)} or {last}."
        )
    return kind
