"""Comparison of shared integers as circuits on shared bits, and the change from additive to XOR shares.

Position 0 is the lowest bit; arrays are (positions, lanes), and all lanes are handled at once. Comparing and adding are
one thing: a position *generates* a carry or *propagates* the one from below, and two neighbouring runs of positions
join into one. A tree of joins gives the carry out of the highest position, a prefix network (J. Sklansky, 1960) the
carry into every position. Adversary and assumption are those of `comity.crypto.comparisons.gmw`; each side learns
nothing but its own uniform shares of the outputs.
"""

from __future__ import annotations

import numpy as np

from comity.crypto.comparisons.bits import Bits, Words, binary
from comity.crypto.comparisons.exchange import Side
from comity.crypto.comparisons.gmw import Circuit, negated


def is_negative(side: Side, words: Words, bits: int) -> Circuit[Bits]:
    """[x < 0] for additively shared x with −2^bits ≤ x < 2^bits, from this side's shares mod 2^64 (bits ≤ 63)."""
    own = binary(words, bits + 1)
    generate = yield _crossed(side, own[:bits])
    # A side's bits are its shares of the XOR of both sides' bits, which is what propagates.
    carry = yield from _carry_out(generate, own[:bits])
    sign: Bits = own[bits] ^ carry
    return sign


def less_than(side: Side, x: Bits, y: Bits) -> Circuit[Bits]:
    """[x < y] for XOR-shared unsigned integers: the highest position that differs decides."""
    generate = yield negated(side, x), y
    less = yield from _carry_out(generate, negated(side, x ^ y))
    return less


def xor_shared(side: Side, words: Words, bits: int) -> Circuit[Bits]:
    """XOR shares of the lowest `bits` bits of an additively shared integer."""
    own = binary(words, bits)
    generate = yield _crossed(side, own[:-1])
    propagate = own[:-1].copy()
    places = np.arange(bits - 1)
    for level in range((bits - 2).bit_length()):
        upper = places[(places >> level) & 1 == 1]
        # The last position of the finished run just below the run that `upper` is in.
        lower = (upper >> level << level) - 1
        joined = yield (
            np.concatenate((propagate[upper], propagate[upper])),
            np.concatenate((generate[lower], propagate[lower])),
        )
        generate[upper] ^= joined[: upper.size]
        propagate[upper] = joined[upper.size :]
    own[1:] ^= generate
    return own


def all_of(bits: Bits) -> Circuit[Bits]:
    """The AND along the first axis."""
    while len(bits) > 1:
        half = len(bits) // 2
        both = yield bits[:half], bits[half : 2 * half]
        bits = np.concatenate((both, bits[2 * half :]))
    every: Bits = bits[0]
    return every


def _crossed(side: Side, own: Bits) -> tuple[Bits, Bits]:
    """Shares of (the curator's bits, the parties' bits), to be multiplied: each side knows one factor whole."""
    nothing = np.zeros_like(own)
    return (own, nothing) if side is Side.CURATOR else (nothing, own)


def _carry_out(generate: Bits, propagate: Bits) -> Circuit[Bits]:
    while len(generate) > 1:
        # With an odd number of runs the lowest one waits.
        alone = len(generate) % 2
        low, high = slice(alone, None, 2), slice(alone + 1, None, 2)
        half = len(generate) // 2
        joined = yield (
            np.concatenate((propagate[high], propagate[high])),
            np.concatenate((generate[low], propagate[low])),
        )
        generate = np.concatenate((generate[:alone], generate[high] ^ joined[:half]))
        propagate = np.concatenate((propagate[:alone], joined[half:]))
    carry: Bits = generate[0]
    return carry
