"""What one release, or a whole study, costs a unit of privacy: pure ε, Gaussian μ, zCDP ρ, or (ε, δ).

A mechanism M is ε-DP when P[M(D) ∈ S] <= e^ε P[M(D') ∈ S] for every event S and all neighbours D, D';
(ε, δ)-DP adds δ on the right; ρ-zCDP bounds the Rényi divergence of every order α > 1 by ρα; μ-GDP says that
telling M(D) from M(D') is no easier than telling N(0, 1) from N(μ, 1). A loss means something only together with a unit
and a relation of neighbours (`comity.privacy.unit`).

Figures are exact decimals. Arithmetic that can't be exact rounds up: a loss that is stated too high is still true.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal, InvalidOperation
from fractions import Fraction
from typing import SupportsIndex

from comity.errors import Malformed, StudyError

Number = int | float | str | Decimal | SupportsIndex

LOSSES = Context(prec=60, rounding=ROUND_CEILING)
"""The arithmetic of losses: sixty digits, rounded up."""

MIN_FIGURE, MAX_FIGURE = Decimal("1e-300"), Decimal("1e300")
"""Figures of losses are 0 or between these, so doubles can hold them."""

_DIGITS = 400
_EXACT = Context(prec=2 * _DIGITS)


@dataclass(frozen=True, init=False)
class Pure:
    """ε-differential privacy."""

    epsilon: Decimal

    def __init__(self, epsilon: Number) -> None:
        object.__setattr__(self, "epsilon", _parse_figure("epsilon", epsilon))

    def __mul__(self, times: int) -> Pure:
        """Basic composition: `times` releases of ε cost times·ε."""
        return Pure(LOSSES.multiply(self.epsilon, _check_count(times)))

    def scaled(self, share: Fraction) -> Pure:
        """A share of the loss, rounded up: what a unit loses that moves less than the noise was scaled for."""
        return Pure(LOSSES.divide(LOSSES.multiply(self.epsilon, Decimal(share.numerator)), Decimal(share.denominator)))

    def __str__(self) -> str:
        return f"eps {format_up(self.epsilon, decimals=2)}"

    def as_text(self) -> str:
        return f"pure:{self.epsilon}"


@dataclass(frozen=True, init=False)
class GDP:
    """μ-Gaussian differential privacy, stored as μ², which adds up."""

    square: Decimal

    def __init__(self, mu: Number) -> None:
        figure = _parse_figure("mu", mu)
        object.__setattr__(self, "square", _parse_figure("mu squared", at_least(LOSSES.multiply(figure, figure))))

    @classmethod
    def squared(cls, square: Number) -> GDP:
        """The loss with this μ²."""
        loss = cls.__new__(cls)
        object.__setattr__(loss, "square", _parse_figure("mu squared", square))
        return loss

    @property
    def mu(self) -> Decimal:
        """μ, rounded up. Decimal's root always rounds to nearest; the next figure is an upper bound."""
        root = LOSSES.sqrt(self.square)
        return root if _EXACT.multiply(root, root) == self.square else LOSSES.next_plus(root)

    def __mul__(self, times: int) -> GDP:
        """Squares add up: `times` releases of μ cost sqrt(times)·μ."""
        return GDP.squared(LOSSES.multiply(self.square, _check_count(times)))

    def __str__(self) -> str:
        return f"mu {format_up(self.mu, decimals=4)}"

    def as_text(self) -> str:
        return f"gdp:{self.square}"


@dataclass(frozen=True, init=False)
class ZCDP:
    """ρ-zero-concentrated differential privacy."""

    rho: Decimal

    def __init__(self, rho: Number) -> None:
        object.__setattr__(self, "rho", _parse_figure("rho", rho))

    def __mul__(self, times: int) -> ZCDP:
        """Rényi divergences add up: `times` releases of ρ cost times·ρ."""
        return ZCDP(LOSSES.multiply(self.rho, _check_count(times)))

    def __str__(self) -> str:
        return f"rho {format_up(self.rho, decimals=4)}"

    def as_text(self) -> str:
        return f"zcdp:{self.rho}"


