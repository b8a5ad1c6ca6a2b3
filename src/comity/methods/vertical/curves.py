"""The response to a score: curves close to the logistic one, made periodic so that no score can leave them.

    σ(z) − ½  ≈  s(z) = Σ_k b_k sin(2πk z/P),    k = 1, 3, … 2H − 1.

`CURVES` has one for each number of harmonics H, each with its period P and its reach: within |z| <= reach it is off by
at most `ERROR`. What a round computes and sends grows with H or with P, so a round takes the shortest curve whose reach
covers its scores. The largest response on the whole circle bounds what a record may say, whatever its score is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.crypto.masked_lookup import STEPS, Table

Angles = NDArray[np.uint16]
Floats = NDArray[np.float64]

TABLE_PLACES = 12
"""Binary places of a table's entries."""

_FEW, _MANY = 64, 128
_FEW_UP_TO = 40


@dataclass(frozen=True)
class Response:
    """s(z) with this period, close to σ(z) − ½ within |z| <= `reach`."""

    period: float
    reach: float
    amplitudes: tuple[float, ...]

    @property
    def harmonics(self) -> tuple[int, ...]:
        return tuple(range(1, 2 * len(self.amplitudes), 2))

    def to_angles(self, scores: Floats) -> Angles:
        """Scores as places on the circle; defined for every float."""
        with np.errstate(over="ignore", invalid="ignore"):
            steps = np.fmod(np.rint(scores * (STEPS / self.period)), STEPS)
            steps[np.isnan(steps)] = 0.0
        # Steps below a turn, of either sign: a turn is a power of two.
        return steps.astype(np.int16).view(np.uint16) & np.uint16(STEPS - 1)

    @cached_property
    def values(self) -> Floats:
        """s at every angle of the grid."""
        return self._waves(self.amplitudes)

    def at(self, places: NDArray[Any]) -> Floats:
        """s at these places of the circle."""
        return np.asarray(self.values[places.astype(np.int64) % STEPS], np.float64)

    @cached_property
    def table(self) -> Table:
        """Integers whose interpolation between the entries of a lookup is s: a wave that is interpolated linearly is
        lower by sinc², so these are higher by as much."""
        entries = _FEW if self.period <= _FEW_UP_TO else _MANY
        raised = (b / float(np.sinc(k / entries)) ** 2 for k, b in zip(self.harmonics, self.amplitudes))
        return Table(np.rint(np.ldexp(self._waves(tuple(raised)), TABLE_PLACES)).astype(np.int64), entries)

    @property
    def largest(self) -> float:
        """sup |s| on the circle and in the table."""
        return max(float(np.abs(self.values).max()), float(np.ldexp(np.abs(self.table.values).max(), -TABLE_PLACES)))

    def _waves(self, amplitudes: tuple[float, ...]) -> Floats:
        angle = 2 * np.pi * np.arange(STEPS) / STEPS
        return np.asarray(sum(b * np.sin(k * angle) for k, b in zip(self.harmonics, amplitudes)), np.float64)


CURVES = (
    Response(27, 8.25, (0.584343, 0.106277, 0.022334)),
    Response(36, 12.75, (0.604802, 0.142604, 0.044264, 0.014217)),
    Response(46, 17.5, (0.614832, 0.165041, 0.065669, 0.026651, 0.011592)),
    Response(55, 22.25, (0.620161, 0.178003, 0.079577, 0.037106, 0.016894, 0.009295)),
    Response(66, 27.25, (0.623382, 0.186368, 0.090741, 0.048388, 0.02631, 0.014091, 0.008815)),
)
"""From the shortest to the widest. For each number of harmonics, the period and the reach are the largest for which the
best amplitudes stay within `ERROR`; these are the solution of a linear programme (the least sup |σ − ½ − s| over the
reach, with |s| <= 0.5004 on the whole circle). No data are involved."""

WIDEST = CURVES[-1]

ERROR = 0.008
"""sup |σ(z) − ½ − s(z)| over |z| <= reach, for every curve, rounded up."""

LARGEST = max(curve.largest for curve in CURVES)
"""sup |s| over the circle, for every curve and table."""


def shortest_curve(needed: float) -> int:
    """The number of the shortest curve that reaches so far; of the widest, if none does."""
    return next((number for number, curve in enumerate(CURVES) if curve.reach >= needed), len(CURVES) - 1)
