"""Feature maps: from encoded rows to the coordinates in which a linear model is learned.

Every map is fitted on public auxiliary rows, which costs no privacy. No function fits one on private rows: such a map
would be a release that nobody pays for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from comity.data.row_products import products, row_norms
from comity.entropy import Stream
from comity.errors import DataError
from comity.representation import short_repr

Floats = NDArray[np.float64]

# By rounding, identical rows have up to this share of their mean square as variance.
_ROUNDING = 1e-26
# A direction with less than this share of the largest variance is rounding.
_RANK = 1e-9
# Whitening for self-training divides by no variance below this share of the largest: small ones are mostly noise.
# Chosen while looking at HAR and MNIST, like the rows per dimension.
_FLOOR = 3e-3
# Self-training estimates a covariance: this many public rows for each dimension.
_ROWS_PER_DIMENSION = 10


@dataclass(frozen=True, eq=False)
class FeatureMap:
    """Row by row: (x − mean)·matrix, then the steps that are set, in the order of the fields.

    `phase` makes random Fourier features, √(2/D)·cos(· + phase); `normalise` brings a row to length one (a row of zeros
    stays); `centre` and `whitening` subtract and multiply once more; `constant` appends a column of ones.
    """

    __repr__ = short_repr

    mean: Floats
    matrix: Floats
    phase: Floats | None = None
    normalise: bool = False
    centre: Floats | None = None
    whitening: Floats | None = None
    constant: bool = False

    def __call__(self, rows: Floats, *, rowwise: bool = False) -> Floats:
        """Map rows (..., features) to (..., dimensions). With `rowwise` the result of a row does not depend on the
        other rows, to the last bit; products are then off by about 2^-34 of the factors' lengths."""
        rows = np.asarray(rows, np.float64)
        if rows.shape[-1:] != self.mean.shape:
            raise DataError(f"the feature map expects rows of {len(self.mean)} features, found shape {rows.shape}")
        multiply = _rowwise_product if rowwise else np.matmul
        mapped = multiply(rows - self.mean, self.matrix)
        if self.phase is not None:
            mapped = sqrt(2 / len(self.phase)) * np.cos(mapped + self.phase)
        if self.normalise:
            length = row_norms(mapped)[..., None]
            mapped = mapped / np.where(length > 0, length, 1.0)
        if self.centre is not None:
            mapped = mapped - self.centre
        if self.whitening is not None:
            mapped = multiply(mapped, self.whitening)
        if self.constant:
            mapped = np.concatenate([mapped, np.ones((*mapped.shape[:-1], 1))], axis=-1)
        return np.asarray(mapped, np.float64)

    @property
    def affine(self) -> tuple[Floats, Floats] | None:
        """(matrix, shift) of a map `rows @ matrix + shift`; None if the map has a phase or normalises rows."""
        if self.phase is not None or self.normalise:
            return None
        matrix, shift = self.matrix, -self.mean @ self.matrix
        if self.centre is not None:
            shift = shift - self.centre
        if self.whitening is not None:
            matrix, shift = matrix @ self.whitening, shift @ self.whitening
        if self.constant:
            matrix, shift = np.column_stack([matrix, np.zeros(len(matrix))]), np.append(shift, 1.0)
        return matrix, shift

    @property
    def features(self) -> int:
        return len(self.mean)

    @property
    def dimensions(self) -> int:
        """Columns of the result, the constant included."""
        last = self.matrix if self.whitening is None else self.whitening
        return int(last.shape[1]) + self.constant

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """All its fields as arrays, for a file without pickles."""
        required: dict[str, NDArray[np.generic]] = {
            "mean": self.mean,
            "matrix": self.matrix,
            "normalise": np.array(self.normalise),
            "constant": np.array(self.constant),
        }
        optional = {"phase": self.phase, "centre": self.centre, "whitening": self.whitening}
        return {**required, **{name: array for name, array in optional.items() if array is not None}}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[np.generic]]) -> FeatureMap:
        """The map with these arrays; other names and shapes are refused."""
        known = {"mean", "matrix", "phase", "normalise", "centre", "whitening", "constant"}
        if not {"mean", "matrix", "normalise", "constant"} <= set(arrays) <= known:
            raise DataError(
                f"a feature map is made of mean, matrix, normalise and constant, and may have {sorted(known)}; "
                f"found {sorted(arrays)}"
            )

        def floats(name: str) -> Floats | None:
            return np.asarray(arrays[name], np.float64) if name in arrays else None

        mean, matrix = np.asarray(arrays["mean"], np.float64), np.asarray(arrays["matrix"], np.float64)
        phase, centre, whitening = floats("phase"), floats("centre"), floats("whitening")
        width = matrix.shape[1:]
        fits = (
            mean.ndim == 1
            and matrix.ndim == 2
            and len(matrix) == len(mean)
            and (phase is None or phase.shape == width)
            and (centre is None or centre.shape == width)
            and (whitening is None or (whitening.ndim == 2 and whitening.shape[:1] == width))
            and all(np.isfinite(one).all() for one in (mean, matrix, phase, centre, whitening) if one is not None)
        )
        if not fits:
            raise DataError("the arrays of a feature map must be finite and of fitting shapes; write the file again")
        return cls(mean, matrix, phase, bool(arrays["normalise"]), centre, whitening, constant=bool(arrays["constant"]))


