"""The product Xᵀ Y of matrices held by two parties, left additively shared, without a dealer, in one round trip.

Construction. The encryptor (A, with the fewer columns) sends its columns encrypted under ring learning with errors
(`comity.crypto.products.rlwe`): C_i = a·s_i + e_i + Δ·x_i, block by block of N rows, after a block 0 that encrypts
zeros. The evaluator (B) returns, for its columns j,

    h_j  = Σ_blocks a·ỹ_j + a_0·ũ_j + e'_j           one ring element; ỹ(x) = y(1/x), u_j fresh and ternary
    v_ij = Σ_blocks ⟨C_i, y_j⟩ + ⟨C_0i, u_j⟩ + ρ_ij    one number modulo q; ρ_ij uniform modulo q

and keeps −⌊ρ_ij/Δ⌋. The encryptor takes ⌊(v_ij − ⟨s_i, h̃_j⟩)/Δ⌋. Both modulo 2^k, they add up to (Xᵀ Y)_ij, or to one
unit beside it with the probability `Plan.carry_probability` (the errors make a carry); this unit belongs in the
sensitivity of the opened value. A plan may allow `beside` units instead of one.

A message may leave out the `dropped` lowest bits of every ciphertext, rounded to nearest: what is left is a function of
the ciphertext, so it tells no more, and its error is up to `Plan.rounding` larger. Every coefficient is rounded by
itself: a row that is replaced changes the errors of its own coefficients, and no others.

Adversary: semi-honest; either party, colluding with all others in the study. Assumption: ring learning with errors at
the listed parameters. The evaluator sees ciphertexts. The encryptor sees h_j, pseudorandom because of block 0, which is
therefore never left out, and v_ij, perfectly masked by ρ_ij. Both learn the number of rows and columns. Secrets and the
public polynomial are fresh for each message; both parties' nonces determine the polynomial, so neither chooses it. Only
truncated shares leave these classes: the bits below Δ hold ⟨e_i, y_j⟩.

A message of many rows goes in stretches of `STRETCH_BLOCKS` blocks, or fewer where many columns are multiplied at the
same time. Each stretch has separate streams. A side that stored its seed, and the evaluator its sums, can continue at
any stretch with the memory of one stretch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.compiled import compiled
from comity.crypto.products.fixed_point import FixedPoint, product_bits, require_bits
from comity.crypto.products.inner_products import add_narrow_products
from comity.crypto.products.rlwe import (
    ALLOWED,
    ERROR_VARIANCE,
    LARGEST_ERROR,
    ColumnSecrets,
    Errors,
    Parameters,
    ProductSum,
    draw_public_block,
    draw_ternary,
)
from comity.entropy import Stream, derive, fresh_seed
from comity.errors import Malformed, Refused

NONCE_BYTES = 32

STRETCH_BLOCKS = 16
STRETCH_ENTRIES = 1 << 22
"""Upper bound on rows times columns of all parties in a stretch, so memory grows with neither."""


@dataclass(frozen=True)
class Plan:
    """The public figures of one product, checked: rows, columns, largest integers, and the bits k of the shares."""

    rows: int
    columns_a: int
    columns_b: int
    largest_a: int
    largest_b: int
    bits: int
    parameters: Parameters
    together: int = 0
    """Columns of all parties that are multiplied in the same stretch."""
    dropped: int = 0
    beside: int = 1
    """How many units a pair of shares may be off."""
    sum_b: int = 0
    """A bound on Σ |y| over the rows of any column of the evaluator; 0 where only `largest_b` is known."""
    most: int = 0
    """A bound on the entries of the product; 0 where only that of its factors is known."""
    blocks: int = 0
    """Blocks of a stretch; 0 for as many as fit."""

    @classmethod
    def choose(
        cls,
        rows: int,
        columns_a: int,
        columns_b: int,
        a: FixedPoint,
        b: FixedPoint,
        *,
        noise: int = 0,
        bits: int = 0,
        together: int = 0,
    ) -> Plan:
        """The smallest listed parameters with room for the product and `noise` units; at least `bits` bits wide."""
        needed = product_bits(rows, a, b, noise=noise)
        width = max(needed, bits)
        for parameters in ALLOWED:
            fits = max(a.largest, b.largest) <= parameters.largest and width <= parameters.bits
            if fits and _worst_error(parameters, rows, b.largest).bit_length() <= 32 * parameters.words - width:
                return cls(rows, columns_a, columns_b, a.largest, b.largest, width, parameters, together)
        require_bits(needed, ALLOWED[-1].bits)
        raise Refused(
            f"integers up to {max(a.largest, b.largest)} with shares of {width} bits fit no listed parameters; "
            "use at most 16 binary places for values bounded by 1",
            code="headroom",
        )

    def __post_init__(self) -> None:
        if self.parameters not in ALLOWED:
            raise Refused(f"only listed ring parameters may be used, found {self.parameters}", code="parameters")
        if not 1 <= self.columns_a <= self.columns_b or self.rows < 1:
            raise Malformed(
                f"rows, and no more columns at the encryptor than at the evaluator, were expected, found {self.rows} "
                f"rows and {self.columns_a} against {self.columns_b} columns"
            )
        if max(self.largest_a, self.largest_b) > self.parameters.largest:
            raise Refused(f"integers up to {self.parameters.largest} were expected in these parameters")
        require_bits((self.most or self.rows * self.largest_a * self.largest_b).bit_length() + 1, self.bits)
        require_bits(self.bits, self.parameters.bits)
        if self.dropped not in DROPPED:
            raise Refused(f"a message leaves out {DROPPED} bits, found {self.dropped}", code="parameters")
        # With errors below Δ a pair of shares is never off by more than one unit, with errors below m·Δ than m.
        if self.largest_error >= self.beside << self.shift:
            raise Refused(
                f"errors up to {self.largest_error} could exceed {self.beside} units of shares of {self.bits} bits",
                code="headroom",
            )

    @property
    def largest_error(self) -> int:
        """The largest error of an entry, in the words."""
        summed = self.sum_b or self.rows * self.largest_b
        return _worst_error(self.parameters, summed, 1, self.rounding)

    @property
    def off_by(self) -> int:
        """The most units that a pair of shares is off."""
        return -(-self.largest_error // (1 << self.shift))

    @property
    def skipped(self) -> int:
        """How many of the lowest words are not sent at all."""
        return (self.parameters.idle + self.dropped) // 32

    @cached_property
    def low(self) -> np.dtype[Any]:
        """What is sent of the lowest words that are sent: they have idle bits, which are zero, and dropped ones."""
        sent = 32 - (self.parameters.idle + self.dropped) % 32
        return np.dtype("i1" if sent <= 8 else "<i2" if sent <= 16 else "<i4")

    @property
    def high(self) -> int:
        """How many words are sent whole."""
        return self.parameters.words - self.skipped - 1

    @property
    def packed_bytes(self) -> int:
        """Bytes of one coefficient of a packed message."""
        return int(self.low.itemsize) + 4 * self.high

    def pack(self, message: NDArray[np.int32], low: NDArray[Any], high: NDArray[np.int32]) -> None:
        """A block of one column without its lowest bits: its lowest words to `low`, the others to `high`, one line for
        each."""
        _round_low(message[self.skipped :, 0], 32 - 8 * int(self.low.itemsize), low, high)

    def unpack(self, low: NDArray[Any], high: NDArray[np.int32]) -> NDArray[np.int32]:
        """A block of one column."""
        out = np.empty((self.parameters.words, 1, low.size), np.int32)
        out[: self.skipped] = 0
        np.left_shift(low, 32 - 8 * int(self.low.itemsize), out=out[self.skipped, 0], dtype=np.int32)
        out[self.skipped + 1 :, 0] = high
        return out

    @property
    def rounding(self) -> int:
        """The largest error of a coefficient that comes from leaving out its lowest bits; skipped words are not rounded
        but ignored, which adds half of what the next word counts."""
        skipped = 32 * self.skipped - self.parameters.idle
        return (1 << self.dropped >> 1) + (1 << (skipped - 1) if skipped > 0 else 0)

    @property
    def coefficient_error(self) -> float:
        """The largest error of a coefficient, in units of what a value of 1 is there."""
        return float((LARGEST_ERROR + self.rounding) << self.parameters.idle) / 2.0**self.shift

    @property
    def shift(self) -> int:
        """log2 Δ, in the words."""
        return 32 * self.parameters.words - self.bits

    @property
    def block_rows(self) -> int:
        return self.parameters.degree

    @property
    def stretch_blocks(self) -> int:
        """Blocks of a stretch."""
        if self.blocks:
            return self.blocks
        columns = max(self.together, self.columns_a + self.columns_b)
        return max(1, min(STRETCH_BLOCKS, STRETCH_ENTRIES // (columns * self.block_rows)))

    @property
    def stretches(self) -> list[slice]:
        """The rows of each stretch."""
        length = self.stretch_blocks * self.block_rows
        return [slice(start, min(start + length, self.rows)) for start in range(0, self.rows, length)]

    @property
    def carry_probability(self) -> float:
        """Bound on the probability that any entry is off by one unit: the mean of |error| over Δ, per entry."""
        variance = ERROR_VARIANCE * (self.rows * self.largest_b**2 + 2 * self.parameters.degree * 2 / 3)
        return self.columns_a * self.columns_b * math.sqrt(variance) * 2.0 ** (self.parameters.idle - self.shift)

    @property
    def message_bytes(self) -> tuple[int, int]:
        """From the encryptor, and back."""
        degree, word = self.parameters.degree, 4 * self.parameters.words
        return (
            word * self.columns_a * (degree + self.rows),
            word * self.columns_b * (degree + self.columns_a),
        )


def _worst_error(parameters: Parameters, rows: int, largest: int, rounding: int = 0) -> int:
    """The largest sum of all errors of one entry, in the words: of the message's with y and with u, of the reply's."""
    of_message = LARGEST_ERROR + rounding
    return (of_message * (rows * largest + parameters.degree) + LARGEST_ERROR * parameters.degree) << parameters.idle


DROPPED = (0, 8, 16, 40)
"""How many bits a message may leave out."""


@compiled
def _round_low(message: NDArray[np.int32], drop: int, low: NDArray[Any], high: NDArray[np.int32]) -> None:
    """The lowest words rounded to a multiple of 2^drop, over 2^drop; a carry moves on into the words above."""
    half = (np.int64(1) << drop) >> 1
    top = np.int64(1) << (31 - drop)
    words = high.shape[0]
    for k in range(low.size):
        total = (np.int64(message[0, k]) + half) >> drop
        # The largest positive one does not fit: it is one of the word above, less the same.
        carry = np.int64(0)
        if drop > 0 and total == top:
            total = -top
            carry = np.int64(1)
        low[k] = total
        for word in range(words):
            carry += np.int64(message[word + 1, k])
            high[word, k] = np.int32(carry)
            carry = (carry + 2147483648) >> 32


def order_pairs(columns: Mapping[str, int]) -> list[tuple[str, str]]:
    """Every pair of parties as (encryptor, evaluator): fewer columns first, then by name."""
    order = sorted(columns, key=lambda name: (columns[name], name))
    return [(order[i], order[j]) for j in range(len(order)) for i in range(j)]


@dataclass(frozen=True)
class Reply:
    """The evaluator's answer: h, (words, columns_b, N), and v, (words, columns_a, columns_b), little-endian words."""

    h: NDArray[np.uint32]
    v: NDArray[np.uint32]


