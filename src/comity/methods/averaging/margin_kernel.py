"""Sums over records of a model of one margin in one pass over them: score, residual, clip, grid and product.

As in `whitening_kernel` a row is a column, its score is added from its first entry to its last, and every operation
rounds by itself. So what a record adds is a function of this record and of the weights, to the last bit, in any batch
and without the compiler. Residuals and rows along which they are added are on the grid 2^-18, so the products are
multiples of 2^-36 and no sum of up to 2^16 of them rounds (`comity.data.exact_sums`), in whatever order.

σ(s) is computed here and not by a library, whose last digits depend on the machine: e^-|s| = 2^n·e^r with |r| <= ln 2/2
and the series of e^r up to r^13, whose rest is below 2^-56. It is off by at most 2^-51 of itself.
"""

from __future__ import annotations

from math import factorial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.compiled import compiled_or, inlined
from comity.data.exact_sums import FACTOR_PLACES, PLACES

Floats = NDArray[np.float64]
Rows = Floats | NDArray[np.float32]
Flags = NDArray[np.bool_]
Labels = NDArray[Any]

TILE, LANES = 256, 64
"""Rows that go through all operations together, and sums that a tile is added to: both stay in the nearest cache."""

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


def _scores_in_numpy(x: Rows, weights: Floats) -> Floats:
    found = np.zeros(x.shape[1])
    for j in range(len(x)):
        found += x[j].astype(np.float32).astype(np.float64) * weights[j]
    return found


def _sum_residuals_in_numpy(
    x: Rows,
    along: Rows,
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
def _add_scores(x: Rows, weights: Floats, first: int, size: int, scores: Floats) -> None:
    for i in range(TILE):
        scores[i] = 0.0
    for j in range(x.shape[0]):
        weight, line = weights[j], x[j, first : first + size]
        for i in range(size):
            scores[i] += np.float64(np.float32(line[i])) * weight


@inlined
def _set_decay(scores: Floats, shifted: Floats, power: Floats, decay: Floats) -> None:
    """e^-|s| of a tile. `shifted` and `power` are memory for it."""
    for i in range(TILE):
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
    for i in range(TILE):
        power_bits[i] = (shifted_bits[i] + _EXPONENT_BIAS) << _MANTISSA_BITS
    for i in range(TILE):
        decay[i] *= power[i]


@compiled_or(_sum_residuals_in_numpy)
def sum_residuals(  # noqa: C901 (one pass over a tile, a loop for each operation)
    x: Rows,
    along: Rows,
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
    units = np.empty(TILE)
    total = np.empty((width, LANES))
    for owner in range(owners):
        for j in range(width):
            for i in range(LANES):
                total[j, i] = 0.0
        for first in range(owner * each, (owner + 1) * each, TILE):
            size = min(TILE, (owner + 1) * each - first)
            aims, present = targets[first : first + size], filled[first : first + size]
            _add_scores(x, weights, first, size, scores)
            if kind == LOGISTIC:
                _set_decay(scores, shifted, power, decay)
                for i in range(TILE):
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
            for j in range(width):
                for start in range(0, size, LANES):
                    line, factors = along[j, first + start : first + size], units[start:size]
                    for i in range(min(LANES, size - start)):
                        total[j, i] += factors[i] * line[i]
        for j in range(width):
            found = 0.0
            for i in range(LANES):
                found += total[j, i]
            out[owner, j] = found / _FACTOR_UNITS


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
    scores, shifted, power, decay = np.empty(TILE), np.empty(TILE), np.empty(TILE), np.empty(TILE)
    pulls, growths = np.empty(TILE), np.empty(TILE)
    least, most, steepest = limits[0], limits[1], limits[2]
    for owner in range(owners):
        for i in range(TILE):
            pulls[i] = 0.0
            growths[i] = 0.0
        for first in range(owner * each, (owner + 1) * each, TILE):
            size = min(TILE, (owner + 1) * each - first)
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
        for i in range(TILE):
            found_pull += pulls[i]
            found_growth += growths[i]
        out[owner, 0] = found_pull / _TERM_UNITS
        out[owner, 1] = found_growth / _TERM_UNITS
