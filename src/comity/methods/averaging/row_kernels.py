"""What a record adds to a sum, in one pass over it: whitening, the unit ball, score, residual, clip, grid and product.

Rows come as columns (d, n): a row is a column, and one operation does the same to many rows at once. Entries are single
floats, rounded towards zero (`single_columns`), so no norm grows and a cache holds them in half of the memory. Squares
and scores of a row are doubles, its whitened entries single floats again. A sum over a row's entries is added from the
first entry to the last, each product and each addition rounded by itself. So what a record adds is a function of this
record and of what was received, to the last bit: in any tile, at any place in it, in any batch, and without the
compiler. Residuals and whitened rows are on the grid 2^-18, so their products are multiples of 2^-36 and no sum of up
to 2^16 of them rounds (`comity.data.exact_sums`), in whatever order: these the compiler may add as it likes.

σ(s) is computed here and not by a library, whose last digits depend on the machine: e^-|s| = 2^n·e^r with |r| <= ln 2/2
and the series of e^r up to r^13, whose rest is below 2^-56. It is off by at most 2^-51 of itself.

Range   Rows are inside the unit ball, entries of B at most 1 and c at most 2^30 in magnitude: no square overflows.
Tiles   Slices of a line, and not places of an array, are read and written: the compiler sees that they are in a row.
        The last tile is copied to one that zeros fill, so every loop over a tile has the same number of steps.
File    Kernels that call each other are in one file: the compiler's cache on disk looks at no other for changes.
"""

from __future__ import annotations

from math import factorial
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from comity.compiled import compiled_or, compiled_or_interpreted, inlined, inlined_exact
from comity.data.exact_sums import FACTOR_PLACES, PLACES
from comity.data.scratch import scratch
from comity.data.singles import round_to_singles, truncate_to_singles
from comity.learn.record_sum import in_unit_ball

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Rows = TypeVar("Rows", Floats, Singles, Floats | Singles)
Flags = NDArray[np.bool_]
Labels = NDArray[Any]

MAX_FEATURES = 256
"""Wider rows go through BLAS: a tile of them leaves the cache."""

MAX_MULTIPLIED = 64
"""Second moments of wider rows are products of BLAS, which are as exact."""

TILE, MOMENT_TILE = 256, 128
"""Rows that go through all operations together: a tile stays in the nearest caches, and a loop over it is a few vector
instructions. Second moments are sums of doubles: a tile of half of the rows."""

LOGISTIC, SVM, LINEAR = 0, 1, 2

_FACTOR_UNITS, _TERM_UNITS = 2.0**FACTOR_PLACES, 2.0**PLACES
_ONE = np.float32(1.0)
# Of rows that are shortened: their norm is at most 1 however it is computed.
_BELOW_ONE = 1 - 2.0**-40
# e^-708 is the least that is not subnormal.
_FARTHEST = 708.0
_PER_LN2 = 1.4426950408889634
# ln 2 in two parts: the product of the first with any n is exact.
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
# Added to a number it leaves the nearest whole one in the last bits.
_ROUNDER = 1.5 * 2.0**52
_EXPONENT_BIAS, _MANTISSA_BITS = 1023, 52
_SERIES = tuple(1.0 / factorial(power) for power in range(13, -1, -1))
(_S13, _S12, _S11, _S10, _S9, _S8, _S7, _S6, _S5, _S4, _S3, _S2, _S1, _S0) = _SERIES


