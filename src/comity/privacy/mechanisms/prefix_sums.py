"""Noise for running sums over rounds, correlated to grow only like the logarithm of their number."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from comity.entropy import derive
from comity.errors import StudyError
from comity.privacy.accounting import gaussian_budget
from comity.privacy.loss import GDP, Loss
from comity.privacy.mechanisms.scale import FINENESS, ROUND_UP, Scale, Shape, check_size, pick_grid, units
from comity.privacy.permit import Permit
from comity.privacy.sampling.lazy_bits import LazyWords, Normals, normals

if TYPE_CHECKING:
    from comity.privacy.randomness import NoiseSource

MAX_ROUNDS = 1 << 14


@dataclass(frozen=True, kw_only=True)
class PrefixSums:
    """Releases S_t = x_1 + … + x_t for t = 1 … T, each with the rounded noise Σ_{k<=t} c_{t−k} z_k, c_j = C(2j, j)/4^j.

    This is the square-root factorisation of the prefix-sum matrix (Fichtenberger, Henzinger and Upadhyay 2022;
    Henzinger, Upadhyay and Upadhyay 2023): the z_k are independent Gaussians of equal variance.

    Use          where a unit takes part in one round, or in few. For a unit in all rounds, independent noise in each
                 round is narrower.
    Promise      μ-GDP of the whole sequence against anyone who sees every noisy sum, also when the x_t are chosen
                 after seeing the sums so far. The whole sequence is one loss, even if some rounds never run.
    Why          proof.md, 10.
    Sensitivity  one unit takes part in at most `participations` of the rounds, and moves x_t by at most Δ in L2 in each
                 of these; Δ/h + sqrt(d) units after rounding. The sequence then moves by at most `factor` times that.
    """

    loss: Loss
    rounds: int
    participations: int = 1
    name: ClassVar[str] = "prefix sums"
    norm: ClassVar[str] = "l2"

    def __post_init__(self) -> None:
        if not 1 <= self.rounds <= MAX_ROUNDS:
            raise StudyError(f"rounds must be between 1 and {MAX_ROUNDS}, found {self.rounds}", key="rounds")
        if not 1 <= self.participations <= self.rounds:
            raise StudyError(
                f"participations must be between 1 and the {self.rounds} rounds, found {self.participations}",
                key="participations",
            )
        if self.charged.square <= 0:
            raise StudyError(
                f"noise for running sums needs a loss above 0, found {self.loss}: raise privacy.epsilon",
                key="privacy.epsilon",
            )

    @property
    def charged(self) -> GDP:
        return gaussian_budget(self.loss)

    @property
    def factor(self) -> float:
        """How far the sequence moves for each unit that x_t moves, rounded up."""
        moved = np.convolve(coefficients(self.rounds), np.ones(self.participations))[: self.rounds]
        return math.sqrt(math.fsum((moved * moved).tolist())) * (1 + 2.0**-40)

    def scale(
        self, *, sensitivity: float, shape: Shape, parts: int = 1, grid: float | None = None, exact: bool = False
    ) -> Scale:
        """The scale of z, for x_t of this shape. The noise of a round is `deviations` times as wide."""
        size = check_size(sensitivity, shape, parts)
        if parts != 1:
            raise StudyError(f"noise of running sums is drawn by one participant, found {parts} parts")
        step = 1.0 if exact else pick_grid(sensitivity / (FINENESS * math.sqrt(size)), grid)
        steps = units(sensitivity=sensitivity, grid=step, rounding=0.0 if exact else math.sqrt(size))
        sigma = steps * self.factor / math.sqrt(float(self.charged.square)) * ROUND_UP * ROUND_UP
        return Scale(grid=step, part=sigma, total=sigma, tau=0.0, loss=self.charged)

    @property
    def deviations(self) -> NDArray[np.float64]:
        """The standard deviation of the noise of each round, in units of z's."""
        return np.asarray(np.sqrt(np.cumsum(coefficients(self.rounds) ** 2)))

    def begin(self, source: NoiseSource, *, permit: Permit) -> bytes:
        """The seed of the noise of all rounds, which is the only draw. Store it together with the debit."""
        return source.seed(permit=permit)

    def noise(self, seed: bytes, scale: Scale, shape: Shape) -> RoundNoise:
        return RoundNoise(seed, scale.total, shape, self.rounds)

    def draw_next(
        self, source: NoiseSource, scale: Scale, shape: Shape, *, permit: Permit, state: Any
    ) -> tuple[NDArray[np.int64], dict[str, Any]]:
        """A round's noise, and the state for the next round: the seed, which is drawn once, and the round's number."""
        if state is None:
            seed, number = self.begin(source, permit=permit), 0
        else:
            permit.use()
            seed, number = state["seed"], int(state["round"])
        return self.noise(seed, scale, shape).of(number), {"seed": seed, "round": number + 1}

    def draw(
        self, source: NoiseSource, scale: Scale, shape: Shape, *, permit: Permit, part: bool = False
    ) -> NDArray[np.int64]:
        """The noise of a sequence that ends with its first round."""
        return self.draw_next(source, scale, shape, permit=permit, state=None)[0]


