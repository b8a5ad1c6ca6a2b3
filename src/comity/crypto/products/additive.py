"""Additive secret sharing over Z_2^64 and Z_2^32.

Promise: all shares add up to the value; any fewer are uniform and independent of it, whatever computing power looks at
them. Shares are not authenticated: they travel sealed and signed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.entropy import Stream, fresh_seed
from comity.errors import Malformed

_WORD: dict[int, Any] = {32: np.uint32, 64: np.uint64}
_SIGNED: dict[int, Any] = {32: np.int32, 64: np.int64}

Words = NDArray[np.unsignedinteger[Any]]


def split(values: NDArray[np.int64], parties: int, *, bits: int = 64) -> list[Words]:
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


def join(shares: Sequence[Words], *, bits: int = 64) -> NDArray[np.int64]:
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

    Shares of a narrow ring must not be added in a wider one: the carry out of the narrow ring would tell how an exact
    value, before its noise, compares with a share. At the top of the word the carry falls away.
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
