"""Bounds of Pathak, Rane and Raj (2010) on what averaging and noise cost, as printed and as they hold.

K parties with n_j records in the unit ball; w* minimises the mean loss of all records with penalty λ, ŵ is the mean of
the parties' minimisers, ŵ_s = ŵ + η. J is the regularised mean loss of all records, J̃ its expectation. Derivations:
`comity/methods/averaging/published/proof.md`, 6.

The paper's displays are missing in its text as we have it. `printed_*` is the form that every sentence about them fits:
(K − 1)/(n_(1) λ), zero for one party; its square, noise and their product times λ + 1, which falls with n_(1)² and is
the bound of its reference [8] for one party; twice that and the term of its reference [14].
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log, sqrt
from typing import Literal

import numpy as np

from comity.methods.averaging.published.noise import gradient_diameter

Noise = Literal["literal", "spherical"]

# As printed.


def printed_distance(sizes: Sequence[int], l2: float) -> float:
    """Theorem 4.2: of ŵ from w*."""
    return (len(sizes) - 1) / (min(sizes) * l2)


def printed_excess(sizes: Sequence[int], l2: float, *, width: int, epsilon: float, delta: float) -> float:
    """Theorem 4.3: J(ŵ_s) − J(w*), with probability 1 − δ."""
    noise = 2 * width * log(width / delta) / (min(sizes) * epsilon * l2)
    return (l2 + 1) / 2 * (printed_distance(sizes, l2) + noise) ** 2


def printed_true_excess(sizes: Sequence[int], l2: float, *, width: int, epsilon: float, delta: float) -> float:
    """Theorem 4.4: J̃(ŵ_s) − J̃(w*), with probability 1 − δ."""
    empirical = printed_excess(sizes, l2, width=width, epsilon=epsilon, delta=delta)
    return generalised(empirical, sum(sizes), l2, delta)


# As they hold.


def distance_of_any(parties: int, l2: float) -> float:
    """Of ŵ from w*, for any records at any party: c(λ)(K − 1)/(Kλ). It does not fall with the number of records."""
    return gradient_diameter(l2) * (parties - 1) / (parties * l2)


def distance_of_random(sizes: Sequence[int], l2: float, delta: float) -> float:
    """Of ŵ from w* with probability 1 − δ, where records are dealt to the parties at random."""
    each = np.sqrt(2 * log(2 * len(sizes) / delta) / np.asarray(sizes, np.float64))
    return min(distance_of_any(len(sizes), l2), gradient_diameter(l2) / l2 * float(each.mean()))


def noise_length(kind: Noise, scale: float, width: int, delta: float) -> float:
    """A bound on |η| in L2 with probability 1 − δ."""
    return scale * (sqrt(width) if kind == "literal" else width) * log(width / delta)


def excess(distance: float, l2: float) -> float:
    """J(w) − J(w*) for a w at this distance from w*."""
    return (l2 + 0.25) / 2 * distance**2


def generalised(empirical: float, records: int, l2: float, delta: float) -> float:
    """The expectation's excess from the empirical one, for independent records of one distribution (reference [14])."""
    return 2 * empirical + 16 / (l2 * records) * (32 + log(1 / delta))
