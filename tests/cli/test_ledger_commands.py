"""`comity ledger`: what was typed wrongly ends with 3, what the ledger refuses with 4."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from comity.errors import Refused
from comity.privacy.ledger import Draw, Ledger
from comity.privacy.loss import GDP, Approx
from tests.support.ledgers import RECORD


@pytest.fixture
def path(comity: Any, tmp_path: Path) -> Path:
    found = tmp_path / "north.ledger"
    assert comity("ledger", "init", found, "--dataset", "patients", "--epsilon", "3", "--delta", "1e-5").code == 0
    return found


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["grant", "LEDGER", "--epsilon", "1", "--why", ""], "why"),
        (["grant", "LEDGER", "--epsilon", "1", "--why", "x", "--dataset", "pets"], "has no dataset pets"),
        (["write-off", "LEDGER", "--all", "--why", ""], "why"),
        (["init", "FOLDER/none/a.ledger", "--dataset", "x", "--epsilon", "1"], "can't be created here"),
        (["init", "FOLDER/b.ledger", "--dataset", "", "--epsilon", "1"], "dataset"),
        (["init", "FOLDER/b.ledger", "--dataset", "x", "--epsilon", "1", "--currency", "gaussian"], "--currency"),
        (["init", "FOLDER/b.ledger", "--dataset", "x", "--epsilon", "1e9999999"], "epsilon"),
        (["verify", "FOLDER/none.json"], "export it again"),
        (["verify", "FOLDER/list.json"], "export it again"),
        (["verify", "FOLDER/other.json"], "export it again"),
        (["verify", "FOLDER/deep.json"], "export it again"),
        (["export", "LEDGER", "--to", "FOLDER/none/x.json"], "can't be written"),
        (["show", "FOLDER/list.json"], "expected a ledger"),
    ],
)  # fmt: skip
def test_what_was_typed_wrongly_ends_with_3(comity: Any, path: Path, arguments: list[str], said: str) -> None:
    folder = path.parent
    (folder / "list.json").write_text("[1, 2]")
    (folder / "other.json").write_text('{"format": "other"}')
    (folder / "deep.json").write_text("[" * 100_000)
    before = Ledger(path).commit_head()
    ended = comity("ledger", *(text.replace("LEDGER", str(path)).replace("FOLDER", str(folder)) for text in arguments))
    assert ended.code == 3 and said in ended.err, ended.err
    assert Ledger(path).commit_head() == before


def test_a_broken_export_is_refused(comity: Any, path: Path, tmp_path: Path) -> None:
    exported = tmp_path / "x.json"
    shown = comity("ledger", "export", path)
    assert json.loads(shown.out)["entries"][0]["kind"] == "create"
    assert comity("ledger", "export", path, "--to", exported).code == 0
    document = json.loads(exported.read_text())
    entries: list[Any]
    for entries in ([{}], [7], []):
        exported.write_text(json.dumps({**document, "entries": entries}))
        assert comity("ledger", "verify", exported).code == 4


def test_a_run_is_abandoned_for_good(comity: Any, path: Path) -> None:
    Ledger(path).reserve(study="s", run="lost", draws=[Draw("v", 0, GDP("0.1"), "m", 1)], **RECORD)
    (account,) = comity("ledger", "show", path, "--json").document["accounts"]
    assert float(account["reserved_epsilon"]) > 0 and account["currency"] == "gaussian"
    for _ in range(2):
        ended = comity("ledger", "abandon", path, "lost")
        assert ended.code == 0 and "reserved 0.00, left 3.00" in ended.out
    with pytest.raises(Refused, match="abandoned"):
        Ledger(path).draw(run="lost", release="v", index=0, step="s")


def test_a_moved_ledger_says_how_to_unfreeze_it(
    comity: Any, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMITY_HOME", str(tmp_path / "new machine"))
    verified = comity("ledger", "verify", path)
    assert verified.code == 0 and "FROZEN" in verified.out and "copy its witness" in verified.out
    assert comity("ledger", "write-off", path, "--epsilon", "0", "--why", "moved by hand").code == 0
    assert "FROZEN" not in comity("ledger", "show", path).out and "left 3.00" in comity("ledger", "show", path).out


# Nobody may be unable to read the interpreter's libraries, so those that are imported late are imported first.
SHOW_AS_NOBODY = """
import os, sys
import scipy.special
from comity.privacy.ledger import Ledger
if os.getuid() == 0:
    os.setgid(65534); os.setuid(65534)
