"""Ring learning with errors over Z_q[x]/(x^N + 1), q a power of two: parameters, sampling, and encryption of columns.

Construction (V. Lyubashevsky, C. Peikert, O. Regev, On ideal lattices and learning with errors over rings, 2010). A
column of integers x, N of them to a block, becomes C = a·s + e + Δ·x with a public uniform a, a secret s that is
uniform on {−1, 0, 1}, and errors e from the centred binomial distribution of 42 coins (σ = 3.24). One a serves all
columns of a block, one secret all blocks of a column.

Assumption: C is indistinguishable from uniform. Only listed parameters are accepted. "128 bits" refers to one measure
of several, the cost of the primal attack (`tests/crypto/test_ring_security.py` computes it again): with b the block
size that BKZ needs,

                             N = 4096, log q = 88    N = 8192, log q = 128
    b                                 445                     686
    core-SVP, classical               129.9                   200.3          0.292 b
    core-SVP, quantum                 117.9                   181.7          0.265 b
    homomorphic encryption standard   162                     233            0.292 b + 16.4 + log2(8 d)

Classical core-SVP is what "128 bits" means here: both rings reach it. The narrow one does not reach it by the quantum
measure, whose exponent ignores the memory of a quantum sieve. The standard's own table allows log q up to 109 and 218.

A ring element is stored as words of 32 bits, least significant first; as balanced digits (signed words) where it is
multiplied. Where q has fewer bits than the words, elements are stored times 2^idle: the lowest bits are always zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from comity.compiled import compiled, inlined
from comity.crypto.products.negacyclic import Floats, Transform, evaluate, multiply_out, twiddles
from comity.entropy import Stream
from comity.errors import Refused

COINS: Final = 42
"""An error is the number of heads among this many coins, minus half of them."""
ERROR_VARIANCE: Final = COINS / 4
LARGEST_ERROR: Final = COINS // 2

_ROUNDING: Final = 0.125
"""The largest distance of a floating-point coefficient from the integer that it rounds to."""


@dataclass(frozen=True)
class Parameters:
    """A ring of degree N modulo q = 2^modulus, in `words`, for integers up to `largest` and shares up to `bits` bits.

    `digits` balanced digits of `digit_bits` bits cover q: short enough to sum products with `largest` exactly.
    """

    degree: int
    modulus: int
    words: int
    largest: int
    bits: int
    digits: int
    digit_bits: int

    @property
    def idle(self) -> int:
        """Lowest bits of the words that are always zero."""
        return 32 * self.words - self.modulus


NARROW: Final = Parameters(degree=4096, modulus=88, words=3, largest=2**12, bits=56, digits=4, digit_bits=24)
WIDE: Final = Parameters(degree=8192, modulus=128, words=4, largest=2**16, bits=64, digits=7, digit_bits=19)
ALLOWED: Final = (NARROW, WIDE)


def draw_public_block(stream: Stream, parameters: Parameters, out: NDArray[np.int32]) -> NDArray[np.int32]:
    """The next uniform a into `out`, (words, N) balanced digits; both sides read the same stream in the same order."""
    stream.fill(out.reshape(-1).view(np.uint8))
    out[0] &= np.int32(-1 << parameters.idle)
    return out


def draw_ternary(stream: Stream, rows: int, degree: int) -> NDArray[np.int8]:
    """Uniform on {−1, 0, 1}, up to a bias of 2^-62: the quotient by 2^62 of three times a number below 2^62."""
    out, drawn = np.empty((rows, degree), np.int8), np.empty(degree, np.uint64)
    for row in out:
        stream.fill(drawn.view(np.uint8))
        _thirds(drawn, row)
    return out


@compiled
def _thirds(drawn: NDArray[np.uint64], out: NDArray[np.int8]) -> None:
    for k in range(out.size):
        out[k] = np.int8(((drawn[k] >> np.uint64(2)) * np.uint64(3)) >> np.uint64(62)) - np.int8(1)


class Errors:
    """Centred binomial errors, (rows, N) at a time: heads among 42 coins, minus 21. Two words of 64 coins make three
    errors. The next draw overwrites the array that `draw` returns."""

    def __init__(self, rows: int, degree: int) -> None:
        groups = -(-rows * degree // 3)
        self._coins = np.empty((2, groups), np.uint64)
        self._heads = np.empty((3, groups), np.int8)
        self._found = self._heads.reshape(-1)[: rows * degree].reshape(rows, degree)

    def draw(self, stream: Stream) -> NDArray[np.int8]:
        stream.fill(self._coins.reshape(-1).view(np.uint8))
        _count_heads(self._coins, self._heads)
        return self._found


@inlined
def _heads(coins: np.uint64) -> int:
    heads = 0
    while coins:
        coins = coins & (coins - np.uint64(1))
        heads += 1
    return heads


@compiled
def _count_heads(pairs: NDArray[np.uint64], out: NDArray[np.int8]) -> None:
    most, half = np.uint64((1 << COINS) - 1), np.uint64(64 - COINS // 2)
    for k in range(pairs.shape[1]):
        one, two = pairs[0, k], pairs[1, k]
        out[0, k] = _heads(one & most) - COINS // 2
        out[1, k] = _heads(two & most) - COINS // 2
        # Half of the coins from the top of each word; one coin in each is left unused.
        out[2, k] = _heads(one >> half) + _heads(two >> half) - COINS // 2


class ColumnSecrets:
    """The secrets of a message's columns, and encryption under them, block by block."""

    def __init__(self, parameters: Parameters, columns: int, stream: Stream) -> None:
        self.parameters = parameters
        self._transform = Transform(parameters.degree)
        self._secrets = draw_ternary(stream, columns, parameters.degree)
        self._spectra = np.empty(self._secrets.shape)
        self._transform.forward(self._secrets.astype(np.float64), self._spectra)
        # Products come with a factor N/2, a power of two that is taken out here without rounding.
        self._spectra /= parameters.degree // 2
        self._errors = Errors(columns, parameters.degree)
        # Memory for one block, reused for the next: fresh memory would cost more than the arithmetic. Products are made
        # one column at a time, while they are in the cache.
        self._a = np.empty((parameters.words, parameters.degree))
        self._products = np.empty((parameters.words, parameters.degree))
        self._row = np.empty(parameters.degree)
        self._carry = np.empty(parameters.degree, np.int64)

    def encrypt(
        self,
        a: NDArray[np.int32],
        values: NDArray[np.int32],
        shift: int,
        stream: Stream,
        out: NDArray[np.int32] | None = None,
    ) -> NDArray[np.int32]:
        """a·s + e + 2^shift · values for each column, (words, columns, length) balanced digits; e from `stream`.

        Coefficients beyond the length of the block are left out: they would only be multiplied by zero. The result goes
        to `out` if it is given.
        """
        if out is None:
            out = np.empty((len(a), *values.shape), np.int32)
        self._products[:] = a
        self._transform.forward(self._products, self._a)
        noise, (word, rest) = self._errors.draw(stream), divmod(shift, 32)
        scratch = self._row, self._products, self._carry
        idle = self.parameters.idle
        if _encrypt(self._a, self._spectra, noise, idle, values, word, rest, out, *scratch, *twiddles(a.shape[1])):
            raise Refused("a ring product lost its precision in floating point", code="precision")
        return out

    def inner_products(self, elements: NDArray[np.uint32]) -> NDArray[np.int64]:
        """The constant coefficient of s·h for each secret s and element h: (words, columns, elements) digit sums."""
        # Turned round: s·h has the constant coefficient s_0·h_0 − Σ s_k·h_(N−k).
        signs = np.empty(self._secrets.shape)
        signs[:, 0], signs[:, 1:] = self._secrets[:, 0], self._secrets[:, :0:-1]
        signs[:, 1:] *= -1
        out, values = np.empty((len(elements), len(signs), elements.shape[1]), np.int64), np.empty(elements.shape[1:])
        for word, found in zip(elements, out):
            values[:] = word
            # Words below 2^32 times at most 2^13 signs: every sum is an exact double.
            found[:] = signs @ values.T
        return out


