"""A periodic curve of numbers that K parties share additively, left shared, with randomness from a dealer and one
opening.

The curve is f(z) = Σ_k b_k sin(k z), z an angle on a grid of `STEPS` steps to the turn: parties share it modulo a turn,
so that a number outside the period comes round again and no comparison is needed to bound what comes out.

Construction (after D. Beaver, Efficient multiparty protocols using circuit randomization, 1991: what is opened is
masked, what depends on the mask is dealt). The dealer gives every party a seed, which expands into its share of a mask
α, a uniform angle, and of cos kα and sin kα for every k, integers of `PLACES` binary places; the last party is given
the shares that make the sums right. Each party opens its share of A = z − α to the others, and with A known to all

    sin k(A + α)  =  sin kA · cos kα  +  cos kA · sin kα

is a sum of public multiples of what is shared, so that every party computes its own share by itself. Both factors are
rounded: the curve comes out within `Curve.rounding`, whatever the mask.

Adversary: semi-honest; a coalition of all parties but one, without the dealer. Assumption: AES-128 in counter mode is a
pseudorandom generator. A party learns A, which is uniform to it. The dealer learns nothing as long as it sees neither
A (its shares travel sealed among the parties) nor a share of the result; together with one party it sees z. The bound
`Curve.largest` holds for waves that were dealt as `deal_waves` does: shares of other words can't be told from these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import pi, sqrt

import numpy as np
from numpy.typing import NDArray

from comity.entropy import Stream, derive
from comity.errors import Malformed

Words = NDArray[np.uint64]
Angles = NDArray[np.uint16]
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

STEPS = 1 << 12
"""Of a turn. A power of two, so that angles add up as words do."""

PLACES = 12
"""Binary places of a dealt wave, and as many of what it is multiplied with."""

_WITHIN = np.uint16(STEPS - 1)
# A quarter of a turn before the sine; the same table for both, so that all parties have the same integers.
_QUARTER = STEPS // 4


@dataclass(frozen=True)
class Curve:
    """f(z) = Σ_k amplitude_k · sin(harmonic_k · z)."""

    harmonics: tuple[int, ...]
    amplitudes: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.harmonics) != len(self.amplitudes) or not self.harmonics:
            raise Malformed("a curve has an amplitude for each of its harmonics, and at least one of them")

    @cached_property
    def values(self) -> Floats:
        """f at every angle of the grid."""
        angle = 2 * pi * np.arange(STEPS) / STEPS
        return np.asarray(sum(b * np.sin(k * angle) for k, b in zip(self.harmonics, self.amplitudes)), np.float64)

    @property
    def rounding(self) -> float:
        """How far a shared value may lie from f, whatever the mask: each of a harmonic's two products has a dealt and a
        public factor, both off by half a unit at most, and |sin| + |cos| <= √2."""
        unit = 0.5 * 2.0**-PLACES
        return sum(unit * sqrt(2) * (1 + abs(b)) + 2 * unit**2 for b in self.amplitudes)

    @property
    def largest(self) -> float:
        """Of |f|, as it comes out."""
        return float(np.abs(self.values).max()) + self.rounding

    @cached_property
    def multipliers(self) -> Integers:
        """The public factor at every angle, one line per harmonic: amplitude times sine, in units of 2^−PLACES."""
        return np.stack([_sine(amplitude) for amplitude in self.amplitudes])


@dataclass(frozen=True)
class WaveHand:
    """One party's part of what is dealt for `rows` angles; `rest` are the last party's shares of all cosines and, after
    them, all sines."""

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
        return words.astype("<u8").view("<u2")[: self.rows].astype(np.uint16) & _WITHIN

    @property
    def shares(self) -> Words:
        """Its shares of the waves of α."""
        if self.rest is not None:
            return self.rest
        drawn = Stream(derive(self.seed, "waves", "shares")).words(2 * self.waves * self.rows)
        return drawn.reshape(2 * self.waves, self.rows)


def deal_waves(seeds: Sequence[bytes], rows: int, curve: Curve) -> list[WaveHand]:
    """Hands for one opening of `rows` angles, from a fresh seed for each party: seeds serve once."""
    hands = [WaveHand(seed, rows, len(curve.harmonics)) for seed in seeds]
    alpha = np.zeros(rows, np.uint16)
    for hand in hands:
        alpha = (alpha + hand.mask) & _WITHIN
    sine = _sine(1.0)
    turned = [_turned(alpha, harmonic) for harmonic in curve.harmonics]
    cosines = [sine[(angle + _QUARTER) % STEPS] for angle in turned]
    rest = np.stack([*cosines, *(sine[angle] for angle in turned)]).view(np.uint64)
    for hand in hands[:-1]:
        rest -= hand.shares
    return [*hands[:-1], WaveHand(seeds[-1], rows, len(curve.harmonics), rest)]


def masked(hand: WaveHand, angles: Angles) -> Angles:
    """This party's share of A, as it may be shown to the other parties."""
    return np.asarray((angles - hand.mask) & _WITHIN, "<u2")


def opened(shares: Sequence[Angles]) -> Angles:
    """A from everybody's share."""
    total = np.zeros(shares[0].shape, np.uint16)
    for share in shares:
        total = total + share.astype(np.uint16)
    return total & _WITHIN


def on_curve(hand: WaveHand, curve: Curve, shown: Angles) -> Words:
    """This party's share of f(z), in units of 2^(−2·PLACES), from the opened A."""
    shares, total = hand.shares, np.zeros(hand.rows, np.uint64)
    for line, (harmonic, table) in enumerate(zip(curve.harmonics, curve.multipliers)):
        angle = _turned(shown, harmonic)
        total += table[angle].view(np.uint64) * shares[line]
        total += table[(angle + _QUARTER) % STEPS].view(np.uint64) * shares[hand.waves + line]
    return total


def _turned(angles: Angles, harmonic: int) -> NDArray[np.int64]:
    return np.asarray(angles.astype(np.int64) * harmonic % STEPS, np.int64)


def _sine(amplitude: float) -> Integers:
    """One turn, in units of 2^−PLACES. No entry is near a half, so that every machine rounds alike (a test looks)."""
    return np.rint(np.ldexp(amplitude * np.sin(2 * pi * np.arange(STEPS) / STEPS), PLACES)).astype(np.int64)
