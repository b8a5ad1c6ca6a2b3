"""Attacks by packed studies that reach a site over the relay: what is refused leaves no study in its inbox."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from comity.crypto.sealing import Identity
from comity.federation.messages.codec import decode, encode
from comity.federation.messages.signatures import SIGNATURE_BYTES
from comity.federation.messages.wire_format import WIRE_FORMAT
from comity.site.pack import _signed
from comity.study.study import Study
from tests.support.relays import needs_server
from tests.support.sites import keys_table

from .matrix import attack

pytestmark = needs_server

INBOX = "the site, before the study is in its inbox"


@pytest.fixture
def inbox(attacked: Any) -> Iterator[Any]:
    """Nothing of what is tried is left in north's folder."""
    folder = attacked.sites.home("north")

    def there() -> set[Any]:
        return {path for path in folder.rglob("*") if "refusals" not in path.name and ".ledger" not in path.name}

    before = there()
    yield attacked
    assert there() == before


def files_of(attacked: Any, **study: Any) -> Any:
    raw = attacked.sites.pack(attacked.sites.study(at="packed", **study))
    return decode(raw[:-SIGNATURE_BYTES])["files"]


def forged(attacked: Any, files: Any, keys: Any = None) -> Any:
    """A pack as a submitter makes it who does not use our program."""
    body = encode({"format": f"comity-study-{WIRE_FORMAT}", "files": files})
    return body + (keys or attacked.sites.coordinator).sign(_signed(body))


@attack(
    "a study of a submitter whom the owner does not know",
    by=INBOX,
    told="policy",
    sees="none of policy.submitters",
)
def test_a_stranger_submits_nothing(row: Any, inbox: Any) -> None:
    for keys in (Identity(), inbox.sites.identity("south")):
        assert inbox.submit(forged(inbox, files_of(inbox), keys))["refused"] == row.told and inbox.sees(row.sees)


@attack(
    "a study that was altered on the way, or signed for another",
    by=INBOX,
    told="policy",
    sees="or it was altered on the way",
)
def test_an_altered_pack_is_refused(row: Any, inbox: Any) -> None:
    raw = forged(inbox, files_of(inbox))
    for place in (0, len(raw) // 2, len(raw) - 1):
        changed = raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :]
        assert inbox.submit(changed)["refused"] == row.told and inbox.sees(row.sees)


@attack(
    "path tricks: names of files that lead out of the study's folder",
    by=INBOX,
    told="form",
    sees="can't name a file inside the study's folder",
)
def test_no_name_leads_out_of_the_folder(row: Any, inbox: Any) -> None:
    for name in ("../north.keys", "/etc/passwd", "a/../../site.toml", "..\\site.toml"):
        assert inbox.submit(forged(inbox, {**files_of(inbox), name: b"planted"}))["refused"] == row.told, name
        assert inbox.sees(row.sees)


@attack(
    "path tricks: a study that names files elsewhere as its own",
    by=INBOX,
    told="bad-study",
    sees="leads out of the study's folder",
)
def test_a_study_reads_nothing_outside_its_folder(row: Any, inbox: Any) -> None:
    files = files_of(inbox)
    for path in ("../../../schema.toml", "/etc/passwd", str(inbox.sites.home("north") / "patients.csv")):
        text = files["study.toml"].replace(b'schema = "schema.toml"', f"schema = {path!r}".encode())
        found = inbox.submit(forged(inbox, {**files, "study.toml": text}))
        assert found["refused"] == row.told and inbox.sees(row.sees), path


@attack(
    "submitted code: programs and pickles beside the study",
    by=INBOX,
    told="form",
    sees="which the study does not name",
)
def test_a_pack_brings_no_code(row: Any, inbox: Any) -> None:
    for name in ("evil.py", "sitecustomize.py", "model.pkl"):
        assert inbox.submit(forged(inbox, {**files_of(inbox), name: b"import os"}))["refused"] == row.told, name
        assert inbox.sees(row.sees)


@attack(
    "submitted code: a method by the name of a module, or a pickle in place of a file that the study names",
    by=INBOX,
    told="bad-study",
    sees="must be one of averaging",
)
def test_a_study_names_no_code(row: Any, inbox: Any, tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return (open, (str(tmp_path / "ran"), "w"))

    files = files_of(inbox)
    for put in (b'"os.system"', b'"comity.cli:main"', b'"evil"', b'"../evil"'):
        text = files["study.toml"].replace(b'protocol = "averaging"', b"protocol = " + put)
        assert inbox.submit(forged(inbox, {**files, "study.toml": text}))["refused"] == row.told, put
        assert inbox.sees(row.sees)
    assert inbox.submit(forged(inbox, {**files, "schema.toml": pickle.dumps(Evil())}))["refused"] == "bad-schema"
    assert not (tmp_path / "ran").exists()


@attack(
    "key swap by the coordinator: a study that pins a key of its own in this party's place",
    by=INBOX,
    told="keys",
    sees="pins another key of north than this site has",
)
def test_a_study_with_another_key_of_this_party_is_refused(row: Any, inbox: Any) -> None:
    assert inbox.submit(swapped(inbox, "north"))["refused"] == row.told and inbox.sees(row.sees)


@attack(
    "key swap by the coordinator: a key of its own in another party's place, to read what is written to that one",
    by=INBOX + ", where the owner wrote `[pinned.south]`",
    told="keys",
    sees="pins another key of south than [pinned.south]",
)
def test_a_study_with_another_key_of_a_pinned_party_is_refused(row: Any, inbox: Any) -> None:
    more = f"\n[pinned.south]\n{keys_table(inbox.sites.identity('south'))}\n"
    with inbox.site_file("north", more=more):
        assert inbox.submit(swapped(inbox, "south"))["refused"] == row.told and inbox.sees(row.sees)
        # The study that was approved before it was pinned goes on, because its keys are those.
        assert "ok" in inbox.ask("run.ready[0]")


@attack(
    "a party whose name only looks like a pinned one, with a key of the coordinator's own",
    by=INBOX,
    told="name",
    sees="the name of a party has 1 to 32 characters",
)
def test_a_name_that_looks_like_a_pinned_one_is_refused(row: Any, inbox: Any) -> None:
    more = f"\n[pinned.south]\n{keys_table(inbox.sites.identity('south'))}\n"
    with inbox.site_file("north", more=more):
        for name in ("sou\u200bth", "s\u03bfuth", "south "):
            files = dict(files_of(inbox))
            text = files["study.toml"].decode().replace("[parties.south.keys]", f'[parties."{name}".keys]')
            files["study.toml"] = text.encode()
            assert inbox.submit(forged(inbox, files))["refused"] == row.told and inbox.sees(row.sees)


def swapped(attacked: Any, party: Any) -> Any:
    study = attacked.sites.study(at="packed")
    text = (study.folder / "study.toml").read_text()
    for its, mine in zip(keys_table(attacked.sites.identity(party)).splitlines(), keys_table(Identity()).splitlines()):
        text = text.replace(its, mine)
    return attacked.sites.pack(Study.parse(text, folder=study.folder))


@attack(
    "a study that does not ask this party",
    by=INBOX,
    told="study",
    sees="has no party 'north'",
)
def test_a_study_of_others_is_refused(row: Any, inbox: Any) -> None:
    raw = inbox.sites.pack(inbox.sites.study(at="packed", names=("south",)))
    assert inbox.submit(raw)["refused"] == row.told and inbox.sees(row.sees)
