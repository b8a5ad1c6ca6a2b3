"""`comity consortium` and `comity relay`, from nothing to an admitted member and to a revoked one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from comity.relay.sandbox import free_port
from tests.support.relays import needs_server, wait_until
from tests.support.sites import NAMES, Sites


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def init(comity: Any, *parties: Any, port: int = 4222) -> Any:
    named = [word for party in parties for word in ("--party", party)]
    where = f"127.0.0.1:{port}"
    return comity("consortium", "init", "consortium", "--address", where, "--listen", where, *named, "--json")


def test_from_an_invitation_to_a_membership(comity: Any, place: Any) -> None:
    begun = init(comity, "north", "south")
    assert begun.code == 0 and begun.document["address"] == "tls://127.0.0.1:4222"
    invitations = [Path(path).name for path in begun.document["invitations"]]
    assert invitations == ["coordinator.toml", "north.toml", "south.toml"]
    joined = comity("consortium", "join", "consortium/invitations/north.toml", "--json").document
    assert joined["authority"] == begun.document["fingerprint"] and joined["until"] is None
    added = comity("consortium", "add", "consortium", joined["request"], "--party", "north", "--json").document
    assert added["key"] == joined["key"] and added["relay_has_it"] is False
    came = comity("consortium", "join", "consortium/invitations/north.toml", "--certificate", added["certificate"])
    assert '[relay]\naddress = "tls://127.0.0.1:4222"\ncertificate = "relay/certificate.pem"' in came.out
    shown = comity("consortium", "show", "consortium", "--json").document
    assert [(one["member"], one["state"]) for one in shown["members"]] == [
        ("coordinator", "invited"),
        ("north", "admitted"),
        ("south", "invited"),
    ]


def test_what_can_not_be_done_is_one_sentence(comity: Any, place: Any) -> None:
    assert comity("consortium", "show", "consortium").code == 3
    init(comity, "north")
    for words, code, said in (
        (("add", "consortium", "nothing.pem", "--party", "north"), 3, "nothing.pem: can't be read"),
        (("revoke", "consortium", "north"), 3, "north is not admitted"),
        (("join", "consortium/roster.toml"), 3, "not an invitation"),
        (("init", "consortium", "--address", "127.0.0.1:4222", "--party", "a.b"), 3, "a member's name"),
        (("init", "consortium", "--address", "127.0.0.1:4222"), 2, "no party to invite"),
    ):
        ended = comity("consortium", *words)
        assert (ended.code, said in ended.err) == (code, True), ended.err


def test_a_revoked_key_is_refused(comity: Any, place: Any) -> None:
    init(comity, "north")
    comity("consortium", "join", "consortium/invitations/north.toml")
    assert comity("consortium", "add", "consortium", "relay/request.pem", "--party", "north").code == 0
    assert "north is revoked" in comity("consortium", "revoke", "consortium", "north").out
    again = comity("consortium", "add", "consortium", "relay/request.pem", "--party", "north")
    assert again.code == 4 and "was revoked" in again.err


@needs_server
def test_a_relay_serves_takes_new_members_and_ends_when_told(comity: Any, place: Any) -> None:
    init(comity, "north", port=free_port())
    comity("consortium", "join", "consortium/invitations/north.toml")
    command = [sys.executable, "-m", "comity", "relay", "serve", "consortium"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert "the relay listens at 127.0.0.1" in process.stdout.readline()
        added = comity("consortium", "add", "consortium", "relay/request.pem", "--party", "north", "--json")
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
    assert "no membership here" in comity(*words).err
    init(comity, *NAMES)
    comity("consortium", "join", "consortium/invitations/north.toml")
    ended = comity(*words)
    assert ended.code == 3 and "expected the coordinator's membership, found that of north" in ended.err
    comity("consortium", "join", "consortium/invitations/coordinator.toml", "--folder", "own")
    ended = comity(*words, "--relay", "own")
    assert ended.code == 3 and "there is no certificate for the relay here" in ended.err
    assert not (place / "runs").exists()
