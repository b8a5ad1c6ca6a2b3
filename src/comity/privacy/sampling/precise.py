"""Uniform, Gamma and Poisson variables to eighty digits, from the operating system's entropy.

A sampler compares functions of uniform numbers with thresholds. A double with an error bound almost always decides the
comparison; where it does not, the same number is extended to 384 bits and eighty digits. The speed is that of floating
point, and the distribution is that of the eighty digits.
"""

from __future__ import annotations

import os
import secrets
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

PRECISE = Context(prec=80)
"""Eighty digits: the arithmetic of everything between the uniform bits and a variable."""

BITS = 384
TINY = 2.0**-50
"""Uniform numbers below this are decided in decimals: as doubles they lack bits."""

RELATIVE = 2.0**-42
"""Error allowed to a few elementary functions of doubles in a row: a thousand times the last bit."""

_UNIT = 1 << 192
_NEGLIGIBLE = Decimal(2) ** -200


class Uniforms:
    """`count` independent uniform numbers in (0, 1], from the operating system's entropy."""

    def __init__(self, count: int) -> None:
        self.words = np.frombuffer(os.urandom(24 * count), "<u8").reshape(count, 3)

    @property
    def doubles(self) -> Floats:
        """Within a relative 2^−51 of the truth from `TINY` on; smaller numbers are given as `TINY`/2 at least."""
        high, low = self.words[:, :2].T.astype(np.float64)
        return np.asarray(np.maximum((high + low * 2.0**-64) * 2.0**-64, TINY / 2))

    def integer(self, index: int) -> int:
        """The first 192 bits of the number at `index`."""
        high, middle, low = (int(word) for word in self.words[index])
        return (high << 128) | (middle << 64) | low

    def precise(self, index: int) -> Decimal:
        """The number at `index` with 192 further bits, which this call draws: ask once."""
        return _fraction((self.integer(index) << 192) | secrets.randbits(192))


def precise_uniform() -> Decimal:
    """Uniform on the multiples of 2^−384 in (0, 1], to eighty digits."""
    return _fraction(secrets.randbits(BITS))


def whole_geometrics(
    uniforms: Uniforms, logs: Floats, log: Callable[[int], Decimal], *, unsure: Flags | None = None
) -> Integers:
    """floor(ln U / ln a) for each uniform U: the geometric variable with P[k or more] = a^k.

    `logs` are the ln a < 0 as doubles within half of `RELATIVE`, and `log(i)` the i-th to eighty digits; `unsure` marks
    doubles that are less precise.
    """
    doubles = uniforms.doubles
    quotient = np.log(doubles) / logs
    slack = quotient * RELATIVE - 2.0**-48 / logs
    least, most = np.floor(np.maximum(quotient - slack, 0)), np.floor(quotient + slack)
    unclear = (least != most) | (doubles < TINY)
    # Quotients of 2^62 and more are decided in decimals too, where an overflow raises.
    unclear |= most >= 2.0**62
    if unsure is not None:
        unclear |= unsure
    out = np.where(unclear, 0, least).astype(np.int64)
    for index in np.flatnonzero(unclear).tolist():
        power = PRECISE.divide(PRECISE.ln(uniforms.precise(index)), log(index))
        out[index] = int(power)
    return out


def _fraction(numerator: int) -> Decimal:
    return PRECISE.divide(Decimal(numerator + 1), Decimal(1 << BITS))


def gamma(shape: Fraction) -> Decimal:
    """A Gamma variable of this shape and scale 1: a sum of exponentials and of a variable for the fractional shape."""
    with localcontext(PRECISE):
        total = Decimal(0)
        whole = int(shape)
        for start in range(0, whole, 1000):
            # −ln of a product of uniforms: one logarithm for a thousand exponentials.
            product = Decimal(1)
            for _ in range(min(1000, whole - start)):
                product *= precise_uniform()
            total -= product.ln()
        rest = shape - whole
        if rest == Fraction(1, 2):
            return total + _gamma_half()
        return total + _gamma_below_one(rest) if rest else total


def _gamma_half() -> Decimal:
    """Shape 1/2: half the square of a normal variable."""
    while True:
        first, second = 2 * precise_uniform() - 1, 2 * precise_uniform() - 1
        square = first * first + second * second
        if 0 < square < 1:
            # The polar method's normal is first·sqrt(−2 ln(square)/square); half its square needs no root.
            return -first * first * square.ln() / square


def _gamma_below_one(shape: Fraction) -> Decimal:
    """Shape b < 1, by Jöhnk's method: an exponential times a Beta(b, 1 − b) variable, kept in at least 3 of 4 cases.

    X = U^(1/b) and Y = W^(1/(1−b)), given X + Y <= 1, make X/(X + Y) that Beta variable. For a small b
    X may be as small as exp(−1000/b), which a decimal holds as precisely as any other number.
    """
    power, rest = Decimal(shape.denominator) / shape.numerator, 1 / (1 - shape)
    other = Decimal(rest.numerator) / rest.denominator
    while True:
        first = (precise_uniform().ln() * power).exp()
        second = (precise_uniform().ln() * other).exp()
        if 0 < first + second <= 1:
            return -precise_uniform().ln() * first / (first + second)


@dataclass(frozen=True)
class PoissonTable:
    """P[X <= k] for k = 0, 1, … in multiples of 2^−192, and the upper 64 bits of these numbers, for inversion."""

    cumulated: tuple[int, ...]
    upper: NDArray[np.uint64]

    def draw(self, count: int) -> Integers:
        """How many entries are at most a 192-bit uniform; the upper 64 bits decide unless they tie."""
        uniforms = Uniforms(count)
        high = uniforms.words[:, 0]
        out = np.searchsorted(self.upper, high, side="right").astype(np.int64)
        for index in np.flatnonzero(np.searchsorted(self.upper, high, side="left") != out).tolist():
            out[index] = bisect_right(self.cumulated, uniforms.integer(index))
        return out


@lru_cache(maxsize=16)
def poisson_table(mean: Decimal) -> PoissonTable:
    """The table of Poisson(mean), for means up to a few thousand, within a total variation of 2^−170.

    Each entry is off by less than 2^−192 and there are fewer than 2^14 of them; the values beyond the last one have
    probability below 2^−199.
    """
    with localcontext(PRECISE):
        weight = (-mean).exp()
        total, k = weight, 0
        entries = [int(total * _UNIT)]
        # From k >= 2·mean on the terms at least halve, so the rest weighs no more than the last one.
        while k < 2 * mean or weight > _NEGLIGIBLE:
            k += 1
            weight = weight * mean / k
            total += weight
            entries.append(int(total * _UNIT))
    # No uniform can exceed an entry of the whole unit, or one that rounding put above it.
    cumulated = tuple(min(entry, _UNIT) for entry in entries[:-1])
    inside = tuple(entry for entry in cumulated if entry < _UNIT)
    return PoissonTable(inside, np.array([entry >> 128 for entry in inside], np.uint64))
