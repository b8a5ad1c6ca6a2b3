from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from comity.crypto import key_file
from comity.crypto.sealing import PublicIdentity
from comity.errors import BadInput


def test_new_keys_are_shown_as_the_roster_wants_them_and_never_overwritten(tmp_path: Path, comity: Any) -> None:
    path = tmp_path / "north.key"
    made = comity("keys", "new", path, "--party", "north")
    assert made.code == 0, made.err
    pinned = tomllib.loads(made.out)["parties"]["north"]["keys"]
    assert path.stat().st_mode & 0o777 == 0o600
    assert PublicIdentity.from_texts(pinned) == key_file.load(path).public
    fingerprint = key_file.load(path).public.fingerprint
    document = {"party": "north", "keys": pinned, "fingerprint": fingerprint}
    assert comity("keys", "show", path, "--party", "north", "--json").document == document
    assert key_file.load(path).public.relay_user(pinned["relay"]) == key_file.load_relay_key(path).user
    assert made.out.startswith(f"# fingerprint: {fingerprint}\n")
    wrong = comity("keys", "new", tmp_path / "other.key", "--party", "n\u200borth")
    assert wrong.code == 3 and "name of a party" in wrong.err and not (tmp_path / "other.key").exists()
    again = comity("keys", "new", path)
    assert again.code == 3 and "already" in again.err
    assert path.read_text().strip().removeprefix("comity-identity-1:") not in made.out


def test_files_that_are_no_keys_or_readable_by_others_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.key"
    with pytest.raises(BadInput, match="no such key file"):
        key_file.load(path)
    key_file.create(path)
    path.chmod(0o644)
    with pytest.raises(BadInput, match="chmod 600"):
        key_file.load(path)
    path.chmod(0o600)
    for text in ("", "nonsense", "comity-identity-1:zz", "comity-identity-1:" + "00" * 31):
        path.write_text(text)
        with pytest.raises(BadInput, match="not a key file"):
            key_file.load(path)
