"""Secret uniform numbers that are as precise as a decision needs.

A sampler compares functions of uniform numbers with thresholds. Almost always a double with a bound of its error
settles the comparison; where it does not, the same number is looked at with 384 bits and eighty digits. So
the speed is that of floating point, and the distribution is that of the eighty digits.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

from comity.privacy.mixture import PRECISE

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

BITS = 384
TINY = 2.0**-50
"""Uniform numbers below this are left to the decimals: their missing bits would show."""

RELATIVE = 2.0**-42
"""Error allowed to a few elementary functions of doubles in a row: a thousand times the last bit."""


class Uniforms:
    """`count` independent uniform numbers in (0, 1], from the operating system's entropy."""

    def __init__(self, count: int) -> None:
        self.words = np.frombuffer(os.urandom(24 * count), "<u8").reshape(count, 3)

    @property
    def doubles(self) -> Floats:
        """Within 2^−51 of the truth, relatively, from `TINY` on; smaller ones are shown as half of that."""
        high, low = self.words[:, :2].T.astype(np.float64)
        return np.asarray(np.maximum((high + low * 2.0**-64) * 2.0**-64, TINY / 2))

    def integer(self, index: int) -> int:
        """The first 192 bits of the number at `index`."""
        high, middle, low = (int(word) for word in self.words[index])
        return (high << 128) | (middle << 64) | low

    def precise(self, index: int) -> Decimal:
        """The number at `index` with 192 bits more, which are drawn by this call: ask once."""
        return _fraction((self.integer(index) << 192) | secrets.randbits(192))


def precise_uniform() -> Decimal:
    """Uniform on the multiples of 2^−384 in (0, 1], to eighty digits."""
    return _fraction(secrets.randbits(BITS))


def whole_geometrics(
    uniforms: Uniforms, logs: Floats, log: Callable[[int], Decimal], *, unsure: Flags | None = None
) -> Integers:
    """floor(ln U / ln a) for each uniform U: the geometric variable with P[k or more] = a^k.

    `logs` are the ln a < 0 as doubles within half of `RELATIVE`, and `log(i)` the i-th to eighty digits;
    `unsure` marks doubles that are not.
    """
    doubles = uniforms.doubles
    quotient = np.log(doubles) / logs
    slack = quotient * RELATIVE - 2.0**-48 / logs
    least, most = np.floor(np.maximum(quotient - slack, 0)), np.floor(quotient + slack)
    unclear = (least != most) | (doubles < TINY)
    # Quotients of 2^62 and more are left to the decimals too, where they don't overflow unseen.
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
