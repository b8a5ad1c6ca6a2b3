"""The register of this process's fits: which fits share records, what they cost together, which rows were queried.

The register recognises rows by keyed marks of their features. Each process draws its key at random and neither stores
nor sends it, and the marks stay in memory: nothing about a record leaves the process. Two different rows share a mark
with probability 2^-64 (multilinear hashing over 32-bit words, Dietzfelbinger 1996: the high half of the product's sum,
twice with independent keys). Two fits are then counted together that need not be, and the stated loss is too high,
which is still true.

The register does not see other processes, nor rows that something other than a clone of the same estimator changed
before `fit`. A ledger in a file counts both.
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

_BLOCK_ROWS = 1 << 16
# Queried rows that no fit has used. Beyond this many the register forgets some, and says that it is incomplete.
_MAX_REMEMBERED_ROWS = 1 << 20


@dataclass(frozen=True)
class Fit:
    """A fit in the register of one process."""

    process: bytes
    pool: int


@dataclass(frozen=True)
class Tally:
    """All fits of this process that share records with one fit, directly or through others, itself included.

    `spent` adds up in one currency, because later fits may be chosen by looking at earlier ones; None where no currency
    takes all of their losses. `delta` is the largest delta among them, which makes the sum comparable with one fit; it
    is the sum of their deltas where some of them spend delta itself. `queried` says whether a model answered about
    these records, `incomplete` whether the register has forgotten queried rows.
    """

    fits: int
    spent: Spent | None
    delta: Decimal
    charged: Mapping[str, int]
    queried: bool
    incomplete: bool


@dataclass
class _Pool:
    losses: Counter[Loss]
    deltas: Counter[Decimal]
    charged: Counter[str]
    queried: bool
    incomplete: bool

    def take(self, other: _Pool) -> None:
        self.losses.update(other.losses)
        self.deltas.update(other.deltas)
        self.charged.update(other.charged)
        self.queried |= other.queried
        self.incomplete |= other.incomplete


def _add_in_one_currency(losses: Counter[Loss]) -> Spent | None:
    for currency in Currency:
        spent: Spent | None = Spent.zero()
        for loss, times in losses.items():
            counted = convert_to(currency, loss)
            spent = None if spent is None or counted is None else spent.add(counted, times)
        if spent is not None:
            return spent
    return None


class Fits:
    """Pools of fits that share a row or a family of clones. Every method may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._processes = [os.urandom(16)]
        self._keys: dict[int, Marks] = {}
        self._known: Marks = np.empty(0, np.uint64)
        self._pool_of: NDArray[np.int64] = np.empty(0, np.int64)
        self._parents: list[int] = []
        self._pools: dict[int, _Pool] = {}
        self._queried = array("Q")
        self._has_forgotten = False

    def register(
        self, rows: Floats, *, losses: Counter[Loss], delta: Decimal, ledger: str | None, family: int | None
    ) -> Fit:
        """Register a fit that is about to draw its noise. `family` marks clones of one estimator, whose rows count as
        the same whatever they look like; `ledger` is what the fit was charged to."""
        with self._lock:
            marks = self._mark_rows(rows)
            incomplete = self._has_forgotten
            queried = bool(np.isin(marks, np.frombuffer(self._queried, np.uint64)).any())
            if family is not None:
                marks = np.union1d(marks, np.array([family], np.uint64))
            places, known = self._locate(marks)
            pool = len(self._parents)
            self._parents.append(pool)
            joined = _Pool(losses, Counter([delta]), Counter([] if ledger is None else [ledger]), queried, incomplete)
            for root in {self._find_root(int(one)) for one in np.unique(self._pool_of[places[known]])}:
                joined.take(self._pools.pop(root))
                self._parents[root] = pool
            self._pools[pool] = joined
            self._known = np.insert(self._known, places[~known], marks[~known])
            self._pool_of = np.insert(self._pool_of, places[~known], pool)
            return Fit(self._processes[-1], pool)

    def record_query(self, rows: Floats) -> None:
        """Record that a fitted model is about to answer about these rows: its answers can choose among models."""
        with self._lock:
            marks = self._mark_rows(rows)
            places, known = self._locate(marks)
            for root in {self._find_root(int(one)) for one in np.unique(self._pool_of[places[known]])}:
                self._pools[root].queried = True
            self._queried.frombytes(marks[~known].tobytes())
            if len(self._queried) > _MAX_REMEMBERED_ROWS:
                kept = np.unique(np.frombuffer(self._queried, np.uint64))
                self._has_forgotten |= len(kept) > _MAX_REMEMBERED_ROWS
                self._queried = array("Q", kept[:_MAX_REMEMBERED_ROWS].tobytes())

    def tally(self, fit: Fit) -> Tally | None:
        """All that is known of a fit now; None for a fit of another process."""
        with self._lock:
            if fit.process not in self._processes:
                return None
            pool = self._pools[self._find_root(fit.pool)]
            spent = _add_in_one_currency(pool.losses)
            delta = max(pool.deltas)
            if spent is not None and not spent.epsilon_at(delta).is_finite():
                delta = sum((one * times for one, times in pool.deltas.items()), Decimal(0))
            return Tally(pool.deltas.total(), spent, delta, dict(pool.charged), pool.queried, pool.incomplete)

    def continue_after_fork(self) -> None:
        """In a forked child: new fits belong to the child, and the parent's fits up to here stay known."""
        self._lock = threading.Lock()
        self._processes.append(os.urandom(16))

    def _locate(self, marks: Marks) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        places = np.searchsorted(self._known, marks)
        known = np.zeros(len(marks), bool)
        inside = places < len(self._known)
        known[inside] = self._known[places[inside]] == marks[inside]
        return places, known

    def _find_root(self, pool: int) -> int:
        while self._parents[pool] != pool:
            self._parents[pool] = self._parents[self._parents[pool]]
            pool = self._parents[pool]
        return pool

    def _mark_rows(self, rows: Floats) -> Marks:
        """Marks of rows, sorted and without repeats, at single precision, in which many tables are stored; −0 is 0."""
        width = rows.shape[1]
        if width not in self._keys:
            self._keys[width] = np.frombuffer(os.urandom(16 * width), np.uint64).reshape(width, 2)
        marks = np.empty(len(rows), np.uint64)
        for start in range(0, len(rows), _BLOCK_ROWS):
            with np.errstate(over="ignore"):
                block = np.ascontiguousarray(rows[start : start + _BLOCK_ROWS], np.float32) + np.float32(0)
            sums = block.view(np.uint32).astype(np.uint64) @ self._keys[width]
            marks[start : start + _BLOCK_ROWS] = (sums[:, 0] & np.uint64(0xFFFFFFFF00000000)) | (
                sums[:, 1] >> np.uint64(32)
            )
        return np.unique(marks)


FITS = Fits()
"""The register of this process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=FITS.continue_after_fork)
