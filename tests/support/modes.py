"""What others may read, of what was written with a umask that allows everything."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from comity.files import is_shared


@contextmanager
def umask_zero() -> Iterator[None]:
    before = os.umask(0)
    try:
        yield
    finally:
        os.umask(before)


def wider(folder: Path, but: Collection[Path] = ()) -> list[str]:
    """What others may do something with, of what came since."""
    return [
        f"{stat.S_IMODE(path.stat().st_mode):o} {path.relative_to(folder)}"
        for path in sorted(set(folder.rglob("*")) - set(but))
        if is_shared(path) and not path.is_symlink()
    ]
