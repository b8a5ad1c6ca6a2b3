"""Names of files that another party chose: in packed studies, signed results, artefacts and study files.

Promise    A name that passes stays inside its folder on every system. Reading follows no link, writing replaces
           nothing. A missing file is an error, never an empty one.
Against    An author of the list of files, and anyone who puts links into the folder, also while it is read.
"""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from comity.untrusted.text import is_hidden

_MAX_PARTS: Final = 8
_MAX_PART_BYTES: Final = 200
_PORTABLE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._ -]{0,99}", re.ASCII)
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class UnsafeName(ValueError):
    """A name that may lead out of its folder. The sentence follows the name and says what is wrong with it."""


def check_name(name: Any, *, portable: bool = False) -> str:
    """`name`, if it is a relative path inside a folder: parts joined by /, none hidden, no "..", no root, no drive, no
    control character. A `portable` name has ASCII letters, digits, spaces and `._-` alone."""
    if not isinstance(name, str) or not name:
        raise UnsafeName("is empty, or no text")
    if has_control_characters(name):
        raise UnsafeName("has a control or invisible character")
    parts = name.split("/")
    if len(parts) > _MAX_PARTS:
        raise UnsafeName(f"has more than {_MAX_PARTS} parts")
    for part in parts:
        if not part or part.startswith(".") or part.endswith((".", " ")) or "\\" in part or ":" in part:
            raise UnsafeName("is absolute, leads up, or has a hidden or empty part")
        if len(part.encode()) > _MAX_PART_BYTES:
            raise UnsafeName(f"has a part of more than {_MAX_PART_BYTES} bytes")
        if portable and not _PORTABLE.fullmatch(part):
            raise UnsafeName("has other characters than letters, digits, spaces and ._-")
    return name


def has_control_characters(text: str) -> bool:
    """Whether a text has invisible characters or ones that no file name can have: controls, overrides of the writing
    direction, zero-width characters, lone surrogates, line separators."""
    return any(map(is_hidden, text))


def is_inside(folder: Path, path: Path) -> bool:
    """Whether `path` lies in `folder` after following every link; False where that can't be decided."""
    try:
        return path.resolve().is_relative_to(folder.resolve())
    except (OSError, ValueError, RuntimeError):
        return False


def read_inside(folder: Path, name: Any) -> bytes:
    """The content of a regular file of `folder`. Raises `UnsafeName` for a name that leads elsewhere, `OSError` for a
    file that is missing or reached through a link."""
    *folders, leaf = check_name(name).split("/")
    parent = _open_folder(folder, folders)
    try:
        file = os.open(leaf, _READ, dir_fd=parent)
    finally:
        os.close(parent)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise UnsafeName("is no regular file")
    with os.fdopen(file, "rb") as opened:
        return opened.read()


def write_inside(folder: Path, name: Any, content: bytes) -> None:
    """Make a new file in `folder`, and its parent folders, readable by their owner alone. Raises `OSError` where the
    file exists."""
    *folders, leaf = check_name(name).split("/")
    parent = _open_folder(folder, folders, make=True)
    try:
        file = os.open(leaf, _WRITE, 0o600, dir_fd=parent)
    finally:
        os.close(parent)
    with os.fdopen(file, "wb") as opened:
        opened.write(content)


def _open_folder(folder: Path, parts: list[str], *, make: bool = False) -> int:
    """A descriptor of the folder at the end of these parts, each opened inside the one before: no link is followed."""
    current = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for part in parts:
        try:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(part, 0o700, dir_fd=current)
            inner = os.open(part, _FOLDER, dir_fd=current)
        finally:
            os.close(current)
        current = inner
    return current
