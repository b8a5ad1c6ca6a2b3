"""Oblivious transfers of random bits: 128 base transfers, extended to as many as needed.

Base transfers (T. Chou, C. Orlandi, The simplest protocol for oblivious transfer, 2015). The sender ends with two keys
for each transfer, the receiver with the key of its choice. In the subgroup of prime order of edwards25519, with base
point G: the sender offers A = aG; for a choice c the receiver answers B = bG + cA and keeps the hash of bA; the sender
keeps the hashes of aB and a(B − A). The hash covers the session, the place, A and B, so a key of one session or place
is of no use in another. Elements that are not canonical encodings of points of prime order are refused.

Extension (Y. Ishai, J. Kilian, K. Nissim, E. Petrank, Extending oblivious transfers efficiently, 2003). The receiver
ends with a choice bit r and a bit m_r for each transfer, the sender with both bits m_0, m_1; all of them are random, so
no message corrects them. The receiver is the sender of the base transfers. It expands its 128 pairs of keys into
columns t_i and t_i ⊕ u_i ⊕ r, and sends the u_i. The sender, who chose the bits s in the base transfers, holds the
columns q_i = t_i ⊕ s_i·r. Read by rows, q_j = t_j ⊕ r_j·s: the hash of t_j is m_r to the receiver, and the hashes of
q_j and q_j ⊕ s are m_0 and m_1 to the sender.

Adversary: either side, semi-honest; the two do not collude. A side that departs from the protocol is outside of this
promise.
- Base transfers: the sender learns nothing of the choices, at any computing power, because B is a uniform element of
  the subgroup for either choice. The receiver learns nothing of the other key as long as computing Diffie–Hellman
  secrets is hard in the subgroup and BLAKE2b behaves as a random oracle. This assumption is classical: a quantum
  computer breaks it, also for recorded messages.
- Extension: the sender sees columns masked by streams whose keys it lacks. The receiver would need the hash of t_j ⊕ s
  for an s that it does not know: the hash π(x) ⊕ x, with π AES-128 under a public key, is correlation robust when π is
  an ideal permutation (C. Guo, J. Katz, X. Wang, Y. Yu, Efficient and secure multiparty computation from fixed-key
  block ciphers, 2020). π's key comes from the base transfers of the session, so work against one session does not serve
  against another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from nacl.bindings import (
    crypto_core_ed25519_add,
    crypto_core_ed25519_is_valid_point,
    crypto_core_ed25519_scalar_reduce,
    crypto_core_ed25519_sub,
    crypto_scalarmult_ed25519_base_noclamp,
    crypto_scalarmult_ed25519_noclamp,
)
from numpy.typing import NDArray

from comity.crypto.comparisons.exchange import Bits, Exchange, draw_bits, transpose
from comity.entropy import Stream, derive
from comity.errors import Malformed

ELEMENT_BYTES = 32
KEY_BYTES = 32


@dataclass(frozen=True)
class Offer:
    """The sender's half: `message` goes to the receiver, whose answer determines the keys, once."""

    session: bytes
    message: bytes
    _secret: bytes = field(repr=False)

    def keys(self, answer: bytes, count: int) -> list[tuple[bytes, bytes]]:
        """Both keys of each of `count` transfers."""
        if len(answer) != count * ELEMENT_BYTES:
            raise Malformed(f"{count} elements of {ELEMENT_BYTES} bytes were expected, found {len(answer)} bytes")
        offset = crypto_scalarmult_ed25519_noclamp(self._secret, self.message)
        pairs = []
        for place in range(count):
            element = _require_valid(answer[place * ELEMENT_BYTES : (place + 1) * ELEMENT_BYTES])
            zero = crypto_scalarmult_ed25519_noclamp(self._secret, element)
            one = crypto_core_ed25519_sub(zero, offset)
            pairs.append(
                (
                    _key(self.session, place, self.message, element, zero),
                    _key(self.session, place, self.message, element, one),
                )
            )
        return pairs


def offer(session: bytes, seed: bytes) -> Offer:
    """An offer from a secret seed. Both sides know `session`, which names the run, the release and the purpose."""
    secret = _scalar(Stream(derive(seed, "base ot", "offer", session)))
    return Offer(session, crypto_scalarmult_ed25519_base_noclamp(secret), secret)


def choose(session: bytes, offered: bytes, choices: Sequence[int], seed: bytes) -> tuple[bytes, list[bytes]]:
    """The receiver's answer to an offer, and the key that each choice (0 or 1) gives."""
    base = _require_valid(offered)
    # Bound to the offer: answers with the same b to different offers would differ by a multiple of the choice.
    stream = Stream(derive(seed, "base ot", "answer", session, offered))
    elements, keys = [], []
    for place, choice in enumerate(choices):
        secret = _scalar(stream)
        plain = crypto_scalarmult_ed25519_base_noclamp(secret)
        # Both are computed for every choice, so the time does not reveal which one is sent.
        element = (plain, crypto_core_ed25519_add(plain, base))[choice]
        elements.append(element)
        keys.append(_key(session, place, offered, element, crypto_scalarmult_ed25519_noclamp(secret, base)))
    return b"".join(elements), keys