class ProductSum:
    """Σ a·y(1/x) over blocks, for several small y at once, in the ring; stored as values of the transform."""

    _FOLD = 64
    """Blocks after which sums of floating-point values become integers, to keep rounding errors small."""

    def __init__(self, parameters: Parameters, columns: int) -> None:
        self.parameters = parameters
        self._transform = Transform(parameters.degree)
        self._total = np.zeros((parameters.digits * columns, parameters.degree))
        self._digits = np.zeros(self._total.shape, np.int64)
        self._pending = 0
        # Memory for one block, reused for the next: the digits of a and their values, one column of y and its values.
        self._rows = np.empty((parameters.digits, parameters.degree))
        self._values = np.empty_like(self._rows)
        self._column, self._column_values = np.empty((2, 1, parameters.degree))
        self._rest = np.empty(parameters.degree, np.int64)

    def add(self, a: NDArray[np.int32], y: NDArray[np.int32]) -> None:
        """Add the products of one block; a shorter y is followed by zeros."""
        self._rest[:] = 0
        _digits(a, self.parameters.digit_bits, self._rows, self._rest)
        self._transform.forward(self._rows, self._values)
        first, second = twiddles(self.parameters.degree)
        _add_reflected(self._total, self._values, y, self._column, self._column_values, first, second)
        self._pending += 1
        if self._pending == self._FOLD:
            self._fold()

    def so_far(self) -> NDArray[np.int64]:
        """The sums until now, digit by digit."""
        self._fold()
        return self._digits.copy()

    def restore(self, digits: NDArray[np.int64]) -> None:
        """Continues from the `so_far` of another object."""
        if digits.shape != self._digits.shape or digits.dtype != np.int64:
            raise Refused(f"sums of shape {self._digits.shape} to go on with were expected", code="stopped")
        self._digits[:] = digits

    def _fold(self) -> None:
        unit, (first, second) = self._transform.unit(), twiddles(self.parameters.degree)
        if _add_rounded(self._digits, self._total, unit, self._column[0], self._column_values, first, second):
            raise Refused("a sum of ring products lost its precision in floating point", code="precision")
        self._pending = 0

    def total(self, noise: NDArray[np.int8]) -> NDArray[np.uint32]:
        """The sum plus `noise`, (words, columns, N)."""
        self._fold()
        parameters = self.parameters
        words = np.zeros((parameters.words, noise.size), np.uint32)
        digits, errors = self._digits.reshape(parameters.digits, -1), noise.reshape(-1)
        _words(digits, parameters.digit_bits, errors, parameters.idle, words)
        return words.reshape(parameters.words, *noise.shape)