@dataclass(frozen=True)
class Sums:
    """The evaluator's sums between two stretches: of ring products, as digits, and of inner products."""

    digits: NDArray[np.int64]
    inner: NDArray[np.int64]


class _Side:
    """What both sides do: exchange nonces, follow one public polynomial, count rows.

    `seed` is fresh for each message; a side that may be interrupted stores it to continue its message. Errors, blinds
    and masks depend on the seed and on both nonces: under another polynomial they must differ, or the difference of two
    messages would be free of errors.
    """

    def __init__(self, plan: Plan, seed: bytes | None = None) -> None:
        self.plan = plan
        self._seed = fresh_seed() if seed is None else seed
        self.nonce = derive(self._seed, "rlwe product", "nonce")
        self._roots: tuple[bytes, bytes] | None = None
        self._streams: tuple[Stream, Stream] | None = None
        self._block = 0
        self._left = plan.rows
        self._public = np.empty((plan.parameters.words, plan.parameters.degree), "<i4")

    def _follow(self, a: bytes, b: bytes) -> None:
        if self._roots is not None or len(a) != NONCE_BYTES or len(b) != NONCE_BYTES or a == b:
            raise Malformed(f"one nonce of {NONCE_BYTES} bytes from each side was expected, once", code="nonce")
        self._roots = derive(a + b, "rlwe product"), derive(self._seed, "rlwe product", "message", a, b)
        self._start_stretch(0)

    def _start_stretch(self, stretch: int) -> None:
        """Starts the streams of a stretch; each stretch has its own, and block 0 belongs to the first."""
        public, fresh = (derive(root, "stretch", stretch) for root in self._require_roots())
        self._streams = Stream(public), Stream(fresh)

    def _skip_to(self, stretch: int) -> None:
        """Skips the stretches before this one, which another object with the same seed has done."""
        before = stretch * self.plan.stretch_blocks
        if not 0 < before * self.plan.block_rows < self.plan.rows:
            raise Malformed(f"there is no stretch {stretch} of {self.plan.rows} rows to go on at", code="rows")
        self._block, self._left = 1 + before, self.plan.rows - before * self.plan.block_rows

    @property
    def _fresh(self) -> Stream:
        """This side's secret randomness for the stretch."""
        return self._require_streams()[1]

    def _stream_for(self, purpose: str) -> Stream:
        """Secret randomness of the message outside of any stretch."""
        return Stream(derive(self._require_roots()[1], purpose))

    def _require_roots(self) -> tuple[bytes, bytes]:
        if self._roots is None:
            raise Malformed("the nonces and block 0 come first", code="nonce")
        return self._roots

    def _require_streams(self) -> tuple[Stream, Stream]:
        self._require_roots()
        assert self._streams is not None
        return self._streams

    @property
    def _length(self) -> int:
        """Used coefficients of the next block: all of block 0, and one per row of another block."""
        self._require_streams()
        if self._block and not self._left:
            raise Malformed(f"all {self.plan.rows} rows were sent", code="rows")
        return min(self.plan.block_rows, self._left) if self._block else self.plan.block_rows

    def _advance(self) -> NDArray[np.int32]:
        """The public polynomial of the next block."""
        length = self._length
        stretch, within = divmod(self._block - 1, self.plan.stretch_blocks)
        if stretch > 0 and within == 0:
            self._start_stretch(stretch)
        self._left -= length if self._block else 0
        self._block += 1
        return draw_public_block(self._require_streams()[0], self.plan.parameters, self._public)

    def _complete(self) -> None:
        if self._block < 2 or self._left:
            raise Malformed(f"{self._left} of {self.plan.rows} rows have not been sent", code="rows")


