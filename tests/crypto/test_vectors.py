"""Known answers of the standards that the sealed layer stands on."""

from __future__ import annotations

import pytest
from cryptography.hazmat.bindings._rust import openssl
from cryptography.hazmat.primitives import hpke
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from comity.crypto.sealed import PublicIdentity
from comity.errors import Malformed

# RFC 8032, section 7.1: (secret key, public key, message, signature).
ED25519 = [
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46b"
        "d25bf5f0595bbe24655141438e7a100b",
    ),
    (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c"
        "387b2eaeb4302aeeb00d291612bb0c00",
    ),
]


@pytest.mark.parametrize(("secret", "public", "message", "signature"), ED25519)
def test_ed25519_of_rfc_8032(secret, public, message, signature):
    key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(secret))
    assert key.public_key().public_bytes_raw().hex() == public
    assert key.sign(bytes.fromhex(message)).hex() == signature
    pinned = PublicIdentity(bytes.fromhex(public), b"", b"")
    pinned.verify(bytes.fromhex(signature), bytes.fromhex(message))
    with pytest.raises(Malformed):
        pinned.verify(bytes.fromhex(signature), b"another")


def test_hpke_of_rfc_9180():
    """Appendix A.1.1: DHKEM(X25519), HKDF-SHA256, AES-128-GCM, base mode, sequence number 0."""
    suite = hpke.Suite(hpke.KEM.X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.AES_128_GCM)
    key = X25519PrivateKey.from_private_bytes(
        bytes.fromhex("4612c550263fc8ad58375df3f557aac531d26850903e55a9f23f21d8534e8ac8")
    )
    encapsulated = bytes.fromhex("37fda3567bdbd628e88668c3c8d7e97d1d1253b6d4ea6d44c150f741f1bf4431")
    box = bytes.fromhex("f938558b5d72f1a23810b4be2ab4f84331acc02fc97babc53a52ae8218a355a96d8770ac83d07bea87e13c512a")
    opened = openssl.hpke._decrypt_with_aad(
        suite, encapsulated + box, key, info=b"Ode on a Grecian Urn", aad=b"Count-0"
    )
    assert opened == b"Beauty is truth, truth beauty"
