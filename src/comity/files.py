"""Files and folders that only their owner may read, whatever the umask of the process.

Promise    What is made here has mode 0600, a folder 0700, from the moment it exists. A file that is opened again with a
           wider mode is narrowed. Folders that were there before are left as their owner made them.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

FILE_MODE, FOLDER_MODE = 0o600, 0o700
OTHERS = 0o077
"""The bits of a mode that let anybody but the owner do something."""
_LOOK = 0.05


def make_folder(path: Path, *, exist_ok: bool = True) -> None:
    """Make a folder and those above it that are missing."""
    if not path.parent.exists():
        make_folder(path.parent)
    path.mkdir(mode=FOLDER_MODE, exist_ok=exist_ok)


def open_private(path: str | os.PathLike[str], flags: int = os.O_RDWR) -> int:
    """A descriptor of the file, which is made where it is not there. `flags` are those of `os.open`."""
    descriptor = os.open(path, flags | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    try:
        found = os.fstat(descriptor)
        if stat.S_IMODE(found.st_mode) & OTHERS and stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid():
            os.fchmod(descriptor, FILE_MODE)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def make_file(path: Path) -> None:
    """An empty file, for a writer that opens files by name; what was there is gone."""
    os.close(open_private(path, os.O_WRONLY | os.O_TRUNC))


def write_file(path: Path, content: bytes | str) -> None:
    """Write a file and make the folders above it that are missing."""
    make_folder(path.parent)
    with os.fdopen(open_private(path, os.O_WRONLY | os.O_TRUNC), "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)


def write_new(path: Path, content: bytes | str) -> None:
    """Write a file that is not there yet; `FileExistsError` where it is."""
    with os.fdopen(open_private(path, os.O_WRONLY | os.O_EXCL), "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)


def narrow(folder: Path) -> None:
    """Take from everybody but the owner what is in a folder, and the folder: for what a library wrote there."""
    folder.chmod(FOLDER_MODE)
    for path in folder.rglob("*"):
        if not path.is_symlink():
            path.chmod(FOLDER_MODE if path.is_dir() else FILE_MODE)


def is_wider(path: Path) -> bool:
    """Whether anybody but the owner may do something with it. What is not there is not wider."""
    try:
        return bool(stat.S_IMODE(path.stat().st_mode) & OTHERS)
    except FileNotFoundError:
        return False


@contextmanager
def locked(path: Path, *, seconds: float, blocked: Callable[[], Exception]) -> Iterator[None]:
    """Hold the lock of a file, which the system releases however the process ends. Raises what `blocked` makes where
    another one holds it for so long."""
    end = time.monotonic() + seconds
    descriptor = open_private(path)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= end:
                    raise blocked() from None
                time.sleep(_LOOK)
        yield
    finally:
        os.close(descriptor)
