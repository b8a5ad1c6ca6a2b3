"""What a record adds to a sum, in one pass over it: whitening, the unit ball, score, residual, clip, grid and product.

Rows come as columns (d, n): a row is a column, and one operation does the same to many rows at once. A sum over a row's
entries is added from the first entry to the last, each product and each addition rounded by itself. So what a record
adds is a function of this record and of what was received, to the last bit: in any tile, at any place in it, in any
batch, and without the compiler. Residuals and whitened rows are on the grid 2^-18, so their products are multiples of
2^-36 and no sum of up to 2^16 of them rounds (`comity.data.exact_sums`), in whatever order.

σ(s) is computed here and not by a library, whose last digits depend on the machine: e^-|s| = 2^n·e^r with |r| <= ln 2/2
and the series of e^r up to r^13, whose rest is below 2^-56. It is off by at most 2^-51 of itself.

Range   Rows are inside the unit ball, entries of B at most 1 and c at most 2^30 in magnitude: no square overflows.
Tiles   Slices of a line, and not places of an array, are read and written: the compiler sees that they are in a row.
File    Kernels that call each other are in one file: the compiler's cache on disk looks at no other for changes.
"""

from __future__ import annotations

from math import factorial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from comity.compiled import compiled_or, inlined
from comity.data.exact_sums import FACTOR_PLACES, PLACES
from comity.data.scratch import scratch
from comity.learn.record_sum import SURELY_INSIDE, in_unit_ball

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Rows = TypeVar("Rows", Floats, Singles, Floats | Singles)
Flags = NDArray[np.bool_]
Labels = NDArray[Any]

MAX_FEATURES = 256
"""Wider rows go through BLAS: a tile of them leaves the cache."""

TILE, LONG_TILE = 64, 256
"""Rows that go through all operations together: a tile stays in the nearest cache, a long one where its rows need not.
A loop over them is a few vector instructions."""

LOGISTIC, SVM, LINEAR = 0, 1, 2

_FACTOR_UNITS, _TERM_UNITS = 2.0**FACTOR_PLACES, 2.0**PLACES
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


def unit_columns(rows: Floats) -> Floats:
    """`in_unit_ball` of rows (..., d), as `as_columns`."""
    columns = as_columns(rows)
    return columns if surely_inside(columns) else as_columns(in_unit_ball(rows))


def _surely_inside_in_numpy(x: Floats) -> bool:
    with np.errstate(over="ignore", invalid="ignore"):
        return bool((np.einsum("ij,ij->j", x, x) <= SURELY_INSIDE).all())


@compiled_or(_surely_inside_in_numpy)
def surely_inside(x: Floats) -> bool:
    """Whether every column (d, n) is in the unit ball, in whatever order its squares are added; one at its edge may
    count as outside. False for NaN too."""
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
                square[i] += line[i] * line[i]
        for i in range(TILE):
            outside += 0 if square[i] <= SURELY_INSIDE else 1
    return outside == 0


def _whiten_in_numpy(x: Floats, directions: Floats, scale: float, units: float, out: NDArray[np.floating]) -> None:
    along = np.zeros((len(directions), x.shape[1]))
    for j in range(len(x)):
        along += directions[:, j, None] * x[j]
    found, square = x.copy(), np.zeros(x.shape[1])
    for j in range(len(x)):
        for m in range(len(directions)):
            found[j] -= along[m] * directions[m, j]
        found[j] *= scale
        square += found[j] * found[j]
    found *= 1.0 / np.maximum(np.sqrt(square), 1.0)
    out[:] = found if units == 0.0 else np.trunc(found * units) * (1.0 / units)


@inlined
def _whiten_tile(  # noqa: C901 (a loop for each operation)
    tile: Floats, directions: Floats, scale: float, along: Floats, factor: Floats
) -> None:
    """c·(x − BᵀB x) in place of x, and in `factor` what brings it into the ball. `along` is memory for B x."""
    for i in range(TILE):
        factor[i] = 0.0
    for m in range(directions.shape[0]):
        for i in range(TILE):
            along[m, i] = 0.0
        for j in range(tile.shape[0]):
            part = directions[m, j]
            for i in range(TILE):
                along[m, i] += part * tile[j, i]
    for j in range(tile.shape[0]):
        for m in range(directions.shape[0]):
            part = directions[m, j]
            for i in range(TILE):
                tile[j, i] -= along[m, i] * part
        for i in range(TILE):
            value = tile[j, i] * scale
            tile[j, i] = value
            factor[i] += value * value
    for i in range(TILE):
        factor[i] = 1.0 / max(np.sqrt(factor[i]), 1.0)


