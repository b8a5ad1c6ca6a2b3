"""Who holds whose secrets in a secure sum: everybody, or a few that each party chooses for itself among very many.

After J. Bell, K. Bonawitz, A. Gascón, T. Lepoint, M. Raykova, Secure single-server aggregation with (poly)logarithmic
overhead, 2020. Among up to `COMPLETE` parties everyone is everyone's holder. Among more, each party draws its `degree`
holders by its own coins from the pinned roster, so that nobody else can choose them. Its secrets are shared among them
and itself, and it has a pair mask with each of them and with each party that chose it.

A party goes along with a list of parties only if at least `quorum` of its holders (itself included) stand on it and
signed it. `choose` takes a degree for which, over the coins of the honest parties and with N parties, c colluders fixed
beforehand and d drop-outs:

    1. except with probability 2^-40 nobody has more than `most` colluders among its holders. The threshold is above
       half of holders plus `most`, so that shares of both secrets of one party can't be collected, whatever lists are
       shown, since an honest holder gives out one of the two;
    2. except with probability 2^-30 nobody loses more than `lost` holders to drop-outs that do not depend on the graph:
       the sum can be opened;
    3. except with probability 2^-40 no set of at most N/2 honest parties is *closed*: one in which each member has at
       least q = degree − lost − most of its holders. By a union over all sets of s parties, whose coins are
       independent, the probability is at most Σ_s C(N, s) P[H(N − 1, s − 1, degree) >= q]^s, H hypergeometric.

By 3 all honest parties that open a sum do so on one list, and their masks connect all of them, even if the coordinator
lies about who dropped out and shows different lists to different parties: parties that signed the same list, and
parties that are cut off from the rest by the absence of others, are closed sets, and of two disjoint ones the smaller
has at most N/2 members. What the coordinator can open is the sum over all honest parties of one list, or nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import log

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, logsumexp

from comity.entropy import Stream
from comity.errors import Refused

# Up to so many parties everyone is everyone's holder, so that nothing rests on chance or on when colluders were chosen.
# The work of the complete graph grows with the square of the parties: with so many it is about that of 100 in a sparse
# one.
COMPLETE = 40
PRIVACY = 2.0**-40
COMPLETION = 2.0**-30

_EACH = 2000
_FEWEST = 4

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Degree:
    """Each party has `degree` holders beside itself. `threshold` of them rebuild a secret, and a list of parties counts
    for it when `quorum` of them stand on it and signed it; itself is counted in both."""

    degree: int
    threshold: int
    quorum: int


@lru_cache(maxsize=64)
def choose(parties: int, colluders: int, dropouts: int) -> Degree:
    """Degree, threshold and quorum for so many colluders and drop-outs; refused where none will do."""
    complete = (parties + colluders) // 2 + 1
    fits = complete <= parties - dropouts
    if parties <= COMPLETE and not fits:
        raise Refused(
            f"a secure sum of {parties} parties with {colluders} colluders needs {complete} to finish, "
            f"privacy.dropouts = {dropouts} leaves {parties - dropouts}; lower it to {max(parties - complete, 0)} at "
            "most",
            code="dropouts",
            key="privacy.dropouts",
        )
    if parties > COMPLETE:
        degree = _FEWEST
        # Where most of the others would be holders anyway, all of them are simpler.
        while degree < (parties // 2 if fits else parties - 1):
            found = _tried(parties, degree, colluders, dropouts)
            if found is not None:
                return found
            degree += max(1, degree // 20)
    if fits:
        return Degree(parties - 1, complete, complete)
    raise Refused(
        f"no graph on {parties} parties stands {colluders} colluders and {dropouts} drop-outs; lower one of them, "
        f"privacy.dropouts to {max(parties - complete, 0)} for instance",
        code="dropouts",
        key="privacy.dropouts",
    )


def _tried(parties: int, degree: int, colluders: int, dropouts: int) -> Degree | None:
    most = most_among(parties - 1, colluders, degree, PRIVACY / parties)
    lost = most_among(parties - 1, dropouts, degree, COMPLETION / parties)
    threshold = (degree + 1 + most) // 2 + 1
    if degree + 1 - lost < threshold or closed_sets(parties, degree, degree - lost - most) > log(PRIVACY):
        return None
    return Degree(degree, threshold, degree + 1 - lost)


def most_among(population: int, marked: int, drawn: int, chance: float) -> int:
    """The fewest that the marked ones among so many drawn exceed with at most this chance."""
    marked = min(marked, population)
    counts = np.arange(min(marked, drawn) + 1, dtype=float)
    logs = _log_choose(marked, counts) + _log_choose(population - marked, drawn - counts)
    tails = np.logaddexp.accumulate((logs - _log_choose(population, drawn))[::-1])[::-1]
    exceeding = np.append(tails[1:], -np.inf)
    return int(np.argmax(exceeding <= log(chance)))


def closed_sets(parties: int, degree: int, inside: int) -> float:
    """Logarithm of a bound on the probability that a set of at most half of the parties is closed: that each of its
    members drew at least `inside` of its `degree` holders within it.

    Sizes of sets beyond `_EACH` are taken in short ranges: up to N/2 there are more sets the larger they are and a
    member finds its holders within more easily, so that a range is bounded by its upper end for both, and by its lower
    end for how many members must do so.
    """
    lower, upper = _ranges(parties // 2)
    size = upper[:, None]
    within = np.arange(max(inside, 0), degree + 1, dtype=float)[None, :]
    logs = _log_choose(size - 1, within) + _log_choose(parties - size, degree - within)
    member = np.minimum(logsumexp(logs, axis=1) - _log_choose(parties - 1, degree), 0.0)
    sets = np.log(upper - lower + 1) + _log_choose(parties, upper)
    return float(logsumexp(sets + lower * member))


def _ranges(most: int) -> tuple[Floats, Floats]:
    """Ranges that cover 2 … most: single sizes, then ranges a five-hundredth long."""
    upper = [*range(2, min(most, _EACH) + 1)]
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
    """The holders of a party: all others, or so many of them by its own secret coins; in the order of `parties`."""
    others = [other for other in parties if other != party]
    if degree >= len(others):
        return tuple(others)
    chosen = Stream(coins).permutation(len(others))[:degree]
    return tuple(others[place] for place in sorted(map(int, chosen)))