ledger = Ledger(sys.argv[1])
print(ledger.summary()[0], ledger.verify().entries)
"""


def test_a_ledger_on_read_only_media_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        place, home = Path(folder) / "media", Path(folder) / "home"
        place.mkdir()
        home.mkdir(mode=0o777)
        monkeypatch.setenv("COMITY_HOME", str(home))
        ledger = Ledger.create(place / "a", dataset="patients", grant=Approx(3, "1e-5"), **RECORD)
        ledger.reserve(study="s", run="r", draws=[Draw("v", 0, GDP("0.1"), "m", 1)], **RECORD)
        del ledger
        for name in home.rglob("*"):
            name.chmod(0o777 if name.is_dir() else 0o644)
        (place / "a").chmod(0o444)
        place.chmod(0o555)
        try:
            said = subprocess.run(
                [sys.executable, "-c", SHOW_AS_NOBODY, str(place / "a")],
                capture_output=True,
                text=True,
                check=False,
            )
        finally:
            place.chmod(0o755)
        assert said.returncode == 0, said.stderr
        assert "patients · record, replace" in said.stdout and said.stdout.endswith(" 2\n")
        assert "FROZEN" not in said.stdout


def test_an_export_is_signed_and_verified_with_the_owners_public_keys(comity: Any, path: Path, tmp_path: Path) -> None:
    for name in ("north", "other"):
        assert comity("keys", "new", tmp_path / f"{name}.keys").code == 0
        shown = comity("keys", "show", tmp_path / f"{name}.keys", "--party", name)
        (tmp_path / f"{name}.toml").write_text(shown.out)
    assert comity("ledger", "grant", path, "--epsilon", "1", "--why", "a board's decision").code == 0
    exported = tmp_path / "x.json"
    made = comity("ledger", "export", path, "--to", exported, "--keys", tmp_path / "north.keys", "--json")
    assert made.code == 0 and made.document["signed"] is True and made.err == ""
    verified = comity("ledger", "verify", exported, "--signed-by", tmp_path / "north.toml")
    assert verified.code == 0 and "the ledger had exactly these entries then" in verified.out
    unchecked = comity("ledger", "verify", exported)
    assert unchecked.code == 0 and "NOT CHECKED" in unchecked.out and "--signed-by" in unchecked.out
    assert comity("ledger", "verify", exported, "--signed-by", tmp_path / "other.toml").code == 4
    document = json.loads(exported.read_text())
    first = document["entries"][:1]
    exported.write_text(json.dumps({**document, "entries": first, "head": first[0]["head"]}))
    assert comity("ledger", "verify", exported).code == 0, "a prefix of the chain is a chain"
    refused = comity("ledger", "verify", exported, "--signed-by", tmp_path / "north.toml")
    assert refused.code == 4 and "not what its owner signed" in refused.err and refused.err.count("\n") == 1
    wrong = comity("ledger", "verify", path, "--signed-by", tmp_path / "north.toml")
    assert wrong.code == 3 and "leave it out" in wrong.err
    none = comity("ledger", "verify", exported, "--signed-by", tmp_path / "x.json")
    assert none.code == 3 and "comity keys show" in none.err


def test_an_export_without_a_signature_says_what_it_does_not_prove(comity: Any, path: Path, tmp_path: Path) -> None:
    made = comity("ledger", "export", path, "--to", tmp_path / "x.json")
    assert made.code == 0 and "nothing proves that the owner wrote them or that none is missing" in made.err
    verified = comity("ledger", "verify", tmp_path / "x.json")
    assert verified.code == 0 and "NOT SIGNED" in verified.out and "none is missing" in verified.out
    assert "NOT SIGNED" in comity("ledger", "verify", tmp_path / "x.json", "--json").document["proof"]
    assert "NOT SIGNED" not in comity("ledger", "verify", path).out
