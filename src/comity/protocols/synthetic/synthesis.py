"""From released counts to rows of cells: post-processing, so that it may be done again by anybody, at no cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from comity.entropy import Stream
from comity.protocols.synthetic import labels, naive_bayes
from comity.protocols.synthetic.consistent import Consistent, agree
from comity.protocols.synthetic.layout import Layout
from comity.protocols.synthetic.mixture import fit
from comity.protocols.synthetic.rows import follow, sample

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Tables = Mapping[tuple[int, ...], Floats]


@dataclass(frozen=True)
class Synthesis:
    """How rows are made of counts. `ordered` columns have cells in an order; a `classified` label is drawn anew from
    the rows' own columns. `total` is the number of records where it is public."""

    layout: Layout
    model: str
    ordered: tuple[int, ...] = ()
    classified: bool = False
    total: float | None = None

    def agreed(self, weighted: Floats, deviation: float) -> Consistent:
        layout = self.layout
        return agree(layout, layout.tables(weighted), layout.deviations(deviation), self.total)

    def rows(
        self,
        weighted: Floats,
        deviation: float,
        chance: Stream,
        *,
        count: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Integers:
        """Cells (rows, columns); as many rows as the counts say that there are records, unless told."""
        agreed = self.agreed(weighted, deviation)
        size = max(1, round(agreed.total)) if count is None else count
        if self.model == "naive-bayes":
            found = naive_bayes.sample(self.layout, agreed, size, chance)
        else:
            found = sample(fit(self.layout, agreed, chance, progress=progress), size, chance)
            if self.classified and self.layout.target is not None:
                target = self.layout.target
                found[:, target] = labels.redraw(self.layout, agreed, found, chance, ordered=self.ordered)
        for column, of in _in_order(self.layout.follows):
            table = agreed.pairs[min(column, of), max(column, of)]
            found[:, column] = follow(found[:, of], table if of < column else table.T, chance)
        return found


def _in_order(follows: Mapping[int, int]) -> Sequence[tuple[int, int]]:
    """Each column after the one that it follows."""
    done: list[tuple[int, int]] = []
    waiting = dict(follows)
    while waiting:
        ready = [(k, of) for k, of in waiting.items() if of not in waiting]
        done += ready
        for k, _ in ready:
            del waiting[k]
        if not ready:
            raise ValueError("columns follow each other in a circle")
    return done
