"""Stage 1: at which place of a secret order the smallest party stands, found between the curator and two parties.

    split      P_j        n_j = a_j + b_j modulo 2^64; seals b_j and Enc(a_j) to the mixer
    shuffle    mixer      puts the pairs in a secret order π1, re-randomises, and hands them to the curator
    mask       curator    adds r under encryption and subtracts it from b, reorders by π2, re-randomises
    unmask     keyholder  decrypts a + r: the two now share the sizes in the doubly permuted order
    compare    both       the curator learns which of them is the smallest (`federation.argmin`)

Enc is under a Paillier key of one party, the keyholder; the mixer is another one, so that nobody sees both halves of a
size. In the paper all parties hold the key and each decrypts one element; then the mixer would read every size.

Learned      mixer: uniform b_j and ciphertexts. keyholder: a + r, uniform within 2^-128. curator: uniform b,
             ciphertexts, and the place of the smallest in the mixer's order, which is uniform whatever the sizes are.
Together     mixer and keyholder read the sizes; so do curator and keyholder, in an order that only the mixer knows;
             curator and mixer learn who is the smallest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.crypto.paillier.cryptosystem import STATISTICAL_BITS, Ciphertext, PrivateKey, PublicKey
from comity.entropy import Stream
from comity.errors import Malformed
from comity.federation.coordinator.parties import Parties
from comity.federation.declare.consortium import Consortium
from comity.federation.declare.declaration import Declaration
from comity.federation.declare.protection import Public
from comity.federation.owner.site import Site
from comity.federation.protocol import Protocol, step
from comity.methods.averaging.published.argmin import MOST_ROUNDS, MOST_USES, Argmin

Words = NDArray[np.uint64]

WORD = 1 << 64
MASK_BYTES = (64 + STATISTICAL_BITS) // 8


@lru_cache(maxsize=4)
def public_key(raw: bytes) -> PublicKey:
    """A peer's key after its checks. Remembered for the tables that it builds: they are public, and cost a second."""
    return PublicKey.from_bytes(raw)


def write_all(key: PublicKey, ciphertexts: Sequence[Ciphertext]) -> bytes:
    return b"".join(map(key.write, ciphertexts))


def read_all(key: PublicKey, raw: bytes, count: int) -> list[Ciphertext]:
    """Exactly `count` ciphertexts."""
    size = key.ciphertext_bytes
    if len(raw) != count * size:
        raise Malformed(f"{count} ciphertexts of {size} bytes were expected, found {len(raw)} bytes", code="ciphertext")
    return [key.read(raw[start : start + size]) for start in range(0, len(raw), size)]


def split_size(size: int, key: PublicKey, stream: Stream) -> tuple[Words, bytes]:
    """b uniform, and a = size − b encrypted."""
    b = stream.words(1)
    return b, key.write(key.encrypt((size - int(b[0])) % WORD))


def shuffle(key: PublicKey, pairs: Sequence[tuple[Words, bytes]], places: NDArray[np.int64]) -> tuple[Words, bytes]:
    """The pairs, pair j at places[j], under randomness that says nothing of where they came from."""
    order = np.argsort(places)
    moved = [key.rerandomise(key.read(pairs[j][1])) for j in order]
    return np.concatenate([pairs[j][0] for j in order]), write_all(key, moved)


@dataclass(frozen=True, eq=False)
class Masked:
    """The curator's shares in the order that it compares in, what it sends, and where each element stood before."""

    shares: Words
    sent: bytes
    order: NDArray[np.int64]


def mask(key: PublicKey, shares: Words, raw: bytes, stream: Stream) -> Masked:
    """r under encryption, b − r in clear, both reordered. r is 2^128 times longer than a, so that a + r hides a."""
    count = len(shares)
    order, drawn = stream.permutation(count), stream.bytes(MASK_BYTES * count)
    masks = [int.from_bytes(drawn[MASK_BYTES * i : MASK_BYTES * (i + 1)], "little") for i in range(count)]
    given = read_all(key, raw, count)
    hidden = [key.rerandomise(key.add_plain(given[i], masks[i])) for i in order]
    own = shares - np.array([m % WORD for m in masks], "<u8")
    return Masked(own[order], write_all(key, hidden), order)


def unmask(key: PrivateKey, raw: bytes, count: int) -> Words:
    """a + r modulo 2^64, at the keyholder."""
    return np.array([key.decrypt(c) % WORD for c in read_all(key.public, raw, count)], "<u8")


@dataclass(frozen=True)
class Comparisons(Protocol):
    """The argmin of stage 1, whose size and representative follow from the consortium: the last party holds the key and
    compares with the curator; triples come from oblivious transfers between the two."""

    name = "argmin"
    most: int

    def of(self, consortium: Consortium) -> Argmin:
        return Argmin(
            count=consortium.size,
            representative=consortium.parties[-1],
            index=Public("a place in an order that the curator does not know"),
            bits=self.most.bit_length() + 1,
        )

    def declare(self, consortium: Consortium) -> Declaration:
        return self.of(consortium).declare(consortium)

    @step(times=MOST_USES, gives=("transfer_offer",))
    def offer(self, site: Site) -> dict[str, Any]:
        return self.of(site.consortium).offer(site)

    @step(times=MOST_USES, gives=("transfer_columns",))
    def extend(self, site: Site, transfer_choices: bytes) -> dict[str, Any]:
        return self.of(site.consortium).extend(site, transfer_choices)

    @step(times=MOST_ROUNDS, gives=("masked_by_parties",))
    def multiply(self, site: Site, masked_by_curator: bytes) -> dict[str, Any]:
        return self.of(site.consortium).multiply(site, masked_by_curator)

    @step(times=MOST_USES, gives=("index_share",))
    def open(self, site: Site) -> dict[str, Any]:
        return self.of(site.consortium).open(site)

    def hold(self, site: Site, shares: Words) -> None:
        self.of(site.consortium).hold(site, shares)

    def coordinate_argmin(self, parties: Parties, shares: Words, mount: str) -> int:
        return self.of(parties.consortium).coordinate_argmin(parties, shares, mount=mount)
