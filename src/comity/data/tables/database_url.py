"""A database's URL: without a password, without parameters that could carry one or make a driver do more than connect.

A study is copied into run folders, shown in reports and given to others, so a password does not stand in it. It stands
in a file that its owner alone can read, or where the driver looks by itself (`~/.pgpass`, `~/.my.cnf`).
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from urllib.parse import parse_qsl, unquote

from comity.errors import DataError, StudyError

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
