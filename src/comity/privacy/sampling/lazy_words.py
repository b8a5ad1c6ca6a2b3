"""Uniform numbers with as many bits as a decision needs, all of them functions of one seed."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context, Decimal, localcontext
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from comity.entropy import Stream, derive

Words = NDArray[np.uint64]

SLACK = 2.0**-40
"""Comparisons of doubles in [0, 1] that are closer than this are settled by exact bounds: more than a thousand times
the error of the few operations, an exponential among them, that lead to such a double."""

_FIRST = 192


class LazyWords:
    """Independent uniform numbers in [0, 1): 64 bits of each at once, further ones of a number when they matter.

    Further bits are named by the number's position in the stream, not by the order in which they are asked for. So what
    is decided by them depends on the seed alone, not on how a machine rounds, nor on who else needed bits.
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
        """Whether the number at this position lies below a real one, of which `bounds(bits)` encloses ever more."""
        bits = _FIRST
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

    The decimal module rounds quotients and exponentials correctly, to the digits of the context: the exponent is
    off by at most x units of its last digit, and the result by one more.
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