class Encryptor(_Side):
    """The side with the fewer columns: block 0, then its rows, then the reply gives its share. For one message."""

    def __init__(self, plan: Plan, seed: bytes | None = None) -> None:
        super().__init__(plan, seed)
        secret = Stream(derive(self._seed, "rlwe product", "secret"))
        self._columns = ColumnSecrets(plan.parameters, plan.columns_a, secret)
        self._done = False

    @classmethod
    def awaiting(cls, plan: Plan, seed: bytes) -> Encryptor:
        """The encryptor that sent its whole message with this seed and waits for the reply."""
        side = cls(plan, seed)
        side._block, side._left = 2, 0
        return side

    @classmethod
    def resume(cls, plan: Plan, seed: bytes, nonce: bytes, stretch: int) -> Encryptor:
        """The encryptor with this seed before a later stretch of its message to the evaluator with this nonce."""
        side = cls(plan, seed)
        side._follow(side.nonce, nonce)
        side._skip_to(stretch)
        return side

    def begin(self, nonce: bytes, out: NDArray[np.int32] | None = None) -> NDArray[np.int32]:
        """Block 0, under a polynomial from this side's nonce and the evaluator's: encryptions of zero."""
        self._follow(self.nonce, nonce)
        return self._encrypt(np.zeros((self.plan.columns_a, self._length), np.int32), out)

    def encrypt(self, values: NDArray[np.int32], out: NDArray[np.int32] | None = None) -> NDArray[np.int32]:
        """The next block of rows: (columns_a, rows) integers, as `FixedPoint.columns` makes them; overwrites
        `out` if it is given."""
        _check_values(values, (self.plan.columns_a, self._length), self.plan.largest_a)
        return self._encrypt(values, out)

    def _encrypt(self, values: NDArray[np.int32], out: NDArray[np.int32] | None) -> NDArray[np.int32]:
        if out is not None:
            _check_words(out, "<i4", (self.plan.parameters.words, *values.shape))
        return self._columns.encrypt(self._advance(), values, self.plan.shift, self._fresh, out)

    def share(self, reply: Reply) -> NDArray[np.uint64]:
        """This side's share of the product modulo 2^bits, from the evaluator's reply; once."""
        self._complete()
        plan = self.plan
        words = plan.parameters.words
        _check_words(reply.h, "<u4", (words, plan.columns_b, plan.parameters.degree))
        _check_words(reply.v, "<u4", (words, plan.columns_a, plan.columns_b))
        if self._done:
            raise Malformed("a message has one reply", code="replay")
        self._done = True
        return _top_bits(_carry_words(reply.v.astype(np.int64) - self._columns.inner_products(reply.h)), plan)


