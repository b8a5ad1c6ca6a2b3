"""A table looked up at a place that the coordinator knows up to a mask, and the parties know as the mask alone.

All parties share a seed that the coordinator lacks. Each masks its part of an angle and shows it to the coordinator,
who adds the parts: it has A = z − α for a score z and a uniform α that the parties know. It rounds A at random to one
of the table's `entries` places, evenly spaced, so that the mean of what is looked up is the linear interpolation
between them. The parties then look f(A + α) + v up for it, v another mask that they know, without learning A:

    the place is a row of bits with a single one (B. Chor, O. Goldreich, E. Kushilevitz, M. Sudan, Private information
    retrieval, 1995). The coordinator gives each party a share: random bits from a seed, and the last party what makes
    their sum right. A party adds, modulo 2 and bit by bit, those of f(j + α) + v for which its share has a one, and its
    share of zero. All answers together are the entry at the place, and any but one of them are uniform.

Adversary: a coordinator that follows the protocol and works with no party, or all parties but one. Assumption: AES-128
in counter mode is a pseudorandom generator. The coordinator sees A and f + v, which are uniform and independent to it;
parties see shares of bits, of which a coalition of all but one lacks one. A coordinator with a party would have both
the mask and what is masked. One that asks for something else than a single entry reads sums of masked entries, in
which masks cancel: no bound on a result holds for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from comity.compiled import compiled
from comity.crypto.products.inner_products import multiply_vector
from comity.entropy import Stream, derive
from comity.errors import Malformed

Words = NDArray[np.uint64]
Angles = NDArray[np.uint16]
Octets = NDArray[np.uint8]

STEPS: Final = 1 << 12
"""Steps per turn: a power of two, so angles add up as words do."""

_LAST = np.uint16(STEPS - 1)


@dataclass(frozen=True, eq=False)
class Table:
    """Integers at every angle, looked up at `entries` of them."""

    values: NDArray[np.int64]
    entries: int

    def __post_init__(self) -> None:
        if self.values.shape != (STEPS,) or self.entries % 8 or STEPS % self.entries:
            raise Malformed(f"{STEPS} values and a whole number of bytes of entries were expected")

    @property
    def step(self) -> int:
        """Angles from one entry to the next."""
        return STEPS // self.entries

    @property
    def query_bytes(self) -> int:
        """Bytes that say which entry."""
        return self.entries // 8

    @cached_property
    def lines(self) -> Words:
        """One line for each offset below a step: two turns of entries, so that a turn from anywhere is in one piece."""
        turns = np.arange(2 * self.entries) * self.step
        found: NDArray[np.int64] = self.values[(np.arange(self.step)[:, None] + turns) % STEPS]
        return found.view(np.uint64)


def draw_angles(seed: bytes, rows: int) -> Angles:
    """Uniform angles from a seed."""
    words = Stream(derive(seed, "angles")).words(-(-rows // 4))
    return words.astype("<u8").view("<u2")[:rows].astype(np.uint16) & _LAST


def draw_words(seed: bytes, rows: int) -> Words:
    """Uniform words from a seed, which makes nothing else."""
    return Stream(derive(seed, "words")).words(rows)


def multiply_drawn(seed: bytes, lines: int, vector: Words) -> Words:
    """Inner products of the vector with as many lines of `draw_words`, which are made one after another in one room."""
    stream, line = Stream(derive(seed, "words")), np.empty((1, len(vector)), np.uint64)
    out = np.zeros(lines, np.uint64)
    for place in range(lines):
        stream.fill(line.reshape(-1).view(np.uint8))
        out[place : place + 1] = multiply_vector(line, vector)
    return out


def subtract_angles(angles: Angles, mask: Angles) -> Angles:
    return np.asarray((angles - mask) & _LAST, "<u2")


def add_angles(parts: Sequence[Angles]) -> Angles:
    total = np.zeros(parts[0].shape, np.uint16)
    for part in parts:
        total = total + part.astype(np.uint16)
    return total & _LAST


# The coordinator's side.


def round_to_entries(angles: Angles, table: Table, seed: bytes) -> NDArray[np.int64]:
    """For each angle one of the two entries around it, the nearer one more often: the mean is the angle."""
    words = Stream(derive(seed, "rounding")).words(-(-len(angles) // 4)).astype("<u8").view("<u2")
    up = words[: len(angles)].astype(np.int64) % table.step
    return ((angles.astype(np.int64) + up) // table.step) % table.entries


def split_entries(places: NDArray[np.int64], table: Table, seeds: Sequence[bytes]) -> Octets:
    """The last party's share of the bits that name these places; `seeds` are those of all other parties."""
    rest = np.zeros((len(places), table.query_bytes), np.uint8)
    rest[np.arange(len(places)), places >> 3] = np.uint8(1) << (places & 7).astype(np.uint8)
    for seed in seeds:
        rest ^= draw_query(seed, len(places), table)
    return rest


def join_answers(answers: Sequence[Words]) -> Words:
    total = answers[0].copy()
    for answer in answers[1:]:
        total ^= answer
    return total


# A party's side.


def draw_query(seed: bytes, rows: int, table: Table) -> Octets:
    """The share of the bits that a seed gives."""
    out = np.empty(rows * table.query_bytes, np.uint8)
    Stream(derive(seed, "query")).fill(out)
    return out.reshape(rows, table.query_bytes)


def draw_zero_share(seed: bytes, rows: int, me: int, parties: int) -> Words:
    """This party's share of zero, modulo 2 and bit by bit, from a seed that all parties have."""
    if me < parties - 1:
        return draw_words(derive(seed, "zero", me), rows)
    return join_answers([draw_words(derive(seed, "zero", other), rows) for other in range(parties - 1)])


def look_up(table: Table, query: Octets, angles: Angles, masks: Words, zero: Words) -> Words:
    """This party's answer: of each row the entries of the table that its bits name, turned by the row's angle and with
    its mask added."""
    if query.shape != (len(angles), table.query_bytes):
        raise Malformed(f"{table.query_bytes} bytes for each of {len(angles)} rows were expected", code="form")
    out = zero.copy()
    _look_up(table.lines, np.ascontiguousarray(query), angles, masks, out)
    return out


@compiled
def _look_up(lines: Words, query: Octets, angles: Angles, masks: Words, out: Words) -> None:
    step = lines.shape[0]
    shift = 0
    while 1 << shift < step:
        shift += 1
    one = np.uint64(1)
    for row in range(angles.size):
        angle = np.int64(angles[row])
        start = angle >> shift
        line = lines[angle & (step - 1), start : start + lines.shape[1] // 2]
        mask, total = masks[row], np.uint64(0)
        for byte in range(query.shape[1]):
            bits = np.uint64(query[row, byte])
            for place in range(8):
                # All ones where the bit is set: no branch depends on it.
                chosen = np.uint64(0) - ((bits >> np.uint64(place)) & one)
                total ^= (line[8 * byte + place] + mask) & chosen
        out[row] ^= total
