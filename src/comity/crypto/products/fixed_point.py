"""Real numbers as fixed-point integers, and additive shares of them over Z_2^64 and Z_2^32.

Encoding   A value x becomes round(x · 2^places), at most `largest` in magnitude because of a public bound. Before
           anything is sent, `product_bits` computes from public figures alone (rows, bounds, the tail of the noise) how
           wide the ring must be to hold the result; `require_bits` refuses a narrower one. A wrap would be a wrong
           result, never a loss of privacy.
Sharing    All shares add up to the value; any fewer are uniform and independent of it, at any computing power. Shares
           are not authenticated: they travel sealed and signed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from comity.compiled import compiled
from comity.entropy import Stream, fresh_seed
from comity.errors import Malformed, Refused

_TILE = 64

_Integer = TypeVar("_Integer", np.int32, np.int64)


@dataclass(frozen=True)
class FixedPoint:
    """Numbers of magnitude at most `bound`, with `places` binary places; both are public."""

    places: int
    bound: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.places <= 52 or not 0 < self.bound < math.inf or self.largest >= 2**52:
            raise Refused(
                f"a fixed-point form needs 0 to 52 places and a bound with bound · 2^places below 2^52, "
                f"found {self.places} places and bound {self.bound}"
            )

    @property
    def largest(self) -> int:
        """The largest magnitude of an encoded number."""
        return round(math.ldexp(self.bound, self.places))

    def encode(self, values: NDArray[np.float64]) -> NDArray[np.int64]:
        """The integers of an array of any shape."""
        flat = np.asarray(values, np.float64).reshape(-1, 1)
        return self.columns(flat, np.int64).reshape(np.shape(values))

    def columns(self, rows: NDArray[np.float64], kind: type[_Integer]) -> NDArray[_Integer]:
        """The integers of a block of rows, of the type `kind`, one contiguous line per column."""
        lines = np.empty(rows.shape[::-1], kind)
        self.fill(lines, rows)
        return lines

    def fill(self, lines: NDArray[_Integer], rows: NDArray[np.float64]) -> None:
        """As `columns`, into an existing array."""
        values = np.ascontiguousarray(rows, np.float64)
        if values.ndim != 2 or lines.shape != values.shape[::-1] or self.largest > np.iinfo(lines.dtype).max:
            raise Malformed(f"a block of rows whose integers fit {lines.dtype} was expected, found {values.shape}")
        if _fill_columns(values, math.ldexp(1.0, self.places), float(self.bound), lines):
            raise Malformed("a value is not finite or exceeds the public bound; clip to the bound first", code="bound")

    def decode(self, integers: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.ldexp(integers.astype(np.float64), -self.places)


@compiled
def _fill_columns(values: NDArray[np.float64], scale: float, bound: float, lines: NDArray[Any]) -> bool:
    rows, columns = values.shape
    outside = 0
    tile = np.empty(_TILE * columns, np.int64)
    # Rounds a tile of rows in memory order, and transposes it while it is in the first cache.
    for start in range(0, rows, _TILE):
        height = min(_TILE, rows - start)
        flat = values[start : start + height].reshape(height * columns)
        for place in range(height * columns):
            inside = np.abs(flat[place]) <= bound
            outside |= not inside
            tile[place] = np.int64(np.rint((flat[place] if inside else 0.0) * scale))
        for column in range(columns):
            for row in range(height):
                lines[column, start + row] = tile[row * columns + column]
    return outside != 0


def product_bits(rows: int, left: FixedPoint, right: FixedPoint, *, noise: int = 0) -> int:
    """Width of the ring that holds every entry of a product over `rows` rows, plus `noise` units, with its sign."""
    return _signed_bits(rows * left.largest * right.largest + noise)


def _signed_bits(most: int) -> int:
    return most.bit_length() + 1


def require_bits(needed: int, available: int) -> None:
    """Refuses a ring that is too narrow, before anything is sent."""
    if needed > available:
        raise Refused(
            f"the result with its noise needs {needed} bits and the ring has {available}; "
            "use fewer binary places, tighter bounds or fewer rows",
            code="headroom",
        )


_WORD: dict[int, Any] = {32: np.uint32, 64: np.uint64}
_SIGNED: dict[int, Any] = {32: np.int32, 64: np.int64}

Words = NDArray[np.unsignedinteger[Any]]


def split_values(values: NDArray[np.int64], parties: int, *, bits: int = 64) -> list[Words]:
    """Shares of signed integers, one array per party, from fresh randomness."""
    word = _word(bits)
    if parties < 2:
        raise Malformed(f"two or more parties share a value, found {parties}")
    half = 1 << (bits - 1)
    if values.size and (int(values.min()) < -half or int(values.max()) >= half):
        raise Malformed(f"a value does not fit into {bits} bits", code="headroom")
    drawn = Stream(fresh_seed()).words((parties - 1) * values.size).astype(word)
    shares = list(drawn.reshape(parties - 1, *values.shape))
    last = values.astype(np.int64).view(np.uint64).astype(word)
    for share in shares:
        last = last - share
    return [*shares, last]


def join_shares(shares: Sequence[Words], *, bits: int = 64) -> NDArray[np.int64]:
    """The signed integers that the shares add up to."""
    word = _word(bits)
    if not shares or any(share.dtype != word or share.shape != shares[0].shape for share in shares):
        raise Malformed(f"shares are arrays of {bits}-bit words of one shape")
    total = np.zeros(shares[0].shape, word)
    for share in shares:
        total = total + share
    return np.asarray(total.view(_SIGNED[bits]), np.int64)


def raise_to_word(share: NDArray[np.uint64], bits: int) -> NDArray[np.uint64]:
    """A share modulo 2^bits as a share of 2^(64−bits) times the value modulo 2^64.

    Shares of a narrow ring must not be added in a wider one: the carry out of the narrow ring would show how an exact
    value, before its noise, compares with a share. At the top of the word the carry is lost.
    """
    return share << np.uint64(_shift(bits))


def lower_from_word(total: NDArray[np.uint64], bits: int) -> NDArray[np.int64]:
    """The signed value from the sum of raised shares."""
    return total.view(np.int64) >> np.int64(_shift(bits))


def _shift(bits: int) -> int:
    if not 1 <= bits <= 64:
        raise Malformed(f"a ring of 1 to 64 bits was expected, found {bits}")
    return 64 - bits


def _word(bits: int) -> Any:
    if bits not in _WORD:
        raise Malformed(f"shares are over 32 or 64 bits, found {bits}")
    return _WORD[bits]
