"""Boxes of large letters, beside the database that names them: a file for each box, under its SHA-256.

Promise    A box is durable before `add` returns, and what is read is what was added: another content has another
           name. So a database commits a digest after its box, and a crash between the two leaves a file that nothing
           names. `delete` removes all boxes of a run.
Against    A database that copies each large value into its log and its pages, and overwrites them at the end.

A box is ciphertext under a key that only the keys of a run open, and these are deleted with the run: files of a run
are unlinked, not overwritten. Only their owner can read them (directories 0700, files 0600). Without a path the boxes
are in one unnamed temporary file, which vanishes with the process.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO

from comity.errors import Stopped

SUFFIX = ".boxes"
"""Follows the name of the database in that of the directory."""

LARGE_BYTES = 1 << 16
"""Shorter boxes stay in the database: a file costs more than they do."""

_RUN_CHARACTERS = 32


class BoxStore:
    """The boxes beside one database; `path` is that of the database, or None for one in memory."""

    def __init__(self, path: Path | str | None) -> None:
        self._folder = None if path is None else Path(f"{os.fspath(path)}{SUFFIX}")
        self._memory: _Unnamed | None = None

    def add(self, run: str, boxes: Mapping[bytes, bytes]) -> None:
        """Make boxes durable, by their SHA-256. One that is here already stays."""
        if not boxes:
            # Most steps have none. A file for each of hundreds of owners in a process would use up its descriptors.
            return
        try:
            if self._folder is None:
                self._memory = self._memory or _Unnamed()
                for digest, box in boxes.items():
                    self._memory.add(run, digest, box)
            else:
                folder = self._of_run(run)
                for one in (self._folder, folder):
                    if not one.is_dir():
                        one.mkdir(mode=0o700, exist_ok=True)
                        _sync(one.parent)
                for digest, box in boxes.items():
                    _write(folder / digest.hex(), box)
                _sync(folder)
        except OSError as error:
            raise Stopped(
                f"the disk is full or failed, and a letter can't be written ({error}). Nothing is lost: free some "
                "space and run again with the same run id to resume",
                code="journal",
            ) from error

    def get(self, run: str, digest: bytes) -> bytes | None:
        """The box, or None where it is missing or its file was changed."""
        if self._folder is None:
            return None if self._memory is None else self._memory.get(run, digest)
        try:
            box = (self._of_run(run) / digest.hex()).read_bytes()
        except OSError:
            return None
        return box if hashlib.sha256(box).digest() == digest else None

    def delete(self, run: str) -> None:
        """Delete all boxes of a run."""
        if self._memory is not None:
            self._memory.delete(run)
        if self._folder is not None:
            shutil.rmtree(self._of_run(run), ignore_errors=True)
            with suppress(OSError):
                # Empty where no other run has boxes.
                self._folder.rmdir()

    def leftovers(self) -> list[Path]:
        """The folders of all runs that have boxes here."""
        if self._folder is None or not self._folder.is_dir():
            return []
        return [path for path in self._folder.iterdir() if path.is_dir()]

    def delete_leftovers(self, found: list[Path], keeping: Iterable[str]) -> None:
        """Delete folders that were `found`, but those of these runs: a process may be killed after a run's end is
        committed and before its files are deleted."""
        kept = {_folder_name(run) for run in keeping}
        for path in found:
            if path.name not in kept:
                shutil.rmtree(path, ignore_errors=True)

    def _of_run(self, run: str) -> Path:
        assert self._folder is not None
        return self._folder / _folder_name(run)

    def close(self) -> None:
        if self._memory is not None:
            self._memory.close()
            self._memory = None


def _folder_name(run: str) -> str:
    # A run id may hold any character.
    return hashlib.sha256(run.encode()).hexdigest()[:_RUN_CHARACTERS]


def _write(path: Path, box: bytes) -> None:
    if path.exists():
        return
    handle, name = tempfile.mkstemp(dir=path.parent, prefix="new-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(box)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class _Unnamed:
    """Boxes in an unnamed temporary file: they take no memory of the process, and nothing is left of them."""

    def __init__(self) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
        self._places: dict[tuple[str, bytes], tuple[int, int]] = {}
        self._end = 0

    def add(self, run: str, digest: bytes, box: bytes) -> None:
        if (run, digest) in self._places:
            return
        view, at = memoryview(box), self._end
        while view:
            written = os.pwrite(self._file.fileno(), view, at)
            view, at = view[written:], at + written
        self._places[run, digest] = self._end, len(box)
        self._end = at

    def get(self, run: str, digest: bytes) -> bytes | None:
        place = self._places.get((run, digest))
        if place is None:
            return None
        start, size = place
        parts = []
        while size:
            part = os.pread(self._file.fileno(), size, start)
            if not part:
                return None
            parts.append(part)
            start, size = start + len(part), size - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def delete(self, run: str) -> None:
        self._places = {key: place for key, place in self._places.items() if key[0] != run}
        if not self._places:
            self._file.truncate(0)
            self._end = 0

    def close(self) -> None:
        self._file.close()