class Evaluator(_Side):
    """The side with more columns: takes block 0 and the rows, then replies."""

    def __init__(self, plan: Plan, seed: bytes | None = None) -> None:
        super().__init__(plan, seed)
        self._sum = ProductSum(plan.parameters, plan.columns_b)
        self._inner = np.zeros((plan.parameters.words * plan.columns_a, plan.columns_b), np.int64)
        self._masks: NDArray[np.int64]
        self._answered = False

    @classmethod
    def resume(cls, plan: Plan, seed: bytes, nonce: bytes, stretch: int, so_far: Sums) -> Evaluator:
        """The evaluator with this seed before a later stretch, from what it had summed `so_far`."""
        side = cls(plan, seed)
        side._follow(nonce, side.nonce)
        side._draw()
        side._skip_to(stretch)
        if so_far.inner.shape != side._inner.shape or so_far.inner.dtype != np.int64:
            raise Malformed(f"sums of shape {side._inner.shape} to go on with were expected", code="form")
        side._inner[:] = so_far.inner
        side._sum.restore(so_far.digits)
        return side

    @property
    def so_far(self) -> Sums:
        """The sums so far: secret to this side."""
        return Sums(self._sum.so_far(), self._inner.copy())

    def _draw(self) -> NDArray[np.int8]:
        """The masks ρ, kept, and the blinds u."""
        plan, stream = self.plan, self._stream_for("masks")
        shape = (plan.parameters.words, plan.columns_a, plan.columns_b)
        drawn = np.frombuffer(stream.bytes(4 * math.prod(shape)), "<u4")
        self._masks = drawn.reshape(shape).astype(np.int64)
        self._masks[0] &= -1 << plan.parameters.idle
        return draw_ternary(stream, plan.columns_b, plan.parameters.degree)

    def begin(self, nonce: bytes, message: NDArray[np.int32]) -> None:
        """Block 0 and the encryptor's nonce."""
        self._follow(nonce, self.nonce)
        self._absorb(message, self._draw().astype(np.int32))

    def absorb(self, message: NDArray[np.int32], values: NDArray[np.int32]) -> None:
        """The encryptor's next block, with this side's integers of the same rows, (columns_b, rows)."""
        _check_values(values, (self.plan.columns_b, self._length), self.plan.largest_b)
        self._absorb(message, values)

    def _absorb(self, message: NDArray[np.int32], y: NDArray[np.int32]) -> None:
        plan, length = self.plan, self._length
        _check_words(message, "<i4", (plan.parameters.words, plan.columns_a, length))
        self._sum.add(self._advance(), y)
        # What was not sent is zero.
        sent = np.ascontiguousarray(message[plan.skipped :]).reshape(-1, length)
        add_narrow_products(self._inner[plan.skipped * plan.columns_a :], sent, y)
        # A block adds less than 2^61 to a word, so carries move on before the next block.
        _carry(self._inner.reshape(plan.parameters.words, -1))

    def reply(self) -> Reply:
        """The answer for the encryptor; once."""
        self._complete()
        if self._answered:
            raise Malformed("a message has one reply", code="replay")
        self._answered = True
        plan = self.plan
        h = self._sum.total(Errors(plan.columns_b, plan.parameters.degree).draw(self._stream_for("reply")))
        return Reply(h, _carry_words(self._inner.reshape(self._masks.shape) + self._masks).astype("<u4"))

    def share(self) -> NDArray[np.uint64]:
        """This side's share of the product modulo 2^bits."""
        self._complete()
        modulus = np.uint64((1 << self.plan.bits) - 1)
        return np.asarray((~_top_bits(self._masks, self.plan) + np.uint64(1)) & modulus)


