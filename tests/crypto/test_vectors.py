"""Known answers of the standards that the sealed layer stands on."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.bindings._rust import openssl
from cryptography.hazmat.primitives import hpke
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from comity.crypto.sealing import SUITE, PublicIdentity
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
def test_ed25519_of_rfc_8032(secret: Any, public: Any, message: Any, signature: Any) -> None:
    key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(secret))
    assert key.public_key().public_bytes_raw().hex() == public
    assert key.sign(bytes.fromhex(message)).hex() == signature
    pinned = PublicIdentity(bytes.fromhex(public), b"", b"")
    pinned.verify(bytes.fromhex(signature), bytes.fromhex(message))
    with pytest.raises(Malformed):
        pinned.verify(bytes.fromhex(signature), b"another")


def test_hpke_of_rfc_9180() -> None:
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


# draft-connolly-cfrg-xwing-kem-10, appendix C, first vector: ML-KEM-768 + X25519 (X-Wing, the KEM 0x647a of HPKE).
XWING_SEED = "7f9c2ba4e88f827d616045507605853ed73b8093f6efbc88eb1a6eacfa66ef26"
XWING_SECRET = "d2df0522128f09dd8e2c92b1e905c793d8f57a54c3da25861f10bf4ca613e384"
XWING_ENCAPSULATED = (
    "b83aa828d4d62b9a83ceffe1d3d3bb1ef31264643c070c5798927e41fb07914a273f8f96e7826cd5375a283d7da885304c5de0516a0f0654"
    "243dc5b97f8bfeb831f68251219aabdd723bc6512041acbaef8af44265524942b902e68ffd23221cda70b1b55d776a92d1143ea3a0c475f6"
    "3ee6890157c7116dae3f62bf72f60acd2bb8cc31ce2ba0de364f52b8ed38c79d719715963a5dd3842d8e8b43ab704e4759b5327bf027c63c"
    "8fa857c4908d5a8a7b88ac7f2be394d93c3706ddd4e698cc6ce370101f4d0213254238b4a2e8821b6e414a1cf20f6c1244b699046f5a01ca"
    "a0a1a55516300b40d2048c77cc73afba79afeea9d2c0118bdf2adb8870dc328c5516cc45b1a2058141039e2c90a110a9e16b318dfb53bd49"
    "a126d6b73f215787517b8917cc01cabd107d06859854ee8b4f9861c226d3764c87339ab16c3667d2f49384e55456dd40414b70a6af841585"
    "f4c90c68725d57704ee8ee7ce6e2f9be582dbee985e038ffc346ebfb4e22158b6c84374a9ab4a44e1f91de5aac5197f89bc5e5442f51f9a5"
    "937b102ba3beaebf6e1c58380a4a5fedce4a4e5026f88f528f59ffd2db41752b3a3d90efabe463899b7d40870c530c8841e8712b733668ed"
    "033adbfafb2d49d37a44d4064e5863eb0af0a08d47b3cc888373bc05f7a33b841bc2587c57eb69554e8a3767b7506917b6b70498727f16ea"
    "c1a36ec8d8cfaf751549f2277db277e8a55a9a5106b23a0206b4721fa9b3048552c5bd5b594d6e247f38c18c591aea7f56249c72ce7b117a"
    "fcc3a8621582f9cf71787e183dee09367976e98409ad9217a497df888042384d7707a6b78f5f7fb8409e3b535175373461b776002d799cba"
    "d62860be70573ecbe13b246e0da7e93a52168e0fb6a9756b895ef7f0147a0dc81bfa644b088a9228160c0f9acf1379a2941cd28c06ebc80e"
    "44e17aa2f8177010afd78a97ce0868d1629ebb294c5151812c583daeb88685220f4da9118112e07041fcc24d5564a99fdbde28869fe07223"
    "87d7a9a4d16e1cc8555917e09944aa5ebaaaec2cf62693afad42a3f518fce67d273cc6c9fb5472b380e8573ec7de06a3ba2fd5f931d725b4"
    "93026cb0acbd3fe62d00e4c790d965d7a03a3c0b4222ba8c2a9a16e2ac658f572ae0e746eafc4feba023576f08942278a041fb82a70a595d"
    "5bacbf297ce2029898a71e5c3b0d1c6228b485b1ade509b35fbca7eca97b2132e7cb6bc465375146b7dceac969308ac0c2ac89e7863eb894"
    "3015b24314cafb9c7c0e85fe543d56658c213632599efabfc1ec49dd8c88547bb2cc40c9d38cbd3099b4547840560531d0188cd1e9c23a0e"
    "bee0a03d5577d66b1d2bcb4baaf21cc7fef1e03806ca96299df0dfbc56e1b2b43e4fc20c37f834c4af62127e7dae86c3c25a2f696ac8b589"
    "dec71d595bfbe94b5ed4bc07d800b330796fda89edb77be0294136139354eb8cd37591578f9c600dd9be8ec6219fdd507adf3397ed4d6870"
    "7b8d13b24ce4cd8fb22851bfe9d632407f31ed6f7cb1600de56f17576740ce2a32fc5145030145cfb97e63e0e41d354274a079d3e6fb2e15"
)


def test_the_hybrid_kem_of_the_x_wing_draft() -> None:
    """The published shared secret, put through the key schedule of RFC 9180 by hand, is what our suite opens with."""
    expanded = hashlib.shake_256(bytes.fromhex(XWING_SEED)).digest(96)
    lattice = MLKEM768PrivateKey.from_seed_bytes(expanded[:64])
    curve = X25519PrivateKey.from_private_bytes(expanded[64:])
    encapsulated = bytes.fromhex(XWING_ENCAPSULATED)

    first = lattice.decapsulate(encapsulated[:1088])
    second = curve.exchange(X25519PublicKey.from_public_bytes(encapsulated[1088:]))
    own = curve.public_key().public_bytes_raw()
    secret = hashlib.sha3_256(first + second + encapsulated[1088:] + own + b"\\.//^\\").digest()
    assert secret.hex() == XWING_SECRET

    box = _sealed_by_hand(secret, b"beauty", b"context")
    opened = SUITE.decrypt(encapsulated + box, hpke.MLKEM768X25519PrivateKey(lattice, curve), info=b"context")
    assert opened == b"beauty"
    with pytest.raises(InvalidTag):
        SUITE.decrypt(encapsulated + box, hpke.MLKEM768X25519PrivateKey(lattice, curve), info=b"another")


def _sealed_by_hand(secret: Any, data: Any, info: Any) -> bytes:
    """RFC 9180, sections 4 and 5.1, for KEM 0x647a, HKDF-SHA256 (1) and AES-256-GCM (2), base mode, first message."""
    suite = b"HPKE" + bytes.fromhex("647a00010002")

    def extract(salt: Any, label: Any, material: Any) -> bytes:
        return hmac.digest(salt, b"HPKE-v1" + suite + label + material, "sha256")

    def expand(key: Any, label: Any, context: Any, length: Any) -> bytes:
        head = length.to_bytes(2, "big") + b"HPKE-v1" + suite + label + context
        return hmac.digest(key, head + b"\x01", "sha256")[:length]

    context = b"\x00" + extract(b"", b"psk_id_hash", b"") + extract(b"", b"info_hash", info)
    scheduled = extract(secret, b"secret", b"")
    key, nonce = expand(scheduled, b"key", context, 32), expand(scheduled, b"base_nonce", context, 12)
    return AESGCM(key).encrypt(nonce, data, b"")