@inlined
def _add_reflected_row(a: Floats, y: Floats, out: Floats, half: int) -> None:
    # The callers write `half` as a literal: the vectoriser then knows that real and imaginary parts don't overlap.
    for m in range(half):
        out[m] += a[m] * y[m] + a[m + half] * y[m + half]
        out[m + half] += a[m + half] * y[m] - a[m] * y[m + half]


@compiled
def _add_reflected(
    total: Floats, left: Floats, y: NDArray[np.int32], row: Floats, values: Floats, first: Floats, second: Floats
) -> None:
    """total[p · columns + j] += left[p] · conj(Y_j), Y_j the values of y_j: at a root, y(1/x) has the conjugate of the
    value of y(x). Column by column, each used while it is in the cache."""
    columns, length = y.shape
    for j in range(columns):
        for k in range(length):
            row[0, k] = y[j, k]
        row[0, length:] = 0.0
        evaluate(row, values, first, second)
        for p in range(left.shape[0]):
            if left.shape[1] == 4096:
                _add_reflected_row(left[p], values[0], total[p * columns + j], 2048)
            else:
                _add_reflected_row(left[p], values[0], total[p * columns + j], 4096)


@compiled
def _add_rounded(
    total: NDArray[np.int64], values: Floats, unit: Floats, scratch: Floats, row: Floats, first: Floats, second: Floats
) -> bool:
    """total += the integers nearest to the polynomials with these values, which become zero; true if a coefficient was
    no integer."""
    far = 0
    for r in range(values.shape[0]):
        multiply_out(values[r : r + 1], unit, scratch, row, first, second)
        values[r] = 0.0
        for k in range(values.shape[1]):
            nearest = np.rint(row[0, k])
            far |= np.abs(row[0, k] - nearest) > _ROUNDING
            total[r, k] += np.int64(nearest)
    return far != 0


@compiled
def _encrypt(
    a: Floats,
    secrets: Floats,
    noise: NDArray[np.int8],
    idle: int,
    values: NDArray[np.int32],
    word: int,
    rest: int,
    out: NDArray[np.int32],
    row: Floats,
    products: Floats,
    carry: NDArray[np.int64],
    first: Floats,
    second: Floats,
) -> bool:
    """Round the words of a·s, add the error and the shifted value, carry; true if a coefficient was no integer."""
    words, columns, length = out.shape
    far = 0
    for i in range(columns):
        multiply_out(a, secrets[i : i + 1], row, products, first, second)
        for k in range(length):
            carry[k] = np.int64(noise[i, k]) << idle
        for w in range(words):
            if w == word:
                for k in range(length):
                    carry[k] += np.int64(values[i, k]) << rest
            line, product = out[w, i], products[w]
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


@compiled
def _words(digits: NDArray[np.int64], bits: int, noise: NDArray[np.int8], idle: int, words: NDArray[np.uint32]) -> None:
    """Sums of digits of `bits` bits, plus the noise, as words of 32 bits, modulo q."""
    count = words.shape[0]
    for k in range(digits.shape[1]):
        carry = np.int64(noise[k]) << idle
        held = np.int64(0)
        width = 0
        word = 0
        for digit in range(digits.shape[0]):
            carry += digits[digit, k]
            held |= (carry & ((1 << bits) - 1)) << width
            carry >>= bits
            width += bits
            if width >= 32 and word < count:
                words[word, k] = np.uint32(held & 0xFFFFFFFF)
                held >>= 32
                width -= 32
                word += 1
