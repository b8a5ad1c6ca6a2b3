"""Certificates, requests and keys of other versions, algorithms and kinds, and damaged ones."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from comity.errors import BadInput
from comity.relay.certificates import (
    AUTHORITY,
    KEY,
    Authority,
    authority_fingerprint,
    create_request,
    install_certificate,
    load_key,
    request_fingerprint,
)

Try = Callable[[str], object]


def pem(der: bytes, kind: str) -> str:
    return f"-----BEGIN {kind}-----\n{base64.encodebytes(der).decode()}-----END {kind}-----\n"


def der(text: str) -> bytes:
    return base64.b64decode("".join(line for line in text.splitlines() if not line.startswith("-")))


class Member:
    def __init__(self, folder: Path) -> None:
        self.home, self.elsewhere = folder / "north", folder / "elsewhere"
        self.authority = Authority.create(folder / "authority")
        self.request = create_request(self.home, "north")
        (self.home / AUTHORITY).write_text(self.authority.pem)
        self.certificate = self.authority.sign_member(self.request, "north").pem
        self.elsewhere.mkdir()
        (self.elsewhere / KEY).write_bytes((self.home / KEY).read_bytes())
        (self.elsewhere / KEY).chmod(0o600)

    def installed(self, text: str) -> None:
        install_certificate(self.home, "north", text)

    def trusted(self, text: str) -> None:
        """The damaged certificate is the authority's."""
        (self.elsewhere / AUTHORITY).write_text(text)
        install_certificate(self.elsewhere, "north", self.certificate)

    def signed(self, text: str) -> None:
        self.authority.sign_member(text, "north")

    def opened(self, text: str) -> None:
        path = self.elsewhere / "other.pem"
        path.write_text(text)
        path.chmod(0o600)
        load_key(path)


@pytest.fixture
def member(tmp_path: Path) -> Member:
    return Member(tmp_path)


def one_sentence(use: Try, text: str) -> bool:
    """Whether it was taken; what is not ends in bad input."""
    try:
        use(text)
    except BadInput as error:
        assert "\n" not in str(error)
        return False
    return True


def test_other_kinds_of_keys_are_bad_input(member: Member) -> None:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "north")])
    now = datetime.now(UTC)
    others = (rsa.generate_private_key(65537, 2048), ed25519.Ed25519PrivateKey.generate())
    for key in (*others, ec.generate_private_key(ec.SECP384R1())):
        digest = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
        asked = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, digest)
        made = x509.CertificateBuilder(name, name, key.public_key(), 7, now, now + timedelta(1)).sign(key, digest)
        request, certificate = (one.public_bytes(Encoding.PEM).decode() for one in (asked, made))
        assert not any(one_sentence(use, request) for use in (request_fingerprint, member.signed))
        assert not any(one_sentence(use, certificate) for use in (member.installed, member.trusted))
    secret = others[0].private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    assert not one_sentence(member.opened, secret)


def test_unknown_versions_and_algorithms_are_bad_input(member: Member) -> None:
    """Bytes of the encodings are exchanged: the version, the curve, the algorithm of the signature."""
    p256, ecdsa = bytes.fromhex("06082a8648ce3d030107"), bytes.fromhex("06082a8648ce3d040302")
    unknown = {p256: bytes.fromhex("06082a8648ce3d03017f"), ecdsa: bytes.fromhex("06082a8648ce3d04037f")}
    request, certificate = der(member.request), der(member.certificate)
    for known, other in unknown.items():
        assert known in request and known in certificate
        assert not any(
            one_sentence(use, pem(request.replace(known, other), "CERTIFICATE REQUEST"))
            for use in (request_fingerprint, member.signed)
        )
        changed = pem(certificate.replace(known, other), "CERTIFICATE")
        assert not any(one_sentence(use, changed) for use in (member.installed, member.trusted))
    versions = {
        pem(request.replace(b"\x02\x01\x00", b"\x02\x01\x37", 1), "CERTIFICATE REQUEST"): (
            request_fingerprint,
            member.signed,
        ),
        pem(certificate.replace(b"\x02\x01\x02", b"\x02\x01\x37", 1), "CERTIFICATE"): (
            authority_fingerprint,
            member.installed,
            member.trusted,
        ),
    }
    for text, uses in versions.items():
        assert not any(one_sentence(use, text) for use in uses)


@pytest.mark.filterwarnings("ignore::cryptography.utils.CryptographyDeprecationWarning")
def test_damaged_ones_are_bad_input(member: Member) -> None:
    rng = random.Random(5)
    key = (member.home / KEY).read_text()
    kinds: list[tuple[bytes, str, tuple[Try, ...]]] = [
        (der(member.request), "CERTIFICATE REQUEST", (request_fingerprint, member.signed)),
        (der(member.certificate), "CERTIFICATE", (authority_fingerprint, member.installed, member.trusted)),
        (der(key), "PRIVATE KEY", (member.opened,)),
    ]
    refused = 0
    for _ in range(250):
        for raw, kind, uses in kinds:
            damaged = bytearray(raw)
            damaged[rng.randrange(len(raw))] = rng.randrange(256)
            refused += sum(not one_sentence(use, pem(bytes(damaged), kind)) for use in uses)
    assert refused > 500
