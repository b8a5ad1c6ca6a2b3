"""How accurate a constant can be that is named under privacy: what no mechanism for whole parties gets around.

To name the most frequent class is to tell a consortium from one whose classes were exchanged at every party. Halfway
between the two, with half of the parties exchanged, nothing is to be told, and ε for each of the other half is all that
a mechanism may differ by (`src/comity/methods/softlabel/proof.md`, 7).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, exp, expm1


def least_error(parties: int, classes: int, epsilon: float, delta: float) -> float:
    """The least probability of naming a wrong class, for parties that are alike and a mechanism that treats classes
    alike: (1 − 1/C)·t, t = e^{−⌈M/2⌉ε} − Cδ(1 − e^{−⌈M/2⌉ε})/(e^ε − 1)."""
    return (1 - 1 / classes) * _told(parties, classes, epsilon, delta)


def reachable_constant(shares: Sequence[float], parties: int, epsilon: float, delta: float) -> float:
    """The most accuracy on classes of these shares that a privately named constant has on average: below the largest
    share by t·min(largest − second, largest − 1/C)."""
    first, second = sorted(shares, reverse=True)[:2]
    return first - _told(parties, len(shares), epsilon, delta) * min(first - second, first - 1 / len(shares))


def _told(parties: int, classes: int, epsilon: float, delta: float) -> float:
    left = exp(-ceil(parties / 2) * epsilon)
    return max(0.0, left - classes * delta * (1 - left) / expm1(epsilon))
