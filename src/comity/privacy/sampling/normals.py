"""Normal variables as real numbers: as many of their bits as are looked at, and no error.

|Y| for Y of N(0, σ²) is drawn by rejection (von Neumann 1951) under a step curve. The half line is cut into cells of
2^e units, a sixteenth to a thirty-second of σ. A 62-bit word chooses a cell by its integer weight, another number a
place in it, and the place is kept with probability W exp(−y²/2σ²)/weight, which is at most 1. Each of these numbers
has as many bits as are needed to be sure (`comity.privacy.sampling.lazy_words`), so what is kept has the density
exp(−y²/2σ²) exactly; and because cells are dyadic, rounding such a number is a shift of its bits. Behind the last cell
the weights halve from one stretch of sixteen cells to the next, without end. Why floating point has no part in it:
`mechanisms/proof.md`, 4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from comity.privacy.sampling.lazy_words import SLACK, LazyWords, Words, exponential_between

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_REACH = 12.0
_STRETCH = 16
_TOTAL = 1 << 62
_MARGIN = 1 + SLACK
_BLOCK = 1 << 15


@dataclass(frozen=True)
class Normals:
    """Independent N(0, σ²) variables: each ±(cell + place)·2^exponent, the place being a number of `words`.

    Of a place only what decided to keep it is known; its further bits are uniform whatever they are asked for.
    """

    words: LazyWords
    exponent: int
    negative: NDArray[np.bool_]
    cells: Integers
    places: Words
    positions: Integers

    def rounded(self) -> Integers:
        """The nearest integers. No bit beyond the first 64 of a place matters, and ties have probability 0."""
        if self.exponent >= 0:
            halves = (self.cells << (self.exponent + 1)) + (self.places >> np.uint64(63 - self.exponent)).astype(
                np.int64
            )
        else:
            halves = self.cells >> (-self.exponent - 1)
        magnitudes = (halves + 1) >> 1
        return np.where(self.negative, -magnitudes, magnitudes)

    def doubles(self) -> Floats:
        """Within 2^−51 of the truth, relatively, or 2^−64 cells."""
        magnitudes = np.ldexp(self.cells + self.places * 2.0**-64, self.exponent)
        return np.asarray(np.where(self.negative, -magnitudes, magnitudes))

    def between(self, index: int, bits: int) -> tuple[Fraction, Fraction]:
        """Bounds of one of them, 2^−bits cells apart."""
        place = self.words.longer(int(self.positions[index]), int(self.places[index]), bits)
        whole = (int(self.cells[index]) << bits) + place
        width = Fraction(2) ** (self.exponent - bits)
        least, most = whole * width, (whole + 1) * width
        return (-most, -least) if self.negative[index] else (least, most)


def normals(sigma: float, count: int, words: LazyWords) -> Normals:
    """`count` independent N(0, σ²) variables. The same words give the same variables on every machine."""
    curve = step_curve(float(sigma))
    found = [_block(curve, min(_BLOCK, count - start), words) for start in range(0, count, _BLOCK)]
    negative, cells, places, positions = (np.concatenate(column) for column in zip(*found, strict=True))
    return Normals(words, curve.exponent, negative, cells, places, positions)


@dataclass(frozen=True)
class StepCurve:
    """Weights of cells above W exp(−y²/2σ²), adding up to 2^62 with that of everything behind the last cell."""

    sigma: float
    exponent: int
    height: int
    weights: tuple[int, ...]
    ends: Words
    shares: Floats

    def keeps(
        self, words: LazyWords, positions: tuple[int, int], cell: int, place: int, uniform: int, weight: Fraction
    ) -> bool:
        """Whether uniform <= W exp(−y²/2σ²)/weight, from ever more bits of y and of the uniform number."""
        unit = Fraction(2) ** self.exponent / Fraction(self.sigma)

        def bounds(bits: int) -> tuple[Fraction, Fraction]:
            longer = (cell << bits) + words.longer(positions[0], place, bits)
            near, far = (Fraction(end, 1 << bits) * unit for end in (longer, longer + 1))
            least, most = exponential_between(near * near / 2, far * far / 2, bits)
            return least * self.height / weight, most * self.height / weight

        return words.below(positions[1], uniform, bounds)

    def beyond(self, words: LazyWords, position: int, word: int) -> tuple[int, Fraction]:
        """A cell behind the last one, and its weight: half of the rest for each stretch of sixteen."""
        bits = 256
        while not (zeros := words.longer(position, word, bits) & ((1 << (bits - 68)) - 1)):
            bits *= 2
        stretch = bits - 68 - zeros.bit_length()
        within = words.longer(position, word, 68) & (_STRETCH - 1)
        share = Fraction(self.weights[-1], _STRETCH << (stretch + 1))
        return len(self.weights) - 1 + _STRETCH * stretch + within, share


@lru_cache(maxsize=64)
def step_curve(sigma: float, reach: float = _REACH) -> StepCurve:
    """The curve for N(0, σ²), with cells up to `reach` times σ, at least 3."""
    exponent = math.frexp(sigma / 16)[1] - 1
    width = math.ldexp(1.0, exponent) / sigma
    count = math.ceil(reach / width)
    heights = np.exp(-((np.arange(count) * width) ** 2) / 2) * _MARGIN
    # A stretch of sixteen cells has at most half the weight of the one before: e^(−reach·width·16) < 1/2.
    rest = math.exp(-((count * width) ** 2) / 2) * 2 * _STRETCH * _MARGIN
    height = int(_TOTAL / ((float(heights.sum()) + rest) * _MARGIN))
    weights = [math.ceil(height * value) + 1 for value in (*heights.tolist(), rest)]
    weights[0] += _TOTAL - sum(weights)
    ends = np.cumsum(np.array(weights[:-1], np.uint64))
    shares = height / np.array(weights, np.float64)
    return StepCurve(sigma, exponent, height, tuple(weights), ends, shares)


def _block(curve: StepCurve, count: int, words: LazyWords) -> tuple[NDArray[np.bool_], Integers, Words, Integers]:
    negative, cells = np.empty(count, np.bool_), np.empty(count, np.int64)
    places, positions = np.empty(count, np.uint64), np.empty(count, np.int64)
    waiting = np.arange(count)
    last, width = len(curve.weights) - 1, math.ldexp(1.0, curve.exponent) / curve.sigma
    while size := len(waiting):
        start, (choices, offsets, uniforms) = words.take(3, size)
        chosen = np.searchsorted(curve.ends, choices & np.uint64(_TOTAL - 1), side="right")
        ratios = (chosen + offsets * 2.0**-64) * width
        margins = curve.shares[chosen] * np.exp(ratios * ratios * -0.5) - uniforms * 2.0**-64
        kept = margins > 0
        for index in np.flatnonzero((np.abs(margins) <= SLACK) | (chosen == last)).tolist():
            position, place, uniform = start + index, int(offsets[index]), int(uniforms[index])
            weight = Fraction(curve.weights[chosen[index]])
            if chosen[index] == last:
                chosen[index], weight = curve.beyond(words, position, int(choices[index]))
            pair = position + size, position + 2 * size
            kept[index] = curve.keeps(words, pair, int(chosen[index]), place, uniform, weight)
        done = waiting[kept]
        negative[done] = choices[kept] >= np.uint64(1 << 63)
        cells[done], places[done] = chosen[kept], offsets[kept]
        positions[done] = start + size + np.flatnonzero(kept)
        waiting = waiting[~kept]
    return negative, cells, places, positions
