"""Who shares masks and secrets with whom: everybody, or a random regular graph among very many.

After J. Bell, K. Bonawitz, A. Gascón, T. Lepoint, M. Raykova, Secure single-server aggregation with (poly)logarithmic
overhead, 2020. With a random k-regular graph three things must hold for every party: fewer than a threshold of its
neighbours collude (else its secrets can be rebuilt), at least a threshold of them survive (else its sum can't be
opened), and the honest survivors stay connected (else sums of components could be told apart). `choose` takes the
smallest degree for which each fails with probability below 2^-40 (privacy) and 2^-30 (completion), by exact
hypergeometric tails and a union over parties; the plan states it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.stats import hypergeom

from comity.entropy import Stream
from comity.errors import Refused

# Up to so many parties everyone is everyone's neighbour.
COMPLETE = 100
PRIVACY = 2.0**-40
COMPLETION = 2.0**-30


@dataclass(frozen=True)
class Degree:
    """Each party has `degree` neighbours and its secrets are shared among them and itself, `threshold` to rebuild."""

    degree: int
    threshold: int


@lru_cache(maxsize=64)
def choose(parties: int, colluders: int, dropouts: int) -> Degree:
    """Degree and threshold for so many colluders and drop-outs.

    The threshold is above half of the holders plus the colluders among them: then nobody can collect shares of both
    secrets of one party, whatever lists it shows, since an honest holder gives out one of the two.
    """
    survivors = parties - dropouts
    if parties <= COMPLETE:
        threshold = (parties + colluders) // 2 + 1
        if threshold > survivors:
            raise Refused(
                f"a secure sum of {parties} parties with {colluders} colluders needs {threshold} to finish, "
                f"privacy.dropouts = {dropouts} leaves {survivors}; lower it to {max(parties - threshold, 0)} at most",
                code="dropouts",
                key="privacy.dropouts",
            )
        return Degree(parties - 1, threshold)
    others = parties - 1
    for degree in range(8, parties - 1, 2):
        # The most colluders among a party's neighbours that we have to count with.
        most = int(hypergeom.isf(PRIVACY / parties, others, min(colluders, others), degree)) if colluders else 0
        lost = int(hypergeom.isf(COMPLETION / parties, others, min(dropouts, others), degree)) if dropouts else 0
        threshold = (degree + 1 + most) // 2 + 1
        if degree - lost >= threshold and _connected(parties, degree, colluders + dropouts):
            return Degree(degree, threshold)
    raise Refused(
        f"no graph on {parties} parties stands {colluders} colluders and {dropouts} drop-outs; lower one of them",
        code="dropouts",
        key="privacy.dropouts",
    )


def _connected(parties: int, degree: int, absent: int) -> bool:
    """Whether the present parties stay connected except with probability `PRIVACY`.

    A set of s present parties is cut off when all their neighbours outside it are absent. In the random graph of
    `ring` (a random cyclic order; neighbours are the degree/2 on each side) the present ones fall apart exactly when
    degree/2 consecutive places are all absent, at two places at least; once is bounded here.
    """
    half, present = degree // 2, parties - absent
    if absent < half:
        return True
    # The chance that half consecutive places of a random order are all absent, times the places where it may begin.
    chance = float(np.exp(np.sum(np.log((absent - np.arange(half)) / (parties - np.arange(half))))))
    return present > 0 and parties * chance < PRIVACY


def ring(parties: Sequence[str], degree: int, stream: Stream) -> dict[str, tuple[str, ...]]:
    """Neighbours of each party, in the order of `parties`: all others, or those near it in a random cyclic order."""
    count = len(parties)
    if degree >= count - 1:
        return {party: tuple(other for other in parties if other != party) for party in parties}
    order = stream.permutation(count)
    place = np.argsort(order)
    if degree % 2:
        raise ValueError(f"a ring has an even degree, found {degree}")
    half = degree // 2
    offsets = [*range(-half, 0), *range(1, half + 1)]
    out = {}
    for number, party in enumerate(parties):
        near = sorted(int(order[(place[number] + offset) % count]) for offset in offsets)
        out[party] = tuple(parties[k] for k in near)
    return out
