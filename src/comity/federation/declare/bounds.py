"""Bounds: where a party's contribution must lie. The site enforces them; the sensitivity follows from them.

A bound also says where the opened sum lies without noise: its `ranges`, which `plausibility` compares with what was
opened."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, nextafter, sqrt
from typing import ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from comity.errors import Refused, StudyError

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Weights:
    """Norms of the weights of a figure, which is a weighted sum of coordinates: 1 for a single coordinate."""

    l1: Floats | float = 1.0
    l2: Floats | float = 1.0
    largest: Floats | float = 1.0


@dataclass(frozen=True, eq=False)
class Range:
    """Figures of an opened sum, and the range that public figures allow without noise.

    `what` names the figures, `found` are their opened values; without noise each lies from `low` to `high`. Noise moves
    a "sum", which is a weighted sum of coordinates, according to `weights`. It moves a "norm" by at most the L2 norm of
    the noise in `size` coordinates, times `weights.l2`.
    """

    what: str
    found: Floats
    low: Floats | float
    high: Floats | float
    weights: Weights = Weights()
    moves: Literal["sum", "norm"] = "sum"
    size: int = 1


def entries_within(value: Floats, low: float, high: float) -> Range:
    """Every coordinate by itself."""
    return Range("every entry", value, low, high)


def norm_within(value: Floats, radius: float) -> Range:
    """The length of the whole vector."""
    length = np.atleast_1d(np.sqrt((value**2).sum()))
    return Range("the length of the vector", length, 0.0, radius, moves="norm", size=value.size)


# Norms of rows and residuals are rounded; d roundings of a double add far less than this.
_ROUNDING = 1 + 1e-9
# A sum of n terms is off by up to n·2^-53 times the sum of the terms' norms, in any order; two neighbours have two.
_ADDING = 2.0**-52
# The last digits of each term (of an exponential, a square root, a quotient) and of the sum's projection: 2^-50 of the
# sum of the terms' norms, for two neighbours together.
_LAST_DIGITS = 4


@runtime_checkable
class Bound(Protocol):
    """`l1` and `l2` are how far the contributions of two neighbours can lie apart; `limit` is the largest entry.

    A bound with `neutral_within` holds for any two contributions, so a party may send the neutral value after any
    failure. Without it the bound is about one record of a party, and the neutral value may be further away.
    """

    @property
    def neutral_within(self) -> bool: ...
    @property
    def l1(self) -> float: ...
    @property
    def l2(self) -> float: ...
    @property
    def limit(self) -> float: ...

    def enforce(self, value: Floats, shape: tuple[int, ...]) -> Floats:
        """Bring a contribution (or a stack of them along leading axes) inside. Neither solver nor data is trusted."""

    def neutral(self, shape: tuple[int, ...]) -> Floats:
        """What a party contributes without records or after a failed fit: absence would be a release."""

    def ranges(self, total: Floats, parties: int) -> tuple[Range, ...]:
        """Where a sum of so many contributions lies if each lies within the bound."""


@dataclass(frozen=True)
class Ball:
    """The ball of a radius in the Frobenius norm.

    `diameter` is the largest distance of two values, for callers whose values lie in a smaller set than the ball. It
    must hold for every value in the enforced set.
    """

    neutral_within: ClassVar[bool] = True

    radius: float
    diameter: float | None = None

    @property
    def l2(self) -> float:
        return 2 * self.radius if self.diameter is None else self.diameter

    @property
    def l1(self) -> float:
        return float("inf")

    @property
    def limit(self) -> float:
        return self.radius

    def enforce(self, value: Floats, shape: tuple[int, ...]) -> Floats:
        """Project on the ball. A contribution that is not finite becomes neutral: NaN passes every comparison."""
        axes = tuple(range(-len(shape), 0))
        finite = np.isfinite(value).all(axis=axes, keepdims=True)
        value = np.where(finite, value, 0.0)
        # Scaling by the largest entry first keeps the squares from overflowing.
        largest = np.maximum(np.abs(value).max(axis=axes, keepdims=True, initial=0.0), 1e-300)
        norm = largest * np.sqrt(((value / largest) ** 2).sum(axis=axes, keepdims=True))
        return np.asarray(value * np.minimum(1.0, self.radius / np.maximum(norm, 1e-300)), np.float64)

    def neutral(self, shape: tuple[int, ...]) -> Floats:
        return np.zeros(shape)

    def ranges(self, total: Floats, parties: int) -> tuple[Range, ...]:
        return (norm_within(total, parties * self.radius),)


@dataclass(frozen=True)
class Simplex:
    """Rows of `classes` shares that are not negative and sum to one: a party's votes on `rows` public records.

    Replacing a party moves each row by at most √2 in L2 and 2 in L1. A row outside the simplex is refused, not
    projected: an abstaining row would move a direction that carries no noise.
    """

    neutral_within: ClassVar[bool] = True

    rows: int
    classes: int

    @property
    def l2(self) -> float:
        return float(np.sqrt(2 * self.rows))

    @property
    def l1(self) -> float:
        return 2.0 * self.rows

    @property
    def limit(self) -> float:
        return 1.0

    def enforce(self, value: Floats, shape: tuple[int, ...]) -> Floats:
        value = np.asarray(value, np.float64)
        # Written so that NaN fails.
        inside = (value >= 0).all() and (np.abs(value.sum(axis=-1) - 1) <= 1e-9).all()
        if not inside:
            raise Refused("votes must lie in the simplex: not negative, each row summing to one", code="stopped")
        return value

    def neutral(self, shape: tuple[int, ...]) -> Floats:
        return np.full(shape, 1.0 / self.classes)

    def ranges(self, total: Floats, parties: int) -> tuple[Range, ...]:
        rows = Range("the sum of every row", total.sum(axis=-1), parties, parties, _row(self.classes))
        return entries_within(total, 0.0, float(parties)), rows


@dataclass(frozen=True)
class RecordSum:
    """A sum over a party's records. `moved` is the L2 distance that one record can move it; `radius` is that of the
    ball on which the sum of up to `records` records is projected.

    The bound of a whole party's contribution says nothing about one record. Here the method bounds each record's part
    before it forms the sum (rows in the unit ball, residuals clipped). The sum is then projected on a ball that holds
    every sum of so many records. Projection on a convex set moves no two points further apart, so it keeps the
    sensitivity.

    What one record adds may not depend on the others beyond its last digits, so `comity.data.row_products` multiplies
    records with received numbers. The rounding of the sum itself is counted for up to `records` records.
    """

    neutral_within: ClassVar[bool] = False

    moved: float
    radius: float
    records: int = 1

    @property
    def l2(self) -> float:
        return self.moved * _ROUNDING + (self.records + _LAST_DIGITS) * self.radius * _ADDING

    @property
    def l1(self) -> float:
        return float("inf")

    @property
    def limit(self) -> float:
        return self.radius * _ROUNDING

    def enforce(self, value: Floats, shape: tuple[int, ...]) -> Floats:
        return Ball(self.radius).enforce(value, shape)

    def neutral(self, shape: tuple[int, ...]) -> Floats:
        return np.zeros(shape)

    def ranges(self, total: Floats, parties: int) -> tuple[Range, ...]:
        return (norm_within(total, parties * self.limit),)


@dataclass(frozen=True)
class EntrySum:
    """A sum over a party's records, for noise that is measured in L1. `moved` is the L1 distance that one record can
    move it, `each` the L1 norm of what one record adds, `largest` bounds any entry of the sum of `records` records.

    The method bounds each record's part before it forms the sum; entries of the sum are then clipped one by one.
    Clipping a coordinate moves no two values of it further apart, so it keeps the sensitivity in L1 and in L2. Scaling
    the whole sum, as a projection on a ball does, would not keep it in L1.
    """

    neutral_within: ClassVar[bool] = False

    each: float
    moved: float
    largest: float
    records: int = 1

    @property
    def l1(self) -> float:
        return self.moved * _ROUNDING + (self.records + _LAST_DIGITS) * (self.records * self.each) * _ADDING

    @property
    def l2(self) -> float:
        return self.l1

    @property
    def limit(self) -> float:
        return self.largest * _ROUNDING

    def enforce(self, value: Floats, shape: tuple[int, ...]) -> Floats:
        """Clip. A contribution that is not finite becomes neutral, because NaN passes every comparison."""
        axes = tuple(range(-len(shape), 0))
        finite = np.isfinite(value).all(axis=axes, keepdims=True)
        return np.clip(np.where(finite, value, 0.0), -self.largest, self.largest)

    def neutral(self, shape: tuple[int, ...]) -> Floats:
        return np.zeros(shape)

    def ranges(self, total: Floats, parties: int) -> tuple[Range, ...]:
        return (entries_within(total, -parties * self.limit, parties * self.limit),)


@dataclass(frozen=True)
class Counts:
    """Tables of counts of a party's records: each record adds `weights[b]`, a whole number, to one cell of table b.

    Sensitivity  A record that is added or removed moves table b by its weight in one cell: Σ w_b in L1 and √(Σ w_b²) in
                 L2 over all tables, so S and √S for S tables of weight one. A record that is replaced leaves one cell
                 and enters another, or the same: up to twice as far in L1, √2 times in L2. Counts lie on the grid, and
                 whole numbers below 2^53 add up exactly: there is no term for rounding.

    `records` is how many records a party may count: cells are clipped at what so many could fill. Clipping a coordinate
    moves no two values of it further apart, so it keeps the sensitivity. Values that are not whole are refused.
    """

    neutral_within: ClassVar[bool] = False

    weights: tuple[int, ...]
    replaced: bool
    records: int

    def __post_init__(self) -> None:
        whole = all(isinstance(weight, int) and weight > 0 for weight in self.weights)
        if not self.weights or not whole or not 0 < self.records * max(self.weights) < 2**53:
            raise StudyError(
                "counts need a positive whole weight for each table, and cells below 2^53; found weights "
                f"{self.weights} for {self.records} records",
                key="weights",
            )

    @property
    def l1(self) -> float:
        return float(sum(self.weights) * (2 if self.replaced else 1))

    @property
    def l2(self) -> float:
        square = sum(weight * weight for weight in self.weights) * (2 if self.replaced else 1)
        root = sqrt(square)
        # A root that is no float is rounded up.
        return root if root * root == square and root.is_integer() else nextafter(root, inf)

    @property
    def limit(self) -> float:
        return float(self.records * max(self.weights))

    def enforce(self, value: Floats, shape: tuple[int, ...]) -> Floats:
        # Written so that NaN fails.
        if not (np.rint(value) == value).all():
            raise Refused("counts must be whole numbers", code="stopped")
        return np.clip(np.asarray(value, np.float64), 0.0, self.limit)

    def neutral(self, shape: tuple[int, ...]) -> Floats:
        return np.zeros(shape)

    def ranges(self, total: Floats, parties: int) -> tuple[Range, ...]:
        return (entries_within(total, 0.0, parties * self.limit),)


@dataclass(frozen=True)
class OpenedValue:
    """For a value that no single party holds: shares of it, or a model that a trusted coordinator perturbs.

    Sensitivity and largest entry are those of the opened value and must hold for every message, not only honest ones.
    Shares are numbers modulo 2^`ring`. They are summed at the top of a 64-bit word, because in a wider ring the carry
    would tell how the exact value compares with a share.
    """

    neutral_within: ClassVar[bool] = False

    l2: float
    limit: float
    l1: float = float("inf")
    ring: int = 64

    def enforce(self, value: Floats, shape: tuple[int, ...]) -> Floats:
        return value

    def neutral(self, shape: tuple[int, ...]) -> Floats:
        return np.zeros(shape)

    def ranges(self, total: Floats, parties: int) -> tuple[Range, ...]:
        """The bound is that of the opened value, for any number of share holders."""
        return (entries_within(total, -self.limit, self.limit),)


def _row(classes: int) -> Weights:
    return Weights(l1=float(classes), l2=sqrt(classes))
