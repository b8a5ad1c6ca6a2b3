"""Blocks, invitations and the roster: who is admitted, until when, and what is never admitted again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from comity.crypto import key_file
from comity.crypto.public_block import PublicBlock, block_text
from comity.crypto.relay_key import RelayKey
from comity.crypto.sealing import Identity
from comity.errors import BadInput, Refused
from comity.federation.declare.consortium import COORDINATOR
from comity.relay import channel, membership, server, wire
from comity.relay.address import RelayAddress
from comity.relay.certificate import certificate_fingerprint, create_certificate, load_certificate
from comity.relay.invitation import Entry, Invitation
from comity.relay.roster import Member, Roster
from comity.relay.server import MAX_PENDING_BYTES, server_configuration

NOW = datetime(2026, 11, 17, tzinfo=UTC)
A, B, C = (RelayKey(bytes([number]) * 32).user for number in range(3))


def block(folder: Path, name: str, number: int = 0) -> PublicBlock:
    """A member's block, as it came in a file."""
    path = folder / f"{name}.toml"
    path.write_text(block_text(name, Identity(bytes([number]) * 32)))
    return PublicBlock.load(path)


def entry(key: str, days: int = 1) -> Entry:
    return Entry(key, "0a1b 2c3d", NOW + timedelta(days=days))


@pytest.mark.parametrize("name", ["", "a b", "a.b", "*", ">", "../x", "ä", "x" * 33, "-a", 'a"b', "a\n", "a,CN=b"])
def test_names_that_mean_something_elsewhere_are_refused(name: Any) -> None:
    with pytest.raises(BadInput, match="a member's name"):
        wire.require_member_name(name)
    with pytest.raises(BadInput, match="a member's name"):
        Roster("tls://x:1", "x:1").admitted(name, entry(A))


@pytest.mark.parametrize("name", ["Coordinator", "relay", "RELAY"])
def test_a_party_is_neither_coordinator_nor_relay(name: str) -> None:
    with pytest.raises(BadInput, match="cannot name a party"):
        wire.require_party_name(name)
    with pytest.raises(BadInput, match="cannot name a party"):
        Roster("tls://x:1", "x:1").admitted(name, entry(A))


def test_the_coordinator_has_one_name() -> None:
    assert wire.COORDINATOR == COORDINATOR
    with pytest.raises(BadInput, match="cannot name a party"):
        wire.require_party_name(COORDINATOR)


def test_the_roster_says_who_is_admitted_now() -> None:
    roster = Roster("tls://x:1", "x:1")
    assert roster.users(NOW) == {}
    roster = roster.admitted("north", entry(A)).admitted("south", entry(B, days=2))
    assert roster.users(NOW) == {"north": A, "south": B}
    later = NOW + timedelta(days=1)
    assert roster.users(later) == {"south": B}
    assert [roster.members[name].state(later) for name in roster.members] == ["expired", "admitted"]
    assert roster.revoked("south").users(NOW) == {"north": A}
    assert roster.admitted("north", entry(A, days=9)).users(later) == {"north": A, "south": B}, "a later end date"


def test_a_key_that_was_revoked_or_replaced_is_never_admitted_again() -> None:
    roster = Roster("tls://x:1", "x:1").admitted("north", entry(A))
    out = roster.revoked("north")
    assert out.members["north"].state(NOW) == "revoked"
    with pytest.raises(Refused, match=f"the key {A} of north was revoked"):
        out.require("north", A)
    back = out.admitted("north", entry(B)).revoked("north").admitted("north", entry(C))
    assert back.members["north"] == Member(entry(C), (A, B))
    for key in (A, B):
        with pytest.raises(Refused, match="revoked"):
            back.admitted("north", entry(key))


def test_nobody_takes_a_members_place_by_its_name() -> None:
    """A member writes the name in its block: one that names another, or the coordinator, is not admitted for it."""
    roster = Roster("tls://x:1", "x:1").admitted(COORDINATOR, entry(A)).admitted("north", entry(B))
    for name in (COORDINATOR, "north"):
        with pytest.raises(Refused, match=f"{name} is admitted with other keys .*revoke the old ones first"):
            roster.admitted(name, entry(C))
    assert roster.revoked("north").admitted("north", entry(C)).users(NOW)["north"] == C


def test_one_key_is_one_member() -> None:
    roster = Roster("tls://x:1", "x:1").admitted("north", entry(A))
    for known in (roster, roster.revoked("north")):
        with pytest.raises(Refused, match="belongs to north"):
            known.admitted("south", entry(A))


