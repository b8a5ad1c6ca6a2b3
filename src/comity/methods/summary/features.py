"""Random Fourier features of a Gaussian kernel, in pairs of cosine and sine, and the moments that owners sum.

After A. Rahimi, B. Recht, Random features for large-scale kernel machines, NeurIPS 2007, with frequencies that are
orthogonal inside blocks (F. Yu et al., Orthogonal random features, NeurIPS 2016). The map is drawn from a public seed,
or from one that owners and consumer keep from the curator. The kernel's width comes from public records or the schema.
Neither reads a private record.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import pi, sqrt
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from comity.data import Categorical, Encoding
from comity.data.row_products import Weights, row_norms
from comity.entropy import Stream
from comity.errors import DataError
from comity.learn.record_sum import from_upper_triangle

Floats = NDArray[np.float64]
Real = TypeVar("Real", np.float32, np.float64)

LENGTH = 1 + 1e-6
"""The largest length of a row of features. Cosines and sines of single precision are off by a few times 2^-24, whatever
the angle, so a pair is no longer than this. A longer row would be divided by its length."""

# Below this squared length a row needs no division, in whatever order its squares are added.
_CERTAINLY_SHORT = LENGTH**2 * (1 - 1e-9)
# The number of entries computed at once, which fit in the processor's cache. Results do not depend on it.
_BLOCK_ENTRIES = 1 << 15


class FeatureMap(Protocol):
    """Rows of `columns` numbers become rows of `dimensions` features."""

    @property
    def columns(self) -> int: ...

    @property
    def dimensions(self) -> int: ...

    def __call__(self, rows: Floats) -> Floats: ...


@dataclass(frozen=True)
class Unchanged:
    """The map of rows that are features already. A row longer than `longest` is divided by its length: it comes from a
    party that need not be honest."""

    dimensions: int
    longest: float

    @property
    def columns(self) -> int:
        return self.dimensions

    def __call__(self, rows: Floats) -> Floats:
        found = np.asarray(rows, np.float64)
        return found / np.maximum(1.0, row_norms(found) / self.longest)[:, None]


@dataclass(frozen=True, eq=False)
class FourierFeatures:
    """φ(x) = √(2/D)·(cos(xᵀΩ + b), sin(xᵀΩ + b)), of length one; φ(x)·φ(y) is about exp(−γ·|x − y|²).

    `frequencies` Ω is (columns, D/2), and `phases` b is (D/2,), or None for zeros. Products of features do not depend
    on phases. Under a secret seed, phases hide where the origin is (proof.md, 6).

    The length of a pair does not depend on the angle, so a row has length one, up to `LENGTH`, however large or inexact
    x is. A row that is not finite becomes zero. Features of a row do not depend on other rows, to the last bit: angles
    are exact products (`comity.data.row_products`).
    """

    frequencies: Floats
    phases: Floats | None = None

    @classmethod
    def draw(
        cls, columns: int, dimensions: int, gamma: float, stream: Stream, *, shifted: bool = False
    ) -> FourierFeatures:
        """An even number `dimensions` of features of rows with `columns` columns, for the kernel exp(−γ·|x − y|²).

        In each block of `columns` frequencies, these are orthogonal and as long as normal vectors. Products of features
        have the same expectation as with independent frequencies, and less variance. With `shifted` the phases are
        uniform on [0, 2π].
        """
        if columns < 1 or dimensions < 2 or dimensions % 2:
            raise DataError(
                f"random features need at least one column and an even number of dimensions, found {columns} and "
                f"{dimensions}"
            )
        if not 0 < gamma < float("inf"):
            raise DataError(f"the kernel's gamma must be positive and finite, found {gamma}", key="summary.gamma")
        blocks = []
        for start in range(0, dimensions // 2, columns):
            square = stream.normal((columns, columns))
            rotation, upper = np.linalg.qr(square)
            # With these signs the rotation is uniform, and the same on every machine.
            rotation = rotation * np.where(np.diag(upper) < 0, -1.0, 1.0)
            lengths = np.linalg.norm(stream.normal((columns, columns)), axis=0)
            blocks.append((rotation * lengths)[:, : dimensions // 2 - start])
        phases = 2 * pi * stream.uniform(dimensions // 2) if shifted else None
        return cls(np.concatenate(blocks, axis=1) * sqrt(2 * gamma), phases)

    @property
    def columns(self) -> int:
        return len(self.frequencies)

    @property
    def dimensions(self) -> int:
        return 2 * int(self.frequencies.shape[1])

    def __call__(self, rows: Floats) -> Floats:
        """(n, columns) to (n, D), with angles to 26 bits and cosines and sines in single precision, which is twice as
        fast."""
        rows = np.asarray(rows)
        if rows.ndim != 2 or rows.shape[1] != self.columns:
            raise DataError(f"the features expect rows of {self.columns} columns, found shape {rows.shape}")
        features = np.empty((len(rows), self.dimensions))
        step = max(16, _BLOCK_ENTRIES // max(self.columns, self.dimensions // 2))
        for start in range(0, len(rows), step):
            self._fill(features[start : start + step], rows[start : start + step])
        return features

    def _fill(self, block: Floats, rows: Floats) -> None:
        """Write the features of some rows into `block`."""
        half, length = self.dimensions // 2, np.float64(sqrt(2 / self.dimensions))
        # Entries that are not finite, here or in single precision, become zero below.
        with np.errstate(invalid="ignore", over="ignore"):
            angles = self._angles.of_rows(rows)
            if self.phases is not None:
                angles = angles + self.phases
            angles = angles.astype(np.float32)
            np.multiply(np.cos(angles), length, out=block[:, :half])
            np.multiply(np.sin(angles), length, out=block[:, half:])
            # Products clip an infinite entry, so only the sum of all entries shows it.
            if not np.isfinite(rows.sum()):
                block[~np.isfinite(rows).all(axis=1)] = 0.0
        # NaN fails this comparison. Each row is checked by itself, so no row depends on another.
        doubtful = np.flatnonzero(~(np.einsum("ij,ij->i", block, block) <= _CERTAINLY_SHORT))
        if len(doubtful):
            some = block[doubtful]
            lengths = row_norms(some)
            some[~np.isfinite(lengths)] = 0.0
            longer = lengths > LENGTH
            some[longer] /= lengths[longer][:, None]
            block[doubtful] = some

    @cached_property
    def _angles(self) -> Weights:
        return Weights.on_one_grid(self.frequencies.T)


@lru_cache(maxsize=8)
def public_features(columns: int, dimensions: int, gamma: float) -> FourierFeatures:
    """The map that every participant of a study draws alike: its seed is a public label."""
    return FourierFeatures.draw(columns, dimensions, gamma, Stream.public("summary features", columns, dimensions))


def gamma_of_records(public: Floats) -> float:
    """γ of the kernel: one over the median squared distance of public rows. The kernel of two typical rows is then e⁻¹.

    The rows must be public: a width computed from private ones would be a release that nobody pays for. Equal rows say
    nothing about a scale, so pairs of them are left out.
    """
    rows = np.asarray(public, np.float64)
    if rows.ndim != 2 or len(rows) < 2 or not np.isfinite(rows).all():
        raise DataError(
            f"the kernel's width needs two or more finite public rows, found shape {rows.shape}; give more auxiliary "
            "records, or summary.gamma",
            key="summary.gamma",
        )
    if len(rows) > _MAX_PUBLIC:
        rows = rows[Stream.public("summary width").permutation(len(rows))[:_MAX_PUBLIC]]
    first, second = np.triu_indices(len(rows), 1)
    apart = squared_distances(rows, rows)[first, second]
    apart = apart[apart > _EQUAL_DISTANCE * max(float((rows**2).sum(axis=1).max()), 1e-300)]
    if not apart.size:
        raise DataError(
            "the auxiliary records are all equal and say nothing about a width; give others, or summary.gamma",
            key="summary.gamma",
        )
    return 1.0 / float(np.median(apart))


# The most public rows that the median is taken over: a limit of size.
_MAX_PUBLIC = 1000
# Rounding gives equal rows a squared distance of up to this times their squared length.
_EQUAL_DISTANCE = 1e-13


def squared_distances(first: NDArray[Real], second: NDArray[Real]) -> NDArray[Real]:
    """|x − y|² of all pairs of rows (n, c) and (m, c), in their precision."""
    squares: NDArray[Real] = first @ second.T
    squares *= -2
    squares += np.einsum("ij,ij->i", first, first)[:, None]
    squares += np.einsum("ij,ij->i", second, second)
    np.maximum(squares, 0, out=squares)
    return squares


def gamma_of_schema(encoding: Encoding) -> float:
    """γ of the kernel: one over the mean squared distance of two records whose columns are uniform and independent. A
    number on [0, 1] adds 1/6 to it, a column of c categories 2·(1 − 1/c). Real records are rarely that spread out, so
    public records give a better width."""
    apart = 0.0
    for column in encoding.schema.columns:
        apart += 2 * (1 - 1 / column.width) if isinstance(column, Categorical) else 1 / 6
    return 1.0 / max(apart, 1e-9)


# Moments: a record adds its features and their products with each other to the owners' sum, as one vector.
#
# Sensitivity  (proof.md, 1) For two records with features φ, ψ of length at most one and s = φ·ψ, the squared distance
#              of the vectors (φφᵀ, cφ) is ‖φφᵀ − ψψᵀ‖² + c²·|φ − ψ|² <= 2 − 2s² + c²·(2 − 2s), at most 2·(1 + c²/2)²,
#              at s = −c²/2. One noise for both parts is slightly less than separate noise, and one sum replaces two.

MEAN_WEIGHT = 0.2
"""c: the weight of the mean beside the products. The mean needs far fewer digits. Settled on MNIST."""
# The most rows in memory at once as features: a limit of size.
_MOMENT_ROWS = 4096

MOMENT_SENSITIVITY = sqrt(2) * (1 + MEAN_WEIGHT**2 / 2) * LENGTH**2
"""The largest distance by which one replaced record moves the sum."""
MOMENT_LENGTH = sqrt(1 + MEAN_WEIGHT**2) * LENGTH**2
"""The largest length of one record's vector."""


def count_moments(dimensions: int) -> int:
    """The length of the vector of moments."""
    return dimensions * (dimensions + 1) // 2 + dimensions


def sum_moments(rows: Floats, features: FourierFeatures) -> Floats:
    """Σ (φφᵀ, cφ) over rows. Of the products it holds the upper triangle, with entries off the diagonal times √2."""
    width = features.dimensions
    product, total = np.zeros((width, width)), np.zeros(width)
    for start in range(0, len(rows), _MOMENT_ROWS):
        block = features(rows[start : start + _MOMENT_ROWS])
        product += block.T @ block
        total += block.sum(axis=0)
    row, column = np.triu_indices(width)
    triangle = product[row, column] * np.where(row == column, 1.0, sqrt(2.0))
    return np.concatenate([triangle, MEAN_WEIGHT * total])


def split_moments(vector: Floats, dimensions: int) -> tuple[Floats, Floats]:
    """Σφφᵀ and Σφ of the vector that `sum_moments` gives."""
    products = len(vector) - dimensions
    return from_upper_triangle(vector[:products], dimensions), np.asarray(vector[products:] / MEAN_WEIGHT, np.float64)
