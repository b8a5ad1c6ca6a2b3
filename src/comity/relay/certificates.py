"""Certificates of a consortium's members and of its relay, and the requests for them.

Promise    Each member makes its private key itself, in a file that it alone can read, and never sends it. The authority
           takes only the public key from a request. It ignores the request's names, alternative names and extensions,
           because a relay that maps certificates to users would believe them.
Names      A certificate is for `CN=NAME.KEY`, where KEY is the beginning of the public key's SHA-256. The relay admits
           exactly that subject, so the certificate of a member's earlier key admits nobody: a name can be reused after
           a key was stolen. A member's certificate identifies a client, never a relay.
"""

from __future__ import annotations

import hashlib
import ipaddress
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from comity.errors import BadInput
from comity.files import make_folder, write_atomically
from comity.relay.wire import RELAY, require_member_name

# What the library raises for damaged files and for unknown versions and algorithms.
_UNREADABLE = (ValueError, TypeError, OverflowError, UnsupportedAlgorithm, x509.InvalidVersion)
KEY, REQUEST, CERTIFICATE, AUTHORITY = "key.pem", "request.pem", "certificate.pem", "authority.pem"
"""Files in a member's relay folder."""
YEAR = timedelta(days=365)
_FINGERPRINT_CHARACTERS = 24
# A clock slightly behind the authority's accepts the certificate at once.
_BACKDATED = timedelta(minutes=5)
_MAX_REQUEST_CHARACTERS = 16 << 10
_AUTHORITY_YEARS = 5


@dataclass(frozen=True)
class IssuedCertificate:
    """A signed certificate, the fingerprint of its key, and when it expires."""

    pem: str
    key: str
    until: datetime


def create_request(folder: Path, name: str) -> str:
    """Make a key in `folder`, and the signing request to send to the authority. An existing key stays, because its
    certificate may be on the way; the request is then for that key."""
    path = folder / KEY
    key = load_key(path) if path.exists() else _new_key(path)
    request = x509.CertificateSigningRequestBuilder().subject_name(_subject(require_member_name(name)))
    pem = request.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM).decode("ascii")
    write_atomically(folder / REQUEST, pem)
    return pem


def request_fingerprint(request: str) -> str:
    """The fingerprint of a request's key, for both sides to compare over another channel."""
    return _fingerprint(_requested_key(request, "the signing request"))


def relay_user(name: str, key: str) -> str:
    """The user to which the relay maps a certificate for this name and key."""
    return f"CN={name}.{key}"


class Authority:
    """Signs certificates. Its key is needed when a member joins, never while a study runs; keep it offline."""

    def __init__(self, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        self._key = key
        self.certificate = certificate

    @classmethod
    def create(cls, folder: Path) -> Authority:
        key = _new_key(folder / KEY)
        name, now = _subject("comity-authority"), datetime.now(UTC)
        certificate = (
            _builder(name, name, key.public_key(), now + _AUTHORITY_YEARS * YEAR)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .sign(key, hashes.SHA256())
        )
        write_atomically(folder / AUTHORITY, certificate.public_bytes(Encoding.PEM).decode("ascii"))
        return cls(key, certificate)

    @classmethod
    def load(cls, folder: Path) -> Authority:
        return cls(load_key(folder / KEY), load_certificate(folder / AUTHORITY))

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode("ascii")

    def sign_member(self, request: str, name: str, *, validity: timedelta = YEAR) -> IssuedCertificate:
        """A member's certificate for the key in a request."""
        return self._sign(request, require_member_name(name), ExtendedKeyUsageOID.CLIENT_AUTH, validity, ())

    def sign_relay(self, request: str, hosts: Sequence[str], *, validity: timedelta = YEAR) -> IssuedCertificate:
        """The relay's certificate, for the host names and addresses to which members connect."""
        return self._sign(request, RELAY, ExtendedKeyUsageOID.SERVER_AUTH, validity, hosts)

    def _sign(
        self, request: str, name: str, use: x509.ObjectIdentifier, validity: timedelta, hosts: Sequence[str]
    ) -> IssuedCertificate:
        key = _requested_key(request, name)
        printed = _fingerprint(key)
        until = min(datetime.now(UTC) + validity, self.certificate.not_valid_after_utc).replace(microsecond=0)
        builder = (
            _builder(_subject(f"{name}.{printed}"), self.certificate.subject, key, until)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([use]), critical=True)
        )
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False
            )
        certificate = builder.sign(self._key, hashes.SHA256())
        return IssuedCertificate(certificate.public_bytes(Encoding.PEM).decode("ascii"), printed, until)


def install_certificate(folder: Path, name: str, pem: str) -> datetime:
    """Check a certificate against the member's name, key and authority, and write it; returns when it expires."""
    until = _check(_parsed(pem, "the certificate"), folder, name)
    write_atomically(folder / CERTIFICATE, pem)
    return until


