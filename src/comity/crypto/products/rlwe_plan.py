"""The public figures of a ring-LWE product: which parameters have room for it, and in which stretches its rows go."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from comity.crypto.products.fixed_point import FixedPoint, product_bits, require
from comity.crypto.products.rlwe import ALLOWED, ERROR_VARIANCE, LARGEST_ERROR, Parameters
from comity.errors import Malformed, Refused

STRETCH_BLOCKS = 16
STRETCH_ENTRIES = 1 << 22
"""Rows times columns of all parties between two asks, where blocks would hold more: what is in memory at once grows
with neither."""


@dataclass(frozen=True)
class Plan:
    """The public figures of one product, checked: rows, columns, largest integers, and the bits k of the shares."""

    rows: int
    columns_a: int
    columns_b: int
    largest_a: int
    largest_b: int
    bits: int
    parameters: Parameters
    together: int = 0
    """Columns of all parties that are multiplied in the same stretches."""

    @classmethod
    def choose(
        cls,
        rows: int,
        columns_a: int,
        columns_b: int,
        a: FixedPoint,
        b: FixedPoint,
        *,
        noise: int = 0,
        bits: int = 0,
        together: int = 0,
    ) -> Plan:
        """The smallest listed parameters with room for the product and `noise` units; at least `bits` bits wide."""
        needed = product_bits(rows, a, b, noise=noise)
        width = max(needed, bits)
        for parameters in ALLOWED:
            fits = max(a.largest, b.largest) <= parameters.largest and width <= parameters.bits
            if fits and _worst_error(parameters, rows, b.largest).bit_length() <= 32 * parameters.words - width:
                return cls(rows, columns_a, columns_b, a.largest, b.largest, width, parameters, together)
        require(needed, ALLOWED[-1].bits)
        raise Refused(
            f"integers up to {max(a.largest, b.largest)} with shares of {width} bits fit no listed parameters; "
            "use at most 16 binary places for values bounded by 1",
            code="headroom",
        )

    def __post_init__(self) -> None:
        if self.parameters not in ALLOWED:
            raise Refused(f"only listed ring parameters may be used, found {self.parameters}", code="parameters")
        if not 1 <= self.columns_a <= self.columns_b or self.rows < 1:
            raise Malformed(
                f"rows, and no more columns at the encryptor than at the evaluator, were expected, found {self.rows} "
                f"rows and {self.columns_a} against {self.columns_b} columns"
            )
        if max(self.largest_a, self.largest_b) > self.parameters.largest:
            raise Refused(f"integers up to {self.parameters.largest} were expected in these parameters")
        require((self.rows * self.largest_a * self.largest_b).bit_length() + 1, self.bits)
        require(self.bits, self.parameters.bits)
        # With errors below Δ, whatever they are, a share pair is never off by more than one unit.
        worst = _worst_error(self.parameters, self.rows, self.largest_b)
        if worst.bit_length() > self.shift:
            raise Refused(f"errors up to {worst} could exceed one unit of shares of {self.bits} bits", code="headroom")

    @property
    def shift(self) -> int:
        """log2 Δ, in the words."""
        return 32 * self.parameters.words - self.bits

    @property
    def block_rows(self) -> int:
        return self.parameters.degree

    @property
    def stretch_blocks(self) -> int:
        """Blocks of a stretch."""
        columns = max(self.together, self.columns_a + self.columns_b)
        return max(1, min(STRETCH_BLOCKS, STRETCH_ENTRIES // (columns * self.block_rows)))

    @property
    def stretches(self) -> list[slice]:
        """The rows of each stretch."""
        length = self.stretch_blocks * self.block_rows
        return [slice(start, min(start + length, self.rows)) for start in range(0, self.rows, length)]

    @property
    def carry_probability(self) -> float:
        """Bound on the probability that any entry is off by its one unit: the mean of |error| over Δ, per entry."""
        variance = ERROR_VARIANCE * (self.rows * self.largest_b**2 + 2 * self.parameters.degree * 2 / 3)
        return self.columns_a * self.columns_b * math.sqrt(variance) * 2.0 ** (self.parameters.idle - self.shift)

    @property
    def message_bytes(self) -> tuple[int, int]:
        """From the encryptor, and back."""
        degree, word = self.parameters.degree, 4 * self.parameters.words
        return (
            word * self.columns_a * (degree + self.rows),
            word * self.columns_b * (degree + self.columns_a),
        )


def _worst_error(parameters: Parameters, rows: int, largest: int) -> int:
    """The largest that all errors of one entry can add up to, in the words."""
    return (LARGEST_ERROR * (rows * largest + 2 * parameters.degree)) << parameters.idle


def pairs(columns: Mapping[str, int]) -> list[tuple[str, str]]:
    """Every pair of parties as (encryptor, evaluator): fewer columns first, then by name."""
    order = sorted(columns, key=lambda name: (columns[name], name))
    return [(order[i], order[j]) for j in range(len(order)) for i in range(j)]
