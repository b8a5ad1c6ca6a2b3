"""Files that are either there in full or not at all, and their owner's alone."""

from __future__ import annotations

import os
from pathlib import Path

from comity.errors import BadInput
from comity.files import make_folder, open_private


def write_text(path: Path, text: str) -> None:
    """Write under another name, flush to disk, then rename: whoever reads meanwhile finds the old file or the new."""
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
