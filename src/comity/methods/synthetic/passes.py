"""The mixture in two passes: what columns share is found from all tables at once, what single pairs add, from each.

The first pass fits the tables as they were opened, with components drawn together: noise has no structure that many
columns share, so that a weak relation of many columns is found where no table shows it alone. The second fits the mean
of two estimates of each pair. One is what the table alone says, as agreed; the other, what the first pass says and the
table adds to it beyond noise. One misses weak relations and the other the finer of the strong ones, so that their mean
is nearer than either. All of it reads released counts and public chance.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from comity.entropy import Stream
from comity.methods.synthetic.consistent import Consistent, around
from comity.methods.synthetic.layout import Layout
from comity.methods.synthetic.mixture import Mixture, fit, most_steps

Floats = NDArray[np.float64]
Pairs = dict[tuple[int, int], Floats]

# How strongly components are drawn together, in units of the largest eigenvalue of noise. Of 0.3 and 0.6, two-way
# distances of any two of Adult, credit defaults and bikes choose this one (five splits at ε = 1, 0.5 and 0.1); on the
# one left out they are .0128/.0192/.0489, .0195/.0301/.1001 and .0234/.0358/.1084, where tables that are shrunk one by
# one gave bikes .0264/.0389/.1089.
PULL = 0.3
# Of the steps of a fit, those of the first pass and of the second.
_FIRST, _SECOND = 0.25, 0.75


def fitted(
    layout: Layout, agreed: Consistent, chance: Stream, *, progress: Callable[[int, int], None] | None = None
) -> Mixture:
    steps = most_steps(layout)
    opened = {(key[0], key[1]): table for key, table in agreed.noisy.items() if len(key) == 2}
    shared = fit(layout, agreed, chance, pairs=opened, pull=PULL, steps=int(_FIRST * steps))
    pairs = refined(layout, agreed, shared)
    return fit(layout, agreed, chance, pairs=pairs, start=shared, steps=int(_SECOND * steps), progress=progress)


def refined(layout: Layout, agreed: Consistent, shared: Mixture) -> Pairs:
    """The mean of the two estimates of every pair that the model is about."""
    return {
        (i, j): (table + around(shared.pair(i, j) * agreed.total, agreed.noisy[i, j], agreed.deviation[i, j])) / 2
        for (i, j), table in agreed.pairs.items()
        if i not in layout.follows and j not in layout.follows
    }
