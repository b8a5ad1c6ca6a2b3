"""Sums and conversions of losses: pure functions, rounded to the safe side.

Losses are rounded up and budgets down. A figure that passes through floating point is moved by more than the error of
the computation, so a comparison with a grant can only err towards refusing.

Conversions from zCDP follow Canonne, Kamath and Steinke, The Discrete Gaussian for Differential Privacy (2020); the
curve of Gaussian noise follows Balle and Wang, Improving the Gaussian Mechanism (2018), and Dong, Roth and Su, Gaussian
Differential Privacy (2019). `comity.privacy.currency` composes losses for ledgers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from functools import lru_cache

from comity.errors import Refused, StudyError
from comity.privacy.loss import GDP, LOSSES, MAX_FIGURE, ZCDP, Approx, Loss, Pure, at_least
from comity.privacy.unit import Neighbours, Unit

INFINITE = Decimal("Infinity")
_HALF_PI = Decimal("1.5707963267948966192313216916397514420986")
_DISPLAYED = Context(prec=20, rounding=ROUND_CEILING)
_BUDGETS = Context(prec=60, rounding=ROUND_FLOOR)
_SUMS = Context(prec=2000, rounding=ROUND_CEILING)
"""Exact for every figure that a loss may have: adding and then subtracting it leaves nothing behind."""
_ZERO = Decimal(0)
_ROUNDING = 2.0**-44
"""Relative error allowed to a handful of elementary floating-point functions: 256 times the last bit."""

NUMERICAL = 2.0**-44
"""Each sum of parts of Gaussian noise is, point by point, within exp(±NUMERICAL·μ²) of noise that is exactly μ-GDP
(mechanisms/proof.md, 3). All draws of a grant together are within exp(±NUMERICAL·Σμ²), for any number of draws."""

RHO_PER_SQUARE = Decimal("0.5") + Decimal(2) ** -31
"""ρ of Gaussian noise per μ²: a half, and a margin for parts (mechanisms/proof.md, 3)."""

_GRANT_MARGIN = 2.0**-30
_MAX_SQUARE = 2.0**13
"""Figures of a grant are lowered by the margin, which pays for NUMERICAL as long as Σμ² <= 2^13·min(ε, 1)."""


@dataclass(frozen=True, slots=True)
class Spent:
    """The sums of losses by kind, because the kinds compose differently: what a *plan* costs.

    Pure losses add up in ε, Gaussian ones in μ², zCDP ones in ρ, (ε, δ) losses in both figures. The sums compose with
    each other by adding ε and δ, and Gaussian and zCDP losses in ρ.

    This holds for losses that are *fixed beforehand*, as those of a study are: later steps may depend on earlier
    results, their losses may not (proof.md, 5). Choosing the kind of a later loss after seeing results can cost more
    than `epsilon_at` says. Ledgers are spent that way, so they add up one kind alone (`comity.privacy.currency`).
    """

    pure: Decimal
    gaussian: Decimal
    rho: Decimal
    approx_epsilon: Decimal
    delta: Decimal

    @classmethod
    def zero(cls) -> Spent:
        return cls(_ZERO, _ZERO, _ZERO, _ZERO, _ZERO)

    def add(self, loss: Loss, times: int = 1) -> Spent:
        count = Decimal(times)
        pure, gaussian, rho, epsilons, deltas = self.pure, self.gaussian, self.rho, self.approx_epsilon, self.delta
        match loss:
            case Pure(epsilon=epsilon):
                pure = _SUMS.fma(epsilon, count, pure)
            case GDP(square=square):
                gaussian = _SUMS.fma(square, count, gaussian)
            case ZCDP(rho=more):
                rho = _SUMS.fma(more, count, rho)
            case Approx(epsilon=epsilon, delta=delta):
                epsilons, deltas = _SUMS.fma(epsilon, count, epsilons), _SUMS.fma(delta, count, deltas)
        return Spent(pure, gaussian, rho, epsilons, deltas)

    def plus(self, other: Spent) -> Spent:
        """Both sums together, exactly."""
        return self._combine(other, _SUMS.add)

    def minus(self, other: Spent) -> Spent:
        """The sums without `other`, which was added before, exactly."""
        return self._combine(other, _SUMS.subtract)

    def maximum(self, other: Spent) -> Spent:
        """The larger of each figure: at least as much as either."""
        return self._combine(other, max)

    def _combine(self, other: Spent, combine: Callable[[Decimal, Decimal], Decimal]) -> Spent:
        return Spent(
            combine(self.pure, other.pure),
            combine(self.gaussian, other.gaussian),
            combine(self.rho, other.rho),
            combine(self.approx_epsilon, other.approx_epsilon),
            combine(self.delta, other.delta),
        )

    @property
    def concentrated(self) -> Decimal:
        """ρ of the Gaussian and zCDP losses together."""
        return LOSSES.fma(self.gaussian, RHO_PER_SQUARE, self.rho)

    def epsilon_at(self, delta: Decimal) -> Decimal:
        """The smallest known ε for which everything spent is (ε, δ)-DP; infinite when δ does not suffice for any."""
        left = _BUDGETS.subtract(delta, self.delta)
        if left < 0:
            return INFINITE
        rest = _ZERO
        if self.rho > 0:
            rest = Decimal(zcdp_epsilon(_float_above(self.concentrated), _float_below(left)))
        elif self.gaussian > 0:
            rest = Decimal(gdp_epsilon(_float_above(self.gaussian), _float_below(left)))
        return LOSSES.add(LOSSES.add(self.pure, self.approx_epsilon), rest)


def _gdp_implies(square: float, epsilon: float, delta: float) -> bool:
    """Whether μ-GDP implies (ε, δ)-DP: δ(ε) = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ), rounded up."""
    mu = math.sqrt(square) * (1 + _ROUNDING)
    # SciPy takes longer to import than most commands to run.
    from scipy.special import log_ndtr

    first = float(log_ndtr(mu / 2 - epsilon / mu))
    if first == -math.inf:
        return True
    second = epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
    above = math.exp(first + _ROUNDING * (1 + abs(first)))
    below = math.exp(second - _ROUNDING * (1 + epsilon + abs(second - epsilon)))
    return above - below <= delta * (1 - _ROUNDING)


@lru_cache(maxsize=1024)
def gdp_epsilon(square: float, delta: float) -> float:
    """An ε, rounded up, such that Gaussian noise of Σμ² = `square` is (ε, δ)-DP, its numerical error included."""
    _require("mu squared", square, square >= 0)
    _require("delta", delta, 0 <= delta <= 1)
    if square == 0 or delta == 1:
        return 0.0
    if delta == 0 or square > _MAX_SQUARE:
        return math.inf
    reduced = delta * (1 - _GRANT_MARGIN)
    low, high = 0.0, 1.0
    while not _gdp_implies(square, high, reduced):
        low, high = high, 2 * high
    for _ in range(200):
        middle = (low + high) / 2
        # Neighbouring doubles: no further step changes either.
        if middle in (low, high):
            break
        low, high = (low, middle) if _gdp_implies(square, middle, reduced) else (middle, high)
    return max(high * (1 + 2 * _GRANT_MARGIN), square / _MAX_SQUARE)


@lru_cache(maxsize=256)
def gdp_square(epsilon: float, delta: float) -> float:
    """The largest μ², rounded down, for which `gdp_epsilon` promises (ε, δ).

    A little below the root, so the sum of its rounded parts still fits: δ(ε) is a difference of probabilities about 1/ε
    times as large, whose last bits are not monotone.
    """
    _require("epsilon", epsilon, 0 < epsilon < math.inf)
    _require("delta", delta, 0 < delta < 1)
    low, high = 0.0, min(_MAX_SQUARE, epsilon * _MAX_SQUARE)
    for _ in range(200):
        middle = (low + high) / 2
        # δ(ε) grows in μ, and underflows to 0 long before μ does.
        if middle == 0 or gdp_epsilon.__wrapped__(middle, delta) <= epsilon:
            low = middle
        else:
            high = middle
        if high - low <= high * _ROUNDING:
            break
    return low * (1 - min(0.5, 2.0**-33 + 2.0**-42 / epsilon))


@lru_cache(maxsize=1024)
def pure_square(epsilon: Decimal) -> Decimal:
    """μ², rounded up, of a pure ε: μ = 2Φ⁻¹(e^ε/(1 + e^ε)), where randomised response touches the Gaussian curve.

    μ <= ε·sqrt(π/2) always (proof.md, 3), and close to it for small ε, where doubles would lose their digits.
    """
    bound = LOSSES.multiply(LOSSES.multiply(epsilon, epsilon), _HALF_PI)
    if epsilon < Decimal("0.001") or bound > MAX_FIGURE:
        return at_least(bound)
    value = _float_above(epsilon)
    from scipy.special import ndtri_exp

    mu = -2 * float(ndtri_exp(-value - math.log1p(math.exp(-value)))) * (1 + 2.0**-36)
    return min(bound, _DISPLAYED.plus(Decimal(mu * mu * (1 + _ROUNDING))))


def zcdp_epsilon(rho: float, delta: float) -> float:
    """An ε, rounded up, such that ρ-zCDP implies (ε, δ)-DP.

    For every α > 1, a Rényi divergence of order α of at most ρα implies (ε, δ)-DP with
    ε = ρα + ln(1/(αδ))/(α − 1) + ln(1 − 1/α). The derivative in α has the sign of ρ(α−1)² − ln(1/(αδ)), which
    grows, so bisection finds the best order. Any order is valid: an inexact one costs only tightness.
    """
    _require("rho", rho, rho >= 0)
    _require("delta", delta, 0 <= delta <= 1)
    if rho == 0 or delta == 1:
        return 0.0
    if delta == 0 or rho == math.inf:
        return math.inf
    surprise = -math.log(delta)
    low, high = -40.0, min(max(surprise, 1.0), 700.0)
    for _ in range(64):
        middle = (low + high) / 2
        order = math.exp(middle)
        if rho * order * order < surprise - math.log1p(order):
            low = middle
        else:
            high = middle
    # Written in α − 1, so no term cancels another's digits.
    less_one = math.exp(low)
    terms = (
        rho,
        rho * less_one,
        surprise / less_one,
        -math.log1p(less_one) / less_one,
        -math.log1p(1 / less_one),
    )
    return max(0.0, math.fsum(terms) + _ROUNDING * sum(abs(term) for term in terms))


@lru_cache(maxsize=256)
def zcdp_rho(epsilon: float, delta: float) -> float:
    """The largest ρ, rounded down, for which `zcdp_epsilon` promises (ε, δ).

    A few units in the last place below the root, so the sum of its rounded parts still fits.
    """
    _require("epsilon", epsilon, 0 < epsilon < math.inf)
    _require("delta", delta, 0 < delta < 1)
    low, high = 0.0, epsilon
    # ρ-zCDP costs ε > ρ except where δ is generous, hence the search for an upper end.
    while zcdp_epsilon(high, delta) <= epsilon:
        low, high = high, 2 * high
    for _ in range(200):
        middle = (low + high) / 2
        if zcdp_epsilon(middle, delta) <= epsilon:
            low = middle
        else:
            high = middle
    rho = low * (1 - 2 * _ROUNDING)
    while zcdp_epsilon(rho * (1 + _ROUNDING), delta) > epsilon:
        rho *= 1 - _ROUNDING
    return rho


def budget_to_rho(loss: Loss) -> ZCDP:
    """How much zCDP noise a *budget* buys, rounded down. For calibration, never for a loss that was spent.

    Spending this ρ spends no more than the budget: for (ε, δ) by `zcdp_epsilon`. A pure ε buys no zCDP noise, whose
    privacy loss is unbounded; nor does a μ, because a Rényi bound does not imply one.
    """
    match loss:
        case ZCDP():
            return loss
        case Approx(epsilon=epsilon, delta=delta) if delta > 0 and epsilon > 0:
            return ZCDP(zcdp_rho(_float_below(epsilon), _float_below(delta)))
        case _:
            raise _needs_delta("noise with a Rényi bound", loss)


def gaussian_budget(loss: Loss) -> GDP:
    """How much Gaussian noise a *budget* buys, rounded down. For calibration, never for a loss that was spent.

    Spending this μ spends no more than the budget: for (ε, δ) by `gdp_epsilon`, for ρ because the noise is
    ½μ²(1 + 2^−30)-zCDP. Parts of μ² that add up to it may be spent one by one. A pure ε buys no Gaussian noise, whose
    privacy loss is unbounded.
    """
    match loss:
        case GDP():
            return loss
        case ZCDP(rho=rho):
            return GDP.squared(_BUDGETS.divide(rho, RHO_PER_SQUARE))
        case Approx(epsilon=epsilon, delta=delta) if delta > 0 and epsilon > 0:
            return GDP.squared(gdp_square(_float_below(epsilon), _float_below(delta)))
        case _:
            raise _needs_delta("Gaussian noise", loss)


def _needs_delta(noise: str, loss: Loss) -> StudyError:
    return StudyError(
        f"{noise} needs a budget with epsilon and delta above 0, found {loss}: "
        "set privacy.delta, or choose a mechanism with a pure guarantee",
        key="privacy.delta",
    )


_UNIT_ORDER = {Unit.RECORD: 0, Unit.PERSON: 1, Unit.PARTY: 2}


def convert(
    loss: Loss,
    unit_from: Unit,
    neighbours_from: Neighbours,
    unit_to: Unit,
    neighbours_to: Neighbours,
) -> Loss:
    """The same release's loss under another unit and relation; refused where the first does not imply the second.

    To an inner unit, under replace: changing one record of a person, or of a party, is one way of replacing the person
    or party, so the loss is the same. From add-remove to replace: a replacement is one removal and one addition, so
    group privacy for two applies: 2ε, 2μ, 4ρ, (2ε, (1 + e^ε)δ). From add-remove to add-remove of an inner unit: a party
    with one record less is *another* party, two steps away, so it costs two as well.
    """
    to_inner = _UNIT_ORDER[unit_to] < _UNIT_ORDER[unit_from]
    if _UNIT_ORDER[unit_to] > _UNIT_ORDER[unit_from] or (
        neighbours_from is Neighbours.REPLACE and neighbours_to is Neighbours.ADD_REMOVE
    ):
        raise Refused(
            f"a loss stated for one {unit_from} under {neighbours_from} says nothing about one {unit_to} "
            f"under {neighbours_to}: run the study in the ledger's unit and relation",
            code="unit",
        )
    if neighbours_from is Neighbours.ADD_REMOVE and (to_inner or neighbours_to is Neighbours.REPLACE):
        return _group_of_two(loss)
    return loss


def _group_of_two(loss: Loss) -> Loss:
    match loss:
        case Pure():
            return loss * 2
        case GDP() | ZCDP():
            return loss * 4
        case Approx(epsilon=epsilon, delta=delta):
            if delta == 0:
                return loss * 2
            doubled = Decimal(1)
            if epsilon < 1000:
                # Decimal's exp always rounds to nearest; the next figure is an upper bound.
                growth = LOSSES.next_plus(LOSSES.exp(epsilon))
                doubled = LOSSES.multiply(LOSSES.add(Decimal(1), growth), delta)
            if doubled >= 1:
                raise Refused(f"{loss} under add-remove promises nothing under replace", code="unit")
            return Approx(LOSSES.multiply(epsilon, Decimal(2)), doubled)


def _float_above(value: Decimal) -> float:
    nearest = float(value)
    return nearest if Decimal(nearest) >= value else math.nextafter(nearest, math.inf)


def _float_below(value: Decimal) -> float:
    nearest = float(value)
    return nearest if Decimal(nearest) <= value else math.nextafter(nearest, -math.inf)


def _require(name: str, value: float, holds: bool) -> None:
    if not holds:
        raise StudyError(f"{name} is out of range, found {value!r}", key=name)
