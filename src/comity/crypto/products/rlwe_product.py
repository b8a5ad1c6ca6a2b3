"""The product Xᵀ Y of matrices held by two parties, left additively shared, without a dealer, in one round trip.

Construction. The encryptor (A, with the fewer columns) sends its columns encrypted under ring learning with errors
(`comity.crypto.products.rlwe`): C_i = a·s_i + e_i + Δ·x_i, block by block of N rows, after a block 0 that encrypts
zeros. The evaluator (B) returns, for its columns j,

    h_j  = Σ_blocks a·ỹ_j + a_0·ũ_j + e'_j           one ring element; ỹ(x) = y(1/x), u_j fresh and ternary
    v_ij = Σ_blocks ⟨C_i, y_j⟩ + ⟨C_0i, u_j⟩ + ρ_ij    one number modulo q; ρ_ij uniform modulo q

and keeps −⌊ρ_ij/Δ⌋. The encryptor takes ⌊(v_ij − ⟨s_i, h̃_j⟩)/Δ⌋. Both modulo 2^k, they add up to (Xᵀ Y)_ij, or to one
unit beside it with the probability `Plan.carry_probability` (the errors make a carry); the unit belongs in the
sensitivity of what is opened.

Adversary: semi-honest; either party, with everybody else in the study on its side. Assumption: ring learning with
errors at the listed parameters. The evaluator sees ciphertexts. The encryptor sees h_j, pseudorandom because of block
0, which is therefore never left out, and v_ij, perfectly masked by ρ_ij. Both learn the number of rows and columns.
Secrets and the public polynomial are fresh for each message, the latter drawn from both parties' nonces, so neither
chooses it. Only truncated shares leave these classes: the bits below Δ hold ⟨e_i, y_j⟩.

A message of many rows goes in stretches of `STRETCH_BLOCKS` blocks, or fewer where many columns are multiplied at the
same time (`rlwe_plan`). Each has streams of its own, so that a side that kept its seed, and the evaluator its sums,
goes on at any stretch with what one stretch takes of memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.compiled import compiled
from comity.crypto.products.inner_products import add_narrow_products
from comity.crypto.products.rlwe import ColumnSecrets, Errors, ProductSum, public_block, ternary
from comity.crypto.products.rlwe_plan import Plan
from comity.entropy import Stream, derive, fresh_seed
from comity.errors import Malformed

NONCE_BYTES = 32


@dataclass(frozen=True)
class Reply:
    """The evaluator's answer: h, (words, columns_b, N), and v, (words, columns_a, columns_b), little-endian words."""

    h: NDArray[np.uint32]
    v: NDArray[np.uint32]


@dataclass(frozen=True)
class Sums:
    """What an evaluator keeps between two stretches: its sums of ring products, as digits, and of inner products."""

    digits: NDArray[np.int64]
    inner: NDArray[np.int64]


class _Side:
    """What both sides do: exchange nonces, follow one public polynomial, count rows.

    `seed` is fresh for each message; a side that may be interrupted keeps it, to take up its own message again. Errors,
    blinds and masks are drawn from it together with both nonces: under another polynomial they must be others, or the
    difference of two messages would be free of errors.
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
        self._enter(0)

    def _enter(self, stretch: int) -> None:
        """Take up the streams of a stretch: no two share any, and block 0 belongs to the first."""
        public, fresh = (derive(root, "stretch", stretch) for root in self._known())
        self._streams = Stream(public), Stream(fresh)

    def _go_on(self, stretch: int) -> None:
        """Pass over the stretches before this one, which another object with the same seed dealt with."""
        before = stretch * self.plan.stretch_blocks
        if not 0 < before * self.plan.block_rows < self.plan.rows:
            raise Malformed(f"there is no stretch {stretch} of {self.plan.rows} rows to go on at", code="rows")
        self._block, self._left = 1 + before, self.plan.rows - before * self.plan.block_rows

    @property
    def _fresh(self) -> Stream:
        """This side's secret randomness for the stretch."""
        return self._both()[1]

    def _apart(self, purpose: str) -> Stream:
        """Secret randomness of the message that belongs to no stretch."""
        return Stream(derive(self._known()[1], purpose))

    def _known(self) -> tuple[bytes, bytes]:
        if self._roots is None:
            raise Malformed("the nonces and block 0 come first", code="nonce")
        return self._roots

    def _both(self) -> tuple[Stream, Stream]:
        self._known()
        assert self._streams is not None
        return self._streams

    @property
    def _length(self) -> int:
        """Coefficients of the next block that are used: all of block 0, and as many as there are rows of another."""
        self._both()
        if self._block and not self._left:
            raise Malformed(f"all {self.plan.rows} rows are through", code="rows")
        return min(self.plan.block_rows, self._left) if self._block else self.plan.block_rows

    def _advance(self) -> NDArray[np.int32]:
        """The public polynomial of the next block."""
        length = self._length
        stretch, within = divmod(self._block - 1, self.plan.stretch_blocks)
        if stretch > 0 and within == 0:
            self._enter(stretch)
        self._left -= length if self._block else 0
        self._block += 1
        return public_block(self._both()[0], self.plan.parameters, self._public)

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
        """The encryptor that sent its whole message with this seed, and now only waits for the reply."""
        side = cls(plan, seed)
        side._block, side._left = 2, 0
        return side

    @classmethod
    def going_on(cls, plan: Plan, seed: bytes, nonce: bytes, stretch: int) -> Encryptor:
        """The encryptor with this seed before a later stretch of its message to the evaluator with this nonce."""
        side = cls(plan, seed)
        side._follow(side.nonce, nonce)
        side._go_on(stretch)
        return side

    def begin(self, nonce: bytes, out: NDArray[np.int32] | None = None) -> NDArray[np.int32]:
        """Block 0, under a polynomial from this side's nonce and the evaluator's: encryptions of zero."""
        self._follow(self.nonce, nonce)
        return self._encrypt(np.zeros((self.plan.columns_a, self._length), np.int32), out)

    def encrypt(self, values: NDArray[np.int32], out: NDArray[np.int32] | None = None) -> NDArray[np.int32]:
        """The next block of rows: (columns_a, rows) integers, as `FixedPoint.columns` makes them; into `out`, if it is
        given, in place of the message that was there."""
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
        return _top_bits(_carried(reply.v.astype(np.int64) - self._columns.inner_products(reply.h)), plan)


