"""From released counts to rows of cells: post-processing, so that it may be done again by anybody, at no cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from comity.entropy import Stream
from comity.methods.synthetic import labels, naive_bayes
from comity.methods.synthetic.consistent import Consistent, agree, determined
from comity.methods.synthetic.layout import Layout
from comity.methods.synthetic.passes import fitted
from comity.methods.synthetic.rows import follow, sample

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Synthesis:
    """How rows are made of counts. `ordered` says of columns how many of their cells have an order; a `classified`
    label is drawn anew from the rows' own columns. `total` is the number of records where it is public."""

    layout: Layout
    model: str
    ordered: Mapping[int, int] = field(default_factory=dict)
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
        # Products this small take longer on several threads, and their last bits would depend on how many there are.
        with threadpool_limits(1, user_api="blas"):
            return self.made(self.agreed(weighted, deviation), chance, count, progress)

    def made(
        self,
        agreed: Consistent,
        chance: Stream,
        count: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Integers:
        """Rows of what the counts agree on."""
        size = max(1, round(agreed.total)) if count is None else count
        if self.model == "naive-bayes":
            told = agreed if self.classified else naive_bayes.tempered(self.layout, agreed)
            found = naive_bayes.sample(self.layout, told, size, chance)
        else:
            found = sample(fitted(self.layout, agreed, chance, progress=progress), size, chance)
            if self.classified and self.layout.target is not None:
                target = self.layout.target
                found[:, target] = labels.redraw(self.layout, agreed, found, chance, ordered=self.ordered)
        for column, of in self.layout.follows.items():
            key = (min(column, of), max(column, of))
            table = determined(agreed.noisy[key] if of < column else agreed.noisy[key].T, agreed.deviation[key])
            found[:, column] = follow(found[:, of], table, chance)
        return found
