"""Files and folders that only their owner may read, whatever the umask of the process.

Promise    A file made here has mode 0600 and a folder 0700, from the moment it exists. A file that is opened again with
           a wider mode gets 0600. Folders that existed before keep the mode that their owner gave them.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from comity.errors import BadInput

FILE_MODE, FOLDER_MODE = 0o600, 0o700
OTHERS = 0o077
"""The permission bits of everybody but the owner."""
_POLL_SECONDS = 0.05

FileState = tuple[int, int, int, int, str]


def make_folder(path: Path, *, exist_ok: bool = True) -> None:
    """Make a folder and its missing parents."""
    if not path.parent.exists():
        make_folder(path.parent)
    path.mkdir(mode=FOLDER_MODE, exist_ok=exist_ok)


def open_private(path: str | os.PathLike[str], flags: int = os.O_RDWR) -> int:
    """A descriptor of the file, which is created where it is missing. `flags` are those of `os.open`."""
    descriptor = os.open(path, flags | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    try:
        status = os.fstat(descriptor)
        if stat.S_IMODE(status.st_mode) & OTHERS and stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
            os.fchmod(descriptor, FILE_MODE)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def make_file(path: Path) -> None:
    """Create an empty file, or empty an existing one, for a writer that opens files by name."""
    os.close(open_private(path, os.O_WRONLY | os.O_TRUNC))


def write_file(path: Path, content: bytes | str) -> None:
    """Write a file and make its missing parent folders."""
    make_folder(path.parent)
    with os.fdopen(open_private(path, os.O_WRONLY | os.O_TRUNC), "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)


def write_new(path: Path, content: bytes | str) -> None:
    """Write a new file; `FileExistsError` where one exists."""
    with os.fdopen(open_private(path, os.O_WRONLY | os.O_EXCL), "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)


def write_atomically(path: Path, text: str) -> None:
    """Write under another name, flush to disk, then rename: a reader finds the old file or the new one, never a part.

    A file that can't be written is a `BadInput`."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        make_folder(path.parent)
        fresh.unlink(missing_ok=True)
        with os.fdopen(open_private(fresh, os.O_WRONLY | os.O_EXCL), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        raise BadInput(f"{path}: can't be written ({error.strerror}); choose another place", code="output") from error


def make_private(folder: Path) -> None:
    """Restrict a folder and everything in it to the owner, after a library has written there."""
    folder.chmod(FOLDER_MODE)
    for path in folder.rglob("*"):
        if not path.is_symlink():
            path.chmod(FOLDER_MODE if path.is_dir() else FILE_MODE)


def is_shared(path: Path) -> bool:
    """Whether anybody but the owner has a permission. A missing file is not shared."""
    try:
        return bool(stat.S_IMODE(path.stat().st_mode) & OTHERS)
    except FileNotFoundError:
        return False


def read_file_state(path: Path) -> FileState | None:
    """A value that changes whenever a small file does; None where it can't be read.

    A digest of the content, and inode, size and times: a file that was only touched counts as changed. A time of
    modification alone is not enough: `cp -p`, `rsync -t` and a restored backup keep it.
    """
    try:
        known = path.stat()
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None
    return known.st_ino, known.st_size, known.st_mtime_ns, known.st_ctime_ns, digest


@contextmanager
def locked(path: Path, *, seconds: float, blocked: Callable[[], Exception]) -> Iterator[None]:
    """Hold the lock of a file, which the system releases however the process ends.

    Raises what `blocked` makes where another process holds the lock for longer than `seconds`."""
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
                time.sleep(_POLL_SECONDS)
        yield
    finally:
        os.close(descriptor)