def _scalar(stream: Stream) -> bytes:
    # 512 bits, so the reduction leaves no bias.
    return crypto_core_ed25519_scalar_reduce(stream.bytes(64))


def _require_valid(element: bytes) -> bytes:
    if len(element) != ELEMENT_BYTES or not crypto_core_ed25519_is_valid_point(element):
        raise Malformed(f"an element of prime order in {ELEMENT_BYTES} bytes was expected, found something else")
    return element


def _key(session: bytes, place: int, offered: bytes, element: bytes, shared: bytes) -> bytes:
    digest = blake2b(digest_size=KEY_BYTES, person=b"comity base ot")
    digest.update(len(session).to_bytes(8, "little") + session + place.to_bytes(8, "little"))
    digest.update(offered + element + shared)
    return digest.digest()


BASE = 128
MULTIPLE = 64
# Bytes of each column that are transposed and hashed at once: half a megabyte of rows, which fits the caches.
_BLOCK = 4096

Octets = NDArray[np.uint8]


def send(session: bytes, count: int, seed: bytes) -> Exchange[tuple[Bits, Bits]]:
    """The sender of `count` transfers, a multiple of 64: the bits (m_0, m_1). The seed is secret and used once."""
    width = _column_bytes(count)
    offered = yield b""
    secret = np.frombuffer(derive(seed, "ot extension", "choices", session, offered)[: BASE // 8], np.uint8)
    choices = np.unpackbits(secret, bitorder="little")
    answer, keys = choose(session, offered, choices.tolist(), seed)
    yield answer
    message = yield b""
    if len(message) != BASE * width:
        raise Malformed(f"{BASE} columns of {width} bytes were expected, found {len(message)} bytes")
    # Multiplication by the choice, not a branch on it.
    masked = np.frombuffer(message, np.uint8).reshape(BASE, width) * choices[:, None]
    columns = _expand_columns(keys, width) ^ masked
    zero, one = _hash_bits(_cipher_key(session, offered, answer), columns, (np.zeros_like(secret), secret))
    return zero, one


def receive(session: bytes, count: int, seed: bytes) -> Exchange[tuple[Bits, Bits]]:
    """The receiver: uniform choices r and the bits m_r. The seed is secret and used once."""
    width = _column_bytes(count)
    start = offer(session, seed)
    yield start.message
    answer = yield b""
    pairs = start.keys(answer, BASE)
    choices = draw_bits(Stream(derive(seed, "ot extension", "choices", session, answer)), count)
    kept = _expand_columns([zero for zero, _ in pairs], width)
    other = _expand_columns([one for _, one in pairs], width)
    yield (kept ^ other ^ np.packbits(choices, bitorder="little")).tobytes()
    (bits,) = _hash_bits(_cipher_key(session, start.message, answer), kept, (np.zeros(BASE // 8, np.uint8),))
    return choices, bits


def _column_bytes(count: int) -> int:
    if count <= 0 or count % MULTIPLE:
        raise ValueError(f"a positive multiple of {MULTIPLE} transfers was expected, found {count}")
    return count // 8


def _expand_columns(keys: Sequence[bytes], width: int) -> Octets:
    return np.stack([Stream(key).words(width // 8).view(np.uint8) for key in keys])


def _cipher_key(session: bytes, offered: bytes, answer: bytes) -> bytes:
    digest = blake2b(digest_size=16, person=b"comity iknp")
    digest.update(len(session).to_bytes(8, "little") + session + offered + answer)
    return digest.digest()


def _hash_bits(cipher_key: bytes, columns: Octets, offsets: Sequence[Octets]) -> list[Bits]:
    """One bit of the hash of every row of the matrix with these columns, XORed with each offset."""
    bits = [np.empty(8 * columns.shape[1], np.uint8) for _ in offsets]
    for start in range(0, columns.shape[1], _BLOCK):
        rows = transpose(columns[:, start : start + _BLOCK])
        for out, offset in zip(bits, offsets):
            out[8 * start : 8 * start + len(rows)] = hash_rows(cipher_key, rows ^ offset)[:, 0] & 1
    return bits


def hash_rows(cipher_key: bytes, rows: Octets) -> Octets:
    """π(x) ⊕ x of every row of 16 bytes."""
    # Electronic codebook applies the permutation to every row in one call; it encrypts nothing here.
    encryptor = Cipher(algorithms.AES(cipher_key), modes.ECB()).encryptor()
    permuted = np.frombuffer(encryptor.update(rows.tobytes()), np.uint8).reshape(rows.shape)
    return permuted ^ rows