def _carry_words(sums: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sums of words as words of 32 bits, modulo q; in place."""
    _carry(sums.reshape(len(sums), -1))
    return sums


@compiled
def _carry(sums: NDArray[np.int64]) -> None:
    for k in range(sums.shape[1]):
        carry = np.int64(0)
        for word in range(sums.shape[0]):
            total = sums[word, k] + carry
            sums[word, k] = total & 0xFFFFFFFF
            carry = total >> 32


@compiled
def _exceeds(values: NDArray[np.int32], largest: int) -> bool:
    found = 0
    for r in range(values.shape[0]):
        for k in range(values.shape[1]):
            found |= (values[r, k] > largest) | (values[r, k] < -largest)
    return found != 0


def _top_bits(sums: NDArray[np.int64], plan: Plan) -> NDArray[np.uint64]:
    """⌊z/Δ⌋, the upper k bits of the numbers with these words."""
    words = sums.view(np.uint64)
    word, rest = divmod(plan.shift, 32)
    top = words[word] >> np.uint64(rest)
    for place in range(word + 1, plan.parameters.words):
        shift = 32 * (place - word) - rest
        if shift < 64:
            top |= words[place] << np.uint64(shift)
    return np.asarray(top & np.uint64((1 << plan.bits) - 1))


def _check_words(array: NDArray[Any], kind: str, shape: tuple[int, ...]) -> None:
    if array.dtype != np.dtype(kind) or array.shape != shape:
        raise Malformed(f"{shape} words of {kind} were expected, found {array.shape} of {array.dtype}")


def _check_values(values: NDArray[np.int32], shape: tuple[int, int], largest: int) -> None:
    if values.shape != shape or values.dtype != np.int32:
        raise Malformed(f"{shape} integers were expected, found {values.shape} of {values.dtype}", code="rows")
    if _exceeds(values, largest):
        raise Malformed("an integer exceeds the agreed maximum", code="bound")
