"""Certificates, requests and the roster: what an authority signs, for whom, and what is never admitted again."""

from __future__ import annotations

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from comity.errors import BadInput, Refused
from comity.federation.declare.consortium import COORDINATOR
from comity.relay import channel, membership, server, wire
from comity.relay.address import RelayAddress
from comity.relay.certificates import (
    Authority,
    IssuedCertificate,
    authority_fingerprint,
    create_request,
    install_certificate,
    load_certificate,
    load_key,
    relay_user,
    request_fingerprint,
)
from comity.relay.roster import Member, Roster
from comity.relay.server import MAX_PENDING_BYTES, server_configuration

NOW = datetime(2026, 11, 17, tzinfo=UTC)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.create(tmp_path / "authority")


def asked(name: Any, *alternatives: Any, key: Any = None, common: str = "whoever") -> str:
    """A request with arbitrary names and extensions."""
    builder = x509.CertificateSigningRequestBuilder().subject_name(
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])
    )
    if alternatives:
        builder = builder.add_extension(x509.SubjectAlternativeName(list(alternatives)), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    signed = builder.sign(key or ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    return signed.public_bytes(Encoding.PEM).decode()


def certificate(issued: Any) -> Any:
    return x509.load_pem_x509_certificate(issued.pem.encode())


def test_nothing_but_the_key_is_taken_from_a_request(authority: Any) -> None:
    request = asked(
        "north",
        x509.RFC822Name("CN=coordinator"),
        x509.DNSName("coordinator"),
        x509.UniformResourceIdentifier("CN=coordinator"),
        common="coordinator",
    )
    found = certificate(authority.sign_member(request, "north"))
    assert found.subject.rfc4514_string() == f"CN=north.{request_fingerprint(request)}"
    assert {extension.oid._name for extension in found.extensions} == {
        "basicConstraints",
        "keyUsage",
        "extendedKeyUsage",
    }
    assert not found.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    use = found.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(use) == [ExtendedKeyUsageOID.CLIENT_AUTH]


def test_the_subject_names_the_key(authority: Any, tmp_path: Path) -> None:
    first, second = (create_request(tmp_path / folder, "north") for folder in ("a", "b"))
    issued = authority.sign_member(first, "north")
    assert issued.key == request_fingerprint(first) != request_fingerprint(second)
    assert relay_user("north", issued.key) == certificate(issued).subject.rfc4514_string()


def test_a_private_key_stays_with_its_owner_and_is_made_once(tmp_path: Path) -> None:
    first, again = create_request(tmp_path, "north"), create_request(tmp_path, "north")
    assert stat.S_IMODE((tmp_path / "key.pem").stat().st_mode) == 0o600
    assert request_fingerprint(first) == request_fingerprint(again)
    assert "PRIVATE" not in first and "PRIVATE" not in (tmp_path / "request.pem").read_text()
    (tmp_path / "key.pem").chmod(0o640)
    with pytest.raises(BadInput, match="others can read this key"):
        load_key(tmp_path / "key.pem")


def _forged(request: str) -> str:
    """A request made by someone who has only the public key."""
    raw = bytearray(x509.load_pem_x509_csr(request.encode()).public_bytes(Encoding.DER))
    raw[-1] ^= 1
    return x509.load_der_x509_csr(bytes(raw)).public_bytes(Encoding.PEM).decode()


@pytest.mark.parametrize(
    ("request_of", "said"),
    [
        (lambda: "no request", "expected a signing request"),
        (lambda: asked("north")[:-80], "expected a signing request"),
        (lambda: _forged(asked("north")), "not signed by its key"),
        (lambda: asked("north", key=rsa.generate_private_key(65537, 2048)), "expected a key on P-256"),
        (lambda: asked("north", key=ec.generate_private_key(ec.SECP384R1())), "expected a key on P-256"),
        (lambda: "x" * (1 << 20), "expected a signing request"),
    ],
)
def test_what_is_no_request_of_its_own_key_is_refused(authority: Any, request_of: Any, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        authority.sign_member(request_of(), "north")


@pytest.mark.parametrize("name", ["", "a b", "a.b", "*", ">", "../x", "ä", "x" * 33, "-a", 'a"b', "a\n", "a,CN=b"])
def test_names_that_mean_something_elsewhere_are_refused(authority: Any, name: Any) -> None:
    with pytest.raises(BadInput, match="a member's name"):
        wire.require_member_name(name)
    with pytest.raises(BadInput, match="a member's name"):
        authority.sign_member(asked("north"), name)


@pytest.mark.parametrize("name", ["coordinator", "Coordinator", "relay", "RELAY"])
def test_a_party_is_neither_coordinator_nor_relay(name: str) -> None:
    with pytest.raises(BadInput, match="cannot name a party"):
        wire.require_party_name(name)


def test_the_coordinator_has_one_name() -> None:
    assert wire.COORDINATOR == COORDINATOR


def test_a_certificate_does_not_outlive_its_authority(authority: Any) -> None:
    issued = authority.sign_member(asked("north"), "north", validity=timedelta(days=36500))
    assert issued.until <= authority.certificate.not_valid_after_utc


def test_a_certificate_is_put_beside_its_own_key_alone(authority: Any, tmp_path: Path) -> None:
    home, other = tmp_path / "north", tmp_path / "other"
    requests = {folder: create_request(folder, "north") for folder in (home, other)}
    for folder in requests:
        (folder / "authority.pem").write_text(authority.pem)
    mine = authority.sign_member(requests[home], "north")
    assert install_certificate(home, "north", mine.pem) == mine.until
    assert load_certificate(home / "certificate.pem").not_valid_after_utc == mine.until
    with pytest.raises(BadInput, match="not for the key"):
        install_certificate(other, "north", mine.pem)
    with pytest.raises(BadInput, match="not for the name"):
        install_certificate(home, "south", mine.pem)
    with pytest.raises(BadInput, match="expected a certificate"):
        install_certificate(home, "north", "nothing")
    stranger = Authority.create(tmp_path / "stranger")
    with pytest.raises(BadInput, match="did not sign this"):
        install_certificate(home, "north", stranger.sign_member(requests[home], "north").pem)


def issued(key: Any, days: int = 1) -> IssuedCertificate:
    return IssuedCertificate("", key, NOW + timedelta(days=days))


def test_the_roster_says_who_is_admitted_now() -> None:
    roster = Roster("tls://x:1", "x:1").invited(COORDINATOR).invited("north").invited("south")
    assert roster.users(NOW) == {}
    roster = roster.admitted("north", issued("aa")).admitted("south", issued("bb", days=2))
    assert roster.users(NOW) == {"north": "CN=north.aa", "south": "CN=south.bb"}
    later = NOW + timedelta(days=1)
    assert roster.users(later) == {"south": "CN=south.bb"}
    assert [roster.members[name].state(later) for name in roster.members] == ["invited", "expired", "admitted"]
    assert roster.revoked("south").users(NOW) == {"north": "CN=north.aa"}


def test_a_key_that_was_revoked_or_replaced_is_never_admitted_again() -> None:
    roster = Roster("tls://x:1", "x:1").invited("north").admitted("north", issued("aa"))
    out = roster.revoked("north")
    assert out.members["north"].state(NOW) == "revoked"
    with pytest.raises(Refused, match="the key aa of north was revoked"):
        out.require("north", "aa")
    back = out.admitted("north", issued("bb")).admitted("north", issued("cc"))
    assert back.members["north"] == Member("cc", NOW + timedelta(days=1), ("aa", "bb"))
    for key in ("aa", "bb"):
        with pytest.raises(Refused, match="revoked"):
            back.admitted("north", issued(key))


def test_one_key_is_one_member() -> None:
    roster = Roster("tls://x:1", "x:1").invited("north").invited("south").admitted("north", issued("aa"))
    with pytest.raises(Refused, match="belongs to north"):
        roster.require("south", "aa")


def test_who_is_not_invited_is_not_admitted_and_a_name_is_given_once() -> None:
    roster = Roster("tls://x:1", "x:1").invited("north")
    with pytest.raises(BadInput, match="'south' is not invited"):
        roster.require("south", "aa")
    for name in ("north", "North"):
        with pytest.raises(BadInput, match="a member 'north' exists already"):
            roster.invited(name)
    with pytest.raises(BadInput, match="nothing to revoke"):
        roster.revoked("north")


def test_a_roster_is_read_as_it_was_written(tmp_path: Path) -> None:
    roster = Roster("tls://x:1", "x:1").invited("north").invited("south").admitted("north", issued("aa"))
    roster = roster.admitted("north", issued("bb"))
    roster.save(tmp_path)
    assert Roster.load(tmp_path) == roster


@pytest.mark.parametrize(
    "text", ["", "address = 1\nlisten = 'x'", "address='x'\nlisten='y'\n[members.a]\nkey='b'", "[[["]
)
def test_a_damaged_roster_is_one_clear_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "roster.toml").write_text(text)
    with pytest.raises(BadInput, match="not a roster of Comity"):
        Roster.load(tmp_path)


def test_the_configuration_allows_two_subjects_each_and_nothing_by_default(tmp_path: Path) -> None:
    text = server_configuration(
        {"coordinator": "CN=coordinator.cc", "north": "CN=north.aa"}, listen="127.0.0.1:1", folder=tmp_path
    )
    coordinator, north = text.split('"north" {')
    assert '{"publish": {"allow": ["comity.reply.north"]}, "subscribe": {"allow": ["comity.ask.north"]}}' in north
    assert '{"publish": {"allow": ["comity.ask.north"]}, "subscribe": {"allow": ["comity.reply.north"]}}' in coordinator
    assert not any(
        word in text for word in ("http", "jetstream", "cluster", "leafnodes", "websocket", "system_account")
    )
    assert '"*"' not in text and 'min_version: "1.3"' in text and "verify_and_map: true" in text


def test_an_empty_consortium_allows_its_coordinator_nothing(tmp_path: Path) -> None:
    """An empty list of what is allowed would mean everything."""
    text = server_configuration({"coordinator": "CN=coordinator.cc"}, listen="127.0.0.1:1", folder=tmp_path)
    assert '{"publish": {"deny": [">"]}, "subscribe": {"deny": [">"]}}' in text


def test_settings_that_no_reload_can_change_do_not_depend_on_the_members(tmp_path: Path) -> None:
    def settings(count: Any) -> list[Any]:
        users = {name: f"CN={name}.aa" for name in ("coordinator", *(f"p{number}" for number in range(count)))}
        text = server_configuration(users, listen="127.0.0.1:1", folder=tmp_path)
        return [line for line in text.splitlines() if line.startswith("max_") and "max_connections" not in line]

    assert settings(1) == settings(100)


def test_what_is_pulled_at_once_stays_below_what_the_relay_keeps_for_a_connection() -> None:
    assert channel.MAX_PIECES_IN_FLIGHT * wire.MAX_FRAME_BYTES <= MAX_PENDING_BYTES / 4


def test_joining_sends_a_request_and_takes_a_certificate(tmp_path: Path) -> None:
    home, north = tmp_path / "consortium", tmp_path / "north"
    invitations = membership.create_consortium(home, address="relay.example.org", parties=["north"])
    assert [path.name for path in invitations] == ["coordinator.toml", "north.toml"]
    invitation = membership.Invitation.load(invitations[1])
    assert invitation.address == "tls://relay.example.org:4222"
    assert invitation.fingerprint == authority_fingerprint((home / "authority" / "authority.pem").read_text())
    assert "PRIVATE" not in invitations[1].read_text()
    joined = membership.join_consortium(invitations[1], north)
    assert joined.until is None and joined.request == north / "request.pem"
    granted = Authority.load(home / "authority").sign_member(joined.request.read_text(), "north")
    (tmp_path / "came.pem").write_text(granted.pem)
    again = membership.join_consortium(invitations[1], north, tmp_path / "came.pem")
    assert again.until == granted.until and again.key == joined.key == granted.key
    assert membership.load_membership(north) == ("north", RelayAddress(invitation.address, north / "certificate.pem"))


def test_a_folder_belongs_to_one_consortium(tmp_path: Path) -> None:
    for name in ("one", "two"):
        membership.create_consortium(tmp_path / name, address="127.0.0.1:4222", parties=["north"])
    membership.join_consortium(tmp_path / "one" / "invitations" / "north.toml", tmp_path / "north")
    with pytest.raises(BadInput, match="belongs to another consortium"):
        membership.join_consortium(tmp_path / "two" / "invitations" / "north.toml", tmp_path / "north")


def test_a_second_init_invites_further_parties_and_keeps_the_authority(tmp_path: Path) -> None:
    membership.create_consortium(tmp_path, address="127.0.0.1:4222", parties=["north"])
    before = (tmp_path / "authority" / "authority.pem").read_text()
    assert [
        path.name for path in membership.create_consortium(tmp_path, address="127.0.0.1:4222", parties=["south"])
    ] == ["south.toml"]
    assert (tmp_path / "authority" / "authority.pem").read_text() == before
    assert Roster.load(tmp_path).parties == ("north", "south")
    with pytest.raises(BadInput, match="give the same --address"):
        membership.create_consortium(tmp_path, address="127.0.0.1:4223", parties=["east"])


@pytest.mark.parametrize("address", ["", ":1", "x:", "x:0", "x:70000", "x/y:1", "x:y"])
def test_an_address_that_nobody_can_dial_is_refused(tmp_path: Path, address: str) -> None:
    with pytest.raises(BadInput, match="expected HOST"):
        membership.create_consortium(tmp_path, address=address, parties=["north"])
    assert not (tmp_path / "authority").exists()


def test_a_relay_is_dialled_by_tls_alone(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="expected tls"):
        RelayAddress("nats://127.0.0.1:4222", tmp_path / "certificate.pem")


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


def test_files_with_which_nobody_could_dial_are_refused_at_once(authority: Any, tmp_path: Path) -> None:
    folder = tmp_path / "north"
    request = create_request(folder, "north")
    dialled = RelayAddress("tls://127.0.0.1:4222", folder / "certificate.pem")
    with pytest.raises(BadInput, match="there is no certificate for the relay here"):
        dialled.check_files()
    (folder / "authority.pem").write_text(authority.pem)
    (folder / "certificate.pem").write_text(authority.sign_member(request, "north", validity=timedelta(minutes=-1)).pem)
    with pytest.raises(BadInput, match="this certificate expired on"):
        dialled.check_files()
    (folder / "certificate.pem").write_text(authority.sign_member(request, "north").pem)
    dialled.check_files()
    other = create_request(tmp_path / "other", "north")
    (folder / "certificate.pem").write_text(authority.sign_member(other, "north").pem)
    with pytest.raises(BadInput, match="do not belong together"):
        dialled.check_files()
