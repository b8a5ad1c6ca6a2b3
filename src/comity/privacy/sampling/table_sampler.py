"""Poisson variables by inversion of a table: for means up to a few thousand."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from comity.privacy.mixture import PRECISE
from comity.privacy.sampling.uniforms import Integers, Uniforms

_UNIT = 1 << 192
_NEGLIGIBLE = Decimal(2) ** -200


@dataclass(frozen=True)
class Table:
    """P[X <= k] for k = 0, 1, … in multiples of 2^−192, and the upper 64 bits of these numbers."""

    cumulated: tuple[int, ...]
    upper: NDArray[np.uint64]

    def draw(self, count: int) -> Integers:
        """How many entries are at most a 192-bit uniform; the upper 64 bits say it unless they tie."""
        uniforms = Uniforms(count)
        high = uniforms.words[:, 0]
        out = np.searchsorted(self.upper, high, side="right").astype(np.int64)
        for index in np.flatnonzero(np.searchsorted(self.upper, high, side="left") != out).tolist():
            out[index] = bisect_right(self.cumulated, uniforms.integer(index))
        return out


@lru_cache(maxsize=16)
def poisson_table(mean: Decimal) -> Table:
    """The table of Poisson(mean), within a total variation of 2^−170.

    Each entry is off by less than 2^−192 and there are fewer than 2^14 of them; what lies beyond the last one
    weighs less than 2^−199.
    """
    with localcontext(PRECISE):
        weight = (-mean).exp()
        total, k = weight, 0
        entries = [int(total * _UNIT)]
        # From k >= 2·mean on the terms at least halve, so that the rest weighs no more than the last one.
        while k < 2 * mean or weight > _NEGLIGIBLE:
            k += 1
            weight = weight * mean / k
            total += weight
            entries.append(int(total * _UNIT))
    # An entry of the whole unit, or a last digit above it, can't be passed by any uniform.
    cumulated = tuple(min(entry, _UNIT) for entry in entries[:-1])
    inside = tuple(entry for entry in cumulated if entry < _UNIT)
    return Table(inside, np.array([entry >> 128 for entry in inside], np.uint64))
