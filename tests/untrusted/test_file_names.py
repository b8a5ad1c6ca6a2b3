"""Names of files that somebody else chose, and links that somebody else made."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import pytest

from comity.untrusted.file_names import UnsafeName, check_name, is_inside, read_inside, write_inside

UNSAFE = (
    *(
        "",
        ".",
        "..",
        "/",
        "/etc/passwd",
        "../x",
        "a/../../x",
        "a/../x",
        "a//b",
        "a/./b",
        "./a",
        "a/",
        ".hidden",
        "a/.ssh",
    ),
    *("a\\b", "C:x", "a\0b", "a\nb", "a\x1b[2J", "a\x7f", "a\x9bb", "re\u202egnp", "a\u200bb", "a\u2028b", "\ud800"),
    *("x" * 201, "\u00e9" * 101, "/".join("a" * 9), "a. ", "a.", "a /b", None, 7, b"a", ["a"]),
)


@pytest.mark.parametrize("name", UNSAFE, ids=range(len(UNSAFE)))
def test_an_unsafe_name_is_neither_read_nor_written(tmp_path: Path, name: Any) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "x").write_text("precious")
    for portable in (False, True):
        with pytest.raises(UnsafeName):
            check_name(name, portable=portable)
    with pytest.raises(UnsafeName):
        read_inside(folder, name)
    with pytest.raises(UnsafeName):
        write_inside(folder, name, b"")
    assert not list(folder.iterdir()) and (tmp_path / "x").read_text() == "precious"


def test_plain_names_are_read_as_they_were_written(tmp_path: Path) -> None:
    names = ("result.json", "released/arrays.npz", "parties/%C3%A9t\u00e9 2/own/x.csv", "a..b", "-rf", "~x")
    for name in names:
        write_inside(tmp_path, name, name.encode())
        assert check_name(name) == name and read_inside(tmp_path, name) == name.encode()
    made = list(tmp_path.rglob("*"))
    assert {path.stat().st_mode & 0o077 for path in made} == {0}
    for name in ("caf\u00e9.csv", "~x", "-rf", "a%20b", "x" * 101):
        check_name(name)
        with pytest.raises(UnsafeName):
            check_name(name, portable=True)


def test_no_link_is_followed_and_nothing_is_replaced(tmp_path: Path) -> None:
    folder, victim = tmp_path / "folder", tmp_path / "victim"
    folder.mkdir()
    victim.write_text("precious")
    (folder / "file").write_text("x")
    (folder / "link").symlink_to(victim)
    (folder / "dangling").symlink_to(tmp_path / "new")
    (folder / "way").symlink_to(tmp_path)
    (folder / "loop").symlink_to(folder / "loop")
    os.mkfifo(folder / "pipe")
    for name in ("link", "dangling", "way/victim", "missing", "loop", "file/x"):
        with pytest.raises(OSError):
            read_inside(folder, name)
    for name in ("pipe", "."):
        with pytest.raises(UnsafeName):
            read_inside(folder, name)
    for name in ("link", "dangling", "way/new", "file", "loop", "file/x"):
        with pytest.raises(OSError):
            write_inside(folder, name, b"")
    assert victim.read_text() == "precious" and not (tmp_path / "new").exists()
    assert all(is_inside(folder, folder / name) for name in ("file", "missing"))
    assert not any(is_inside(folder, folder / name) for name in ("link", "way/victim", "loop", "a\0b", "../victim"))


def test_reading_leaves_no_descriptor_open(tmp_path: Path) -> None:
    write_inside(tmp_path, "a/b/c", b"x")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for name in ("a/b/c", "a/b/missing", "a/missing/c", "a/b"):
        with contextlib.suppress(OSError, UnsafeName):
            read_inside(tmp_path, name)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