def _rowwise_product(rows: Floats, matrix: Floats) -> Floats:
    return products(rows, matrix.T)


def fit_scaling(auxiliary: Floats) -> FeatureMap:
    """Centre each feature and divide it by its public standard deviation; a constant feature becomes zero."""
    rows = _require_rows(auxiliary)
    deviation = rows.std(axis=0)
    return FeatureMap(rows.mean(axis=0), np.diag(np.where(deviation > 0, 1 / np.where(deviation > 0, deviation, 1), 0)))


def fit_pca(auxiliary: Floats, k: int) -> FeatureMap:
    """Centre, and project to the k directions of largest public variance, or to all if there are fewer."""
    rows = _require_rows(auxiliary)
    mean = rows.mean(axis=0)
    variances, axes = _principal_axes(rows - mean, _mean_square(rows))
    return FeatureMap(mean, axes[:, : _count_dimensions(variances, k)])


def fit_whitened_pca(auxiliary: Floats, k: int | None = None, weight: Floats | None = None) -> FeatureMap:
    """Project to the k directions of largest public variance, scale each to variance one over the auxiliary rows, and
    append a constant.

    Over the auxiliary rows Σ z zᵀ/N is the identity: a mean of votes times z is no longer than the votes. Public
    weights (N,) of mean one apply to all means, also to that of z zᵀ.
    """
    rows = _require_rows(auxiliary)
    if weight is None:
        mean = rows.mean(axis=0)
        centred = rows - mean
    else:
        mean = weight @ rows / len(rows)
        centred = (rows - mean) * np.sqrt(weight)[:, None]
    variances, axes = _principal_axes(centred, _mean_square(rows))
    kept = _count_dimensions(variances, k)
    return FeatureMap(mean, axes[:, :kept] / np.sqrt(variances[:kept]), constant=True)


def fit_self_training_map(auxiliary: Floats) -> FeatureMap:
    """Centre, project to a tenth as many dimensions as rows, normalise rows, and whiten with a floor on variances."""
    rows = _require_rows(auxiliary)
    first = fit_pca(rows, max(1, min(len(rows) // _ROWS_PER_DIMENSION, rows.shape[1])))
    turned = FeatureMap(first.mean, first.matrix, normalise=True)
    unit = turned(rows)
    centre = unit.mean(axis=0)
    variances, axes = _principal_axes(unit - centre, _mean_square(unit))
    kept = _count_dimensions(variances, None)
    floored = np.maximum(variances[:kept], _FLOOR * variances[0])
    return FeatureMap(
        first.mean, first.matrix, normalise=True, centre=centre, whitening=axes[:, :kept] / np.sqrt(floored)
    )


def fit_random_features(auxiliary: Floats, dimensions: int, stream: Stream) -> FeatureMap:
    """Random Fourier features of a Gaussian kernel (Rahimi and Recht 2007) whose width is the median public
    distance."""
    rows = _require_rows(auxiliary)
    if dimensions < 1:
        raise DataError(f"random features need at least one dimension, found {dimensions}")
    pairs = stream.integers(len(rows), (2, 1000))
    distances = np.linalg.norm(rows[pairs[0]] - rows[pairs[1]], axis=1)
    apart = distances[distances > 0]
    width = float(np.median(apart)) if apart.size else 1.0
    matrix = stream.normal((rows.shape[1], dimensions)) / width
    phase = 2 * np.pi * stream.uniform((dimensions,))
    return FeatureMap(rows.mean(axis=0), matrix, phase=phase)


def compose(first: FeatureMap, second: FeatureMap) -> FeatureMap:
    """`first`, then `second`, as one map. `second` must be linear: a mean, a matrix, and perhaps a constant."""
    plain = second.phase is None and not second.normalise and second.centre is None and second.whitening is None
    if not plain or first.constant or first.centre is not None or first.whitening is not None:
        raise DataError("a second map must be linear, and the first one must end without a constant or a whitening")
    return replace(first, centre=second.mean, whitening=second.matrix, constant=second.constant)


def _require_rows(auxiliary: Floats) -> Floats:
    rows = np.asarray(auxiliary, np.float64)
    if rows.ndim != 2 or not rows.size or not np.isfinite(rows).all():
        raise DataError(
            f"a feature map is fitted on a table of finite public auxiliary rows, found shape {rows.shape}; "
            "encode the auxiliary records first"
        )
    return rows


def _principal_axes(centred: Floats, scale: float) -> tuple[Floats, Floats]:
    """Variances and axes (features, axes), the largest first; `scale` is the mean square of a row before centring."""
    variances, axes = np.linalg.eigh(centred.T @ centred / len(centred))
    # Identical rows differ by rounding after centring.
    variances = np.where(variances > _ROUNDING * scale, variances, 0.0)
    # The largest entry of each axis is positive: machines agree on the signs.
    signs = np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])])
    return variances[::-1], (axes * signs)[:, ::-1]


def _mean_square(rows: Floats) -> float:
    return float((rows**2).sum() / len(rows))


def _count_dimensions(variances: Floats, limit: int | None) -> int:
    if limit is not None and limit < 1:
        raise DataError(f"a map keeps at least one dimension, found {limit}")
    if variances[0] <= 0:
        raise DataError("the auxiliary rows are all the same: no direction has any variance; supply others")
    rank = int(np.count_nonzero(variances > _RANK * variances[0]))
    return rank if limit is None else min(limit, rank)