class Evaluator(_Side):
    """The side with the more columns: takes block 0 and the rows, and answers once all are through."""

    def __init__(self, plan: Plan, seed: bytes | None = None) -> None:
        super().__init__(plan, seed)
        self._sum = ProductSum(plan.parameters, plan.columns_b)
        self._inner = np.zeros((plan.parameters.words * plan.columns_a, plan.columns_b), np.int64)
        self._masks: NDArray[np.int64]
        self._answered = False

    @classmethod
    def going_on(cls, plan: Plan, seed: bytes, nonce: bytes, stretch: int, so_far: Sums) -> Evaluator:
        """The evaluator with this seed before a later stretch, from what it had summed `so_far`."""
        side = cls(plan, seed)
        side._follow(nonce, side.nonce)
        side._draw()
        side._go_on(stretch)
        if so_far.inner.shape != side._inner.shape or so_far.inner.dtype != np.int64:
            raise Malformed(f"sums of shape {side._inner.shape} to go on with were expected", code="form")
        side._inner[:] = so_far.inner
        side._sum.restore(so_far.digits)
        return side

    @property
    def so_far(self) -> Sums:
        """What was absorbed until now: secret to this side."""
        return Sums(self._sum.so_far(), self._inner.copy())

    def _draw(self) -> NDArray[np.int8]:
        """The masks ρ, kept, and the blinds u."""
        plan, stream = self.plan, self._apart("masks")
        shape = (plan.parameters.words, plan.columns_a, plan.columns_b)
        drawn = np.frombuffer(stream.bytes(4 * math.prod(shape)), "<u4")
        self._masks = drawn.reshape(shape).astype(np.int64)
        self._masks[0] &= -1 << plan.parameters.idle
        return ternary(stream, plan.columns_b, plan.parameters.degree)

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
        add_narrow_products(self._inner, np.ascontiguousarray(message).reshape(-1, length), y)
        # A block adds less than 2^61 to a word, so what exceeds 32 bits moves on before the next one.
        _carry(self._inner.reshape(plan.parameters.words, -1))

    def reply(self) -> Reply:
        """The answer for the encryptor; once."""
        self._complete()
        if self._answered:
            raise Malformed("a message has one reply", code="replay")
        self._answered = True
        plan = self.plan
        h = self._sum.total(Errors(plan.columns_b, plan.parameters.degree).draw(self._apart("reply")))
        return Reply(h, _carried(self._inner.reshape(self._masks.shape) + self._masks).astype("<u4"))

    def share(self) -> NDArray[np.uint64]:
        """This side's share of the product modulo 2^bits."""
        self._complete()
        modulus = np.uint64((1 << self.plan.bits) - 1)
        return np.asarray((~_top_bits(self._masks, self.plan) + np.uint64(1)) & modulus)


def _carried(sums: NDArray[np.int64]) -> NDArray[np.int64]:
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
        raise Malformed("an integer exceeds the largest that was agreed on", code="bound")