class RoundNoise:
    """The noise of each round in grid units: a function of the seed, the same on every machine."""

    def __init__(self, seed: bytes, sigma: float, shape: Shape, rounds: int) -> None:
        self._seed, self._sigma, self._shape, self._rounds = seed, sigma, shape, rounds
        self._size = math.prod(shape)
        self._drawn: list[Normals] = []
        self._doubles = np.empty((0, self._size))

    def of(self, number: int) -> NDArray[np.int64]:
        """[Σ_{k<=t} c_{t−k} z_k] for round `number`, counted from 0."""
        if not 0 <= number < self._rounds:
            raise StudyError(f"a round must be between 0 and {self._rounds - 1}, found {number}", key="rounds")
        self._draw_up_to(number)
        weights, values = coefficients(self._rounds)[number::-1], self._doubles[: number + 1]
        sums = weights @ values
        # Twice the error bound of a sum of n products of doubles, each factor within 2^−51 of the truth.
        slack = (number + 8) * 2.0**-51 * (weights @ np.abs(values)) + 2.0**-60 * self._sigma * (number + 1)
        least, most = np.floor(sums - slack + 0.5), np.floor(sums + slack + 0.5)
        out = least.astype(np.int64)
        for index in np.flatnonzero(least != most).tolist():
            out[index] = self._exact(number, index)
        return out.reshape(self._shape)

    def _draw_up_to(self, number: int) -> None:
        first = len(self._drawn)
        if number < first:
            return
        if number >= len(self._doubles):
            grown = np.empty((min(self._rounds, 2 * number + 1), self._size))
            grown[:first] = self._doubles[:first]
            self._doubles = grown
        for k in range(first, number + 1):
            self._drawn.append(normals(self._sigma, self._size, LazyWords(derive(self._seed, "round", k))))
            self._doubles[k] = self._drawn[k].doubles()

    def _exact(self, number: int, index: int) -> int:
        """The rounded sum, from more and more bits of the z_k until they determine one integer."""
        weights, bits = exact_coefficients(self._rounds), 128
        while True:
            pairs = [self._drawn[k].between(index, bits) for k in range(number + 1)]
            least, most = (
                sum((weights[number - k] * pair[side] for k, pair in enumerate(pairs)), Fraction(1, 2))
                for side in (0, 1)
            )
            if math.floor(least) == math.floor(most):
                return math.floor(least)
            bits *= 2


@lru_cache(maxsize=4)
def coefficients(count: int) -> NDArray[np.float64]:
    """C(2j, j)/4^j for j = 0 … count − 1, each the nearest double, as quotients of Python's integers are."""
    numerator, out = 1, np.ones(count)
    for j in range(1, count):
        numerator = numerator * (2 * j) * (2 * j - 1) // (j * j)
        out[j] = numerator / (1 << (2 * j))
    out.setflags(write=False)
    return out


@lru_cache(maxsize=2)
def exact_coefficients(count: int) -> tuple[Fraction, ...]:
    numerator, out = 1, [Fraction(1)]
    for j in range(1, count):
        numerator = numerator * (2 * j) * (2 * j - 1) // (j * j)
        out.append(Fraction(numerator, 1 << (2 * j)))
    return tuple(out)
