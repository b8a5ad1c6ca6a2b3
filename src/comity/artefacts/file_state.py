"""Whether a file is still the one that was read."""

from __future__ import annotations

import hashlib
from pathlib import Path

FileState = tuple[int, int, int, int, str]


def file_state(path: Path) -> FileState | None:
    """What changes whenever a small file does: its content by a digest, and also its inode, size and times, so that a
    file that was only touched counts as changed. None where it can't be read.

    A time of modification alone says nothing: `cp -p`, `rsync -t` and a restored backup keep it.
    """
    try:
        known = path.stat()
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None
    return known.st_ino, known.st_size, known.st_mtime_ns, known.st_ctime_ns, digest
