"""Stages 1 and 2: the smallest party's place in a secret order, and its noise under encryption.

Stage 1, between the curator and two parties:

    split      P_j        n_j = a_j + b_j modulo 2^64; seals b_j and Enc(a_j) to the mixer
    shuffle    mixer      puts the pairs in a secret order π1, re-randomises, and hands them to the curator
    mask       curator    adds r under encryption and subtracts it from b, reorders by π2, re-randomises
    unmask     keyholder  decrypts a + r: the two now share the sizes in the doubly permuted order
    compare    both       the curator learns which of them is the smallest (`argmin`)

Enc is under a Paillier key of one party, the keyholder. The mixer is another party: nobody sees both halves of a size.
In the paper all parties hold the key and each decrypts one element; then the mixer would read every size.

Learned      mixer: uniform b_j and ciphertexts. Keyholder: a + r, uniform within 2^-128. Curator: uniform b,
             ciphertexts, and the place of the smallest in the mixer's order, which is uniform for any sizes.
Together     mixer and keyholder read the sizes; so do curator and keyholder, in an order that only the mixer knows;
             curator and mixer learn who is the smallest.

Stage 2, along a chain of all parties:

    indicator  curator    Enc(e_i) for every place i of the mixer's order: e_i = 1 at the smallest party's, else 0
    select     P_j        raises its element to its own noise vector, times the product sealed by the party before it
    blind      mixer      the last of the chain: adds s; only then does the curator get the product
    open       curator    η + s, which is uniform

Each coordinate has a slot of a packed plaintext: Enc(e)^(Σ η_i·2^(w·i)) = Enc(Σ e·η_i·2^(w·i)) is one exponentiation
for many coordinates. A slot has room for the noise of every party, though only one is not zero, and for s, which is
2^128 times longer than any noise.

Every ciphertext is re-randomised after its exponentiation. Otherwise Enc(e)^η would be the same element for the same
small η, which a search finds. The curator, who holds the key, sees no factor but the product over all parties.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.crypto.paillier.cryptosystem import STATISTICAL_BITS, Ciphertext, PrivateKey, PublicKey
from comity.crypto.paillier.packing import PackedVector, Packing
from comity.entropy import Stream
from comity.errors import Malformed
from comity.federation.coordinator.parties import Parties
from comity.federation.declare.consortium import Consortium
from comity.federation.declare.declaration import Declaration
from comity.federation.declare.protection import Public
from comity.federation.owner.site import Site
from comity.federation.protocol import Protocol, step
from comity.methods.averaging.published.argmin import MAX_ROUNDS, MAX_USES, Argmin

Words = NDArray[np.uint64]

WORD = 1 << 64
MASK_BYTES = (64 + STATISTICAL_BITS) // 8
# Of s and of noise together, with the sign.
SLOT_BITS = 64 + STATISTICAL_BITS + 2


@lru_cache(maxsize=4)
def read_public_key(raw: bytes) -> PublicKey:
    """A peer's key after its checks. Cached for the tables that it builds: they are public, and cost a second."""
    return PublicKey.from_bytes(raw)


def write_ciphertexts(key: PublicKey, ciphertexts: Sequence[Ciphertext]) -> bytes:
    return b"".join(map(key.write, ciphertexts))


def read_ciphertexts(key: PublicKey, raw: bytes, count: int) -> list[Ciphertext]:
    """Exactly `count` ciphertexts."""
    size = key.ciphertext_bytes
    if len(raw) != count * size:
        raise Malformed(f"{count} ciphertexts of {size} bytes were expected, found {len(raw)} bytes", code="ciphertext")
    return [key.read(raw[start : start + size]) for start in range(0, len(raw), size)]


def _draw_masks(stream: Stream, count: int) -> list[int]:
    """Uniform numbers 2^128 times longer than a word."""
    drawn = stream.bytes(MASK_BYTES * count)
    return [int.from_bytes(drawn[i : i + MASK_BYTES], "little") for i in range(0, len(drawn), MASK_BYTES)]


# Stage 1.


def split_size(size: int, key: PublicKey, stream: Stream) -> tuple[Words, bytes]:
    """b uniform, and a = size − b encrypted."""
    b = stream.words(1)
    return b, key.write(key.encrypt((size - int(b[0])) % WORD))


def shuffle(key: PublicKey, pairs: Sequence[tuple[Words, bytes]], places: NDArray[np.int64]) -> tuple[Words, bytes]:
    """The pairs, pair j at places[j], re-randomised: nothing shows where they came from."""
    order = np.argsort(places)
    shuffled = [key.rerandomise(key.read(pairs[j][1])) for j in order]
    return np.concatenate([pairs[j][0] for j in order]), write_ciphertexts(key, shuffled)


