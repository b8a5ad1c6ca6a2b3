"""Files that are missing, damaged, read-only, or no ledger at all."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.ledgers import RECORD, create_ledger

from comity.errors import BadInput, ComityError, Refused
from comity.privacy.ledger import Draw, Ledger
from comity.privacy.loss import ZCDP, Pure


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return create_ledger(tmp_path, Pure(3))


def test_an_existing_file_is_never_overwritten(ledger: Ledger, tmp_path: Path) -> None:
    before = ledger.head()
    with pytest.raises(Refused, match="never overwritten"):
        create_ledger(tmp_path, Pure(1))
    assert ledger.head() == before


def test_a_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"none\.ledger: there is no such ledger.*comity ledger init"):
        Ledger(tmp_path / "none.ledger")
    with pytest.raises(BadInput, match="can't be created here"):
        create_ledger(tmp_path / "no-folder", Pure(1))
    assert not (tmp_path / "none.ledger").exists()


def test_random_bytes_other_databases_and_folders(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(os.urandom(5000))
    (tmp_path / "empty").touch()
    other = sqlite3.connect(tmp_path / "other")
    other.execute("CREATE TABLE t (a)")
    other.close()
    for name in ("bytes", "empty", "other"):
        with pytest.raises(BadInput, match="expected a ledger, found another file"):
            Ledger(tmp_path / name)
    with pytest.raises(ComityError, match="can't be written"):
        Ledger(tmp_path)


def test_a_wrong_grant_leaves_no_file(tmp_path: Path) -> None:
    for grant in (ZCDP(1), None):
        with pytest.raises(BadInput):
            create_ledger(tmp_path, grant)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_page_is_said_to_be_damage(ledger: Ledger) -> None:
    path = ledger.path
    assert path is not None
    for run in range(40):
        draw = Draw("votes", 0, Pure("0.01"), "discrete laplace", 1)
        ledger.reserve(study="s", run=f"r{run}", draws=[draw], **RECORD)
    del ledger
    data = bytearray(path.read_bytes())
    for page in range(1, len(data) // 4096):
        data[page * 4096 : page * 4096 + 200] = os.urandom(200)
    path.write_bytes(data)
    with pytest.raises(ComityError, match=r"damaged|chain"):
        Ledger(path).verify()


WRITE_AS_NOBODY = """
import os, sys
from comity.errors import Refused
from comity.privacy.ledger import Ledger
from comity.privacy.loss import Pure
if os.getuid() == 0:
    os.setgid(65534); os.setuid(65534)
try:
    Ledger(sys.argv[1]).grant_more(Pure(1), "more")
except Refused as refusal:
    print(refusal)
"""


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that other users may enter, unlike those of pytest."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.parametrize(
    ("file", "folder", "home", "sentence"),
    [
        (0o444, 0o555, 0o777, "the ledger can't be written"),
        (0o666, 0o777, 0o555, "heads: Comity stores the last head of each ledger in this folder and can't write to it"),
    ],
)
def test_a_read_only_ledger_or_home_is_named(shared: Path, file: int, folder: int, home: int, sentence: str) -> None:
    place, kept = shared / "place", shared / "kept"
    place.mkdir()
    kept.mkdir()
    create_ledger(place, Pure(1))
    path = place / "north.ledger"
    path.chmod(file)
    place.chmod(folder)
    kept.chmod(home)
    try:
        said = subprocess.run(
            [sys.executable, "-c", WRITE_AS_NOBODY, str(path)],
            env={**os.environ, "COMITY_HOME": str(kept)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    finally:
        place.chmod(0o755)
        kept.chmod(0o755)
    assert sentence in said
    assert Ledger(path).verify().entries == 1
