"""Shared bit triples: random a, b and c = a·b, each XOR-shared between two sides, for one AND gate (D. Beaver, 1991).

A triple masks the inputs of one gate, and anyone who knows both of its shares can read them. So triples come from
oblivious transfers between the two sides (`transfer_triples`), or from a dealer outside of them who sees no later
message (`deal`); never from one side. Each triple is used once: `Triples.take` never returns the same one again.

From transfers: the parties' side receives with its shares of a and b as choices, the curator's side sends pairs that
differ by its shares of b and a. That gives shares of a₁·b₀ and b₁·a₀; the other two products are local. Neither side
learns anything of the other's shares; adversary and assumption are those of
`comity.crypto.comparisons.oblivious_transfer`. From a dealer: the curator's side gives the dealer a seed of 32 bytes,
and the parties' side gets another seed and its shares of c. Whatever seed the curator's side chose, the masked inputs
of the parties' side are uniform to it, because the other seed is the dealer's. A dealer that colludes with a side
reveals the other's inputs; a dealer alone learns the number of triples.
"""

from __future__ import annotations

from collections.abc import Collection

from comity.crypto.comparisons.exchange import Bits, Exchange, Side, draw_bits, pack, unpack
from comity.crypto.comparisons.oblivious_transfer import MULTIPLE, receive, send
from comity.entropy import Stream, fresh_seed
from comity.errors import Malformed, Refused

SEED_BYTES = 32


class Triples:
    """One side's shares of a, b and c, each used once, in order."""

    def __init__(self, a: Bits, b: Bits, c: Bits) -> None:
        if not a.shape == b.shape == c.shape == (a.size,):
            raise ValueError(f"three lists of one length were expected, found {a.shape}, {b.shape} and {c.shape}")
        self._shares = (a, b, c)
        self._taken = 0

    @property
    def left(self) -> int:
        return self._shares[0].size - self._taken

    def take(self, count: int) -> tuple[Bits, Bits, Bits]:
        """The next `count` triples."""
        if count > self.left:
            raise Refused(f"{count} unused triples are needed, {self.left} are left; a triple is never used twice")
        start, self._taken = self._taken, self._taken + count
        a, b, c = (share[start : self._taken] for share in self._shares)
        return a, b, c


def transfer_triples(side: Side, count: int, *, session: bytes, seed: bytes | None = None) -> Exchange[Triples]:
    """`count` triples in three messages, the third of 32 bytes per triple from the parties' side.

    `session` names the run, the release and the index, equally on both sides. A side that must be able to rebuild its
    triples after a restart stores a fresh 32-byte `seed`, secret and for these triples only; by default the seed is
    drawn and forgotten.
    """
    if count <= 0:
        raise ValueError(f"a positive number of triples was expected, found {count}")
    seed = fresh_seed() if seed is None else seed
    padded = -(-count // MULTIPLE) * MULTIPLE
    if side is Side.CURATOR:
        zero, one = yield from send(session, 2 * padded, seed)
        b, a = (zero ^ one).reshape(2, padded)
        first, second = zero.reshape(2, padded)
    else:
        choices, received = yield from receive(session, 2 * padded, seed)
        a, b = choices.reshape(2, padded)
        first, second = received.reshape(2, padded)
    c = (a & b) ^ first ^ second
    return Triples(a[:count], b[:count], c[:count])


def deal(count: int, *, dealer: str, sides: Collection[str], curator: bytes | None = None) -> tuple[bytes, bytes]:
    """The messages of a dealer outside the two sides: a seed for the curator's side, unless that side gave one, and the
    message for the parties' side."""
    if dealer in sides:
        raise Refused(f"{dealer!r} is a side of the computation and can't deal its triples: name another dealer")
    if count <= 0:
        raise ValueError(f"a positive number of triples was expected, found {count}")
    curator, parties = fresh_seed() if curator is None else curator, fresh_seed()
    if len(curator) != SEED_BYTES:
        raise Malformed(f"a seed of {SEED_BYTES} bytes was expected, found {len(curator)} bytes")
    a0, b0, c0 = draw_bits(Stream(curator), 3 * count).reshape(3, count)
    a1, b1 = draw_bits(Stream(parties), 2 * count).reshape(2, count)
    return curator, parties + pack(((a0 ^ a1) & (b0 ^ b1)) ^ c0)


def read_triples(side: Side, message: bytes, count: int) -> Triples:
    """The triples in a dealer's message to this side."""
    seed, correction = message[:SEED_BYTES], message[SEED_BYTES:]
    if len(seed) != SEED_BYTES:
        raise Malformed(f"a seed of {SEED_BYTES} bytes was expected, found {len(seed)} bytes")
    if side is Side.CURATOR:
        if correction:
            raise Malformed(f"a seed of {SEED_BYTES} bytes was expected, found {len(message)} bytes")
        a, b, c = draw_bits(Stream(seed), 3 * count).reshape(3, count)
        return Triples(a, b, c)
    a, b = draw_bits(Stream(seed), 2 * count).reshape(2, count)
    return Triples(a, b, unpack(correction, count))