@compiled_or(_whiten_in_numpy)
def whiten(x: Floats, directions: Floats, scale: float, units: float, out: NDArray[np.floating]) -> None:
    """Write c·(x − BᵀB x), scaled into the unit ball, of columns `x` (d, n) of the unit ball to `out` (d, n): as it is
    where `units` is 0, else its multiples of 1/units, towards zero. `directions` (k, d) are the rows of B."""
    width, rows = x.shape
    tile = np.zeros((width, TILE))
    along = np.empty((max(1, directions.shape[0]), TILE))
    factor = np.empty(TILE)
    for first in range(0, rows, TILE):
        size = min(TILE, rows - first)
        for j in range(width):
            line = x[j, first : first + size]
            for i in range(size):
                tile[j, i] = line[i]
        _whiten_tile(tile, directions, scale, along, factor)
        if units == 0.0:
            for j in range(width):
                written = out[j, first : first + size]
                for i in range(size):
                    written[i] = tile[j, i] * factor[i]
        else:
            for j in range(width):
                written = out[j, first : first + size]
                for i in range(size):
                    written[i] = np.trunc(tile[j, i] * factor[i] * units) * (1.0 / units)


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


def _scores_in_numpy(x: Floats | Singles, weights: Floats) -> Floats:
    found = np.zeros(x.shape[1])
    for j in range(len(x)):
        found += x[j].astype(np.float32).astype(np.float64) * weights[j]
    return found


def _sum_residuals_in_numpy(
    x: Floats | Singles,
    along: Floats | Singles,
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
def _add_scores(x: Floats | Singles, weights: Floats, first: int, size: int, scores: Floats) -> None:
    for i in range(scores.shape[0]):
        scores[i] = 0.0
    for j in range(x.shape[0]):
        weight, line = weights[j], x[j, first : first + size]
        for i in range(size):
            scores[i] += np.float64(np.float32(line[i])) * weight


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
    aims: Labels,
    present: Flags,
    kind: int,
    clip: float,
    shifted: Floats,
    power: Floats,
    decay: Floats,
    units: Floats,
) -> None:
    """Clipped residuals in units of the grid, of as many rows of a tile as there are aims."""
    size = aims.shape[0]
    if kind == LOGISTIC:
        _set_decay(scores, shifted, power, decay)
        for i in range(scores.shape[0]):
            top = 1.0 if scores[i] >= 0.0 else decay[i]
            units[i] = top / (1.0 + decay[i])
        for i in range(size):
            units[i] -= np.float64(aims[i])
    elif kind == SVM:
        for i in range(size):
            sign = 2.0 * np.float64(aims[i]) - 1.0
            units[i] = -sign * min(max(1.0 - sign * scores[i], 0.0), 1.0)
    else:
        for i in range(size):
            units[i] = min(max(scores[i] - np.float64(aims[i]), -1.0), 1.0)
    for i in range(size):
        value = units[i] * min(1.0, clip / max(abs(units[i]), 1e-300))
        usable = present[i] and np.isfinite(np.float64(aims[i]))
        units[i] = np.trunc(value * _FACTOR_UNITS) if usable else 0.0


