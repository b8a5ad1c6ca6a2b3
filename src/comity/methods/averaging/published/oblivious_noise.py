"""Stage 2: the noise of the smallest party under the curator's key, formed by the parties along a chain.

    indicator  curator    Enc(e_i) for every place i of the mixer's order: e_i = 1 at the smallest party's, else 0
    raised     P_j        its element raised to its own noise vector, times what the party before it sealed to it
    blinded    mixer      the last of the chain: adds s, and only then does the curator get the product
    opened     curator    η + s, which is uniform

Each coordinate has a slot of a packed plaintext, so that Enc(e)^(Σ η_i·2^(w·i)) = Enc(Σ e·η_i·2^(w·i)) is one
exponentiation for many coordinates. A slot has room for the noise of every party, though only one is not zero, and for
s, which is 2^128 times longer than any noise.

Every ciphertext is re-randomised after its exponentiation: without it Enc(e)^η is the same element for the same small
η, which a search finds; and the curator, who holds the key, sees no factor but the product over all parties.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from comity.crypto.paillier.cryptosystem import STATISTICAL_BITS, Ciphertext, PrivateKey, PublicKey
from comity.crypto.paillier.packing import PackedVector, Packing
from comity.entropy import Stream
from comity.methods.averaging.published.smallest import WORD, Words, write_all

# Of s and of noise together, with the sign.
SLOT_BITS = 64 + STATISTICAL_BITS + 2
BLIND_BYTES = (64 + STATISTICAL_BITS) // 8


def slots(key: PublicKey, parties: int) -> Packing:
    """Slots for the noise of all parties and s."""
    return Packing(key, SLOT_BITS, parties + 1)


def indicator(key: PublicKey, place: int, count: int) -> bytes:
    return write_all(key, [key.encrypt(int(i == place)) for i in range(count)])


def raised(packing: Packing, element: Ciphertext, noise: NDArray[np.int64]) -> PackedVector:
    """The noise if the element is an encryption of 1, nothing if of 0."""
    factors = packing.pack(_integers(noise))
    return PackedVector(tuple(packing.key.multiply(element, factor) for factor in factors), noise.size, 1)


def chained(packing: Packing, own: PackedVector, before: bytes | None, turn: int) -> PackedVector:
    """This party's factor times the product of the `turn` parties before it, re-randomised."""
    if before is not None:
        own = packing.add(packing.read(before, own.length, turn), own)
    return packing.rerandomise(own)


def blind(packing: Packing, product: PackedVector, stream: Stream) -> tuple[bytes, Words]:
    """The product with s added, for the curator, and s modulo 2^64 for the mixer to take off again."""
    drawn = stream.bytes(BLIND_BYTES * product.length)
    added = [int.from_bytes(drawn[i : i + BLIND_BYTES], "little") for i in range(0, len(drawn), BLIND_BYTES)]
    blinded = packing.rerandomise(packing.add(product, packing.encrypt(added)))
    return packing.write(blinded), np.array([s % WORD for s in added], "<u8")


def opened(packing: Packing, private: PrivateKey, raw: bytes, length: int) -> Words:
    """η + s modulo 2^64, at the curator."""
    vector = packing.read(raw, length, packing.terms)
    return np.array([value % WORD for value in packing.decrypt(private, vector)], "<u8")


def _integers(noise: NDArray[np.int64]) -> Sequence[int]:
    return [int(value) for value in noise]
