"""The products X_iᵀ X_j of matrices held by K parties, left additively shared, with randomness from a dealer.

Construction (D. Beaver, Efficient multiparty protocols using circuit randomization, 1991; one triple for a whole
matrix product, over Z_2^64). The dealer gives party i a seed, which both expand into a mask U_i as long as X_i. Every
party opens D_i = X_i − U_i to the others once, block of rows by block of rows, and the same D_i serves all its
products. For i < j

    X_iᵀ X_j  =  (U_iᵀ D_j + R_ij)  +  (D_iᵀ X_j + W_ij),      R_ij = U_iᵀ U_j − W_ij,

party i holds the first bracket and party j the second; W_ij comes from j's seed, R_ij is one small matrix from the
dealer. Each party does one matrix product per pair, in memory that does not grow with the rows.

Adversary: semi-honest; a coalition of parties without the dealer. Assumption: AES-128 in counter mode is a
pseudorandom generator. A party learns the other parties' D_j, which are uniform to it, and the number of rows.
The dealer learns nothing as long as it sees neither a D_i (they travel sealed among the parties) nor a share: it knows
every U and W, so a single share would give it U_iᵀ X_j or X_iᵀ U_j in clear, whatever noise was added. A share is
opened only inside a secure sum. A dealer that colludes with one party sees the data of all its peers. A dealer that
deals false words can add anything to the product, also times D_j: no party can tell, and no bound on the product
holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from comity.crypto.products.fixed_point import FixedPoint, product_bits, require_bits
from comity.crypto.products.inner_products import RUN, add_word_products
from comity.entropy import Stream, derive, fresh_seed
from comity.errors import Malformed

Words = NDArray[np.uint64]

_BLOCK_WORDS = 1 << 17
_SEED_BYTES = 32


@dataclass(frozen=True)
class Layout:
    """The public shape of the computation: the common rows of all parties, and each party's columns."""

    rows: int
    columns: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.rows < 1 or len(self.columns) < 2 or min(self.columns) < 1:
            raise Malformed(f"two or more parties with rows and columns were expected, found {self}")

    @property
    def block_rows(self) -> int:
        """Rows that are masked and sent at a time: as many as fit the second cache at the widest party."""
        return max(1, _BLOCK_WORDS // max(self.columns) // RUN) * RUN

    def blocks(self) -> Iterator[int]:
        """The number of rows of each block, in order."""
        for start in range(0, self.rows, self.block_rows):
            yield min(self.block_rows, self.rows - start)

    @property
    def opened_bytes(self) -> int:
        """Bytes that all parties together open: eight for each of their numbers."""
        return 8 * self.rows * sum(self.columns)


@dataclass(frozen=True)
class Hand:
    """The dealer's message to one party, sealed to it: its seed, and R_ij for every later party j."""

    seed: bytes = field(repr=False)
    corrections: Mapping[int, Words] = field(repr=False)


def deal(layout: Layout) -> list[Hand]:
    """Fresh hands for one computation. Every call draws new seeds: a seed masks one matrix, once."""
    seeds = [fresh_seed() for _ in layout.columns]
    pairs = [(i, j) for j in range(len(seeds)) for i in range(j)]
    corrections = {(i, j): -_own_share(seeds[j], i, layout.columns[i], layout.columns[j]) for i, j in pairs}
    scratch = [np.empty(columns * layout.block_rows, np.uint64) for columns in layout.columns]
    for block, rows in enumerate(layout.blocks()):
        masks = [part[: columns * rows].reshape(columns, rows) for part, columns in zip(scratch, layout.columns)]
        for mask, seed in zip(masks, seeds):
            _fill_mask(mask, seed, block)
        for i, j in pairs:
            add_word_products(corrections[i, j], masks[i], masks[j])
    return [Hand(seed, {j: corrections[i, j] for i, j in pairs if i == me}) for me, seed in enumerate(seeds)]


def _fill_mask(mask: Words, seed: bytes, block: int) -> None:
    """The mask of a block, under a separate key: no keystream is used for two blocks."""
    Stream(derive(seed, "product", "block", block)).fill(mask.reshape(-1).view(np.uint8))


def _own_share(seed: bytes, other: int, rows: int, columns: int) -> Words:
    return Stream(derive(seed, "product", "share", other)).words(rows * columns).reshape(rows, columns)


class Party:
    """One party's side: it masks a block, sends it to the others and absorbs theirs; after the last it has shares.

    A hand masks one matrix. The same matrix may be masked again, as in a pass that only masks and a later one that
    absorbs. A matrix that changed needs a new hand: two blocks under one mask would show their difference.
    """

    def __init__(
        self,
        layout: Layout,
        me: int,
        hand: Hand,
        forms: Sequence[FixedPoint],
        *,
        noise: int = 0,
        block: int = 0,
        so_far: Mapping[int, Words] | None = None,
    ) -> None:
        """`forms`: the public fixed-point forms of all parties; `noise`: the largest noise on the result, in units.

        `block` and `so_far` continue another pass: the number of its blocks, and its `so_far`.
        """
        if len(forms) != len(layout.columns) or not 0 <= me < len(forms):
            raise Malformed(f"{len(layout.columns)} parties need as many fixed-point forms, found {len(forms)}")
        for other, form in enumerate(forms):
            if other != me:
                require_bits(product_bits(layout.rows, forms[me], form, noise=noise), 64)
        self._layout, self._me, self._form, self._seed = layout, me, forms[me], hand.seed
        self._shares = _starting_shares(layout, me, hand)
        if so_far is not None:
            shapes = {other: share.shape for other, share in self._shares.items()}
            if shapes != {other: share.shape for other, share in so_far.items()}:
                raise Malformed(f"sums of shapes {shapes} to go on with were expected")
            self._shares = {other: np.array(share, np.uint64) for other, share in so_far.items()}
        self._block = block
        self._open: tuple[Words, Words] | None = None
        # Memory for one block, reused for the next: fresh memory would cost more than the masking.
        self._room = np.empty((2, layout.columns[me] * layout.block_rows), np.uint64)
        self._left = layout.rows - block * layout.block_rows

    def mask(self, rows: NDArray[np.float64]) -> Words:
        """The next masked block D, which all other parties may see: one line of little-endian words per column."""
        if self._open is not None:
            raise Malformed("the others' blocks must be absorbed before the next block is masked")
        unmasked = self._layout.rows - self._block * self._layout.block_rows
        expected = (min(unmasked, self._layout.block_rows), self._layout.columns[self._me])
        if rows.shape != expected or not rows.size:
            raise Malformed(f"a block of {expected} rows and columns was expected, found {rows.shape}")
        values, mask = self._room[:, : rows.size].reshape(2, *expected[::-1])
        self._form.fill(values.view(np.int64), rows)
        _fill_mask(mask, self._seed, self._block)
        self._block += 1
        self._open = values, mask
        return np.asarray(values - mask, "<u8")

    def skip(self) -> None:
        """Skips the others' blocks, in a pass that only masks and gives no share."""
        if self._open is None:
            raise Malformed("there is no masked block to pass over")
        self._open = None

    def absorb(self, opened: Mapping[int, Words]) -> None:
        """The other parties' messages for the block that was masked last."""
        if self._open is None or set(opened) != set(self._shares):
            raise Malformed(f"one message from each of {len(self._shares)} parties for a masked block was expected")
        values, mask = self._open
        for other, words in opened.items():
            shape = (self._layout.columns[other], values.shape[1])
            if words.dtype != np.dtype("<u8") or words.shape != shape:
                raise Malformed(f"a masked block of {shape} words was expected, found {words.shape} of {words.dtype}")
        self._open = None
        self._left -= values.shape[1]
        for other, words in opened.items():
            if self._me < other:
                add_word_products(self._shares[other], mask, np.ascontiguousarray(words))
            else:
                add_word_products(self._shares[other], np.ascontiguousarray(words), values)

    @property
    def so_far(self) -> dict[int, Words]:
        """The sums so far: secret to this party, like a share."""
        return {other: share.copy() for other, share in self._shares.items()}

    def shares(self) -> dict[int, Words]:
        """By other party: this party's share of X_iᵀ X_j, i < j. For a secure sum, never for the dealer."""
        if self._left:
            raise Malformed(f"{self._left} of {self._layout.rows} rows have not been exchanged")
        return self.so_far


def _starting_shares(layout: Layout, me: int, hand: Hand) -> dict[int, Words]:
    columns = layout.columns
    later = {j: (columns[me], columns[j]) for j in range(me + 1, len(columns))}
    found = {j: matrix.shape for j, matrix in hand.corrections.items() if matrix.dtype == np.dtype("<u8")}
    if len(hand.seed) != _SEED_BYTES or found != later:
        raise Malformed(f"a hand of one seed and corrections {later} was expected, found {found}")
    shares = {i: _own_share(hand.seed, i, columns[i], columns[me]) for i in range(me)}
    return shares | {j: np.array(matrix, np.uint64) for j, matrix in hand.corrections.items()}
