"""Ring learning with errors over Z_q[x]/(x^N + 1), q a power of two: parameters, sampling, and encryption of columns.

Construction (V. Lyubashevsky, C. Peikert, O. Regev, On ideal lattices and learning with errors over rings, 2010). A
column of integers x, N of them to a block, becomes C = a·s + e + Δ·x with a public uniform a, a secret s that is
uniform on {−1, 0, 1}, and errors e from the centred binomial distribution of 42 coins (σ = 3.24). One a serves all
columns of a block, one secret all blocks of a column.

Assumption: C is indistinguishable from uniform. The parameters are on a list, and nothing else is accepted; the
homomorphic encryption standard allows log q <= 109 for N = 4096 and <= 218 for N = 8192 at 128 bits of security, with
this secret and error.

A ring element is kept as words of 32 bits, least significant first; as balanced digits (signed words) where it is
multiplied.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from comity.crypto.compiled import compiled
from comity.crypto.negacyclic import Floats, Transform
from comity.entropy import Stream
from comity.errors import Refused

COINS: Final = 42
"""An error is the number of heads among so many coins, less half of them."""
ERROR_VARIANCE: Final = COINS / 4
LARGEST_ERROR: Final = COINS // 2

_ROUNDING: Final = 0.125
"""Distance from an integer beyond which a floating-point coefficient is not taken for it."""


@dataclass(frozen=True)
class Parameters:
    """A ring of degree N modulo q = 2^(32·words), for integers up to `largest` and shares of up to `bits` bits.

    `digits` balanced digits of `digit_bits` bits cover q: short enough for exact sums of products with `largest`.
    """

    degree: int
    words: int
    largest: int
    bits: int
    digits: int
    digit_bits: int


NARROW: Final = Parameters(degree=4096, words=3, largest=2**12, bits=56, digits=4, digit_bits=24)
WIDE: Final = Parameters(degree=8192, words=4, largest=2**16, bits=64, digits=7, digit_bits=19)
ALLOWED: Final = (NARROW, WIDE)


def public_block(stream: Stream, parameters: Parameters) -> NDArray[np.int32]:
    """The next uniform a, (words, N) balanced digits; both sides read the same stream in the same order."""
    shape = (parameters.words, parameters.degree)
    return stream.words(shape[0] * shape[1] // 2).view("<i4").reshape(shape)


def ternary(stream: Stream, rows: int, degree: int) -> NDArray[np.int8]:
    """Uniform on {−1, 0, 1}, up to a bias of 2^-64."""
    drawn = stream.words(rows * degree) % np.uint64(3)
    return (drawn.astype(np.int8) - np.int8(1)).reshape(rows, degree)


def errors(stream: Stream, rows: int, degree: int) -> NDArray[np.int8]:
    """Centred binomial: heads among 42 coins, less 21. Two words of 64 coins make three errors."""
    count = rows * degree
    pairs = stream.words(2 * -(-count // 3)).reshape(2, -1)
    out = np.empty((3, pairs.shape[1]), np.int8)
    low = np.uint64((1 << COINS) - 1)
    out[:2] = np.bitwise_count(pairs & low)
    # 21 of the 22 coins left in each word.
    out[2] = np.bitwise_count(pairs >> np.uint64(64 - COINS // 2)).sum(axis=0, dtype=np.uint8)
    out -= np.int8(COINS // 2)
    return out.reshape(-1)[:count].reshape(rows, degree)


class ColumnSecrets:
    """The secrets of a message's columns, and encryption under them, block by block."""

    def __init__(self, parameters: Parameters, columns: int, stream: Stream) -> None:
        self.parameters = parameters
        self._transform = Transform(parameters.degree)
        self._stream = stream
        self._secrets = ternary(stream, columns, parameters.degree)
        # The inverse transform leaves a factor N/2, a power of two that is taken out here without rounding.
        self._spectra = self._transform.forward(self._secrets.astype(np.float64)) / (parameters.degree // 2)

    def encrypt(self, a: NDArray[np.int32], values: NDArray[np.int64], shift: int) -> NDArray[np.int32]:
        """a·s + e + 2^shift · values for each column, (words, columns, length) balanced digits.

        Coefficients past the length of the block are left out: they would only ever be multiplied by zero.
        """
        parameters, columns = self.parameters, len(self._secrets)
        products = np.empty((parameters.words, columns, parameters.degree))
        _multiply(self._transform.forward(a.astype(np.float64)), self._spectra, products)
        rows = self._transform.inverse(products.reshape(-1, parameters.degree)).reshape(products.shape)
        noise = errors(self._stream, columns, parameters.degree)
        out = np.empty((parameters.words, columns, values.shape[1]), np.int32)
        word, rest = divmod(shift, 32)
        if _encrypt(rows, noise, values, word, rest, out, np.empty(values.shape[1], np.int64)):
            raise Refused("a ring product lost its precision in floating point", code="precision")
        return out

    def inner_products(self, elements: NDArray[np.uint32]) -> NDArray[np.int64]:
        """The constant coefficient of s·h for each secret s and element h: (words, columns, elements) digit sums."""
        turned = np.concatenate([elements[:, :, :1], elements[:, :, :0:-1]], axis=2).astype(np.float64)
        signs = self._secrets.astype(np.float64)
        signs[:, 1:] *= -1
        # Words below 2^32 times at most 2^13 signs: every sum is an exact double.
        return np.stack([signs @ word.T for word in turned]).astype(np.int64)


class ProductSum:
    """Σ a·y(1/x) over blocks, for several small y at once, in the ring; kept as values of the transform."""

    _FOLD = 64
    """Blocks after which sums of floating-point values become integers, so that their rounding errors stay small."""

    def __init__(self, parameters: Parameters, columns: int) -> None:
        self.parameters = parameters
        self._transform = Transform(parameters.degree)
        self._values = np.zeros((parameters.digits, columns, parameters.degree))
        self._digits = np.zeros(self._values.shape, np.int64)
        self._pending = 0

    def add(self, a: NDArray[np.int32], y: NDArray[Any]) -> None:
        """Add the products of one block; a shorter y is followed by zeros."""
        parameters = self.parameters
        digits = np.empty((parameters.digits, parameters.degree))
        _digits(a, parameters.digit_bits, digits, np.zeros(parameters.degree, np.int64))
        padded = np.zeros((len(y), parameters.degree))
        padded[:, : y.shape[1]] = y
        _add_reflected(self._values, self._transform.forward(digits), self._transform.forward(padded))
        self._pending += 1
        if self._pending == self._FOLD:
            self._fold()

    def _fold(self) -> None:
        rows = self._transform.inverse(self._values.reshape(-1, self.parameters.degree)).reshape(self._values.shape)
        rows /= self.parameters.degree // 2
        nearest = np.rint(rows)
        if np.abs(rows - nearest).max() > _ROUNDING:
            raise Refused("a sum of ring products lost its precision in floating point", code="precision")
        self._digits += nearest.astype(np.int64)
        self._values = np.zeros_like(self._values)
        self._pending = 0

    def total(self, noise: NDArray[np.int8]) -> NDArray[np.uint32]:
        """The sum plus `noise`, (words, columns, N)."""
        self._fold()
        parameters = self.parameters
        carry = noise.astype(np.int64)
        words = np.zeros((parameters.words, *carry.shape), np.uint64)
        for place, digit in enumerate(self._digits):
            low = digit + carry
            carry = low >> parameters.digit_bits
            word, rest = divmod(place * parameters.digit_bits, 32)
            bits = (low & ((1 << parameters.digit_bits) - 1)).view(np.uint64) << np.uint64(rest)
            words[word] |= bits & np.uint64(0xFFFFFFFF)
            if word + 1 < parameters.words:
                words[word + 1] |= bits >> np.uint64(32)
        return words.astype("<u4")


@compiled
def _multiply(left: Floats, right: Floats, out: Floats) -> None:
    """out[w, i] = left[w] · right[i], value by value."""
    half = left.shape[1] // 2
    for w in range(left.shape[0]):
        for i in range(right.shape[0]):
            a, s, z = left[w], right[i], out[w, i]
            for m in range(half):
                z[m] = a[m] * s[m] - a[m + half] * s[m + half]
                z[m + half] = a[m] * s[m + half] + a[m + half] * s[m]


@compiled
def _add_reflected(total: Floats, left: Floats, right: Floats) -> None:
    """total[p, j] += left[p] · conj(right[j]): the value of y(1/x) at a root is the conjugate of that of y(x)."""
    half = left.shape[1] // 2
    for p in range(left.shape[0]):
        for j in range(right.shape[0]):
            a, y, z = left[p], right[j], total[p, j]
            for m in range(half):
                z[m] += a[m] * y[m] + a[m + half] * y[m + half]
                z[m + half] += a[m + half] * y[m] - a[m] * y[m + half]


@compiled
def _encrypt(
    products: Floats,
    noise: NDArray[np.int8],
    values: NDArray[np.int64],
    word: int,
    rest: int,
    out: NDArray[np.int32],
    carry: NDArray[np.int64],
) -> bool:
    """Round the words of a·s, add the error and the shifted value, carry; true if a coefficient was no integer."""
    words, columns, length = out.shape
    far = 0
    for i in range(columns):
        for k in range(length):
            carry[k] = noise[i, k]
        for w in range(words):
            if w == word:
                for k in range(length):
                    carry[k] += values[i, k] << rest
            line, product = out[w, i], products[w, i]
            for k in range(length):
                nearest = np.rint(product[k])
                far |= np.abs(product[k] - nearest) > _ROUNDING
                total = np.int64(nearest) + carry[k]
                line[k] = np.int32(total)
                carry[k] = (total + 2147483648) >> 32
    return far != 0


@compiled
def _digits(words: NDArray[np.int32], bits: int, out: Floats, rest: NDArray[np.int64]) -> None:
    """Balanced words of 32 bits as balanced digits of `bits` bits."""
    count, degree = words.shape
    half = 1 << (bits - 1)
    held = 0
    word = 0
    for digit in range(out.shape[0]):
        if held < bits and word < count:
            for k in range(degree):
                rest[k] += np.int64(words[word, k]) << held
            held += 32
            word += 1
        for k in range(degree):
            low = ((rest[k] + half) & (2 * half - 1)) - half
            out[digit, k] = low
            rest[k] = (rest[k] - low) >> bits
        held -= bits
