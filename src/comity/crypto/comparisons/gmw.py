"""Boolean circuits on XOR-shared bits (O. Goldreich, S. Micali, A. Wigderson, 1987), AND gates by triples (Beaver).

A circuit is a generator on each side: it yields two arrays of shares, and is sent its shares of their AND. XOR is
local, and NOT is a flip on the curator's side. All gates of one yield make one round of one message each way, two bits
per gate, packed.

Adversary: either side, semi-honest; the two do not collude. Each side sees the other's inputs of every gate masked by
a fresh uniform triple, so its view is uniform whatever the other holds: secure without assumption, given triples that
neither side knows whole. A circuit's gates must not depend on what is shared; those here depend on public sizes alone.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

import numpy as np

from comity.crypto.comparisons.bits import Bits, pack, unpack
from comity.crypto.comparisons.exchange import Exchange, Side
from comity.crypto.comparisons.triples import Triples

Output = TypeVar("Output")
First = TypeVar("First")
Second = TypeVar("Second")

Circuit = Generator[tuple[Bits, Bits], Bits, Output]


def evaluate(side: Side, circuit: Circuit[Output], triples: Triples) -> Exchange[Output]:
    """Run a circuit, one message per round; ends with this side's shares of what the circuit returns."""
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


def together(first: Circuit[First], second: Circuit[Second]) -> Circuit[tuple[First, Second]]:
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


def gates(circuit: Circuit[Output]) -> list[int]:
    """The AND gates of each round, found by running one side's half on shares of zero."""
    counts = []
    ask, _ = _resume(circuit, None)
    while ask is not None:
        counts.append(ask[0].size)
        ask, _ = _resume(circuit, np.zeros(ask[0].shape, np.uint8))
    return counts


def negated(side: Side, bits: Bits) -> Bits:
    """Shares of NOT."""
    return bits ^ np.uint8(1) if side is Side.CURATOR else bits


def _resume(circuit: Circuit[Output], share: Bits | None) -> tuple[tuple[Bits, Bits] | None, tuple[Output] | None]:
    try:
        return next(circuit) if share is None else circuit.send(share), None
    except StopIteration as end:
        return None, (end.value,)
