"""Boolean circuits on XOR-shared bits: AND gates by triples, and comparisons of shared integers.

Gates (O. Goldreich, S. Micali, A. Wigderson, 1987; D. Beaver, 1991). A circuit is a generator on each side: it yields
two arrays of shares, and is sent its shares of their AND. XOR is local, and NOT is a flip on the curator's side. All
gates of one yield make one round with one message each way, two bits per gate, packed.

Comparisons. Position 0 is the lowest bit; arrays are (positions, lanes), and all lanes are handled at once. Comparing
and adding are the same: a position *generates* a carry or *propagates* the one from below, and two neighbouring runs of
positions join into one. A tree of joins gives the carry out of the highest position, a prefix network (J. Sklansky,
1960) the carry into every position.

Adversary: either side, semi-honest; the two do not collude. Each side sees the other's inputs of every gate masked by a
fresh uniform triple, so its view is uniform whatever the other side holds: secure without assumption, given triples
that neither side knows entirely. The gates of a circuit must not depend on shared values; those here depend on public
sizes alone.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

import numpy as np

from comity.crypto.comparisons.exchange import Bits, Exchange, Side, Words, pack, to_bits, unpack
from comity.crypto.comparisons.triples import Triples

Output = TypeVar("Output")
First = TypeVar("First")
Second = TypeVar("Second")

Circuit = Generator[tuple[Bits, Bits], Bits, Output]


def evaluate(side: Side, circuit: Circuit[Output], triples: Triples) -> Exchange[Output]:
    """Runs a circuit, one message per round; returns this side's shares of the circuit's output."""
    ask, output = _resume(circuit, None)
    while ask is not None:
        x, y = ask
        a, b, c = triples.take(x.size)
        masked = np.stack((x.ravel() ^ a, y.ravel() ^ b))
        answer = yield pack(masked)
        d, e = masked ^ unpack(answer, masked.size).reshape(masked.shape)
        share = c ^ (d & b) ^ (e & a)
        if side is Side.CURATOR:
            share ^= d & e
        ask, output = _resume(circuit, share.reshape(x.shape))
    assert output is not None
    return output[0]


def run_together(first: Circuit[First], second: Circuit[Second]) -> Circuit[tuple[First, Second]]:
    """Two circuits in parallel: as many rounds as the longer one has."""
    first_ask, first_output = _resume(first, None)
    second_ask, second_output = _resume(second, None)
    while first_ask is not None or second_ask is not None:
        asks = [ask for ask in (first_ask, second_ask) if ask is not None]
        shares = yield (
            np.concatenate([x.ravel() for x, _ in asks]),
            np.concatenate([y.ravel() for _, y in asks]),
        )
        middle = 0
        if first_ask is not None:
            middle = first_ask[0].size
            first_ask, first_output = _resume(first, shares[:middle].reshape(first_ask[0].shape))
        if second_ask is not None:
            second_ask, second_output = _resume(second, shares[middle:].reshape(second_ask[0].shape))
    assert first_output is not None and second_output is not None
    return first_output[0], second_output[0]


def count_gates(circuit: Circuit[Output]) -> list[int]:
    """The AND gates of each round, counted by running one side on shares of zero."""
    counts = []
    ask, _ = _resume(circuit, None)
    while ask is not None:
        counts.append(ask[0].size)
        ask, _ = _resume(circuit, np.zeros(ask[0].shape, np.uint8))
    return counts


def negate(side: Side, bits: Bits) -> Bits:
    """Shares of NOT."""
    return bits ^ np.uint8(1) if side is Side.CURATOR else bits


def _resume(circuit: Circuit[Output], share: Bits | None) -> tuple[tuple[Bits, Bits] | None, tuple[Output] | None]:
    try:
        return next(circuit) if share is None else circuit.send(share), None
    except StopIteration as end:
        return None, (end.value,)


def is_negative(side: Side, words: Words, bits: int) -> Circuit[Bits]:
    """[x < 0] for additively shared x with −2^bits ≤ x < 2^bits, from this side's shares mod 2^64 (bits ≤ 63)."""
    own = to_bits(words, bits + 1)
    generate = yield _cross_inputs(side, own[:bits])
    # A position propagates the XOR of both sides' bits, of which each side's bits are a share.
    carry = yield from _carry_out(generate, own[:bits])
    sign: Bits = own[bits] ^ carry
    return sign


def less_than(side: Side, x: Bits, y: Bits) -> Circuit[Bits]:
    """[x < y] for XOR-shared unsigned integers: the highest position that differs decides."""
    generate = yield negate(side, x), y
    less = yield from _carry_out(generate, negate(side, x ^ y))
    return less


def to_xor_shares(side: Side, words: Words, bits: int) -> Circuit[Bits]:
    """XOR shares of the lowest `bits` bits of an additively shared integer."""
    own = to_bits(words, bits)
    generate = yield _cross_inputs(side, own[:-1])
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


def _cross_inputs(side: Side, own: Bits) -> tuple[Bits, Bits]:
    """Shares of (the curator's bits, the parties' bits) for one gate: each side knows one factor entirely."""
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
