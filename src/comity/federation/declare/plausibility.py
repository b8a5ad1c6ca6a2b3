"""Whether an opened sum can come from honest contributions. The coordinator checks it before it uses the sum.

Honest contributions lie within the bound of their release, so their sum lies within as many times that bound, up to
noise and rounding. A method knows more: the totals of tables, the signs of second moments. A sum outside these ranges
is not honest: a party sent values that the study does not allow, or masks that do not cancel. The check reads an opened
value and public figures alone, so it costs nothing. It is no defence: a party that lies within the ranges passes.

How far noise carries a figure. The check must not end an honest run. Each tail bound here fails with probability at
most `FALSE_ALARM` for all figures of one check together, so a run of up to 100,000 checks ends without cause with
probability below 1e-9. With x = log(8 m / FALSE_ALARM) for m figures, a figure ⟨a, η⟩ of noise η exceeds in magnitude

    Gaussian     σ·√(2x)·|a|₂                             (Chernoff)
    Laplace      b·(2·√(k·x)·|a|₂ + x·|a|∞)               (sub-gamma: log E exp(tη) <= −k·log(1 − b²t²) for each entry)
    spherical    √(2x·V)·|a|₂,  V = 2β²(s + √(2sx) + x)   (Gaussian given its variance, which is a Gamma of shape s)

with probability at most 2·exp(−x), twice that for spherical noise. σ is the deviation of all parts that were added, k
the number of parts divided by the number that suffices, s = (d + 1)/2·k. A discrete Laplace difference has at most the
moments of the continuous one: sinh(t/2)/sinh(1/(2b)) <= t·b for |t| <= 1/b. Rounding moves each contribution and each
part of the noise by at most half a unit of the grid, which is added.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import log, prod, sqrt
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from comity.errors import Implausible
from comity.federation.declare.bounds import Range, Weights
from comity.federation.declare.consortium import Consortium
from comity.federation.declare.protection import Noised, Summed
from comity.federation.declare.release import Release
from comity.privacy.mechanisms.gaussian import Gaussian
from comity.privacy.mechanisms.laplace import Laplace
from comity.privacy.mechanisms.spherical import Spherical
from comity.privacy.sampling.lattice_noise import SMOOTHING

if TYPE_CHECKING:
    from comity.federation.declare.consortium import Consortium
    from comity.federation.declare.release import Release

Floats = NDArray[np.float64]

FALSE_ALARM = 1e-14
"""Probability that one check of an honest sum fails."""

# Other kinds of noise are allowed this many standard deviations.
_DEVIATIONS = 40.0


@dataclass(frozen=True)
class NoiseTail:
    """The noise and the rounding in an opened sum over `parties` contributions, in the units of the value."""

    release: Release
    consortium: Consortium
    parties: int

    def of_figures(self, weights: Weights, figures: int) -> Floats | float:
        """How far noise and rounding carry any of so many weighted sums of coordinates."""
        x = _exponent(figures)
        return self._rounding * weights.l1 + self._deviation(x) * weights.l2 + self._exponential(x) * weights.largest

    def of_norm(self, size: int) -> float:
        """How far they carry the L2 norm of `size` coordinates."""
        x = _exponent(1)
        rounding = self._rounding * sqrt(size)
        if isinstance(self._noise, Laplace):
            # No coordinate is further than this, all at once.
            return rounding + sqrt(size) * float(self.of_figures(Weights(l1=0.0), size))
        # A norm moves by no more than its vector: √d on average, and the same tail as a coordinate.
        return rounding + self._deviation(x) * (1.0 + sqrt(size / (2 * x)))

    @property
    def _noise(self) -> object:
        return self.release.noise if isinstance(self.release.protection, Summed | Noised) else None

    @property
    def _rounding(self) -> float:
        return self.parties * self.release.spacing(self.consortium)

    @property
    def _share(self) -> float:
        """The number of parts that were added, divided by the number that suffices."""
        return self.parties / self.release.parts(self.consortium)

    def _deviation(self, x: float) -> float:
        """The factor of the L2 norm of the weights."""
        noise = self._noise
        if noise is None:
            return 0.0
        scale = self.release.scale(self.consortium)
        if isinstance(noise, Gaussian):
            return scale.total * scale.grid * sqrt(self._share * 2 * x)
        if isinstance(noise, Laplace):
            return scale.total * scale.grid * 2 * sqrt(self._share * x)
        if isinstance(noise, Spherical):
            shape = (prod(self.release.shape) + 1) / 2 * self._share
            variance = 2 * scale.total**2 * (shape + sqrt(2 * shape * x) + x) + SMOOTHING * self.parties
            return scale.grid * sqrt(2 * x * variance)
        return _DEVIATIONS * self.release.opened_deviation(self.consortium, self.parties)

    def _exponential(self, x: float) -> float:
        """The factor of the largest weight."""
        if not isinstance(self._noise, Laplace):
            return 0.0
        scale = self.release.scale(self.consortium)
        return scale.total * scale.grid * x


def _exponent(figures: int) -> float:
    # Some figures are made of up to three coordinates, and each must stay within its own tail.
    return log(8 * max(1, figures) / FALSE_ALARM)


def moment_ranges(
    matrix: Floats, spread: Floats, most: float, *, gaussian: bool, pairs: bool = True
) -> tuple[Range, ...]:
    """What public figures allow of an opened matrix of second moments: a sum of squares of bounded numbers.

    `spread` is how far an error of one in the opened number behind each entry moves that entry, `most` the largest sum
    of squares of a column. Without `pairs` only single columns are checked; all of them together only where the noise
    is `gaussian`.

    Without noise no sum of squares is negative or above what so many records can add up to. The sum of products of two
    columns is at most what their sums of squares allow (Cauchy and Schwarz): the smaller eigenvalue of the two columns'
    own matrix is not negative. Nor is any eigenvalue of the whole matrix. Noise of spectral norm f moves an eigenvalue
    by at most f (Weyl). For two columns f is at most the Frobenius norm of three numbers. For a symmetric matrix of
    width w whose independent Gaussian entries have variances v_ij, f exceeds t with probability at most 2w·exp(−t²/2v),
    where v is the largest sum of variances of a row (a Gaussian series of matrices, J. Tropp, 2012).
    """
    squares, own = np.diag(matrix), np.diag(spread)
    found = Range("every sum of squares", squares, 0.0, most, Weights(own, own, own))
    row, column = np.triu_indices(len(matrix), 1)
    if not pairs or not len(row):
        return (found,)
    first, second, product = squares[row], squares[column], matrix[row, column]
    smaller = (first + second) / 2 - np.hypot((first - second) / 2, product)
    moved = np.sqrt(own[row] ** 2 + own[column] ** 2 + 2 * spread[row, column] ** 2)
    what = "the smaller eigenvalue of the second moments of any two columns"
    of_two = Range(what, smaller, 0.0, (first + second) / 2, Weights(moved, moved, moved))
    if not gaussian:
        return found, of_two
    together = Weights(l1=float(spread.sum(1).max()), l2=float(np.sqrt((spread**2).sum(1).max())), largest=0.0)
    what = "every eigenvalue of the second moments"
    values = np.asarray(np.linalg.eigvalsh(matrix), np.float64)
    return found, of_two, Range(what, values, 0.0, len(matrix) * most, together)


# Figures are computed in doubles: relative to the largest of them, more than the error of a sum of 2^17 terms.
_ARITHMETIC = 1e-9


def require_plausible(
    release: Release, consortium: Consortium, total: Floats, parties: int, *, sender: str = ""
) -> None:
    """Refuse a sum of so many contributions that the release's bound rules out. `sender` names the party where the
    value is that of one party."""
    require_ranges(release, consortium, parties, release.bounded.ranges(total, parties), sender=sender)


def require_ranges(
    release: Release, consortium: Consortium, parties: int, ranges: Iterable[Range], *, sender: str = ""
) -> None:
    """Refuse an opened value one of whose figures lies further outside its range than noise and rounding carry it."""
    tail = NoiseTail(release, consortium, parties)
    for one in ranges:
        if not one.found.size:
            continue
        moved = tail.of_figures(one.weights, one.found.size)
        if one.moves == "norm":
            moved = tail.of_norm(one.size) * one.weights.l2
        low, high = np.asarray(one.low, np.float64), np.asarray(one.high, np.float64)
        moved = moved + _ARITHMETIC * np.maximum(np.abs(low), np.abs(high))
        # Written so that NaN fails.
        beyond = np.where(one.found > high, one.found - high, low - one.found) - moved
        if not (beyond <= 0).all():
            raise _implausible(release, one, np.broadcast_to(moved, one.found.shape), beyond, sender)


def _implausible(release: Release, one: Range, moved: Floats, beyond: Floats, sender: str) -> Implausible:
    at = np.unravel_index(int(np.argmax(np.nan_to_num(beyond, nan=np.inf))), beyond.shape)
    low, high = (float(np.broadcast_to(side, beyond.shape)[at]) for side in (one.low, one.high))
    allowed = f"exactly {low:g}" if low == high else f"from {low:g} to {high:g}"
    whose = f"what {sender} sent" if sender else "the opened sum"
    advice = (
        "its site runs another program or another version than the study says"
        if sender
        else "a party sent values that the study does not allow. There is no result. Let every owner check its site "
        "and version, and begin a new run without a party that can't explain it"
    )
    return Implausible(
        f"{release.name}: {whose} lies outside of what public figures allow: {one.what} should be {allowed}, plus or "
        f"minus {float(moved[at]):.4g} for noise and rounding; found {float(one.found[at]):.6g}; {advice}",
        key=release.name,
    )
