"""Equations 9 and 18 of Hamm, Cao and Belkin (2016): how much risk the noise and the sample may add, evaluated."""

from __future__ import annotations

from dataclasses import dataclass
from math import log

C_LOGISTIC = 0.25
"""The derivative of the logistic loss is Lipschitz with this constant."""


@dataclass(frozen=True)
class ErrorBound:
    """The terms of equation 18. `weight` is M for soft labels; with 1 it is the bound that equation 9 abbreviates."""

    noise: float
    sample: float
    penalty: float

    @property
    def total(self) -> float:
        return self.noise + self.sample + self.penalty


def error_bound(
    *, dimensions: int, l2: float, weight: int, epsilon: float, rows: int, norm: float, delta_p: float, delta_s: float
) -> ErrorBound:
    """R(w_p) − R(w_0) is at most this with probability 1 − delta_p − delta_s, where |w_0| = norm."""
    radius = 2 * noise_radius(dimensions, delta_p) / (weight * l2 * epsilon)
    return ErrorBound((C_LOGISTIC + l2) * radius**2, 16 * (32 + log(1 / delta_s)) / (l2 * rows), l2 / 2 * norm * norm)


def noise_radius(dimensions: int, delta: float) -> float:
    """A radius of Gamma(d, 1) is at most d log(d/δ) with probability 1 − δ."""
    return dimensions * log(dimensions / delta)


def best_bound(
    *, dimensions: int, weight: int, epsilon: float, rows: int, norm: float, delta_p: float, delta_s: float
) -> tuple[float, float]:
    """The least bound over all penalties, and the penalty: with a fixed one the gap λ|w_0|²/2 never closes."""
    tried = [10 ** (-6 + 10 * place / 400) for place in range(401)]

    def total(l2: float) -> float:
        return error_bound(
            dimensions=dimensions,
            l2=l2,
            weight=weight,
            epsilon=epsilon,
            rows=rows,
            norm=norm,
            delta_p=delta_p,
            delta_s=delta_s,
        ).total

    least = min(tried, key=total)
    return total(least), least


def log_slope(first: float, last: float, factor: float) -> float:
    """The exponent s of a quantity that goes as M^s, from its values at M and at factor·M."""
    return log(last / first) / log(factor)
