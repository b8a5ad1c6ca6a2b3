"""Private set intersection by keyed pseudonyms: a matcher without the key compares the lists.

    parties       share a fresh key; each sends the pseudonyms of its ids, in an order that only it knows
    the matcher   finds the pseudonyms that every list holds, and tells each party their positions in its list

A pseudonym is BLAKE2b with 128 bits of output in its keyed mode (RFC 7693), a pseudorandom function.

Adversary    a matcher that follows the protocol but looks at everything, and colludes with no party; a party that sees
             only the positions it is sent.
Assumes      keyed BLAKE2b is pseudorandom; the key never reaches the matcher and is used in one run.
Learned      matcher: the size of each list and of every overlap of some of them. Each party: which of its own people
             every list holds, and hence how many.

Only the key protects the ids, which are seldom secret. Anyone with the key and the pseudonyms, for instance a matcher
that colludes with one party, can try every possible id (10^9 of them take minutes) and read all lists.
`comity.crypto.psi_ecdh` needs no such trust.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.compiled import compiled, has_compiler, inlined
from comity.errors import Malformed

KEY_BYTES = 32
PSEUDONYM_BYTES = 16

# Below this many ids the standard library's loop is faster than loading the compiled one.
COMPILED_FROM = 200_000

_BLOCK = 128
_START = np.array(
    [
        0x6A09E667F3BCC908,
        0xBB67AE8584CAA73B,
        0x3C6EF372FE94F82B,
        0xA54FF53A5F1D36F1,
        0x510E527FADE682D1,
        0x9B05688C2B3E6C1F,
        0x1F83D9ABFB41BD6B,
        0x5BE0CD19137E2179,
    ],
    np.uint64,
)
# Which words of the message the eight mixings of a round take. Unsigned: a signed index would be tested for its sign.
_SCHEDULE = np.array(
    [
        (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
        (14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3),
        (11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4),
        (7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8),
        (9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13),
        (2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9),
        (12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11),
        (13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10),
        (6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5),
        (10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0),
    ],
    np.uint64,
)
_ROUNDS = 12


@dataclass(frozen=True, eq=False)
class Packed:
    """Byte strings joined into `raw`, and where each of them ends."""

    raw: bytes
    ends: NDArray[np.int64]

    @classmethod
    def of(cls, texts: Sequence[bytes]) -> Packed:
        return cls(b"".join(texts), np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts))))

    def __len__(self) -> int:
        return len(self.ends)

    def __iter__(self) -> Iterator[bytes]:
        start = 0
        for end in self.ends.tolist():
            yield self.raw[start:end]
            start = end

    @property
    def sizes(self) -> NDArray[np.int64]:
        return np.diff(self.ends, prepend=0)


def make_pseudonyms(key: bytes, ids: Packed) -> NDArray[np.uint8]:
    """One row of 16 bytes per id, equal for equal ids under one key. Ids are not empty."""
    if len(key) != KEY_BYTES:
        raise ValueError(f"a key of {KEY_BYTES} bytes was expected, found {len(key)}")
    if not ids.sizes.all():
        raise ValueError("an empty id has no pseudonym")
    rows = _compiled(key, ids) if len(ids) >= COMPILED_FROM and has_compiler() else _plain(key, ids)
    return rows.reshape(-1, PSEUDONYM_BYTES)


def _plain(key: bytes, ids: Packed) -> NDArray[np.uint8]:
    keyed = hashlib.blake2b(key=key, digest_size=PSEUDONYM_BYTES)
    out = bytearray()
    for one in ids:
        state = keyed.copy()
        state.update(one)
        out += state.digest()
    return np.frombuffer(bytes(out), np.uint8)


def _compiled(key: bytes, ids: Packed) -> NDArray[np.uint8]:
    state = _START.copy()
    state[0] ^= np.uint64(0x01010000 ^ (KEY_BYTES << 8) ^ PSEUDONYM_BYTES)
    # The key fills the first block, which is the same for every id.
    first = np.frombuffer(key.ljust(_BLOCK, b"\0"), "<u8").astype(np.uint64)
    _compress(state, first, _BLOCK, False)
    out = np.empty((len(ids), PSEUDONYM_BYTES // 8), np.uint64)
    _hash_all(state, np.frombuffer(ids.raw, np.uint8), ids.ends, out)
    return out.astype("<u8", copy=False).view(np.uint8)


@inlined
def _rotate(word: Any, by: int) -> Any:
    return (word >> np.uint64(by)) | (word << np.uint64(64 - by))


@inlined
def _mix(a: Any, b: Any, c: Any, d: Any, x: Any, y: Any) -> tuple[Any, Any, Any, Any]:
    a = a + b + x
    d = _rotate(d ^ a, 32)
    c = c + d
    b = _rotate(b ^ c, 24)
    a = a + b + y
    d = _rotate(d ^ a, 16)
    c = c + d
    return a, _rotate(b ^ c, 63), c, d


@compiled
def _compress(state: Any, m: Any, count: int, last: bool) -> None:
    """BLAKE2b's compression of one block of 16 words into the state, `count` bytes into the message."""
    a0, a1, a2, a3, b0, b1, b2, b3 = state
    c0, c1, c2, c3, d0, d1, d2, d3 = _START
    d0 = d0 ^ np.uint64(count)
    if last:
        d2 = ~d2
    for r in range(_ROUNDS):
        s = _SCHEDULE[r % 10]
        a0, b0, c0, d0 = _mix(a0, b0, c0, d0, m[s[0]], m[s[1]])
        a1, b1, c1, d1 = _mix(a1, b1, c1, d1, m[s[2]], m[s[3]])
        a2, b2, c2, d2 = _mix(a2, b2, c2, d2, m[s[4]], m[s[5]])
        a3, b3, c3, d3 = _mix(a3, b3, c3, d3, m[s[6]], m[s[7]])
        a0, b1, c2, d3 = _mix(a0, b1, c2, d3, m[s[8]], m[s[9]])
        a1, b2, c3, d0 = _mix(a1, b2, c3, d0, m[s[10]], m[s[11]])
        a2, b3, c0, d1 = _mix(a2, b3, c0, d1, m[s[12]], m[s[13]])
        a3, b0, c1, d2 = _mix(a3, b0, c1, d2, m[s[14]], m[s[15]])
    for i, word in enumerate((a0 ^ c0, a1 ^ c1, a2 ^ c2, a3 ^ c3, b0 ^ d0, b1 ^ d1, b2 ^ d2, b3 ^ d3)):
        state[i] ^= word


