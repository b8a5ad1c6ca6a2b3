"""The relay's certificate: self-signed, valid for ten years, and pinned by the invitation that members have.

Members have no certificates: the relay knows each of them by the relay key of its key file. The relay's certificate
proves to members that they talk to their relay. They accept this certificate and no other, whoever signed it, and its
key cannot sign certificates.
"""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from comity.errors import BadInput
from comity.files import write_atomically

KEY, CERTIFICATE = "key.pem", "certificate.pem"
"""Files in the relay's folder."""
VALIDITY = timedelta(days=3650)
# A clock slightly behind the relay's accepts the certificate at once.
_BACKDATED = timedelta(minutes=5)
# What the library raises for damaged files and for unknown versions and algorithms.
_UNREADABLE = (ValueError, TypeError, OverflowError, UnsupportedAlgorithm, x509.InvalidVersion)


def create_certificate(folder: Path, host: str, *, validity: timedelta = VALIDITY) -> str:
    """Make the relay's key and certificate in `folder`; returns the certificate. Both are new files: a certificate that
    members pinned is replaced only after its owner removed it."""
    for path in (folder / KEY, folder / CERTIFICATE):
        if path.exists():
            raise BadInput(f"{path}: exists already; remove key and certificate to replace both", code="keys")
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "comity-relay")])
    certificate = (
        x509.CertificateBuilder(
            name, name, key.public_key(), x509.random_serial_number(), now - _BACKDATED, now + validity
        )
        .add_extension(x509.SubjectAlternativeName([_host(host)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=True)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode("ascii")
    pem = certificate.public_bytes(Encoding.PEM).decode("ascii")
    write_atomically(folder / KEY, secret)
    write_atomically(folder / CERTIFICATE, pem)
    return pem


def read_certificate(pem: str, where: str) -> x509.Certificate:
    """Parse a certificate completely: the library reads key, names and dates only when they are accessed."""
    try:
        certificate = x509.load_pem_x509_certificate(pem.encode("ascii"))
        _ = certificate.public_key(), certificate.subject, certificate.issuer
        _ = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    except _UNREADABLE:
        raise BadInput(
            f"{where}: expected the relay's certificate in PEM, found something else; ask the consortium's holder for "
            "a new invitation",
            code="certificate",
        ) from None
    return certificate


def load_certificate(path: Path) -> x509.Certificate:
    try:
        text = path.read_text("ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(
            f"{path}: the relay's certificate can't be read ({error}); restore it from a copy", code="certificate"
        ) from error
    return read_certificate(text, str(path))


def certificate_fingerprint(certificate: x509.Certificate) -> str:
    """What a member and the holder compare by telephone: 128 bits in groups of four digits."""
    text = certificate.fingerprint(hashes.SHA256()).hex()[:32]
    return " ".join(text[at : at + 4] for at in range(0, len(text), 4))


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