def test_a_name_is_given_once_and_who_is_not_admitted_is_not_revoked() -> None:
    roster = Roster("tls://x:1", "x:1").admitted("north", entry(A))
    with pytest.raises(BadInput, match="a member 'north' exists already"):
        roster.admitted("North", entry(B))
    for name in ("south", "north"):
        with pytest.raises(BadInput, match="nothing to revoke"):
            (roster.revoked("north") if name == "north" else roster).revoked(name)


def test_a_roster_is_read_as_it_was_written(tmp_path: Path) -> None:
    roster = Roster("tls://x:1", "x:1").admitted("north", entry(A)).admitted("south", entry(C))
    roster = roster.revoked("north").admitted("north", entry(B)).revoked("south")
    roster.save(tmp_path)
    assert Roster.load(tmp_path) == roster


GOOD = "format = 2\naddress = 'x'\nlisten = 'y'\n"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "format = 2\naddress = 1\nlisten = 'x'",
        GOOD.replace("2", "3"),
        GOOD + "[members.a]\nkey = 'b'",
        GOOD + f"[members.a]\nkey = '{A}'\nfingerprint = 'f'\nuntil = 2027-01-01T00:00:00",
        GOOD + f"[members.a]\nkey = '{A[:-1]}'\nfingerprint = 'f'\nuntil = 2027-01-01T00:00:00Z",
        GOOD + f"[members.a]\nkey = '{A}'\nfingerprint = 'f'\nuntil = 2027-01-01T00:00:00Z\nmore = 1",
        "[[[",
    ],
)
def test_a_damaged_roster_is_one_clear_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "roster.toml").write_text(text)
    with pytest.raises(BadInput, match="not a roster of Comity"):
        Roster.load(tmp_path)


def test_a_consortium_of_the_time_of_certificates_is_told_the_way_over(tmp_path: Path) -> None:
    (tmp_path / "roster.toml").write_text(
        "address = 'tls://x:1'\nlisten = 'x:1'\n\n[members.north]\nkey = 'aabbcc'\nuntil = 2027-01-01T00:00:00+00:00\n"
    )
    with pytest.raises(BadInput, match="Coming from certificates"):
        Roster.load(tmp_path)
    (tmp_path / "north.toml").write_text("member = 'north'\naddress = 'tls://x:1'\nauthority = 'PEM'\n")
    with pytest.raises(BadInput, match="Coming from certificates"):
        Invitation.load(tmp_path / "north.toml")


def test_the_configuration_allows_two_subjects_each_and_nothing_by_default(tmp_path: Path) -> None:
    text = server_configuration({"coordinator": C, "north": A}, listen="127.0.0.1:1", folder=tmp_path)
    coordinator, north = text.split('"north" {')
    assert '{"publish": {"allow": ["comity.reply.north"]}, "subscribe": {"allow": ["comity.ask.north"]}}' in north
    assert '{"publish": {"allow": ["comity.ask.north"]}, "subscribe": {"allow": ["comity.reply.north"]}}' in coordinator
    assert not any(
        word in text
        for word in (
            "http",
            "jetstream",
            "cluster",
            "leafnodes",
            "websocket",
            "system_account",
            "no_auth_user",
            "user:",
        )
    )
    assert '"*"' not in text and 'min_version: "1.3"' in text and f'nkey: "{A}"' in north


def test_an_empty_consortium_allows_its_coordinator_nothing(tmp_path: Path) -> None:
    """An empty list of what is allowed would mean everything."""
    text = server_configuration({"coordinator": C}, listen="127.0.0.1:1", folder=tmp_path)
    assert '{"publish": {"deny": [">"]}, "subscribe": {"deny": [">"]}}' in text


def test_settings_that_no_reload_can_change_do_not_depend_on_the_members(tmp_path: Path) -> None:
    def settings(count: Any) -> list[Any]:
        users = dict.fromkeys(("coordinator", *(f"p{number}" for number in range(count))), A)
        text = server_configuration(users, listen="127.0.0.1:1", folder=tmp_path)
        return [line for line in text.splitlines() if line.startswith("max_") and "max_connections" not in line]

    assert settings(1) == settings(100)


def test_what_is_pulled_at_once_stays_below_what_the_relay_keeps_for_a_connection() -> None:
    assert channel.MAX_PIECES_IN_FLIGHT * wire.MAX_FRAME_BYTES <= MAX_PENDING_BYTES / 4


