"""The products X_iᵀ X_j of matrices held by K parties, left additively shared, with a coordinator that multiplies.

Construction (after D. Beaver, Efficient multiparty protocols using circuit randomization, 1991: what is shown is masked
once, and what masks add is taken off on shares). The parties share a seed that the coordinator lacks. It expands into a
mask M_i as long as X_i for each party, block of rows by block of rows, in the ring of words. Every party shows
Y_i = X_i − M_i to the coordinator alone, once, and the same Y_i serves all its products. For i < j

    X_iᵀ X_j  =  (Y_iᵀ M_j + R_ij)  +  (M_iᵀ X_j + W_ij),      R_ij = Y_iᵀ Y_j − W_ij,

party i holds the first bracket and party j the second; W_ij comes from a seed that the coordinator gives j, R_ij is one
small matrix that it gives i. Each party goes over its rows once, in memory that does not grow with them.

Adversary: semi-honest; the coordinator without a party, or any parties but one together. Assumption: AES-128 in counter
mode is a pseudorandom generator. The coordinator sees every Y_i, which are uniform and independent to it, and the
number of rows. Parties know all masks and see nothing that they mask; of R_ij and W_ij each party has one, uniform by
itself. A share is never the coordinator's: with Y_i it would have Y_iᵀ X_j or X_iᵀ Y_j in clear, whatever noise was
added. A share is opened only inside a secure sum. A coordinator that works with a party sees the data of all its peers.
One that splits another matrix than Y_iᵀ Y_j moves the product by a number that it knows: the result is wrong, no party
can tell, and nothing more is learned of it. Shares add up modulo the ring in which the Y_i were shown, which may be
narrower than a word.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from comity.crypto.products.fixed_point import FixedPoint, product_bits, require_bits
from comity.crypto.products.inner_products import RUN, add_word_products
from comity.entropy import Stream, derive
from comity.errors import Malformed

Words = NDArray[np.uint64]

_BLOCK_WORDS = 1 << 17
_SEED_BYTES = 32


@dataclass(frozen=True)
class Layout:
    """The public shape of the computation: the common rows, each party's columns, and the bits of the ring."""

    rows: int
    columns: tuple[int, ...]
    bits: int = 64

    def __post_init__(self) -> None:
        if self.rows < 1 or len(self.columns) < 2 or min(self.columns) < 1 or not 1 <= self.bits <= 64:
            raise Malformed(f"two or more parties with rows and columns were expected, found {self}")

    @property
    def block_rows(self) -> int:
        """Rows that are masked at a time: as many as fit the second cache at the widest party."""
        return max(1, _BLOCK_WORDS // max(self.columns) // RUN) * RUN

    def blocks(self) -> Iterator[int]:
        """The number of rows of each block, in order."""
        for start in range(0, self.rows, self.block_rows):
            yield min(self.block_rows, self.rows - start)

    @property
    def shown_bytes(self) -> int:
        """Bytes that all parties together show."""
        return self.bits * self.rows * sum(self.columns) // 8


@dataclass(frozen=True)
class Hand:
    """What the coordinator gives one party, sealed to it: a seed, and R_ij for every later party j."""

    seed: bytes = field(repr=False)
    corrections: Mapping[int, Words] = field(repr=False)


def _fill_mask(mask: Words, seed: bytes, party: int, block: int) -> None:
    """The mask of a party's block, under a separate key: no keystream is used for two blocks."""
    Stream(derive(seed, "product", "mask", party, block)).fill(mask.reshape(-1).view(np.uint8))


def _own_share(seed: bytes, other: int, rows: int, columns: int) -> Words:
    return Stream(derive(seed, "product", "share", other)).words(rows * columns).reshape(rows, columns)


class Office:
    """The coordinator's side: it multiplies what the parties show, and splits the products among them."""

    def __init__(self, layout: Layout) -> None:
        pairs = [(i, j) for j in range(len(layout.columns)) for i in range(j)]
        self._layout, self._left = layout, layout.rows
        self._sums = {(i, j): np.zeros((layout.columns[i], layout.columns[j]), np.uint64) for i, j in pairs}

    def add(self, shown: Sequence[Words]) -> None:
        """The parties' masked blocks of the same rows, in their order."""
        length = shown[0].shape[-1]
        expected = [(columns, length) for columns in self._layout.columns]
        if [words.shape for words in shown] != expected or not 0 < length <= self._left:
            raise Malformed(f"masked blocks of shapes {expected} were expected, found {[w.shape for w in shown]}")
        self._left -= length
        for (i, j), total in self._sums.items():
            add_word_products(total, shown[i], shown[j])

    def hands(self, seeds: Sequence[bytes]) -> list[Hand]:
        """The parties' hands, from fresh seeds that cover nothing else."""
        if self._left:
            raise Malformed(f"{self._left} of {self._layout.rows} rows have not been shown")
        columns, found = self._layout.columns, list[Hand]()
        for me, seed in enumerate(seeds):
            mine = {j: total for (i, j), total in self._sums.items() if i == me}
            covered = {j: total - _own_share(seeds[j], me, columns[me], columns[j]) for j, total in mine.items()}
            found.append(Hand(seed, covered))
        return found


class Party:
    """One party's side: it masks a block for the coordinator, and multiplies it with the masks of the others.

    A seed masks one matrix. The same matrix may be masked again. A matrix that changed needs a new seed: two blocks
    under one mask would show their difference.
    """

    def __init__(
        self,
        layout: Layout,
        me: int,
        seed: bytes,
        forms: Sequence[FixedPoint],
        *,
        noise: int = 0,
        block: int = 0,
        so_far: Mapping[int, Words] | None = None,
    ) -> None:
        """`seed`: that of all parties; `forms`: their public fixed-point forms; `noise`: the largest noise on the
        result, in units.

        `block` and `so_far` go on where another object stopped: the number of its blocks, and its `so_far`.
        """
        if len(forms) != len(layout.columns) or not 0 <= me < len(forms):
            raise Malformed(f"{len(layout.columns)} parties need as many fixed-point forms, found {len(forms)}")
        if len(seed) != _SEED_BYTES:
            raise Malformed(f"a seed of {_SEED_BYTES} bytes was expected, found {len(seed)}")
        for other, form in enumerate(forms):
            if other != me:
                require_bits(product_bits(layout.rows, forms[me], form, noise=noise), layout.bits)
        self._layout, self._me, self._form, self._seed = layout, me, forms[me], seed
        self._sums = {other: np.zeros(shape, np.uint64) for other, shape in _shapes(layout, me).items()}
        if so_far is not None:
            if {other: words.shape for other, words in so_far.items()} != _shapes(layout, me):
                raise Malformed(f"sums of shapes {_shapes(layout, me)} to go on with were expected")
            self._sums = {other: np.array(words, np.uint64) for other, words in so_far.items()}
        self._block = block
        self._left = layout.rows - block * layout.block_rows
        # Memory for one block, reused for the next: fresh memory would cost more than the masking.
        self._room = np.empty((2, layout.columns[me] * layout.block_rows), np.uint64)
        self._mask_room = np.empty(max(layout.columns) * layout.block_rows, np.uint64)

    def mask(self, rows: NDArray[np.float64]) -> Words:
        """The next masked block Y, for the coordinator alone: one line of words per column, valid until the next call.

        What the ring leaves out of a word is sent to nobody.
        """
        expected = (min(max(self._left, 0), self._layout.block_rows), self._layout.columns[self._me])
        if rows.shape != expected or not rows.size:
            raise Malformed(f"a block of {expected} rows and columns was expected, found {rows.shape}")
        values, shown = self._room[:, : rows.size].reshape(2, *expected[::-1])
        self._form.fill(values.view(np.int64), rows)
        np.subtract(values, self._mask(self._me, len(rows)), out=shown)
        for other, total in self._sums.items():
            if self._me < other:
                add_word_products(total, shown, self._mask(other, len(rows)))
            else:
                add_word_products(total, self._mask(other, len(rows)), values)
        self._left -= len(rows)
        self._block += 1
        return shown

    def _mask(self, party: int, rows: int) -> Words:
        columns = self._layout.columns[party]
        mask = self._mask_room[: columns * rows].reshape(columns, rows)
        _fill_mask(mask, self._seed, party, self._block)
        return mask

    @property
    def so_far(self) -> dict[int, Words]:
        """The sums so far, without what the coordinator gives: secret to this party, like a share."""
        return {other: total.copy() for other, total in self._sums.items()}

    def shares(self, hand: Hand) -> dict[int, Words]:
        """By other party: this party's share of X_iᵀ X_j, i < j. For a secure sum, never for the coordinator."""
        if self._left > 0:
            raise Malformed(f"{self._left} of {self._layout.rows} rows have not been masked")
        return add_hand(self._layout, self._me, self.so_far, hand)


def add_hand(layout: Layout, me: int, sums: Mapping[int, Words], hand: Hand) -> dict[int, Words]:
    """Shares of all rows, from a party's `so_far` and its hand."""
    shapes, columns = _shapes(layout, me), layout.columns
    found = {j: matrix.shape for j, matrix in hand.corrections.items() if matrix.dtype == np.dtype("<u8")}
    later = {j: shape for j, shape in shapes.items() if j > me}
    if len(hand.seed) != _SEED_BYTES or len(found) != len(hand.corrections) or found != later:
        raise Malformed(f"a hand of one seed and corrections {later} was expected, found {found}", code="form")
    given = {i: _own_share(hand.seed, i, columns[i], columns[me]) for i in range(me)}
    given |= hand.corrections
    ring = np.uint64((1 << layout.bits) - 1)
    return {other: np.asarray((total + given[other]) & ring, np.uint64) for other, total in sums.items()}


def _shapes(layout: Layout, me: int) -> dict[int, tuple[int, int]]:
    """Of each product with another party: the earlier party's columns are its rows."""
    columns = layout.columns
    return {other: (columns[min(me, other)], columns[max(me, other)]) for other in range(len(columns)) if other != me}
