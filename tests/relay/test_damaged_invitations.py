"""Invitations, certificates and blocks of other kinds, and damaged ones: bad input, whatever a library raises."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from comity.crypto.public_block import PublicBlock, block_text
from comity.crypto.sealing import Identity
from comity.errors import BadInput
from comity.relay import invitation
from comity.relay.address import RelayAddress
from comity.relay.certificate import create_certificate, read_certificate
from comity.relay.invitation import Invitation
from comity.relay.roster import Roster
from comity.untrusted.toml import read_tables
from tests.support.relays import Loopback
from tests.support.sites import relay_certificate
from tests.untrusted.test_toml import HOSTILE

ADDRESS = "tls://127.0.0.1:4222"


def pem(der: bytes) -> str:
    return f"-----BEGIN CERTIFICATE-----\n{base64.encodebytes(der).decode()}-----END CERTIFICATE-----\n"


def der(text: str) -> bytes:
    return base64.b64decode("".join(line for line in text.splitlines() if not line.startswith("-")))


def is_taken(use: Callable[[], object]) -> bool:
    """Whether it was taken; what is not ends in bad input, in one short sentence."""
    try:
        use()
    except BadInput as error:
        assert "\n" not in str(error) and len(str(error)) < 2500
        return False
    return True


def dialled(folder: Path, certificate: str) -> Callable[[], object]:
    """Use an invitation with this certificate as a member does before it connects."""

    def use() -> object:
        path = folder / "consortium.toml"
        path.write_text(Invitation(ADDRESS, certificate).to_toml())
        return RelayAddress.load(path, folder / "north.keys").tls_context()

    return use


def test_unknown_versions_and_algorithms_are_bad_input(tmp_path: Path) -> None:
    """Bytes of the encoding are exchanged: the curve, the algorithm of the signature, the version."""
    raw = der(relay_certificate())
    p256, ecdsa = bytes.fromhex("06082a8648ce3d030107"), bytes.fromhex("06082a8648ce3d040302")
    assert p256 in raw and ecdsa in raw and is_taken(dialled(tmp_path, pem(raw))), "the control"
    assert not is_taken(dialled(tmp_path, pem(raw.replace(p256, bytes.fromhex("06082a8648ce3d03017f")))))
    assert not is_taken(dialled(tmp_path, pem(raw.replace(b"\x02\x01\x02", b"\x02\x01\x37", 1))))


def test_a_certificate_of_another_kind_of_key_is_read(tmp_path: Path) -> None:
    """The holder may have made the relay's certificate by other means: it is pinned whatever its key is."""
    name, now = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "relay")]), datetime.now(UTC)
    key = ed25519.Ed25519PrivateKey.generate()
    made = x509.CertificateBuilder(name, name, key.public_key(), 7, now, now + timedelta(1)).sign(key, None)
    assert is_taken(dialled(tmp_path, made.public_bytes(Encoding.PEM).decode()))


@pytest.mark.filterwarnings("ignore::cryptography.utils.CryptographyDeprecationWarning")
def test_damaged_certificates_are_bad_input(tmp_path: Path) -> None:
    rng, raw = random.Random(5), der(create_certificate(tmp_path / "relay", "127.0.0.1"))
    refused = 0
    for _ in range(400):
        damaged = bytearray(raw)
        damaged[rng.randrange(len(raw))] = rng.randrange(256)
        text = pem(bytes(damaged))
        refused += not is_taken(partial(read_certificate, text, "it"))
        refused += not is_taken(dialled(tmp_path, text))
    assert refused > 100


@pytest.mark.parametrize(
    "text",
    [
        "",
        "address = 3\ncertificate = ''",
        f"address = '{ADDRESS}'",
        f"address = '{ADDRESS}'\ncertificate = 'nothing'",
        f"address = '{ADDRESS}'\ncertificate = ''\nmore = 1",
        "members = 3\naddress = ''\ncertificate = ''",
        "[members.north]\nkey = 3\n[[[",
        "\0",
    ],
)
def test_what_is_no_invitation_is_bad_input(tmp_path: Path, text: str) -> None:
    (tmp_path / "consortium.toml").write_text(text)
    assert not is_taken(lambda: Invitation.load(tmp_path / "consortium.toml"))


@pytest.mark.parametrize("kind", HOSTILE)
def test_toml_that_can_not_be_read_is_no_invitation_no_block_and_no_roster(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "roster.toml"
    path.write_text(HOSTILE[kind])
    for load in (lambda: Invitation.load(path), lambda: PublicBlock.load(path), lambda: Roster.load(tmp_path)):
        assert not is_taken(load)


def test_an_invitation_to_an_address_that_nobody_can_dial_is_bad_input(tmp_path: Path) -> None:
    path = tmp_path / "consortium.toml"
    path.write_text(Invitation("tls://h:99999", relay_certificate()).to_toml())
    with pytest.raises(BadInput, match=r"consortium.toml: .*expected tls://HOST:PORT"):
        RelayAddress.load(path, tmp_path / "north.keys")


def test_damaged_blocks_are_bad_input_or_the_same_keys(tmp_path: Path) -> None:
    """No change of a character leaves a block with the fingerprint that was compared and another relay key."""
    rng, identity = random.Random(7), Identity(bytes(32))
    text, path = block_text("north", identity), tmp_path / "north.toml"
    path.write_text(text)
    whole, begins, refused = PublicBlock.load(path), text.index('relay = "'), 0
    for _ in range(300):
        damaged = list(text)
        damaged[rng.randrange(begins, len(text))] = rng.choice('abcdefABCDEF0123456789."\n')
        path.write_text("".join(damaged))
        if is_taken(lambda: PublicBlock.load(path)):
            assert PublicBlock.load(path) == whole
        else:
            refused += 1
    assert refused > 200


def test_an_invitation_is_parsed_once_in_a_process_and_again_when_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process with a hundred sites reads one invitation of all members several times for each."""
    loopback = Loopback.make(tmp_path, ["ash"])
    text = loopback.invitation.read_text("utf-8")
    parsed: list[str] = []

    def read(one: str) -> dict[str, Any]:
        parsed.append(one)
        return read_tables(one)

    monkeypatch.setattr(invitation, "read_tables", read)
    first, changed = text + "# first\n", text + "# second\n"
    for one in (first, first, changed, first):
        loopback.invitation.write_text(one, "utf-8")
        assert set(Invitation.load(loopback.invitation).members) == {"ash", "coordinator"}
    assert parsed == [first, changed]
    for _ in range(2):
        loopback.invitation.write_text("members = 3", "utf-8")
        with pytest.raises(BadInput, match=str(loopback.invitation)):
            Invitation.load(loopback.invitation)
