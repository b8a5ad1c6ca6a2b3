"""`comity consortium` and `comity relay`, from nothing to an admitted member and to a revoked one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from comity.relay.address import RelayAddress
from comity.relay.sandbox import free_port
from tests.support.relays import needs_server, wait_until
from tests.support.sites import Sites


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def init(comity: Any, *more: str, port: int = 4222) -> Any:
    where = f"127.0.0.1:{port}"
    return comity("consortium", "init", "consortium", "--address", where, "--listen", where, *more, "--json")


def make_keys(comity: Any, party: str) -> Path:
    """A member's key file, and its public keys as it sends them."""
    path = Path(f"{party}.toml")
    path.write_text(comity("keys", "new", f"{party}.keys", "--party", party).out)
    return path


def test_joining_takes_two_steps(comity: Any, place: Any) -> None:
    begun = init(comity)
    assert begun.code == 0 and begun.document["address"] == "tls://127.0.0.1:4222"
    north = make_keys(comity, "north")
    shown = comity("keys", "show", "north.keys", "--party", "north", "--json").document
    added = comity("consortium", "add", "consortium", north, "--until", "2099-12-31", "--json").document
    (member,) = added["members"]
    assert member["fingerprint"] == shown["fingerprint"] and added["relay_has_it"] is False
    relay = RelayAddress.load(Path(begun.document["invitation"]), Path("north.keys"))
    relay.require_member("north")
    assert relay.relay_key().user == member["key"] and member["until"].startswith("2099-12-31T00:00:00")
    listed = comity("consortium", "show", "consortium", "--json").document["members"]
    assert listed == [
        {"member": "north", "state": "admitted", "until": "2099-12-31", "fingerprint": shown["fingerprint"]}
    ]
    assert shown["fingerprint"] in comity("consortium", "show", "consortium").out


def test_a_holder_that_coordinates_has_its_keys_at_once(comity: Any, place: Any) -> None:
    made = init(comity, "--coordinator", "coordinator").document
    assert (place / made["keys"]).stat().st_mode & 0o077 == 0
    RelayAddress.load(Path(made["invitation"]), Path(made["keys"])).require_member("coordinator")
    before = Path(made["keys"]).read_bytes()
    assert init(comity, "--coordinator", "coordinator").code == 0 and Path(made["keys"]).read_bytes() == before
    (listed,) = comity("consortium", "show", "consortium", "--json").document["members"]
    assert (listed["member"], listed["state"]) == ("coordinator", "admitted")


def test_several_members_are_admitted_at_once_and_their_end_dates_moved(comity: Any, place: Any) -> None:
    init(comity)
    files = [make_keys(comity, name) for name in ("north", "south")]
    assert comity("consortium", "add", "consortium", *files, "--until", "2050-01-01").code == 0
    assert comity("consortium", "add", "consortium", files[0], "--until", "2060-01-01").code == 0
    listed = comity("consortium", "show", "consortium", "--json").document["members"]
    assert [(one["member"], one["until"]) for one in listed] == [("north", "2060-01-01"), ("south", "2050-01-01")]


def test_what_can_not_be_done_is_one_sentence(comity: Any, place: Any) -> None:
    assert comity("consortium", "show", "consortium").code == 3
    init(comity)
    north = make_keys(comity, "north")
    Path("relayless.toml").write_text("\n".join(north.read_text().splitlines()[:-1]))
    for words, code, said in (
        (("add", "consortium", "nothing.toml"), 3, "nothing.toml: can't be read"),
        (("add", "consortium", "consortium/roster.toml"), 3, "expected the public keys of one member, found 0"),
        (("add", "consortium", "relayless.toml"), 3, "sign, mlkem, x25519 and relay"),
        (("add", "consortium", "north.toml", "--until", "soon"), 2, "--until expects a date"),
        (("add", "consortium", "north.toml", "--until", "2001-01-01"), 3, "this date has passed"),
        (("revoke", "consortium", "north"), 3, "north is not admitted"),
        (("init", "consortium", "--address", "127.0.0.1:4"), 3, "give the same --address"),
    ):
        ended = comity("consortium", *words)
        assert (ended.code, said in ended.err) == (code, True), ended.err


def test_a_revoked_key_is_refused(comity: Any, place: Any) -> None:
    init(comity)
    north = make_keys(comity, "north")
    assert comity("consortium", "add", "consortium", north).code == 0
    assert "north is revoked" in comity("consortium", "revoke", "consortium", "north").out
    again = comity("consortium", "add", "consortium", north)
    assert again.code == 4 and "was revoked" in again.err


@needs_server
def test_a_relay_serves_takes_new_members_and_ends_when_told(comity: Any, place: Any) -> None:
    init(comity, port=free_port())
    north = make_keys(comity, "north")
    command = [sys.executable, "-m", "comity", "relay", "serve", "consortium"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert "the relay listens at 127.0.0.1" in process.stdout.readline()
        added = comity("consortium", "add", "consortium", north, "--json")
        assert added.document["relay_has_it"] is True
        assert comity("relay", "reload", "consortium", "--json").document == {"relay_has_it": True}
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
    wait_until(lambda: comity("relay", "reload", "consortium", "--json").document == {"relay_has_it": False})


def test_a_study_is_submitted_by_the_coordinator_with_its_own_files(comity: Any, place: Any) -> None:
    """What can't be dialled with is one sentence, before a run folder is made."""
    (place / "sites").mkdir()
    sites = Sites.make(place / "sites")
    study = sites.study()
    words = ("study", "submit", str(study.where), "--keys", str(place / "sites" / "coordinator.key"))
    assert "there is no invitation here" in comity(*words).err
    init(comity)
    Path("north.toml").write_text(
        comity("keys", "show", str(place / "sites" / "coordinator.key"), "--party", "north").out
    )
    comity("consortium", "add", "consortium", "north.toml")
    ended = comity(*words, "--invitation", "consortium/consortium.toml")
    assert ended.code == 3 and "lists this key for 'north', not for 'coordinator'" in ended.err
    assert not (place / "runs").exists()
