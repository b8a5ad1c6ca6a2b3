"""Poisson variables of any mean, precise enough to be released.

Means above a few thousand are drawn by rejection. The probabilities p(k) of Poisson(λ) are log-concave, since
p(k)/p(k−1) = λ/k falls; so the geometric curves that touch them at k₁ = M + w and k₂ = M − w, with
M = floor(λ) and w about sqrt(λ), lie above them everywhere:

    p(k) <= p(k₁) a^(k−k₁),  a = λ/(k₁+1),    and    p(k) <= p(k₂) b^(k₂−k),  b = k₂/λ.

A fair bit chooses the side (k >= M or k < M), a geometric variable the distance, and the proposal is kept with
probability p(k)/curve(k), times the constant that makes both sides equally likely to be proposed.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import lru_cache

import numpy as np

from comity.privacy.mixture import PRECISE
from comity.privacy.table_sampler import LARGEST_MEAN, poisson_table
from comity.privacy.uniforms import RELATIVE, TINY, Flags, Floats, Integers, Uniforms, whole_geometrics

_STEEPEST = 0.25
"""Up to this relative distance from the point of contact, thirty terms of the series below are as good as all."""

_BERNOULLI = ((1, 6), (-1, 30), (1, 42), (-1, 30), (5, 66), (-691, 2730), (7, 6), (-3617, 510), (43867, 798))
_SERIES = [(-1.0) ** n / (n * (n - 1)) for n in range(2, 32)]


def centred_poisson(mean: Decimal, count: int) -> Integers:
    """`count` independent Poisson(mean) variables, less the integer part of the mean."""
    if mean <= LARGEST_MEAN:
        return poisson_table(mean).draw(count) - int(mean)
    sides = _sides(mean)
    out = np.empty(count, np.int64)
    waiting = np.arange(count)
    while waiting.size:
        bits = np.unpackbits(np.frombuffer(secrets.token_bytes(len(waiting) // 8 + 1), np.uint8))[: len(waiting)]
        kept = np.zeros(len(waiting), bool)
        for side, chosen in zip(sides, (bits == 0, bits == 1), strict=True):
            places = np.flatnonzero(chosen)
            if places.size:
                proposed, keep = side.propose(len(places))
                out[waiting[places]] = proposed
                kept[places] = keep
        waiting = waiting[~kept]
    return out


@dataclass(frozen=True)
class _Side:
    """One of the two geometric curves.

    `contact` is the point from which the curve's logarithm is measured (k₁+1 on the right, k₂ on the left),
    `half` is −½ there and +½ here, `away` the proposal of distance 0 less the point of contact (k₁ or k₂),
    `offset` its distance from M.
    """

    direction: int
    contact: int
    half: Decimal
    away: int
    offset: int
    log: Decimal
    constant: Decimal

    def propose(self, count: int) -> tuple[Integers, Flags]:
        """Proposals less M, and which of them are kept."""
        logs = np.full(count, float(self.log))
        steps = self.direction * whole_geometrics(Uniforms(count), logs, lambda _: self.log)
        return steps + self.offset, self._kept(steps + self.away)

    def _kept(self, away: Integers) -> Flags:
        """Whether ln U <= constant − ln(curve/p), where `away` is k less the point of contact."""
        uniforms = Uniforms(len(away))
        doubles = uniforms.doubles
        slope = away / float(self.contact)
        near = np.abs(slope) <= _STEEPEST
        drop = self._drop(np.where(near, slope, 0.0))
        margin = float(self.constant) - drop - np.log(doubles)
        unclear = np.abs(margin) <= RELATIVE * (1 + np.abs(drop) + np.abs(np.log(doubles)))
        unclear |= ~near | (doubles < TINY)
        kept = margin >= 0
        for index in np.flatnonzero(unclear).tolist():
            kept[index] = self._keeps(int(away[index]), uniforms.precise(index))
        return kept

    def _drop(self, slope: Floats) -> Floats:
        """ln(curve/p) at the relative distance y: N((1+y)ln(1+y) − y) ± ½ ln(1+y), and Stirling's remainder."""
        contact = float(self.contact)
        series = np.polynomial.polynomial.polyval(slope, _SERIES) * slope * slope
        remainder = (1 / (1 + slope) - 1) / (12 * contact) - ((1 + slope) ** -3 - 1) / (360 * contact**3)
        return np.asarray(contact * series + float(self.half) * np.log1p(slope) + remainder)

    def _keeps(self, away: int, uniform: Decimal) -> bool:
        point = self.contact + away
        if 4 * point < self.contact:
            # All of these together have a probability below exp(−1500), and Stirling's series is poor here.
            return False
        with localcontext(PRECISE):
            growth = (Decimal(point) / self.contact).ln()
            drop = (point + self.half) * growth - away + _stirling(point) - _stirling(self.contact)
            return uniform.ln() <= self.constant - drop


@lru_cache(maxsize=16)
def _sides(mean: Decimal) -> tuple[_Side, _Side]:
    with localcontext(PRECISE):
        middle, width = int(mean), math.isqrt(int(mean))
        right, left = middle + width, middle - width
        log_right, log_left = (mean / (right + 1)).ln(), (left / mean).ln()
        # The logarithms of curve/proposal on the two sides; p(right)/p(left) = λ^2w · left!/right!.
        factorials = (right + Decimal("0.5")) * Decimal(right).ln() - (left + Decimal("0.5")) * Decimal(left).ln()
        factorials += _stirling(right) - _stirling(left) - 2 * width
        heavy_right = 2 * width * mean.ln() - factorials - width * log_right - (1 - log_right.exp()).ln()
        heavy_left = (1 - width) * log_left - (1 - log_left.exp()).ln()
        heavier = max(heavy_right, heavy_left)
        half = Decimal("0.5")
        return (
            _Side(1, right + 1, -half, -width, 0, log_right, heavy_right - heavier),
            _Side(-1, left, half, width - 1, -1, log_left, heavy_left - heavier),
        )


def _stirling(point: int) -> Decimal:
    """ln Γ(x) less (x − ½) ln x − x + ½ ln 2π, and also ln x! less (x + ½) ln x − x + ½ ln 2π."""
    x = Decimal(point)
    total, power = Decimal(0), x
    for n, (numerator, denominator) in enumerate(_BERNOULLI, 1):
        total += Decimal(numerator) / (denominator * 2 * n * (2 * n - 1) * power)
        power *= x * x
    return total