def as_columns(rows: Rows, name: str = "columns") -> Rows:
    """Rows (..., d) as contiguous columns (d, n). Rows that were columns are not copied; others are copied to memory
    that the next call of the thread with this name overwrites."""
    width = rows.shape[-1]
    columns = rows.reshape(rows.size // width, width).T
    if columns.flags.c_contiguous:
        return columns
    found = scratch(name, columns.shape, columns.dtype.type)
    found[:] = columns
    return found


def single_columns(rows: Floats | Singles, out: Singles | None = None, name: str = "columns") -> Singles:
    """`as_columns` of rows (..., d) as single floats, rounded towards zero. Doubles are written to `out` (d, n) where
    it is given, and else to memory that the next call of the thread overwrites."""
    if rows.dtype == np.float32:
        return as_columns(cast("Singles", rows), name)
    columns = as_columns(cast("Floats", rows))
    found: Singles = scratch("singles", columns.shape, np.float32) if out is None else out
    round_to_singles(columns, found)
    return found


def unit_columns(rows: Floats | Singles, out: Singles | None = None) -> Singles:
    """`single_columns`, with those that are longer than 1 divided by their norm. A row that is not finite becomes
    zero."""
    columns = single_columns(rows, out)
    return columns if are_inside(columns) else _shorten(columns, rows.reshape(-1, rows.shape[-1]))


def _shorten(columns: Singles, rows: Floats | Singles) -> Singles:
    squares = _squares_in_numpy(columns)
    long, huge = squares > 1.0, ~np.isfinite(squares)
    long &= ~huge
    found = columns.copy()
    found[:, long] = truncate_to_singles(columns[:, long] * (_BELOW_ONE / np.sqrt(squares[long])))
    found[:, huge] = truncate_to_singles(in_unit_ball(np.asarray(rows[huge], np.float64)).T * _BELOW_ONE)
    return found


def _squares_in_numpy(x: Singles) -> Floats:
    found = np.zeros(x.shape[1])
    with np.errstate(invalid="ignore"):
        for line in x.astype(np.float64):
            found += line * line
    return found


def _are_inside_in_numpy(x: Singles) -> bool:
    return bool((_squares_in_numpy(x) <= 1.0).all())


@compiled_or(_are_inside_in_numpy)
def are_inside(x: Singles) -> bool:
    """Whether every column (d, n) is in the unit ball. False for NaN too."""
    width, rows = x.shape
    square = np.empty(TILE)
    outside = 0
    for first in range(0, rows, TILE):
        size = min(TILE, rows - first)
        for i in range(TILE):
            square[i] = 0.0
        for j in range(width):
            line = x[j, first : first + size]
            for i in range(size):
                value = np.float64(line[i])
                square[i] += value * value
        for i in range(TILE):
            outside += 0 if square[i] <= 1.0 else 1
    return outside == 0


@compiled_or_interpreted
def shrinking(width: int) -> np.float32:
    """What the rows that `whiten` shortens are multiplied by beside: their norm is not computed exactly."""
    return np.float32(1.0 - (width + 8) * 2.0**-24)


def _whiten_in_numpy(x: Singles, directions: Singles, scale: np.float32, units: np.float32, out: Singles) -> None:
    along = np.zeros((len(directions), x.shape[1]), np.float32)
    for j in range(len(x)):
        along += directions[:, j, None] * x[j]
    found, square = x.copy(), np.zeros(x.shape[1], np.float32)
    for j in range(len(x)):
        for m in range(len(directions)):
            found[j] -= along[m] * directions[m, j]
        found[j] *= scale
        square += found[j] * found[j]
    found *= shrinking(len(x)) / np.maximum(np.sqrt(square), _ONE)
    out[:] = found if units == 0.0 else np.trunc(found * units) / units


@inlined
def _whiten_tile(  # noqa: C901 (a loop for each operation)
    x: Singles,
    first: int,
    directions: Singles,
    scale: np.float32,
    shrink: np.float32,
    along: Singles,
    factor: Singles,
    tile: Singles,
) -> None:
    """Write c·(x − BᵀB x) to `tile`, and to `factor` what brings it into the ball. `along` is memory for B x."""
    for i in range(TILE):
        factor[i] = np.float32(0.0)
    for m in range(directions.shape[0]):
        for i in range(TILE):
            along[m, i] = np.float32(0.0)
        for j in range(x.shape[0]):
            part, line = directions[m, j], x[j, first : first + TILE]
            for i in range(TILE):
                along[m, i] += part * line[i]
    for j in range(x.shape[0]):
        line, found = x[j, first : first + TILE], tile[j]
        for i in range(TILE):
            found[i] = line[i]
        for m in range(directions.shape[0]):
            part = directions[m, j]
            for i in range(TILE):
                found[i] -= along[m, i] * part
        for i in range(TILE):
            value = found[i] * scale
            found[i] = value
            factor[i] += value * value
    for i in range(TILE):
        factor[i] = shrink / max(np.sqrt(factor[i]), _ONE)


@compiled_or(_whiten_in_numpy)
def whiten(x: Singles, directions: Singles, scale: np.float32, units: np.float32, out: Singles) -> None:
    """Write c·(x − BᵀB x), scaled into the unit ball, of columns `x` (d, n) of the unit ball to `out` (d, n): as it is
    where `units` is 0, else its multiples of 1/units, towards zero; `units` is a power of two. `directions` (k, d) are
    the rows of B."""
    width, rows = x.shape
    tile, last = np.empty((width, TILE), np.float32), np.zeros((width, TILE), np.float32)
    along, factor = np.empty((max(1, directions.shape[0]), TILE), np.float32), np.empty(TILE, np.float32)
    shrink = shrinking(width)
    for first in range(0, rows, TILE):
        size = min(TILE, rows - first)
        source, at = x, first
        if size < TILE:
            for j in range(width):
                for i in range(size):
                    last[j, i] = x[j, first + i]
            source, at = last, 0
        _whiten_tile(source, at, directions, scale, shrink, along, factor, tile)
        for j in range(width):
            line, written = tile[j], out[j, first : first + size]
            if units == 0.0:
                for i in range(size):
                    written[i] = line[i] * factor[i]
            else:
                for i in range(size):
                    written[i] = np.trunc(line[i] * factor[i] * units) / units


@inlined_exact
def _dot(one: Floats, other: Floats | Singles) -> float:
    """Of multiples of 2^-36 that no sum rounds."""
    found = 0.0
    for i in range(TILE):
        found += one[i] * np.float64(other[i])
    return found


@inlined_exact
def _dot_of_moments(one: Floats, other: Floats) -> float:
    found = 0.0
    for i in range(MOMENT_TILE):
        found += one[i] * other[i]
    return found


def _sum_second_moments_in_numpy(x: Singles, filled: Flags, out: Floats) -> None:
    units = np.where(filled, np.trunc(x.astype(np.float64) * _FACTOR_UNITS), 0.0).reshape(len(x), len(out), -1)
    row, column = np.triu_indices(len(x))
    for owner in range(len(out)):
        out[owner] = (units[:, owner] @ units[:, owner].T)[row, column] / _TERM_UNITS


@compiled_or(_sum_second_moments_in_numpy)
def sum_second_moments(  # noqa: C901 (one pass over a tile)
    x: Singles, filled: Flags, out: Floats
) -> None:
    """Write the upper triangle of Σ x xᵀ of each owner to `out` (owners, d(d + 1)/2): x are the columns `x` (d, n) of
    the unit ball on the grid 2^-18, towards zero. Owners have as many columns each, at most 2^16. A place that is not
    filled adds nothing."""
    width, rows = x.shape
    owners = out.shape[0]
    each = rows // max(1, owners)
    units, present = np.empty((width, MOMENT_TILE)), np.empty(MOMENT_TILE)
    for owner in range(owners):
        total = out[owner]
        for place in range(total.shape[0]):
            total[place] = 0.0
        for first in range(owner * each, (owner + 1) * each, MOMENT_TILE):
            size = min(MOMENT_TILE, (owner + 1) * each - first)
            flags = filled[first : first + size]
            for i in range(size):
                present[i] = 1.0 if flags[i] else 0.0
            for j in range(width):
                line, found = x[j, first : first + size], units[j]
                for i in range(size):
                    found[i] = np.trunc(np.float64(line[i]) * _FACTOR_UNITS) * present[i]
                for i in range(size, MOMENT_TILE):
                    found[i] = 0.0
            place = 0
            for j in range(width):
                for m in range(j, width):
                    total[place] += _dot_of_moments(units[j], units[m])
                    place += 1
        for place in range(total.shape[0]):
            total[place] /= _TERM_UNITS


def _decay_in_numpy(scores: Floats) -> Floats:
    """e^-|s|."""
    distance = -np.minimum(np.abs(scores), _FARTHEST)
    shifted = distance * _PER_LN2 + _ROUNDER
    whole = shifted - _ROUNDER
    rest = (distance - whole * _LN2_HIGH) - whole * _LN2_LOW
    found = np.full(scores.shape, _SERIES[0])
    for factor in _SERIES[1:]:
        found = found * rest + factor
    power = (shifted.view(np.int64) + _EXPONENT_BIAS) << _MANTISSA_BITS
    return np.asarray(found * power.view(np.float64), np.float64)


def _scores_in_numpy(x: Singles, weights: Floats) -> Floats:
    found = np.zeros(x.shape[1])
    for j in range(len(x)):
        found += x[j].astype(np.float64) * weights[j]
    return found


def _sum_residuals_in_numpy(
    x: Singles,
    along: Singles,
    weights: Floats,
    targets: Labels,
    filled: Flags,
    kind: int,
    clip: float,
    out: Floats,
) -> None:
    scores = _scores_in_numpy(x, weights)
    with np.errstate(invalid="ignore"):
        if kind == LOGISTIC:
            decay = _decay_in_numpy(scores)
            residual: Floats = np.where(scores >= 0.0, 1.0, decay) / (1.0 + decay) - targets
        elif kind == SVM:
            sign = 2.0 * targets - 1.0
            residual = -sign * np.minimum(np.maximum(1.0 - sign * scores, 0.0), 1.0)
        else:
            residual = np.minimum(np.maximum(scores - targets, -1.0), 1.0)
        usable = filled & np.isfinite(targets)
        residual = residual * np.minimum(1.0, clip / np.maximum(np.abs(residual), 1e-300))
        units = np.where(usable, np.trunc(residual * _FACTOR_UNITS), 0.0)
    each = x.shape[1] // max(1, len(out))
    for owner in range(len(out)):
        part = slice(owner * each, (owner + 1) * each)
        out[owner] = (along[:, part].astype(np.float64) @ units[part]) / _FACTOR_UNITS


@inlined
def _copy_tile(x: Singles, first: int, size: int, tile: Singles) -> None:
    """Some columns of `x`, and columns of zeros after them."""
    for j in range(x.shape[0]):
        line, found = x[j, first : first + size], tile[j]
        for i in range(size):
            found[i] = line[i]
        for i in range(size, TILE):
            found[i] = np.float32(0.0)


@inlined
def _copy_targets(targets: Labels, filled: Flags, first: int, size: int, aims: Floats, present: Flags) -> None:
    """Targets of a tile as doubles, and which of its places count: none after `size`, and none without a number."""
    given, flags = targets[first : first + size], filled[first : first + size]
    for i in range(size):
        aims[i] = np.float64(given[i])
    for i in range(size):
        present[i] = flags[i] and np.isfinite(aims[i])
    for i in range(size, TILE):
        aims[i] = 0.0
        present[i] = False


@inlined
def _set_scores(x: Singles, weights: Floats, first: int, scores: Floats) -> None:
    for i in range(TILE):
        scores[i] = 0.0
    for j in range(x.shape[0]):
        weight, line = weights[j], x[j, first : first + TILE]
        for i in range(TILE):
            scores[i] += np.float64(line[i]) * weight


@inlined
def _set_scores_and_squares(x: Singles, weights: Floats, first: int, scores: Floats, squares: Floats) -> None:
    for i in range(TILE):
        scores[i] = 0.0
        squares[i] = 0.0
    for j in range(x.shape[0]):
        weight, line = weights[j], x[j, first : first + TILE]
        for i in range(TILE):
            value = np.float64(line[i])
            squares[i] += value * value
            scores[i] += value * weight


@inlined
def _set_decay(scores: Floats, shifted: Floats, power: Floats, decay: Floats) -> None:
    """e^-|s| of a tile. `shifted` and `power` are memory for it."""
    for i in range(scores.shape[0]):
        distance = -min(abs(scores[i]), _FARTHEST)
        shifted[i] = distance * _PER_LN2 + _ROUNDER
        whole = shifted[i] - _ROUNDER
        r = (distance - whole * _LN2_HIGH) - whole * _LN2_LOW
        found = _S13 * r + _S12
        found = found * r + _S11
        found = found * r + _S10
        found = found * r + _S9
        found = found * r + _S8
        found = found * r + _S7
        found = found * r + _S6
        found = found * r + _S5
        found = found * r + _S4
        found = found * r + _S3
        found = found * r + _S2
        found = found * r + _S1
        decay[i] = found * r + _S0
    shifted_bits, power_bits = shifted.view(np.int64), power.view(np.int64)
    for i in range(scores.shape[0]):
        power_bits[i] = (shifted_bits[i] + _EXPONENT_BIAS) << _MANTISSA_BITS
    for i in range(scores.shape[0]):
        decay[i] *= power[i]


@inlined
def _set_units(
    scores: Floats,
    aims: Floats,
    present: Flags,
    kind: int,
    clip: float,
    shifted: Floats,
    power: Floats,
    decay: Floats,
    units: Floats,
) -> None:
    """Clipped residuals of a tile in units of the grid."""
    if kind == LOGISTIC:
        _set_decay(scores, shifted, power, decay)
        for i in range(TILE):
            top = 1.0 if scores[i] >= 0.0 else decay[i]
            units[i] = top / (1.0 + decay[i]) - aims[i]
    elif kind == SVM:
        for i in range(TILE):
            sign = 2.0 * aims[i] - 1.0
            units[i] = -sign * min(max(1.0 - sign * scores[i], 0.0), 1.0)
    else:
        for i in range(TILE):
            units[i] = min(max(scores[i] - aims[i], -1.0), 1.0)
    for i in range(TILE):
        value = units[i] * min(1.0, clip / max(abs(units[i]), 1e-300))
        units[i] = np.trunc(value * _FACTOR_UNITS) if present[i] else 0.0


@compiled_or(_sum_residuals_in_numpy)
def sum_residuals(
    x: Singles,
    along: Singles,
    weights: Floats,
    targets: Labels,
    filled: Flags,
    kind: int,
    clip: float,
    out: Floats,
) -> None:
    """Write Σ r·u of each owner to `out` (owners, d): r is the residual of a column of `x` (d, n) at `weights` (d,),
    scaled to at most `clip`, and u the column of `along` (d, n), a row in the unit ball on the grid. Owners have as
    many columns each, at most 2^16. A target that is not finite, like a place that is not filled, adds nothing."""
    width, rows = x.shape
    owners = out.shape[0]
    each = rows // max(1, owners)
    scores, shifted, power, decay = np.empty(TILE), np.empty(TILE), np.empty(TILE), np.empty(TILE)
    units, aims, present = np.empty(TILE), np.empty(TILE), np.empty(TILE, np.bool_)
    last, last_along = np.empty((width, TILE), np.float32), np.empty((width, TILE), np.float32)
    for owner in range(owners):
        total = out[owner]
        for j in range(width):
            total[j] = 0.0
        for first in range(owner * each, (owner + 1) * each, TILE):
            size = min(TILE, (owner + 1) * each - first)
            source, other, at = x, along, first
            if size < TILE:
                _copy_tile(x, first, size, last)
                _copy_tile(along, first, size, last_along)
                source, other, at = last, last_along, 0
            _copy_targets(targets, filled, first, size, aims, present)
            _set_scores(source, weights, at, scores)
            _set_units(scores, aims, present, kind, clip, shifted, power, decay, units)
            for j in range(width):
                total[j] += _dot(units, other[j, at : at + TILE])
        for j in range(width):
            total[j] /= _FACTOR_UNITS


def _sum_whitened_in_numpy(
    x: Singles,
    directions: Singles,
    scale: np.float32,
    weights: Floats,
    targets: Labels,
    filled: Flags,
    kind: int,
    clip: float,
    out: Floats,
) -> bool:
    if not _are_inside_in_numpy(x):
        return False
    along = np.empty(x.shape, np.float32)
    _whiten_in_numpy(x, directions, scale, np.float32(_FACTOR_UNITS), along)
    _sum_residuals_in_numpy(x, along, weights, targets, filled, kind, clip, out)
    return True


@compiled_or(_sum_whitened_in_numpy)
def sum_whitened(
    x: Singles,
    directions: Singles,
    scale: np.float32,
    weights: Floats,
    targets: Labels,
    filled: Flags,
    kind: int,
    clip: float,
    out: Floats,
) -> bool:
    """`sum_residuals` along the rows that `whiten` would write on the grid of exact sums, which are not written. False
    where not every column is inside the unit ball: `out` is then of no use."""
    width, rows = x.shape
    owners = out.shape[0]
    each = rows // max(1, owners)
    tile, last = np.empty((width, TILE), np.float32), np.empty((width, TILE), np.float32)
    along, factor = np.empty((max(1, directions.shape[0]), TILE), np.float32), np.empty(TILE, np.float32)
    scores, shifted, power, decay = np.empty(TILE), np.empty(TILE), np.empty(TILE), np.empty(TILE)
    units, aims, present, squares = np.empty(TILE), np.empty(TILE), np.empty(TILE, np.bool_), np.empty(TILE)
    shrink, steps = shrinking(width), np.float32(_FACTOR_UNITS)
    outside = 0
    for owner in range(owners):
        total = out[owner]
        for j in range(width):
            total[j] = 0.0
        for first in range(owner * each, (owner + 1) * each, TILE):
            size = min(TILE, (owner + 1) * each - first)
            source, at = x, first
            if size < TILE:
                _copy_tile(x, first, size, last)
                source, at = last, 0
            _copy_targets(targets, filled, first, size, aims, present)
            _set_scores_and_squares(source, weights, at, scores, squares)
            for i in range(TILE):
                outside += 0 if squares[i] <= 1.0 else 1
            _set_units(scores, aims, present, kind, clip, shifted, power, decay, units)
            _whiten_tile(source, at, directions, scale, shrink, along, factor, tile)
            for j in range(width):
                line = tile[j]
                for i in range(TILE):
                    line[i] = np.trunc(line[i] * factor[i] * steps)
                total[j] += _dot(units, line)
        for j in range(width):
            total[j] /= _TERM_UNITS
    return outside == 0


def _sum_calibrations_in_numpy(
    x: Singles, weights: Floats, targets: Labels, filled: Flags, limits: Floats, out: Floats
) -> None:
    scores = _scores_in_numpy(x, weights)
    decay = _decay_in_numpy(scores)
    share = np.where(scores >= 0.0, 1.0, decay) / (1.0 + decay)
    length = np.maximum(1.0, np.abs(scores))
    with np.errstate(invalid="ignore"):
        pull = (share - targets) * scores / length
        growth = decay / ((1.0 + decay) * (1.0 + decay)) * (scores * scores) / length
        terms = np.stack(
            [np.minimum(np.maximum(pull, limits[0]), limits[1]), np.minimum(np.maximum(growth, 0.0), limits[2])]
        )
        units = np.where(filled & np.isfinite(targets), np.trunc(terms * _TERM_UNITS), 0.0)
    out[:] = units.reshape(2, len(out), -1).sum(-1).T / _TERM_UNITS


@compiled_or(_sum_calibrations_in_numpy)
def sum_calibrations(x: Singles, weights: Floats, targets: Labels, filled: Flags, limits: Floats, out: Floats) -> None:
    """Write the sums of both numbers of `calibration` of each owner to `out` (owners, 2), for a logistic loss: h·r
    between the first two of `limits`, and h·Qu up to the third."""
    width, rows = x.shape
    owners = out.shape[0]
    each = rows // max(1, owners)
    scores, shifted, power, decay = np.empty(TILE), np.empty(TILE), np.empty(TILE), np.empty(TILE)
    pulls, growths, aims, present = np.empty(TILE), np.empty(TILE), np.empty(TILE), np.empty(TILE, np.bool_)
    last = np.empty((width, TILE), np.float32)
    least, most, steepest = limits[0], limits[1], limits[2]
    for owner in range(owners):
        for i in range(TILE):
            pulls[i] = 0.0
            growths[i] = 0.0
        for first in range(owner * each, (owner + 1) * each, TILE):
            size = min(TILE, (owner + 1) * each - first)
            source, at = x, first
            if size < TILE:
                _copy_tile(x, first, size, last)
                source, at = last, 0
            _copy_targets(targets, filled, first, size, aims, present)
            _set_scores(source, weights, at, scores)
            _set_decay(scores, shifted, power, decay)
            for i in range(TILE):
                score, gone = scores[i], 1.0 + decay[i]
                share = (1.0 if score >= 0.0 else decay[i]) / gone
                length = max(1.0, abs(score))
                pull = (share - aims[i]) * score / length
                growth = decay[i] / (gone * gone) * (score * score) / length
                pulls[i] += np.trunc(min(max(pull, least), most) * _TERM_UNITS) if present[i] else 0.0
                growths[i] += np.trunc(min(max(growth, 0.0), steepest) * _TERM_UNITS) if present[i] else 0.0
        found_pull, found_growth = 0.0, 0.0
        for i in range(TILE):
            found_pull += pulls[i]
            found_growth += growths[i]
        out[owner, 0] = found_pull / _TERM_UNITS
        out[owner, 1] = found_growth / _TERM_UNITS
