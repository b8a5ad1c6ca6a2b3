"""Whom the curator asks: who has rank + Laplace(1/ε) <= 1 + ln(1/(2β))/ε, so that the best is missed with chance β."""

from __future__ import annotations

from math import exp, log

from comity.privacy.loss import Pure
from comity.privacy.mechanisms import NoisyThreshold


def threshold(epsilon: float, missed: float) -> float:
    """The largest noisy rank that is asked: half of exp(−ε·distance) lies beyond it at rank 1."""
    return 1 + log(1 / (2 * missed)) / epsilon


def asking(loss: Pure, readers: int, missed: float) -> NoisyThreshold:
    """Bits for all owners, of which `readers` may pool theirs: `loss` is of all of these, an equal part for each.

    Sensitivity  1 for each bit: a record moves its owner's bid, and that the rank of every other owner by one at most.
                 The bit that its own owner sees is no secret from it.
    """
    epsilon = float(loss.epsilon) / readers
    return NoisyThreshold(loss=loss, sensitivity=1.0, threshold=-threshold(epsilon, missed), touched=readers)


def expected(owners: int, epsilon: float, missed: float) -> float:
    """How many are asked in a round, on average; it depends on no record, because ranks are 1 … owners in any case."""
    limit = threshold(epsilon, missed)
    return sum(_asked(limit - rank, epsilon) for rank in range(1, owners + 1))


def _asked(room: float, epsilon: float) -> float:
    tail = exp(-epsilon * abs(room)) / 2
    return 1 - tail if room >= 0 else tail
