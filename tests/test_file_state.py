"""A file's state changes with its content, whatever its times say."""

from __future__ import annotations

import os
from pathlib import Path

from comity.files import read_file_state


def test_the_same_time_and_size_are_not_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("wide")
    known, before = path.stat(), read_file_state(path)
    assert before is not None and read_file_state(path) == before
    with path.open("r+") as file:
        file.write("slim")
    os.utime(path, ns=(known.st_atime_ns, known.st_mtime_ns))
    after = read_file_state(path)
    assert after is not None and after != before and after[:3] == before[:3]
    # Two writes within one tick of the clock leave the time of change as it was: the content still tells.
    assert after[-1] != before[-1]


def test_a_file_that_is_touched_counts_as_changed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("text")
    before = read_file_state(path)
    os.utime(path, ns=(0, 0))
    assert read_file_state(path) != before


def test_what_is_not_there_has_no_state(tmp_path: Path) -> None:
    assert read_file_state(tmp_path / "none") is None and read_file_state(tmp_path) is None
