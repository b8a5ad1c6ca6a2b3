"""Where this machine remembers what it has seen of ledgers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def witnesses_in(folder: Path) -> Iterator[None]:
    """Remembered in this folder, for fixtures that outlive a test; a test's own is set with `monkeypatch`."""
    before = os.environ.get("COMITY_HOME")
    os.environ["COMITY_HOME"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["COMITY_HOME"]
        else:
            os.environ["COMITY_HOME"] = before
