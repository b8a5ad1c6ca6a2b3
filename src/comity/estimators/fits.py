"""What this process has fitted: which fits share records, what they cost together, and who was asked about the records.

Rows are recognised by keyed marks of their features. The key is drawn when the process begins and is neither stored nor
sent, and the marks stay in memory, so nothing here tells of a record elsewhere. Two different rows share a mark with
probability 2^-64 (multilinear hashing over 32-bit words, Dietzfelbinger 1996: the high half of the product's sum, twice
with independent keys), and then two fits are counted together that need not be: a loss stated too high is still true.

What it can't see: other processes, and rows that were changed before `fit` by something other than a copy of the same
estimator. A ledger in a file counts both.
"""

from __future__ import annotations

import os
import threading
from array import array
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

from comity.estimators.table import Floats
from comity.privacy.accounting import Spent
from comity.privacy.currency import Currency, convert_to
from comity.privacy.loss import Loss

Marks = NDArray[np.uint64]

_BLOCK = 1 << 16
# Rows that a model was asked about and nobody has fitted: beyond so many the register says that it can't know.
_REMEMBERED = 1 << 20


@dataclass(frozen=True)
class Fit:
    """A place in the register of one process."""

    process: bytes
    pool: int


@dataclass(frozen=True)
class Tally:
    """All fits of this process that share records with one fit, directly or through others; it is one of them.

    `spent` adds up in one currency, because fits are chosen with a look at earlier ones; None where no currency takes
    all of their losses. `delta` is the largest of theirs, at which it can be compared with one of them; it is their sum
    where some of them spend a delta of their own.
    """

    fits: int
    spent: Spent | None
    delta: Decimal
    charged: Mapping[str, int]
    asked: bool
    unsure: bool


@dataclass
class _Pool:
    losses: Counter[Loss]
    deltas: Counter[Decimal]
    charged: Counter[str]
    asked: bool
    unsure: bool

    def take(self, other: _Pool) -> None:
        self.losses.update(other.losses)
        self.deltas.update(other.deltas)
        self.charged.update(other.charged)
        self.asked |= other.asked
        self.unsure |= other.unsure


def _in_one_currency(losses: Counter[Loss]) -> Spent | None:
    for currency in Currency:
        spent: Spent | None = Spent.zero()
        for loss, times in losses.items():
            counted = convert_to(currency, loss)
            spent = None if spent is None or counted is None else spent.add(counted, times)
        if spent is not None:
            return spent
    return None


class Fits:
    """Pools of fits that share a row or a family of copies. Every method may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._processes = [os.urandom(16)]
        self._keys: dict[int, Marks] = {}
        self._known: Marks = np.empty(0, np.uint64)
        self._pool_of: NDArray[np.int64] = np.empty(0, np.int64)
        self._parents: list[int] = []
        self._pools: dict[int, _Pool] = {}
        self._asked = array("Q")
        self._forgot = False

    def enter(
        self, rows: Floats, *, losses: Counter[Loss], delta: Decimal, ledger: str | None, family: int | None
    ) -> Fit:
        """A fit that is about to draw its noise. `family` marks copies of one estimator, whose rows count as the same
        ones whatever they look like; `ledger` is what it was charged to."""
        with self._lock:
            marks = self._marks(rows)
            unsure = self._forgot
            asked = bool(np.isin(marks, np.frombuffer(self._asked, np.uint64)).any())
            if family is not None:
                marks = np.union1d(marks, np.array([family], np.uint64))
            places, known = self._places(marks)
            pool = len(self._parents)
            self._parents.append(pool)
            joined = _Pool(losses, Counter([delta]), Counter([] if ledger is None else [ledger]), asked, unsure)
            for root in {self._root(int(one)) for one in np.unique(self._pool_of[places[known]])}:
                joined.take(self._pools.pop(root))
                self._parents[root] = pool
            self._pools[pool] = joined
            self._known = np.insert(self._known, places[~known], marks[~known])
            self._pool_of = np.insert(self._pool_of, places[~known], pool)
            return Fit(self._processes[-1], pool)

    def ask(self, rows: Floats) -> None:
        """A fitted model is about to answer about these rows: whoever reads the answers can choose by them."""
        with self._lock:
            marks = self._marks(rows)
            places, known = self._places(marks)
            for root in {self._root(int(one)) for one in np.unique(self._pool_of[places[known]])}:
                self._pools[root].asked = True
            self._asked.frombytes(marks[~known].tobytes())
            if len(self._asked) > _REMEMBERED:
                kept = np.unique(np.frombuffer(self._asked, np.uint64))
                self._forgot |= len(kept) > _REMEMBERED
                self._asked = array("Q", kept[:_REMEMBERED].tobytes())

    def tally(self, fit: Fit) -> Tally | None:
        """As of now; None for a fit of another process."""
        with self._lock:
            if fit.process not in self._processes:
                return None
            pool = self._pools[self._root(fit.pool)]
            spent = _in_one_currency(pool.losses)
            delta = max(pool.deltas)
            if spent is not None and not spent.epsilon_at(delta).is_finite():
                delta = sum((one * times for one, times in pool.deltas.items()), Decimal(0))
            return Tally(pool.deltas.total(), spent, delta, dict(pool.charged), pool.asked, pool.unsure)

    def forked(self) -> None:
        """In a child that goes on with a copy: its places are its own, and its parent's up to here stay known."""
        self._lock = threading.Lock()
        self._processes.append(os.urandom(16))

    def _places(self, marks: Marks) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        places = np.searchsorted(self._known, marks)
        known = np.zeros(len(marks), bool)
        inside = places < len(self._known)
        known[inside] = self._known[places[inside]] == marks[inside]
        return places, known

    def _root(self, pool: int) -> int:
        while self._parents[pool] != pool:
            self._parents[pool] = self._parents[self._parents[pool]]
            pool = self._parents[pool]
        return pool

    def _marks(self, rows: Floats) -> Marks:
        """Sorted and without repeats. At single precision, in which many tables are stored; −0 is 0."""
        width = rows.shape[1]
        if width not in self._keys:
            self._keys[width] = np.frombuffer(os.urandom(16 * width), np.uint64).reshape(width, 2)
        found = np.empty(len(rows), np.uint64)
        for start in range(0, len(rows), _BLOCK):
            with np.errstate(over="ignore"):
                block = np.ascontiguousarray(rows[start : start + _BLOCK], np.float32) + np.float32(0)
            sums = block.view(np.uint32).astype(np.uint64) @ self._keys[width]
            found[start : start + _BLOCK] = (sums[:, 0] & np.uint64(0xFFFFFFFF00000000)) | (sums[:, 1] >> np.uint64(32))
        return np.unique(found)


FITS = Fits()
"""Of this process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=FITS.forked)
