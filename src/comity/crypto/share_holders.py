"""Which parties hold shares of a party's secrets in a secure sum: all others, or a few that the party picks at random.

After J. Bell, K. Bonawitz, A. Gascón, T. Lepoint, M. Raykova, Secure single-server aggregation with (poly)logarithmic
overhead, 2020. Among up to `MAX_COMPLETE` parties every party is a share holder of every other. Among more, each party
picks `degree` share holders from the pinned roster by its own coins, so no other party can choose them. It shares its
secrets among them and itself, and has a pair mask with each of them and with each party that picked it.

A party accepts a list of parties only if at least `quorum` of its holders (itself included) are on it and signed it.
`choose_degree` finds a degree for which, over the coins of the honest parties and with N parties, c colluders fixed
beforehand and d drop-outs:

    1. except with probability 2^-40 no party has more than `most` colluders among its holders. The threshold is above
       half of holders plus `most`, so nobody can collect shares of both secrets of one party, whatever lists are shown:
       an honest holder gives out one of the two;
    2. except with probability 2^-30 no party loses more than `lost` holders to drop-outs that do not depend on the
       graph, so the sum can be opened;
    3. except with probability 2^-40 no set of at most N/2 honest parties is *closed*: one in which each member has at
       least q = degree − lost − most of its holders. By a union over all sets of s parties, whose coins are
       independent, the probability is at most Σ_s C(N, s) P[H(N − 1, s − 1, degree) >= q]^s, H hypergeometric.

By 3 all honest parties that open a sum do so on one list, and their masks connect all of them, even if the coordinator
lies about drop-outs and shows different lists to different parties: parties that signed the same list, and parties that
the absence of others separates from the rest, are closed sets, and of two disjoint ones the smaller has at most N/2
members. The coordinator can open the sum over all honest parties of one list, or nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import log

import numpy as np
from numpy.typing import NDArray

from comity.entropy import Stream
from comity.errors import Refused
from comity.special import gammaln, logsumexp

MAX_COMPLETE = 40
"""Up to this many parties all hold shares of all, so nothing depends on chance or on when colluders were chosen. The
work grows with the square of the parties: here it is about that of 100 parties in a sparse graph."""

PRIVACY = 2.0**-40
COMPLETION = 2.0**-30

_MAX_SINGLE_SIZE = 2000
_MIN_DEGREE = 4

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Degree:
    """Each party has `degree` share holders besides itself. `threshold` of them, itself included, recover a secret; it
    accepts a list of parties that `quorum` of them, itself included, are on and signed."""

    degree: int
    threshold: int
    quorum: int


@lru_cache(maxsize=64)
def choose_degree(parties: int, colluders: int, dropouts: int) -> Degree:
    """Degree, threshold and quorum for these numbers of colluders and drop-outs; refused if there are none."""
    complete = (parties + colluders) // 2 + 1
    fits = complete <= parties - dropouts
    if parties <= MAX_COMPLETE and not fits:
        raise Refused(
            f"a secure sum of {parties} parties with {colluders} colluders needs {complete} to finish, "
            f"privacy.dropouts = {dropouts} leaves {parties - dropouts}; lower it to {max(parties - complete, 0)} at "
            "most",
            code="dropouts",
            key="privacy.dropouts",
        )
    if parties > MAX_COMPLETE:
        degree = _MIN_DEGREE
        # If most of the others would be holders anyway, all of them are simpler.
        while degree < (parties // 2 if fits else parties - 1):
            found = _try_degree(parties, degree, colluders, dropouts)
            if found is not None:
                return found
            degree += max(1, degree // 20)
    if fits:
        return Degree(parties - 1, complete, complete)
    raise Refused(
        f"no graph on {parties} parties tolerates {colluders} colluders and {dropouts} drop-outs; lower one of them, "
        f"privacy.dropouts to {max(parties - complete, 0)} for instance",
        code="dropouts",
        key="privacy.dropouts",
    )


def _try_degree(parties: int, degree: int, colluders: int, dropouts: int) -> Degree | None:
    most = likely_maximum(parties - 1, colluders, degree, PRIVACY / parties)
    lost = likely_maximum(parties - 1, dropouts, degree, COMPLETION / parties)
    threshold = (degree + 1 + most) // 2 + 1
    if degree + 1 - lost < threshold or closed_set_bound(parties, degree, degree - lost - most) > log(PRIVACY):
        return None
    return Degree(degree, threshold, degree + 1 - lost)


def likely_maximum(population: int, marked: int, drawn: int, chance: float) -> int:
    """The smallest number that the count of marked ones among `drawn` exceeds with probability at most `chance`."""
    marked = min(marked, population)
    counts = np.arange(min(marked, drawn) + 1, dtype=float)
    logs = _log_choose(marked, counts) + _log_choose(population - marked, drawn - counts)
    tails = np.logaddexp.accumulate((logs - _log_choose(population, drawn))[::-1])[::-1]
    exceeding = np.append(tails[1:], -np.inf)
    return int(np.argmax(exceeding <= log(chance)))


def closed_set_bound(parties: int, degree: int, inside: int) -> float:
    """Logarithm of a bound on the probability that a set of at most half of the parties is closed: that each of its
    members picked at least `inside` of its `degree` holders from the set.

    Sizes beyond `_MAX_SINGLE_SIZE` are bounded in short ranges. Up to N/2 a larger size has more sets, and a member
    picks holders inside more easily, so the upper end of a range bounds both; its lower end bounds how many members
    there are.
    """
    lower, upper = _ranges(parties // 2)
    size = upper[:, None]
    within = np.arange(max(inside, 0), degree + 1, dtype=float)[None, :]
    logs = _log_choose(size - 1, within) + _log_choose(parties - size, degree - within)
    member = np.minimum(logsumexp(logs, axis=1) - _log_choose(parties - 1, degree), 0.0)
    sets = np.log(upper - lower + 1) + _log_choose(parties, upper)
    return float(logsumexp(sets + lower * member))


def _ranges(most: int) -> tuple[Floats, Floats]:
    """Ranges that cover 2 … most: single sizes, then ranges of a five-hundredth of their start."""
    upper = [*range(2, min(most, _MAX_SINGLE_SIZE) + 1)]
    while upper[-1] < most:
        upper.append(min(most, upper[-1] + upper[-1] // 500))
    ends = np.array(upper, float)
    return np.append(2.0, ends[:-1] + 1), ends


def _log_choose(of: float | Floats, chosen: float | Floats) -> Floats:
    total, some = np.broadcast_arrays(np.asarray(of, float), np.asarray(chosen, float))
    possible = (some >= 0) & (some <= total)
    safe = np.where(possible, some, 0.0)
    value = gammaln(total + 1) - gammaln(safe + 1) - gammaln(total - safe + 1)
    return np.where(possible, value, -np.inf)


def draw_holders(parties: Sequence[str], party: str, degree: int, coins: bytes) -> tuple[str, ...]:
    """The share holders of a party: all others, or `degree` of them by its secret coins; in the order of `parties`."""
    others = [other for other in parties if other != party]
    if degree >= len(others):
        return tuple(others)
    chosen = Stream(coins).permutation(len(others))[:degree]
    return tuple(others[place] for place in sorted(map(int, chosen)))
