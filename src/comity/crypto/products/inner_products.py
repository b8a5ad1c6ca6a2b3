"""Inner products of every row of one integer matrix with every row of another, exact in the ring of the result."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from comity.compiled import compiled

RUN = 512
"""Columns that are processed together, few enough for the first cache."""
_HALF = RUN // 2


@compiled
# A compiled kernel: blocks and their edges are nested loops.
def add_word_products(out: NDArray[np.uint64], left: NDArray[np.uint64], right: NDArray[np.uint64]) -> None:  # noqa: C901
    """out[i, j] += Σ_t left[i, t] · right[j, t] modulo 2^64. Whole multiples of `RUN` columns are fastest.

    With x, x' the halves of a run of `left` and y, y' those of `right` (S. Winograd, A new algorithm for inner product,
    1968), ⟨x, y⟩ + ⟨x', y'⟩ = ⟨x + y', x' + y⟩ − ⟨x, x'⟩ − ⟨y, y'⟩. The last two terms belong to a row alone, so the
    products of pairs take half the multiplications, which are what a 64-bit product costs.
    """
    rows, length = left.shape
    columns = right.shape[0]
    whole = length - length % RUN
    own_left = np.empty(rows, np.uint64)
    own_right = np.empty(columns, np.uint64)
    for start in range(0, whole, RUN):
        _own(own_left, left, start)
        _own(own_right, right, start)
        for i in range(0, rows, 2):
            # At an edge the last row is used twice and added once.
            k = min(i + 1, rows - 1)
            x, u = left[i, start : start + RUN], left[k, start : start + RUN]
            for j in range(0, columns, 2):
                m = min(j + 1, columns - 1)
                y, v = right[j, start : start + RUN], right[m, start : start + RUN]
                xy = xv = uy = uv = np.uint64(0)
                for t in range(_HALF):
                    xy += (x[t] + y[t + _HALF]) * (x[t + _HALF] + y[t])
                    xv += (x[t] + v[t + _HALF]) * (x[t + _HALF] + v[t])
                    uy += (u[t] + y[t + _HALF]) * (u[t + _HALF] + y[t])
                    uv += (u[t] + v[t + _HALF]) * (u[t + _HALF] + v[t])
                out[i, j] += xy - own_left[i] - own_right[j]
                if m > j:
                    out[i, m] += xv - own_left[i] - own_right[m]
                if k > i:
                    out[k, j] += uy - own_left[k] - own_right[j]
                if m > j and k > i:
                    out[k, m] += uv - own_left[k] - own_right[m]
    for i in range(rows):
        for j in range(columns):
            for t in range(whole, length):
                out[i, j] += left[i, t] * right[j, t]


@compiled
def _own(own: NDArray[np.uint64], lines: NDArray[np.uint64], start: int) -> None:
    for i in range(lines.shape[0]):
        x = lines[i, start : start + RUN]
        total = np.uint64(0)
        for t in range(_HALF):
            total += x[t] * x[t + _HALF]
        own[i] = total


@compiled
def add_narrow_products(out: NDArray[np.int64], left: NDArray[np.int32], right: NDArray[np.int32]) -> None:
    """out[i, j] += Σ_t left[i, t] · right[j, t]; nothing wraps while columns · |left| · |right| stays below 2^63."""
    rows, length = left.shape
    columns = right.shape[0]
    for start in range(0, length, RUN):
        end = min(start + RUN, length)
        for i in range(0, rows, 2):
            k = min(i + 1, rows - 1)
            x, u = left[i, start:end], left[k, start:end]
            for j in range(0, columns, 2):
                m = min(j + 1, columns - 1)
                y, v = right[j, start:end], right[m, start:end]
                xy = xv = uy = uv = np.int64(0)
                for t in range(end - start):
                    xy += np.int64(x[t]) * np.int64(y[t])
                    xv += np.int64(x[t]) * np.int64(v[t])
                    uy += np.int64(u[t]) * np.int64(y[t])
                    uv += np.int64(u[t]) * np.int64(v[t])
                out[i, j] += xy
                if m > j:
                    out[i, m] += xv
                if k > i:
                    out[k, j] += uy
                if m > j and k > i:
                    out[k, m] += uv


def multiply_vector(lines: NDArray[np.uint64], vector: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Inner products of every line with the vector, modulo 2^64."""
    out = np.zeros((lines.shape[0], 1), np.uint64)
    if lines.shape[0]:
        add_word_products(out, np.ascontiguousarray(lines), np.ascontiguousarray(vector)[None])
    return out[:, 0]


def multiply_short(lines: NDArray[np.int16], vector: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """`multiply_vector` for lines of short integers, which are widened as they are read."""
    out = np.zeros(len(lines), np.uint64)
    _add_short_products(out, np.ascontiguousarray(lines), np.ascontiguousarray(vector))
    return out


@compiled
def _add_short_products(out: NDArray[np.uint64], lines: NDArray[np.int16], vector: NDArray[np.uint64]) -> None:
    for start in range(0, vector.size, RUN):
        end = min(start + RUN, vector.size)
        for i in range(lines.shape[0]):
            total = np.uint64(0)
            for t in range(start, end):
                total += np.uint64(np.int64(lines[i, t])) * vector[t]
            out[i] += total
