"""Inner products of every row of one integer matrix with every row of another, exact in the ring of the result.

Words of 64 bits multiply modulo 2^64. Narrow integers with a 64-bit result don't wrap while
columns · |left| · |right| stays below 2^63, which the caller sees to.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.crypto.compiled import compiled

RUN = 512
"""Columns that are taken together; whole multiples of it are fastest."""


@compiled
def add_inner_products(out: NDArray[Any], left: NDArray[Any], right: NDArray[Any]) -> None:
    """out[i, j] += Σ_t left[i, t] · right[j, t].

    Four rows meet four rows at a time in registers, over runs of columns that stay in the first cache. At an edge the
    last row is taken again and its surplus result dropped.
    """
    wide = out.dtype.type
    rows, length = left.shape
    columns = right.shape[0]
    for start in range(0, length, RUN):
        end = min(start + RUN, length)
        for i in range(0, rows, 4):
            x0 = left[i, start:end]
            x1 = left[min(i + 1, rows - 1), start:end]
            x2 = left[min(i + 2, rows - 1), start:end]
            x3 = left[min(i + 3, rows - 1), start:end]
            for j in range(0, columns, 4):
                y0 = right[j, start:end]
                y1 = right[min(j + 1, columns - 1), start:end]
                y2 = right[min(j + 2, columns - 1), start:end]
                y3 = right[min(j + 3, columns - 1), start:end]
                c00 = c01 = c02 = c03 = c10 = c11 = c12 = c13 = wide(0)
                c20 = c21 = c22 = c23 = c30 = c31 = c32 = c33 = wide(0)
                for t in range(end - start):
                    u, v = wide(x0[t]), wide(y0[t])
                    p, q = wide(x1[t]), wide(y1[t])
                    r, s = wide(x2[t]), wide(y2[t])
                    a, b = wide(x3[t]), wide(y3[t])
                    c00 += u * v
                    c01 += u * q
                    c02 += u * s
                    c03 += u * b
                    c10 += p * v
                    c11 += p * q
                    c12 += p * s
                    c13 += p * b
                    c20 += r * v
                    c21 += r * q
                    c22 += r * s
                    c23 += r * b
                    c30 += a * v
                    c31 += a * q
                    c32 += a * s
                    c33 += a * b
                tile = ((c00, c01, c02, c03), (c10, c11, c12, c13), (c20, c21, c22, c23), (c30, c31, c32, c33))
                for di in range(min(4, rows - i)):
                    for dj in range(min(4, columns - j)):
                        out[i + di, j + dj] += tile[di][dj]