@dataclass(frozen=True, eq=False)
class Masked:
    """The curator's shares in the order that it compares in, what it sends, and the place of each element before."""

    shares: Words
    sent: bytes
    order: NDArray[np.int64]


def mask(key: PublicKey, shares: Words, raw: bytes, stream: Stream) -> Masked:
    """r under encryption, b − r in clear, both reordered. r is 2^128 times longer than a, so a + r hides a."""
    count = len(shares)
    order, masks = stream.permutation(count), _draw_masks(stream, count)
    received = read_ciphertexts(key, raw, count)
    hidden = [key.rerandomise(key.add_plain(received[i], masks[i])) for i in order]
    own = shares - np.array([m % WORD for m in masks], "<u8")
    return Masked(own[order], write_ciphertexts(key, hidden), order)


def unmask(key: PrivateKey, raw: bytes, count: int) -> Words:
    """a + r modulo 2^64, at the keyholder."""
    return np.array([key.decrypt(c) % WORD for c in read_ciphertexts(key.public, raw, count)], "<u8")


@dataclass(frozen=True)
class Comparisons(Protocol):
    """The argmin of stage 1, whose size and representative follow from the consortium: the last party holds the key and
    compares with the curator; triples come from oblivious transfers between the two."""

    name = "argmin"
    most: int

    def argmin(self, consortium: Consortium) -> Argmin:
        return Argmin(
            count=consortium.size,
            representative=consortium.parties[-1],
            index=Public("a place in an order that the curator does not know"),
            bits=self.most.bit_length() + 1,
        )

    def declare(self, consortium: Consortium) -> Declaration:
        return self.argmin(consortium).declare(consortium)

    @step(times=MAX_USES, gives=("transfer_offer",))
    def offer(self, site: Site) -> dict[str, Any]:
        return self.argmin(site.consortium).offer(site)

    @step(times=MAX_USES, gives=("transfer_columns",))
    def extend(self, site: Site, transfer_choices: bytes) -> dict[str, Any]:
        return self.argmin(site.consortium).extend(site, transfer_choices)

    @step(times=MAX_ROUNDS, gives=("masked_by_parties",))
    def multiply(self, site: Site, masked_by_curator: bytes) -> dict[str, Any]:
        return self.argmin(site.consortium).multiply(site, masked_by_curator)

    @step(times=MAX_USES, gives=("index_share",))
    def open(self, site: Site) -> dict[str, Any]:
        return self.argmin(site.consortium).open(site)

    def hold(self, site: Site, shares: Words) -> None:
        self.argmin(site.consortium).hold(site, shares)

    def coordinate_argmin(self, parties: Parties, shares: Words, mount: str) -> int:
        return self.argmin(parties.consortium).coordinate_argmin(parties, shares, mount=mount)


# Stage 2.


def make_slots(key: PublicKey, parties: int) -> Packing:
    """Slots for the noise of all parties and s."""
    return Packing(key, SLOT_BITS, parties + 1)


def encrypt_indicator(key: PublicKey, place: int, count: int) -> bytes:
    return write_ciphertexts(key, [key.encrypt(int(i == place)) for i in range(count)])


def select(packing: Packing, element: Ciphertext, noise: NDArray[np.int64]) -> PackedVector:
    """The noise if the element encrypts 1, zeros if it encrypts 0."""
    factors = packing.pack([int(value) for value in noise])
    return PackedVector(tuple(packing.key.multiply(element, factor) for factor in factors), noise.size, 1)


def extend_chain(packing: Packing, own: PackedVector, before: bytes | None, turn: int) -> PackedVector:
    """This party's factor times the product of the `turn` parties before it, re-randomised."""
    if before is not None:
        own = packing.add(packing.read(before, own.length, turn), own)
    return packing.rerandomise(own)


def blind(packing: Packing, product: PackedVector, stream: Stream) -> tuple[bytes, Words]:
    """The product with s added, for the curator, and s modulo 2^64, which the mixer subtracts later."""
    added = _draw_masks(stream, product.length)
    blinded = packing.rerandomise(packing.add(product, packing.encrypt(added)))
    return packing.write(blinded), np.array([s % WORD for s in added], "<u8")


def open_blinded(packing: Packing, private: PrivateKey, raw: bytes, length: int) -> Words:
    """η + s modulo 2^64, at the curator."""
    vector = packing.read(raw, length, packing.terms)
    return np.array([value % WORD for value in packing.decrypt(private, vector)], "<u8")