@dataclass(frozen=True, init=False)
class Approx:
    """(ε, δ)-differential privacy, with δ < 1."""

    epsilon: Decimal
    delta: Decimal

    def __init__(self, epsilon: Number, delta: Number) -> None:
        object.__setattr__(self, "epsilon", _parse_figure("epsilon", epsilon))
        object.__setattr__(self, "delta", _parse_figure("delta", delta))
        if self.delta >= 1:
            raise StudyError(
                f"delta must be below 1, found {self.delta}: choose it far below 1 / (number of units)",
                key="delta",
            )

    def __mul__(self, times: int) -> Approx:
        """Basic composition: both figures add up."""
        count = _check_count(times)
        return Approx(LOSSES.multiply(self.epsilon, count), LOSSES.multiply(self.delta, count))

    def __str__(self) -> str:
        return f"(eps {format_up(self.epsilon, decimals=2)}, delta {format_small(self.delta)})"

    def as_text(self) -> str:
        return f"approx:{self.epsilon},{self.delta}"


Loss = Pure | GDP | ZCDP | Approx


def loss_of(epsilon: Number, delta: Number) -> Pure | Approx:
    """The loss of a written ε and δ: a δ of 0 is pure differential privacy."""
    return Approx(epsilon, delta) if delta else Pure(epsilon)


def parse_loss(text: str) -> Loss:
    """The loss that `as_text` wrote."""
    kind, _, figures = text.partition(":")
    parts = figures.split(",")
    try:
        match kind, parts:
            case "pure", [epsilon]:
                return Pure(epsilon)
            case "gdp", [square]:
                return GDP.squared(square)
            case "zcdp", [rho]:
                return ZCDP(rho)
            case "approx", [epsilon, delta]:
                return Approx(epsilon, delta)
    except StudyError as wrong:
        raise Malformed(f"a stored loss can't be read: {text[:80]!r}: {wrong}") from wrong
    raise Malformed(
        f"a stored loss reads pure:EPSILON, gdp:MU-SQUARED, zcdp:RHO or approx:EPSILON,DELTA, found {text[:80]!r}"
    )


def at_least(value: Decimal) -> Decimal:
    """`value`, rounded up to the smallest figure of a loss when it is below that and not 0."""
    return MIN_FIGURE if 0 < value < MIN_FIGURE else value


def float_above(value: Decimal) -> float:
    """A double whose shortest decimal is at least `value`; that decimal is how doubles are read here."""
    nearest = float(value)
    return nearest if Decimal(float.__repr__(nearest)) >= value else math.nextafter(nearest, math.inf)


def format_up(value: Decimal, *, decimals: int, digits: int = 4) -> str:
    """`value` rounded up to `digits` significant digits, with at least `decimals` after the point."""
    if not value.is_finite():
        return "infinite"
    rounded = Context(prec=digits, rounding=ROUND_CEILING).plus(value).normalize()
    exponent = rounded.as_tuple().exponent
    assert isinstance(exponent, int)
    return f"{rounded:.{max(decimals, -exponent)}f}"


def format_small(value: Decimal, *, digits: int = 4, rounding: str = ROUND_CEILING) -> str:
    """`value` with this many significant digits, by default rounded up, in powers of ten: 1e-6."""
    if value <= 0:
        return "0"
    rounded = Context(prec=digits, rounding=rounding).plus(value)
    mantissa = rounded.scaleb(-rounded.adjusted()).normalize()
    return f"{mantissa:f}e{rounded.adjusted()}"


def _parse_figure(name: str, value: Number) -> Decimal:
    """A float means its shortest decimal, which is what a person wrote: 0.1 is one tenth."""
    try:
        if isinstance(value, bool):
            raise TypeError
        if isinstance(value, Decimal):
            figure = value
        elif isinstance(value, float):
            figure = Decimal(float.__repr__(value))
        elif isinstance(value, str):
            figure = Decimal(value)
        else:
            figure = Decimal(operator.index(value))
    except (InvalidOperation, TypeError, ValueError):
        raise StudyError(f"{name} must be a number, found {repr(value)[:80]}", key=name) from None
    if not figure.is_finite() or figure < 0:
        raise StudyError(f"{name} must be finite and not negative, found {repr(value)[:80]}", key=name)
    if figure == 0:
        return Decimal(0)
    if not MIN_FIGURE <= figure <= MAX_FIGURE or len(figure.as_tuple().digits) > _DIGITS:
        raise StudyError(
            f"{name} must be 0 or between {MIN_FIGURE} and {MAX_FIGURE}, with at most {_DIGITS} digits, "
            f"found {str(value)[:80]}",
            key=name,
        )
    return figure


def _check_count(times: int) -> Decimal:
    count = operator.index(times)
    if count < 0:
        raise StudyError(f"a loss can be incurred 0 times or more, found {count}")
    return Decimal(count)