def test_joining_takes_a_block_and_gives_an_invitation(tmp_path: Path) -> None:
    home = tmp_path / "consortium"
    made = membership.create_consortium(home, address="relay.example.org")
    assert made.address == "tls://relay.example.org:4222"
    assert made.fingerprint == certificate_fingerprint(load_certificate(home / "relay" / "certificate.pem"))
    keys = key_file.create(tmp_path / "north.keys")
    (tmp_path / "north.toml").write_text(block_text("north", keys))
    done = membership.admit_members(home, [PublicBlock.load(tmp_path / "north.toml")])
    assert not done.relay_has_it and done.entries["north"].fingerprint == keys.public.fingerprint
    left = done.entries["north"].until - datetime.now(UTC)
    assert timedelta(days=364) < left <= timedelta(days=365)
    found = Invitation.load(home / "consortium.toml")
    assert dict(found.members) == done.entries and found.name_of(done.entries["north"].key) == "north"
    assert "PRIVATE" not in (home / "consortium.toml").read_text()
    relay = RelayAddress.load(home / "consortium.toml", tmp_path / "north.keys")
    relay.require_member("north")
    assert relay.relay_key().user == done.entries["north"].key


def test_members_are_admitted_together_or_not_at_all(tmp_path: Path) -> None:
    membership.create_consortium(tmp_path / "c", address="127.0.0.1:1")
    with pytest.raises(BadInput, match="exists already"):
        membership.admit_members(tmp_path / "c", [block(tmp_path, "north", 1), block(tmp_path, "North", 2)])
    with pytest.raises(BadInput, match="this date has passed"):
        membership.admit_members(tmp_path / "c", [block(tmp_path, "north", 1)], until=NOW - timedelta(days=9000))
    assert Roster.load(tmp_path / "c").members == {}
    until = datetime.now(UTC) + timedelta(days=40)
    membership.admit_members(tmp_path / "c", [block(tmp_path, "north", 1)], until=until)
    assert Roster.load(tmp_path / "c").entries()["north"].until == until.replace(microsecond=0)


def test_a_second_init_keeps_members_and_certificate(tmp_path: Path) -> None:
    first = membership.create_consortium(tmp_path, address="127.0.0.1:4222")
    membership.admit_members(tmp_path, [block(tmp_path, "north")])
    again = membership.create_consortium(tmp_path, address="127.0.0.1:4222")
    assert again.certificate == first.certificate and set(again.members) == {"north"}
    with pytest.raises(BadInput, match="give the same --address"):
        membership.create_consortium(tmp_path, address="127.0.0.1:4223")
    for name in ("key.pem", "certificate.pem"):
        (tmp_path / "relay" / name).unlink()
    new = membership.create_consortium(tmp_path, address="127.0.0.1:4222")
    assert new.certificate != first.certificate and set(new.members) == {"north"}


def test_a_certificate_that_members_pinned_is_not_overwritten(tmp_path: Path) -> None:
    create_certificate(tmp_path, "relay.example.org")
    before = (tmp_path / "key.pem").read_bytes()
    (tmp_path / "certificate.pem").unlink()
    with pytest.raises(BadInput, match="exists already"):
        create_certificate(tmp_path, "relay.example.org")
    assert (tmp_path / "key.pem").read_bytes() == before and (tmp_path / "key.pem").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("address", ["", ":1", "x:", "x:0", "x:70000", "x/y:1", "x:y"])
def test_an_address_that_nobody_can_dial_is_refused(tmp_path: Path, address: str) -> None:
    with pytest.raises(BadInput, match="expected HOST"):
        membership.create_consortium(tmp_path, address=address)
    assert not (tmp_path / "relay").exists()


def test_a_relay_is_dialled_by_tls_alone(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="expected tls"):
        RelayAddress("nats://127.0.0.1:4222", tmp_path / "consortium.toml", tmp_path / "north.keys")


def test_a_server_that_is_too_old_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nats-server"
    program.write_text("#!/bin/sh\necho nats-server: v2.9.10\n")
    program.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    with pytest.raises(BadInput, match=r"expected nats-server 2\.11\.16, 2\.12\.7, 2\.14\.0 or newer"):
        server.find_server()
    program.unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BadInput, match="there is no nats-server"):
        server.find_server()


def test_files_with_which_nobody_could_dial_are_refused_at_once(tmp_path: Path) -> None:
    keys, path = tmp_path / "north.keys", tmp_path / "consortium.toml"
    dialled = RelayAddress("tls://127.0.0.1:4222", path, keys)
    with pytest.raises(BadInput, match="there is no such key file"):
        dialled.check_files()
    key_file.create(keys)
    with pytest.raises(BadInput, match="there is no invitation here"):
        dialled.check_files()
    past = create_certificate(tmp_path / "past", "127.0.0.1", validity=timedelta(minutes=-1))
    path.write_text(Invitation(dialled.address, past).to_toml())
    with pytest.raises(BadInput, match="the relay's certificate expired on"):
        dialled.check_files()
    path.write_text(Invitation(dialled.address, create_certificate(tmp_path / "now", "127.0.0.1")).to_toml())
    dialled.check_files()
    keys.chmod(0o640)
    with pytest.raises(BadInput, match="others can read this key file"):
        dialled.check_files()
