"""Files that are either there in full or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from comity.errors import BadInput


def write_text(path: Path, text: str) -> None:
    """Write under another name, flush to disk, then rename: whoever reads meanwhile finds the old file or the new."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with fresh.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        raise BadInput(f"{path}: can't be written ({error.strerror}); choose another place", code="output") from error