@compiled_or(_sum_residuals_in_numpy)
def sum_residuals(
    x: Floats | Singles,
    along: Floats | Singles,
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
    scores, shifted, power, decay = np.empty(LONG_TILE), np.empty(LONG_TILE), np.empty(LONG_TILE), np.empty(LONG_TILE)
    units = np.empty(LONG_TILE)
    total = np.empty((width, TILE))
    for owner in range(owners):
        for j in range(width):
            for i in range(TILE):
                total[j, i] = 0.0
        for first in range(owner * each, (owner + 1) * each, LONG_TILE):
            size = min(LONG_TILE, (owner + 1) * each - first)
            aims, present = targets[first : first + size], filled[first : first + size]
            _add_scores(x, weights, first, size, scores)
            _set_units(scores, aims, present, kind, clip, shifted, power, decay, units)
            for j in range(width):
                for start in range(0, size, TILE):
                    line, factors = along[j, first + start : first + size], units[start:size]
                    for i in range(min(TILE, size - start)):
                        total[j, i] += factors[i] * line[i]
        for j in range(width):
            found = 0.0
            for i in range(TILE):
                found += total[j, i]
            out[owner, j] = found / _FACTOR_UNITS


def _sum_whitened_in_numpy(
    x: Floats,
    directions: Floats,
    scale: float,
    weights: Floats,
    targets: Labels,
    filled: Flags,
    kind: int,
    clip: float,
    out: Floats,
) -> bool:
    if not _surely_inside_in_numpy(x):
        return False
    along = np.empty(x.shape, np.float32)
    _whiten_in_numpy(x, directions, scale, _FACTOR_UNITS, along)
    _sum_residuals_in_numpy(x, along, weights, targets, filled, kind, clip, out)
    return True


@compiled_or(_sum_whitened_in_numpy)
def sum_whitened(  # noqa: C901 (one pass over a tile, a loop for each operation)
    x: Floats,
    directions: Floats,
    scale: float,
    weights: Floats,
    targets: Labels,
    filled: Flags,
    kind: int,
    clip: float,
    out: Floats,
) -> bool:
    """`sum_residuals` along the rows that `whiten` would write on the grid of exact sums, which are not written. False
    where not every column is `surely_inside`: `out` is then of no use."""
    width, rows = x.shape
    owners = out.shape[0]
    each = rows // max(1, owners)
    tile, total = np.zeros((width, TILE)), np.empty((width, TILE))
    along, factor = np.empty((max(1, directions.shape[0]), TILE)), np.empty(TILE)
    scores, shifted, power, decay = np.empty(TILE), np.empty(TILE), np.empty(TILE), np.empty(TILE)
    units, square = np.zeros(TILE), np.empty(TILE)
    outside = 0
    for owner in range(owners):
        for j in range(width):
            for i in range(TILE):
                total[j, i] = 0.0
        for first in range(owner * each, (owner + 1) * each, TILE):
            size = min(TILE, (owner + 1) * each - first)
            for i in range(TILE):
                scores[i] = 0.0
                square[i] = 0.0
            for j in range(width):
                line, weight = x[j, first : first + size], weights[j]
                for i in range(size):
                    value = line[i]
                    tile[j, i] = value
                    square[i] += value * value
                    scores[i] += np.float64(np.float32(value)) * weight
            for i in range(TILE):
                outside += 0 if square[i] <= SURELY_INSIDE else 1
            aims, present = targets[first : first + size], filled[first : first + size]
            _set_units(scores, aims, present, kind, clip, shifted, power, decay, units)
            for i in range(size, TILE):
                units[i] = 0.0
            _whiten_tile(tile, directions, scale, along, factor)
            for j in range(width):
                for i in range(TILE):
                    total[j, i] += units[i] * np.trunc(tile[j, i] * factor[i] * _FACTOR_UNITS)
        for j in range(width):
            found = 0.0
            for i in range(TILE):
                found += total[j, i]
            out[owner, j] = found / _TERM_UNITS
    return outside == 0


def _sum_calibrations_in_numpy(
    x: Floats, weights: Floats, targets: Labels, filled: Flags, limits: Floats, out: Floats
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
def sum_calibrations(x: Floats, weights: Floats, targets: Labels, filled: Flags, limits: Floats, out: Floats) -> None:
    """Write the sums of both numbers of `calibration` of each owner to `out` (owners, 2), for a logistic loss: h·r
    between the first two of `limits`, and h·Qu up to the third."""
    rows, owners = x.shape[1], out.shape[0]
    each = rows // max(1, owners)
    scores, shifted, power, decay = np.empty(LONG_TILE), np.empty(LONG_TILE), np.empty(LONG_TILE), np.empty(LONG_TILE)
    pulls, growths = np.empty(LONG_TILE), np.empty(LONG_TILE)
    least, most, steepest = limits[0], limits[1], limits[2]
    for owner in range(owners):
        for i in range(LONG_TILE):
            pulls[i] = 0.0
            growths[i] = 0.0
        for first in range(owner * each, (owner + 1) * each, LONG_TILE):
            size = min(LONG_TILE, (owner + 1) * each - first)
            aims, present = targets[first : first + size], filled[first : first + size]
            _add_scores(x, weights, first, size, scores)
            _set_decay(scores, shifted, power, decay)
            for i in range(size):
                score, gone = scores[i], 1.0 + decay[i]
                share = (1.0 if score >= 0.0 else decay[i]) / gone
                length = max(1.0, abs(score))
                pull = (share - np.float64(aims[i])) * score / length
                growth = decay[i] / (gone * gone) * (score * score) / length
                usable = present[i] and np.isfinite(np.float64(aims[i]))
                pulls[i] += np.trunc(min(max(pull, least), most) * _TERM_UNITS) if usable else 0.0
                growths[i] += np.trunc(min(max(growth, 0.0), steepest) * _TERM_UNITS) if usable else 0.0
        found_pull, found_growth = 0.0, 0.0
        for i in range(LONG_TILE):
            found_pull += pulls[i]
            found_growth += growths[i]
        out[owner, 0] = found_pull / _TERM_UNITS
        out[owner, 1] = found_growth / _TERM_UNITS
