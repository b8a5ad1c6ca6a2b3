"""Samplers that draw as many bits as a decision needs and make no error: normal variables, and choices by score.

Normal variables   |Y| for Y of N(0, σ²) is drawn by rejection (von Neumann 1951) under a step curve. The half line is
                   split into cells of 2^e units, a sixteenth to a thirty-second of σ. A 62-bit word chooses a cell by
                   its integer weight, another number a place in it, and the place is kept with probability
                   W exp(−y²/2σ²)/weight, which is at most 1. Each number has as many bits as the decision needs, so
                   the kept values have the density exp(−y²/2σ²) exactly; and because cells are dyadic, rounding a value
                   is a shift of its bits. Beyond the last cell the weights halve from one stretch of sixteen cells to
                   the next, without end. Floating point decides nothing (`mechanisms/proof.md`, 4).
Permute-and-flip   Which of several scores is largest (McKenna and Sheldon 2020), row by row. Candidates come in random
                   order, and each is taken with probability exp(−gap/b) for its gap to the best score. All coins are
                   independent, so this is the same as tossing one coin per candidate and choosing uniformly among
                   those with heads; the best one always has heads.
Exponential        One of several scores with probability proportional to exp(score/b) (McSherry and Talwar 2007), row
                   by row. A candidate is drawn uniformly and taken with probability exp(−gap/b); if it is not, another
                   one is drawn, which may be the same again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from comity.entropy import Stream, derive

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Words = NDArray[np.uint64]

SLACK = 2.0**-40
"""Doubles in [0, 1] that are closer than this are compared by exact bounds: more than a thousand times the error of the
few operations, an exponential among them, that lead to such a double."""

_FIRST_BITS = 192
_REACH = 12.0
_STRETCH = 16
_TOTAL = 1 << 62
_MARGIN = 1 + SLACK
_NORMALS_PER_BLOCK = 1 << 15
_COINS_PER_BLOCK = 1 << 17


class LazyWords:
    """Independent uniform numbers in [0, 1): 64 bits of each at once, and further bits of a number when they matter.

    Further bits depend on the seed and on the number's position in the stream, not on the order of the calls. Decisions
    therefore depend on the seed alone, not on how a machine rounds or on which other numbers needed bits.
    """

    def __init__(self, seed: bytes) -> None:
        self._seed = seed
        self._stream = Stream(derive(seed, "first words"))
        self._given = 0

    def take(self, rows: int, count: int) -> tuple[int, Words]:
        """The position of the first number, and rows of first words; row r starts r·count further."""
        start = self._given
        self._given += rows * count
        return start, self._stream.words(rows * count).reshape(rows, count)

    def longer(self, position: int, word: int, bits: int) -> int:
        """The number at this position, which begins with `word`, to `bits` bits."""
        count = -(-(bits - 64) // 8)
        more = int.from_bytes(Stream(derive(self._seed, "more", position)).bytes(count), "big")
        return ((int(word) << (8 * count)) | more) >> (64 + 8 * count - bits)

    def below(self, position: int, word: int, bounds: Callable[[int], tuple[Fraction, Fraction]]) -> bool:
        """Whether the number at this position is below a real number, which `bounds(bits)` encloses."""
        bits = _FIRST_BITS
        while True:
            number, whole = self.longer(position, word, bits), 1 << bits
            least, most = bounds(bits)
            if number + 1 <= least * whole:
                return True
            if number >= most * whole:
                return False
            bits *= 2


def exponential_between(least: Fraction, most: Fraction, bits: int) -> tuple[Fraction, Fraction]:
    """Bounds of exp(−x) for `least` <= x <= `most`, about 2^−bits apart when these are.

    The decimal module rounds quotients and exponentials correctly, to the digits of the context: the exponent is off by
    at most x units of its last digit, and the result by one more.
    """
    return _exponential(most, bits)[0], _exponential(least, bits)[1]


def _exponential(x: Fraction, bits: int) -> tuple[Fraction, Fraction]:
    if x > bits:
        return Fraction(0), Fraction(1, 1 << bits)
    digits = bits // 3 + 10
    with localcontext(Context(prec=digits)):
        value = Fraction((Decimal(-x.numerator) / Decimal(x.denominator)).exp())
    error = value * (x + 2) / 10 ** (digits - 2)
    return value - error, value + error


@dataclass(frozen=True)
class Normals:
    """Independent N(0, σ²) variables: each is ±(cell + place)·2^exponent, and the place is a number of `words`.

    The sampler looked only at the bits of a place that decided to keep it; all further bits are uniform.
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
        """Within a relative 2^−51 of the truth, or 2^−64 cells."""
        magnitudes = np.ldexp(self.cells + self.places * 2.0**-64, self.exponent)
        return np.asarray(np.where(self.negative, -magnitudes, magnitudes))

    def between(self, index: int, bits: int) -> tuple[Fraction, Fraction]:
        """Bounds of one variable, 2^−bits cells apart."""
        place = self.words.longer(int(self.positions[index]), int(self.places[index]), bits)
        whole = (int(self.cells[index]) << bits) + place
        width = Fraction(2) ** (self.exponent - bits)
        least, most = whole * width, (whole + 1) * width
        return (-most, -least) if self.negative[index] else (least, most)