@compiled
def _hash_all(keyed: Any, text: Any, ends: Any, out: Any) -> None:
    state, words = np.empty(8, np.uint64), np.empty(16, np.uint64)
    raw = words.view(np.uint8)
    at = 0
    for i in range(len(ends)):
        state[:] = keyed
        count = _BLOCK
        while at < ends[i]:
            size = min(_BLOCK, ends[i] - at)
            raw[:size] = text[at : at + size]
            raw[size:] = 0
            at += size
            count += size
            _compress(state, words, count, at == ends[i])
        for j in range(out.shape[1]):
            out[i, j] = state[j]


def match_lists(lists: Mapping[str, bytes], width: int = PSEUDONYM_BYTES) -> dict[str, NDArray[np.int64]]:
    """For each list, the positions of the tokens that all lists hold, in one common order.

    A list is its tokens of `width` bytes, one after the other; a token that comes twice in a list is refused. The
    order is that of the tokens as numbers: pseudorandom, and known to anyone who can make the tokens.
    """
    if len(lists) < 2:
        raise ValueError(f"two lists or more can be matched, found {len(lists)}")
    tables = [_table(name, raw, width) for name, raw in lists.items()]
    starts = np.cumsum([0, *map(len, tables)])
    order, same = _sort_rows(np.concatenate(tables))
    groups = np.flatnonzero(np.concatenate([[True], ~same]))
    common = groups[np.diff(groups, append=len(order)) == len(tables)]
    # Tables are stored one after the other, so a sorted group has its members table by table.
    members = np.sort(order[common[:, None] + np.arange(len(tables))], axis=1)
    return {name: members[:, place] - starts[place] for place, name in enumerate(lists)}


def _table(name: str, raw: bytes, width: int) -> NDArray[np.uint64]:
    if len(raw) % width:
        raise Malformed(f"{name}: tokens of {width} bytes were expected, found {len(raw)} bytes", code="form")
    if find_repeated(raw, width) is not None:
        raise Malformed(f"{name}: a token comes twice in one list", code="form")
    return np.frombuffer(raw, "<u8").reshape(-1, width // 8)


def find_repeated(raw: bytes, width: int = PSEUDONYM_BYTES) -> tuple[int, int] | None:
    """Two places of a list that hold the same token, if there are any."""
    table = np.frombuffer(raw, "<u8").reshape(-1, width // 8)
    first = np.sort(table[:, 0])
    if not (first[1:] == first[:-1]).any():
        return None
    order, same = _sort_rows(table)
    at = np.flatnonzero(same)[:1]
    return None if not len(at) else (int(order[at].item()), int(order[at + 1].item()))


def _sort_rows(table: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """An order that brings equal rows together, and whether each row in it equals the next."""
    order = np.argsort(table[:, 0])
    first = table[:, 0].take(order)
    same = first[1:] == first[:-1]
    at = np.flatnonzero(same)
    if (table.take(order[at], axis=0) == table.take(order[at + 1], axis=0)).all():
        return order, same
    # Different tokens that agree in their first word: all words are needed to sort by.
    order = np.lexsort(table.T[::-1])
    rows = table.take(order, axis=0)
    return order, (rows[1:] == rows[:-1]).all(axis=1)
