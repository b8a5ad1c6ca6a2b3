"""Files and folders that only their owner may read, and locks that are not waited for without end."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from comity.errors import BadInput
from comity.files import is_shared, locked, make_file, make_folder, make_private, open_private, write_file, write_new
from tests.support.modes import umask_zero, wider


@pytest.fixture
def open_umask() -> Iterator[None]:
    with umask_zero():
        yield


def test_what_is_made_is_the_owners_alone(tmp_path: Path, open_umask: None) -> None:
    make_folder(tmp_path / "one" / "two" / "three")
    make_file(tmp_path / "one" / "made")
    write_new(tmp_path / "one" / "new", "text")
    write_file(tmp_path / "other" / "two" / "file", b"bytes")
    assert wider(tmp_path) == []
    with pytest.raises(FileExistsError):
        write_new(tmp_path / "one" / "new", "text")
    with pytest.raises(FileExistsError):
        make_folder(tmp_path / "one", exist_ok=False)


def test_a_file_that_was_wider_is_narrowed_and_folders_of_others_are_left(tmp_path: Path, open_umask: None) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "old").touch()
    write_file(tmp_path / "theirs" / "old", "new")
    os.close(open_private(tmp_path / "theirs" / "lock"))
    assert is_shared(tmp_path / "theirs") and wider(tmp_path / "theirs") == []
    (tmp_path / "theirs" / "deep").mkdir()
    (tmp_path / "theirs" / "deep" / "file").touch()
    (tmp_path / "theirs" / "link").symlink_to(sys.executable)
    before = Path(sys.executable).stat().st_mode
    make_private(tmp_path / "theirs")
    assert wider(tmp_path) == [] and Path(sys.executable).stat().st_mode == before


def test_a_lock_is_free_again_after_its_block(tmp_path: Path) -> None:
    def blocked() -> BadInput:
        return BadInput("blocked")

    began = time.monotonic()
    for _ in range(2):
        lock = locked(tmp_path / "lock", seconds=0, blocked=blocked)
        with lock, pytest.raises(BadInput), locked(tmp_path / "lock", seconds=0, blocked=blocked):
            raise AssertionError("two hold it")
    assert time.monotonic() - began < 30
