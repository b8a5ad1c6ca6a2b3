"""How good a dataset is on an owner's own records, for its own eyes: what it says of the target, or of each column.

With a target, naive Bayes learned from the dataset alone tells the target's cell of each own record. Without one, or of
an owner that holds some of the columns, the shares of each column's cells are compared; the constant is a dataset in
which all cells are alike.
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from comity.data import Held
from comity.federation.own_score import OwnScore, of_classes

if TYPE_CHECKING:
    from comity.methods.synthetic.artefact import SyntheticDataset

Integers = NDArray[np.int64]

SHARES = "share of your records that would have to change cells, mean over columns"


def codes_of(presented: SyntheticDataset) -> Integers:
    """The dataset's rows as cells."""
    found = presented.counts.counting.encoding.encode(presented.frame, where="the dataset").records
    return np.asarray(found.features, np.int64)


def score_target(presented: SyntheticDataset, records: Held) -> OwnScore | None:
    sizes = presented.counts.counting.layout.sizes
    made = codes_of(presented)
    # One record of every kind more, so that what the dataset lacks is not impossible.
    prior = np.log(np.bincount(made[:, -1], minlength=sizes[-1]) + 1.0)
    given = []
    for column, size in enumerate(sizes[:-1]):
        table = np.bincount(made[:, column] * sizes[-1] + made[:, -1], minlength=size * sizes[-1]) + 1.0
        table = table.reshape(size, sizes[-1])
        given.append(np.log(table / table.sum(axis=0)))
    counts, wrong = (np.zeros(sizes[-1], np.int64) for _ in range(2))
    for block in records.blocks():
        cells = np.asarray(block.features, np.int64)
        score = np.tile(prior, (len(cells), 1))
        for column, table in enumerate(given):
            score += table[cells[:, column]]
        truth = cells[:, -1]
        counts += np.bincount(truth, minlength=sizes[-1])
        wrong += np.bincount(truth[score.argmax(axis=1) != truth], minlength=sizes[-1])
    return of_classes(counts, wrong)


def score_columns(presented: SyntheticDataset, records: Held, places: tuple[int, ...]) -> OwnScore | None:
    """`places` are those of the owner's columns among all of the dataset's."""
    sizes, made = presented.counts.counting.layout.sizes, codes_of(presented)
    own = [np.zeros(sizes[place], np.int64) for place in places]
    for block in records.blocks():
        cells = np.asarray(block.features, np.int64)
        for at, place in enumerate(places):
            own[at] += np.bincount(cells[:, at], minlength=sizes[place])
    count = int(own[0].sum()) if own else 0
    if not count:
        return None
    found: list[Any] = []
    for counts, place in zip(own, places):
        theirs = np.bincount(made[:, place], minlength=sizes[place]) / max(1, len(made))
        shares, alike = counts / count, np.full(sizes[place], 1 / sizes[place])
        # Shares of so many records are this far from those of the people that they come from.
        chance = sqrt(sizes[place] / (4 * count))
        found.append([np.abs(shares - theirs).sum() / 2, np.abs(shares - alike).sum() / 2, chance])
    error, constant, chance = np.mean(found, axis=0)
    return OwnScore(count, float(error), float(constant), 3.0 * float(chance), SHARES)
