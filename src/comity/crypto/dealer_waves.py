"""A periodic function of additively shared numbers, left shared among K parties, with a dealer and one opening.

The function is f(z) = Σ_k b_k sin(k z), where z is an angle on a grid of `STEPS` steps per turn. Parties share z modulo
a turn, so a number outside the period wraps around, and no comparison is needed to bound the result.

Construction (after D. Beaver, Efficient multiparty protocols using circuit randomization, 1991: the opened value is
masked, and values that depend on the mask are dealt). The dealer gives every party a seed, which expands into its share
of a mask α, a uniform angle, and of cos kα and sin kα for every k, integers of `PLACES` binary places; the last party
gets the shares that make the sums right. Each party opens its share of A = z − α to the others. Since all know A,

    sin k(A + α)  =  sin kA · cos kα  +  cos kA · sin kα

is a sum of public multiples of shared values, so every party computes its share locally. Both factors are rounded: the
result is within `Curve.rounding` of f for every mask.

Adversary: semi-honest; a coalition of all parties but one, without the dealer. Assumption: AES-128 in counter mode is a
pseudorandom generator. A party learns A, which is uniform to it. The dealer learns nothing as long as it sees neither
A (its shares travel sealed among the parties) nor a share of the result; together with one party it sees z. The bound
`Curve.largest` holds for an honest dealer: parties can't tell shares of other words from these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import pi, sqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray

from comity.compiled import compiled
from comity.entropy import Stream, derive
from comity.errors import Malformed

Words = NDArray[np.uint64]
Angles = NDArray[np.uint16]
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

STEPS: Final = 1 << 12
"""Steps per turn: a power of two, so angles add up as words do."""

PLACES = 12
"""Binary places of a dealt wave and of the public factors."""

_ANGLE_MASK = np.uint16(STEPS - 1)
# The cosine is the sine a quarter of a turn ahead; one table for both gives all parties the same integers.
_QUARTER: Final = STEPS // 4


@dataclass(frozen=True)
class Curve:
    """f(z) = Σ_k amplitude_k · sin(harmonic_k · z)."""

    harmonics: tuple[int, ...]
    amplitudes: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.harmonics) != len(self.amplitudes) or not self.harmonics:
            raise Malformed("a curve needs at least one harmonic, and an amplitude for each")

    @cached_property
    def values(self) -> Floats:
        """f at every angle of the grid."""
        angle = 2 * pi * np.arange(STEPS) / STEPS
        return np.asarray(sum(b * np.sin(k * angle) for k, b in zip(self.harmonics, self.amplitudes)), np.float64)

    @property
    def rounding(self) -> float:
        """The largest error of a shared value, for every mask: each of a harmonic's two products has a dealt and a
        public factor, both off by at most half a unit, and |sin| + |cos| <= √2."""
        unit = 0.5 * 2.0**-PLACES
        return sum(unit * sqrt(2) * (1 + abs(b)) + 2 * unit**2 for b in self.amplitudes)

    @property
    def largest(self) -> float:
        """The largest |f|, with its rounding."""
        return float(np.abs(self.values).max()) + self.rounding

    @cached_property
    def multipliers(self) -> Integers:
        """The public factor at every angle, one line per harmonic: amplitude times sine, in units of 2^−PLACES."""
        return np.stack([_sine(amplitude) for amplitude in self.amplitudes])


@dataclass(frozen=True)
class WaveHand:
    """The dealer's message to one party for `rows` angles; `rest` has the last party's shares of all cosines, then of
    all sines."""

    seed: bytes = field(repr=False)
    rows: int
    waves: int
    rest: Words | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if len(self.seed) != 32 or (self.rest is not None and self.rest.shape != (2 * self.waves, self.rows)):
            raise Malformed(
                f"a seed of 32 bytes and, for the last party, {2 * self.waves} shares of {self.rows} words were "
                "expected"
            )

    @property
    def mask(self) -> Angles:
        """This party's share of α."""
        words = Stream(derive(self.seed, "waves", "mask")).words(-(-self.rows // 4))
        return words.astype("<u8").view("<u2")[: self.rows].astype(np.uint16) & _ANGLE_MASK

    @property
    def shares(self) -> Words:
        """Its shares of the waves of α."""
        if self.rest is not None:
            return self.rest
        drawn = Stream(derive(self.seed, "waves", "shares")).words(2 * self.waves * self.rows)
        return drawn.reshape(2 * self.waves, self.rows)


def deal_waves(seeds: Sequence[bytes], rows: int, curve: Curve) -> list[WaveHand]:
    """Hands for one opening of `rows` angles, from a fresh seed for each party; seeds are used once."""
    hands = [WaveHand(seed, rows, len(curve.harmonics)) for seed in seeds]
    alpha = np.zeros(rows, np.uint16)
    for hand in hands:
        alpha = (alpha + hand.mask) & _ANGLE_MASK
    rest = np.empty((2 * len(curve.harmonics), rows), np.uint64)
    _fill_waves(alpha, np.array(curve.harmonics), _sine(1.0), rest)
    for hand in hands[:-1]:
        rest -= hand.shares
    return [*hands[:-1], WaveHand(seeds[-1], rows, len(curve.harmonics), rest)]


def mask_angles(hand: WaveHand, angles: Angles) -> Angles:
    """This party's share of A, which the other parties may see."""
    return np.asarray((angles - hand.mask) & _ANGLE_MASK, "<u2")


def open_angles(shares: Sequence[Angles]) -> Angles:
    """A from the shares of all parties."""
    total = np.zeros(shares[0].shape, np.uint16)
    for share in shares:
        total = total + share.astype(np.uint16)
    return total & _ANGLE_MASK


def evaluate_share(hand: WaveHand, curve: Curve, shown: Angles) -> Words:
    """This party's share of f(z), in units of 2^(−2·PLACES), from the opened A."""
    total = np.zeros(hand.rows, np.uint64)
    # A copy where the shares lie across word boundaries of a message.
    shares = np.require(hand.shares, np.uint64, ["C", "A"])
    _add_waves(np.ascontiguousarray(shown, np.uint16), np.array(curve.harmonics), curve.multipliers, shares, total)
    return total


@compiled
def _fill_waves(angles: Angles, harmonics: Integers, sine: Integers, out: Words) -> None:
    """Cosines of all multiples of the angles, then their sines, one line each."""
    count = harmonics.size
    for line in range(count):
        for row in range(angles.size):
            place = np.int64(angles[row]) * harmonics[line]
            out[line, row] = np.uint64(sine[(place + _QUARTER) & (STEPS - 1)])
            out[count + line, row] = np.uint64(sine[place & (STEPS - 1)])


@compiled
def _add_waves(angles: Angles, harmonics: Integers, tables: Integers, shares: Words, total: Words) -> None:
    count = harmonics.size
    for line in range(count):
        for row in range(angles.size):
            place = np.int64(angles[row]) * harmonics[line]
            first = np.uint64(tables[line, place & (STEPS - 1)])
            second = np.uint64(tables[line, (place + _QUARTER) & (STEPS - 1)])
            total[row] += first * shares[line, row] + second * shares[count + line, row]


def _sine(amplitude: float) -> Integers:
    """One turn, in units of 2^−PLACES. No entry is near a half, so every machine rounds alike (tested)."""
    return np.rint(np.ldexp(amplitude * np.sin(2 * pi * np.arange(STEPS) / STEPS), PLACES)).astype(np.int64)