def normals(sigma: float, count: int, words: LazyWords) -> Normals:
    """`count` independent N(0, σ²) variables. The same words give the same variables on every machine."""
    curve = step_curve(float(sigma))
    found = [
        _draw_block(curve, min(_NORMALS_PER_BLOCK, count - start), words)
        for start in range(0, count, _NORMALS_PER_BLOCK)
    ]
    negative, cells, places, positions = (np.concatenate(column) for column in zip(*found, strict=True))
    return Normals(words, curve.exponent, negative, cells, places, positions)


@dataclass(frozen=True)
class StepCurve:
    """Weights of cells above W exp(−y²/2σ²); with the weight of everything beyond the last cell they sum to 2^62."""

    sigma: float
    exponent: int
    height: int
    weights: tuple[int, ...]
    ends: Words
    shares: Floats

    def keeps(
        self, words: LazyWords, positions: tuple[int, int], cell: int, place: int, uniform: int, weight: Fraction
    ) -> bool:
        """Whether uniform <= W exp(−y²/2σ²)/weight, from more and more bits of both."""
        unit = Fraction(2) ** self.exponent / Fraction(self.sigma)

        def bounds(bits: int) -> tuple[Fraction, Fraction]:
            longer = (cell << bits) + words.longer(positions[0], place, bits)
            near, far = (Fraction(end, 1 << bits) * unit for end in (longer, longer + 1))
            least, most = exponential_between(near * near / 2, far * far / 2, bits)
            return least * self.height / weight, most * self.height / weight

        return words.below(positions[1], uniform, bounds)

    def beyond(self, words: LazyWords, position: int, word: int) -> tuple[int, Fraction]:
        """A cell beyond the last one, and its weight: each stretch of sixteen cells has half of the rest."""
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


def _draw_block(curve: StepCurve, count: int, words: LazyWords) -> tuple[NDArray[np.bool_], Integers, Words, Integers]:
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


def permute_and_flip(scores: Integers, scale: float, words: LazyWords) -> Integers:
    """The winner of each row of integer scores, for coins exp(−gap/scale)."""
    rows, width = scores.shape
    step = max(1, _COINS_PER_BLOCK // width)
    return np.concatenate(
        [_choose_winners(scores[start : start + step], scale, words) for start in range(0, rows, step)]
    )


def _choose_winners(scores: Integers, scale: float, words: LazyWords) -> Integers:
    gaps = (scores.max(axis=1, keepdims=True) - scores).ravel()
    return _choose_marked(_toss_coins(gaps, scale, words).reshape(scores.shape), words)


def _toss_coins(gaps: Integers, scale: float, words: LazyWords) -> NDArray[np.bool_]:
    """An independent coin for each gap, with heads of probability exp(−gap/scale)."""
    start, (uniforms,) = words.take(1, gaps.size)
    margins = np.exp(gaps / -scale) - uniforms * 2.0**-64
    heads = margins > 0
    for index in np.flatnonzero((np.abs(margins) <= SLACK) & (gaps > 0)).tolist():
        x = Fraction(int(gaps[index])) / Fraction(scale)
        heads[index] = words.below(start + index, int(uniforms[index]), partial(exponential_between, x, x))
    return np.asarray(heads | (gaps == 0), np.bool_)


def _choose_marked(heads: NDArray[np.bool_], words: LazyWords) -> Integers:
    """One of the marked places of each row, all equally likely: the largest random key, drawn again after a tie."""
    winners = np.empty(len(heads), np.int64)
    waiting = np.arange(len(heads))
    while waiting.size:
        marked = heads[waiting]
        _, keys = words.take(*marked.shape)
        keys = np.where(marked, keys | np.uint64(1), np.uint64(0))
        top = keys.max(axis=1, keepdims=True)
        winners[waiting] = keys.argmax(axis=1)
        waiting = waiting[(keys == top).sum(axis=1) > 1]
    return winners


def exponential_choice(scores: Integers, scale: float, words: LazyWords) -> Integers:
    """An index of each row of integer scores, with probability proportional to exp(score/scale)."""
    gaps = scores.max(axis=1, keepdims=True) - scores
    chosen, waiting = np.empty(len(scores), np.int64), np.arange(len(scores))
    while waiting.size:
        proposed = _draw_below(scores.shape[1], waiting.size, words)
        taken = _toss_coins(gaps[waiting, proposed], scale, words)
        chosen[waiting[taken]] = proposed[taken]
        waiting = waiting[~taken]
    return chosen


def _draw_below(bound: int, count: int, words: LazyWords) -> Integers:
    """Uniform integers below a bound. Words at or above its largest multiple are drawn again: a remainder would be more
    likely by them."""
    drawn, waiting = np.empty(count, np.int64), np.arange(count)
    whole = np.uint64((1 << 64) // bound * bound - 1)
    while waiting.size:
        _, (found,) = words.take(1, waiting.size)
        kept = found <= whole
        drawn[waiting[kept]] = (found[kept] % np.uint64(bound)).astype(np.int64)
        waiting = waiting[~kept]
    return drawn
