"""The index of the smallest of K integers, additively shared mod 2^64 between the curator and the parties.

A tournament: in every group of at most `fan_in` candidates all pairs are compared at once, the winner's place becomes a
shared one-hot vector, and this vector selects the winner's value and index, still shared. All values and the winners of
intermediate levels stay hidden. `fan_in` trades rounds against gates: 2 is a binary tournament, K is one level with all
pairs. Of equal values the lowest index wins.

Range: −2^(bits−1) ≤ value < 2^(bits−1), with bits = 63 at most, so no difference wraps. A value outside this range can
give a wrong index, and nothing worse.

Adversary: either side, semi-honest; the curator and the parties' representative do not collude. The curator learns the
index and nothing else, the parties' side learns nothing. Given the triples this holds without assumption; triples by
oblivious transfer rest on a classical one (`comity.crypto.comparisons.oblivious_transfer`), dealt ones on a dealer that
stays outside (`comity.crypto.comparisons.triples`). The index is exact: where it must be private, noise is added to the
values before.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from comity.crypto.comparisons.circuits import (
    Circuit,
    all_of,
    count_gates,
    evaluate,
    is_negative,
    less_than,
    run_together,
    to_xor_shares,
)
from comity.crypto.comparisons.exchange import Bits, Exchange, Side, Words, pack, to_bits, unpack
from comity.crypto.comparisons.triples import Triples
from comity.errors import Malformed

BITS = 63
FAN_IN = 10


@dataclass(frozen=True)
class Tournament:
    """The public sizes of an argmin: both sides must use the same."""

    count: int
    bits: int = BITS
    fan_in: int = FAN_IN

    def __post_init__(self) -> None:
        if self.count < 1 or not 2 <= self.bits <= BITS or self.fan_in < 2:
            raise ValueError(
                f"at least one candidate, 2 to {BITS} bits and a fan-in of at least 2 were expected, "
                f"found {self.count}, {self.bits} and {self.fan_in}"
            )

    @property
    def widths(self) -> tuple[int, ...]:
        """The size of a group at each level: as few levels as `fan_in` allows, then groups as even as possible."""
        levels = 0
        while self.fan_in**levels < self.count:
            levels += 1
        widths, groups = [], self.count
        for left in range(levels, 0, -1):
            width = 1
            while width**left < groups:
                width += 1
            widths.append(width)
            groups = -(-groups // width)
        return tuple(widths)

    @property
    def gates(self) -> tuple[int, ...]:
        """AND gates, each one triple, of each round before the opening."""
        return _gates(self)

    @property
    def triples(self) -> int:
        return sum(self.gates)

    @property
    def rounds(self) -> int:
        """Rounds, with the opening of the index."""
        return len(self.gates) + 1 if self.count > 1 else 0

    @property
    def index_bits(self) -> int:
        return (self.count - 1).bit_length()


def argmin(side: Side, shares: NDArray[np.uint64], triples: Triples, tournament: Tournament) -> Exchange[int | None]:
    """The index on the curator's side, None on the parties' side; uses up `tournament.triples` triples.

    `shares` of the two sides add up to the values mod 2^64 (two's complement when negative).
    """
    if shares.shape != (tournament.count,) or shares.dtype != np.uint64:
        raise ValueError(f"{tournament.count} uint64 shares were expected, found {shares.shape} of {shares.dtype}")
    if tournament.count == 1:
        return 0 if side is Side.CURATOR else None
    share = yield from evaluate(side, _select_smallest(side, shares, tournament), triples)
    if side is Side.PARTIES:
        answer = yield pack(share)
        if answer:
            raise Malformed(f"no bytes were expected from the curator at the opening, found {len(answer)}")
        return None
    answer = yield b""
    index = int.from_bytes(pack(share ^ unpack(answer, tournament.index_bits)), "little")
    if index >= tournament.count:
        raise Malformed(f"an index below {tournament.count} was expected from the opening, found {index}")
    return index


@lru_cache(maxsize=256)
def _gates(tournament: Tournament) -> tuple[int, ...]:
    if tournament.count == 1:
        return ()
    return tuple(count_gates(_select_smallest(Side.CURATOR, np.zeros(tournament.count, np.uint64), tournament)))


def _select_smallest(side: Side, shares: Words, tournament: Tournament) -> Circuit[Bits]:
    """Shares of the index's bits."""
    widths, bits = tournament.widths, tournament.bits
    words = _pad(side, shares, int(np.prod(widths)), bits).reshape(-1, widths[0])
    first, second = np.triu_indices(widths[0], 1)
    duels = is_negative(side, (words[:, second] - words[:, first]).ravel(), bits)
    # At the first level the indices are public, so selecting one is local.
    indices = to_bits(np.arange(words.size, dtype=np.uint64), tournament.index_bits)
    if len(widths) == 1:
        later = yield from duels
        winner = yield from _one_hot(side, later, widths[0])
        return _xor_within(indices & winner, widths[0])[:, 0]
    # The later levels compare selected values: their XOR shares are made while the first level compares.
    values, later = yield from run_together(to_xor_shares(side, words.ravel(), bits), duels)
    winner = yield from _one_hot(side, later, widths[0])
    indices = _xor_within(indices & winner, widths[0])
    values = yield from _select(winner, values, widths[0])
    for width in widths[1:-1]:
        winner = yield from _find_winner(side, values, width)
        selected = yield from _select(winner, np.concatenate((values, indices)), width)
        values, indices = selected[:bits], selected[bits:]
    winner = yield from _find_winner(side, values, widths[-1])
    indices = yield from _select(winner, indices, widths[-1])
    return indices[:, 0]


def _find_winner(side: Side, values: Bits, width: int) -> Circuit[Bits]:
    groups = values.reshape(len(values), -1, width)
    first, second = (groups[:, :, places].reshape(len(values), -1) for places in np.triu_indices(width, 1))
    later = yield from less_than(side, second, first)
    winner = yield from _one_hot(side, later, width)
    return winner


def _select(winner: Bits, bits: Bits, width: int) -> Circuit[Bits]:
    """The winner's bits of each group: shape (positions, groups)."""
    selected = yield np.broadcast_to(winner, bits.shape), bits
    return _xor_within(selected, width)


def _pad(side: Side, shares: Words, count: int, bits: int) -> Words:
    """Shares of the values shifted to 0 … 2^bits − 1, then candidates of the highest value, which lose every tie."""
    offset, highest = (1 << (bits - 1), (1 << bits) - 1) if side is Side.CURATOR else (0, 0)
    return np.concatenate((shares + np.uint64(offset), np.full(count - shares.size, highest, np.uint64)))


def _one_hot(side: Side, later: Bits, width: int) -> Circuit[Bits]:
    """Per candidate, whether it beats all others of its group; `later` says of each pair that the second is smaller."""
    first, second = np.triu_indices(width, 1)
    later = later.reshape(-1, first.size)
    beats = np.zeros((width, width, len(later)), np.uint8)
    beats[second, first] = later.T
    beats[first, second] = later.T ^ np.uint8(side is Side.CURATOR)
    others = ~np.eye(width, dtype=bool)
    duels = beats[others].reshape(width, width - 1, -1).transpose(1, 2, 0)
    winner = yield from all_of(duels.reshape(width - 1, -1))
    return winner


def _xor_within(bits: Bits, width: int) -> Bits:
    """The XOR over each group of `width` neighbouring lanes."""
    combined: Bits = np.bitwise_xor.reduce(bits.reshape(len(bits), -1, width), axis=2)
    return combined
