"""Private set intersection by commutative blinding on Curve25519 (after Meadows 1986; Huberman, Franklin, Hogg 1999).

    hash      an id becomes a point: the suite curve25519_XMD:SHA-512_ELL2_NU_ of RFC 9380 (Elligator 2)
    blind     each party multiplies by a fresh secret, its own list first, then the lists that pass by
    match     points that all parties have blinded are equal exactly where the ids are; the matcher sees only these

Adversary    a matcher that follows the protocol but looks at everything, with all parties but one.
Assumes      the decisional Diffie-Hellman problem is hard on Curve25519, and SHA-512 behaves like a random function;
             both classically. A quantum computer breaks the blinding.
Learned      matcher: the size of each list and of every overlap. A party: the sizes of the lists that pass by, and
             which of its own people all lists hold. Colluders: which of *their* people an honest party has. They can't
             test an id that none of them holds: each test needs the honest party's secret.

A point travels as the 32 bytes of its u-coordinate. Half of all byte strings are coordinates of points on the curve's
twist, and multiplication keeps a point where it is: a raw hash used as a coordinate would show one bit of every id
under any number of blindings. Elligator 2 reaches only the curve, and `blind` refuses points that are not on it. Mapped
points may have a part of small order; X25519's secrets are multiples of 8, which removes it.
Multiplication takes constant time (libsodium). Hashing does not, and happens at the owner of the id.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from gmpy2 import invert, legendre, mpz
from nacl.bindings import crypto_scalarmult
from nacl.exceptions import RuntimeError as SodiumError

from comity.entropy import fresh_seed
from comity.errors import Malformed

POINT_BYTES = 32
SECRET_BYTES = 32

_TAG = b"comity-psi-v1-curve25519_XMD:SHA-512_ELL2_NU_"
_PRIME = mpz(2**255 - 19)
_A = mpz(486662)
# 128 bits more than the prime, so the remainder is uniform.
_FIELD_BYTES = 48
_SHA512_BLOCK = bytes(128)
_CHUNK = 512


def fresh_secret() -> bytes:
    """A secret multiplier for one run. X25519 fixes five of its bits."""
    return fresh_seed()


def hash_to_points(ids: Iterable[bytes]) -> bytes:
    """The point of each id, one after the other."""
    return b"".join(_encode(elligator(hash_to_field(one))) for one in ids)


def blind(secret: bytes, blinded: bytes) -> bytes:
    """Each point times the secret, in the same order. Blinding by several secrets gives the same in any order."""
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"a secret of {SECRET_BYTES} bytes was expected, found {len(secret)}")
    if len(blinded) % POINT_BYTES:
        raise Malformed(f"points of {POINT_BYTES} bytes were expected, found {len(blinded)} bytes", code="form")

    def part(start: int) -> bytes:
        chunk = blinded[start : start + _CHUNK * POINT_BYTES]
        return b"".join(_multiply(secret, chunk[at : at + POINT_BYTES]) for at in range(0, len(chunk), POINT_BYTES))

    # libsodium releases the interpreter's lock.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return b"".join(pool.map(part, range(0, len(blinded), _CHUNK * POINT_BYTES)))


def _multiply(secret: bytes, point: bytes) -> bytes:
    if not on_curve(point):
        raise Malformed("a value is not the coordinate of a point on Curve25519", code="form")
    try:
        return bytes(crypto_scalarmult(secret, point))
    except SodiumError as error:
        raise Malformed("a point of small order can't be blinded", code="form") from error


def on_curve(point: bytes) -> bool:
    """Whether 32 bytes are the canonical u-coordinate of a point of the curve rather than of its twist."""
    u = mpz(int.from_bytes(point, "little"))
    return bool(u < _PRIME and legendre(u * (u * (u + _A) + 1), _PRIME) == 1)


def hash_to_field(message: bytes, tag: bytes = _TAG) -> mpz:
    """hash_to_field of RFC 9380 with expand_message_xmd and SHA-512, for one element."""
    suffix = tag + bytes([len(tag)])
    first = hashlib.sha512(_SHA512_BLOCK + message + _FIELD_BYTES.to_bytes(2, "big") + b"\0" + suffix).digest()
    uniform = hashlib.sha512(first + b"\1" + suffix).digest()[:_FIELD_BYTES]
    return mpz(int.from_bytes(uniform, "big")) % _PRIME


def elligator(element: mpz) -> mpz:
    """The u-coordinate that Elligator 2 maps a field element to; of the two candidates one is on the curve."""
    # 1 + 2r² is never zero, because −1/2 is no square.
    u = -_A * invert(1 + 2 * element * element, _PRIME) % _PRIME
    return u if legendre(u * (u * (u + _A) + 1), _PRIME) == 1 else (-_A - u) % _PRIME


def _encode(u: mpz) -> bytes:
    return int(u).to_bytes(POINT_BYTES, "little")
