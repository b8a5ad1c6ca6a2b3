"""Many oblivious transfers of random bits from 128 base ones (Y. Ishai, J. Kilian, K. Nissim, E. Petrank, Extending
oblivious transfers efficiently, 2003).

The receiver ends with a choice bit r and a bit m_r for each transfer, the sender with both bits m_0, m_1; all of them
are random, so no message corrects them. The receiver is the sender of the base transfers and expands its 128 pairs of
keys into columns t_i and t_i ⊕ u_i ⊕ r; it sends the u_i. The sender, who chose the bits s in the base transfers,
holds the columns q_i = t_i ⊕ s_i·r. Read by rows, q_j = t_j ⊕ r_j·s: the hash of t_j is m_r to the receiver, and the
hashes of q_j and q_j ⊕ s are m_0 and m_1 to the sender.

Adversary: either side, semi-honest; the two do not collude. The sender sees columns masked by streams whose keys it
lacks. The receiver would need the hash of t_j ⊕ s for an s that it does not know: the hash π(x) ⊕ x, with π AES-128
under a public key, is correlation robust when π is an ideal permutation (C. Guo, J. Katz, X. Wang, Y. Yu, Efficient
and secure multiparty computation from fixed-key block ciphers, 2020). π's key comes from the session's own base
transfers, so that work against one session does not serve against another. The base transfers' assumption is needed
too (`comity.crypto.comparisons.ot`). A side that departs from the protocol is outside of this promise.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from comity.crypto.comparisons.bits import Bits, transpose, uniform
from comity.crypto.comparisons.exchange import Exchange
from comity.crypto.comparisons.ot import choose, offer
from comity.entropy import Stream, derive
from comity.errors import Malformed

BASE = 128
MULTIPLE = 64
# Bytes of each column that are transposed and hashed at once: half a megabyte of rows, which the caches hold.
_BLOCK = 4096

Octets = NDArray[np.uint8]


def send(session: bytes, count: int, seed: bytes) -> Exchange[tuple[Bits, Bits]]:
    """The sender of `count` transfers, a multiple of 64: the bits (m_0, m_1). The seed is secret and serves once."""
    width = _width(count)
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
    columns = _columns(keys, width) ^ masked
    zero, one = _hash_bits(_cipher_key(session, offered, answer), columns, (np.zeros_like(secret), secret))
    return zero, one


def receive(session: bytes, count: int, seed: bytes) -> Exchange[tuple[Bits, Bits]]:
    """The receiver: uniform choices r and the bits m_r. The seed is secret and serves once."""
    width = _width(count)
    start = offer(session, seed)
    yield start.message
    answer = yield b""
    pairs = start.keys(answer, BASE)
    choices = uniform(Stream(derive(seed, "ot extension", "choices", session, answer)), count)
    kept = _columns([zero for zero, _ in pairs], width)
    other = _columns([one for _, one in pairs], width)
    yield (kept ^ other ^ np.packbits(choices, bitorder="little")).tobytes()
    (bits,) = _hash_bits(_cipher_key(session, start.message, answer), kept, (np.zeros(BASE // 8, np.uint8),))
    return choices, bits


def _width(count: int) -> int:
    if count <= 0 or count % MULTIPLE:
        raise ValueError(f"a positive multiple of {MULTIPLE} transfers was expected, found {count}")
    return count // 8


def _columns(keys: Sequence[bytes], width: int) -> Octets:
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
            out[8 * start : 8 * start + len(rows)] = correlation_robust(cipher_key, rows ^ offset)[:, 0] & 1
    return bits


def correlation_robust(cipher_key: bytes, rows: Octets) -> Octets:
    """π(x) ⊕ x of every row of 16 bytes."""
    # Electronic codebook is the permutation itself, applied to every row in one call; nothing is encrypted here.
    encryptor = Cipher(algorithms.AES(cipher_key), modes.ECB()).encryptor()
    permuted = np.frombuffer(encryptor.update(rows.tobytes()), np.uint8).reshape(rows.shape)
    return permuted ^ rows