def check_certificate(folder: Path, name: str) -> datetime:
    """Refuse an installed certificate that is not for this name and the key beside it, or not signed by the authority
    beside it; returns when it expires."""
    return _check(load_certificate(folder / CERTIFICATE), folder, name)


def _check(certificate: x509.Certificate, folder: Path, name: str) -> datetime:
    where = f"{folder / CERTIFICATE}"
    key, authority = load_key(folder / KEY), load_certificate(folder / AUTHORITY)
    if _public(certificate) != _spki(key.public_key()):
        raise BadInput(f"{where}: the certificate is not for the key in this folder; request it again", code="keys")
    if certificate.subject != _subject(f"{name}.{_fingerprint(key.public_key())}"):
        raise BadInput(f"{where}: the certificate is not for the name {name!r}; request it again", code="name")
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, *_UNREADABLE):
        raise BadInput(
            f"{where}: the authority of this consortium did not sign this certificate; compare its fingerprint",
            code="authority",
        ) from None
    return certificate.not_valid_after_utc


def load_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """Load a private key; a file that others can read is refused."""
    try:
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise BadInput(f"{path}: others can read this key; run: chmod 600 {path}", code="keys")
        key = load_pem_private_key(path.read_bytes(), None)
    except FileNotFoundError:
        raise BadInput(f"{path}: there is no key here; make one: comity consortium join", code="keys") from None
    except (OSError, *_UNREADABLE) as error:
        raise BadInput(f"{path}: the key can't be read ({error})", code="keys") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise BadInput(f"{path}: expected an elliptic-curve key, found another kind; make a new one", code="keys")
    return key


def load_certificate(path: Path) -> x509.Certificate:
    try:
        return _parsed(path.read_text("ascii"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(
            f"{path}: the certificate can't be read ({error}); restore it, or join again: comity consortium join",
            code="certificate",
        ) from error


def authority_fingerprint(pem: str) -> str:
    """The fingerprint that members compare by telephone before they trust an invitation."""
    return _parsed(pem, "the authority's certificate").fingerprint(hashes.SHA256()).hex()


def _parsed(pem: str, where: str) -> x509.Certificate:
    """Parse a certificate completely: the library reads key, names and dates only when they are accessed."""
    try:
        certificate = x509.load_pem_x509_certificate(pem.encode("ascii"))
        key, _ = certificate.public_key(), (certificate.subject, certificate.issuer, certificate.not_valid_after_utc)
    except _UNREADABLE:
        raise BadInput(
            f"{where}: expected a certificate in PEM, found something else; request it again", code="certificate"
        ) from None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise BadInput(
            f"{where}: expected a certificate for an elliptic-curve key, found another kind; request it again",
            code="certificate",
        )
    return certificate


def _requested_key(request: str, where: str) -> ec.EllipticCurvePublicKey:
    """The public key of a request, once its signature proves that the sender has the private key."""
    try:
        if len(request) > _MAX_REQUEST_CHARACTERS:
            raise ValueError(len(request))
        asked = x509.load_pem_x509_csr(request.encode("ascii"))
        key, signed = asked.public_key(), asked.is_signature_valid
    except _UNREADABLE:
        raise BadInput(
            f"{where}: expected a signing request in PEM, found something else; make it with: comity consortium join",
            code="request",
        ) from None
    if not signed:
        raise BadInput(
            f"{where}: the signing request is not signed by its key; ask the member for a new one", code="request"
        )
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise BadInput(f"{where}: expected a key on P-256; make the request with: comity consortium join", code="keys")
    return key


def _new_key(path: Path) -> ec.EllipticCurvePrivateKey:
    key = ec.generate_private_key(ec.SECP256R1())
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    try:
        make_folder(path.parent)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise BadInput(f"{path}: a key exists already; choose another folder", code="keys") from None
    except OSError as error:
        raise BadInput(f"{path}: the key can't be written ({error.strerror})", code="keys") from error
    with os.fdopen(descriptor, "wb") as file:
        file.write(secret)
        file.flush()
        os.fsync(file.fileno())
    return key


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, until: datetime
) -> x509.CertificateBuilder:
    return x509.CertificateBuilder(
        issuer, subject, key, x509.random_serial_number(), datetime.now(UTC) - _BACKDATED, until
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _spki(key: ec.EllipticCurvePublicKey) -> bytes:
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _public(certificate: x509.Certificate) -> bytes:
    return certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _fingerprint(key: ec.EllipticCurvePublicKey) -> str:
    return hashlib.sha256(_spki(key)).hexdigest()[:_FINGERPRINT_CHARACTERS]
