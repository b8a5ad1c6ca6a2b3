"""Rows whose columns are independent given the label: what a very small budget can carry.

A learner of such rows believes every column for itself. Columns that say the same are then counted as often as there
are of them, noise in each of them too. Of a class that moves chances and seldom the answer; of a number it moves the
answer, beyond what a constant would miss. So what columns say of a number is tempered (`tempered`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from comity.entropy import Stream
from comity.methods.synthetic.consistent import Consistent, Floats
from comity.methods.synthetic.layout import Layout
from comity.methods.synthetic.rows import follow, systematic

Integers = NDArray[np.int64]

# No cell is less likely than this times what it would be without the other column, before tempering: an empty one is
# not impossible. Not tuned on data.
_LEAST = 1e-3


def tempered(layout: Layout, agreed: Consistent) -> Consistent:
    """Pairs with the target whose log-likelihood ratios are divided by the effective number of columns.

    With I_j what column j tells of the target (their mutual information), that number is (Σ I_j)²/Σ I_j²: as many as
    there are where all tell as much, one where one tells all. How far columns repeat each other is not counted, so that
    the most that they could is assumed: together they say as much as one of them. Chosen among no tempering, fixed
    powers from a half to a tenth, the root of that number and the number itself, on credit limits, working hours, wages
    and two tables of motion with made targets, at two budgets each, two runs a cell: the geometric mean of errors, and
    the worst, is lowest with the number itself. Wages, which many columns tell apart, lose by it.
    """
    tables = {pair: table for pair, table in agreed.pairs.items() if layout.target in pair}
    alone = {(i, j): np.outer(agreed.singles[i], agreed.singles[j]) / agreed.total for i, j in tables}
    told = np.array([_information(table, alone[pair]) for pair, table in tables.items()])
    columns = max(1.0, float(told.sum() ** 2 / max((told**2).sum(), 1e-300)))
    raised = {pair: _raised(table, alone[pair], columns) for pair, table in tables.items()}
    return replace(agreed, pairs={**agreed.pairs, **raised})


def _information(table: Floats, alone: Floats) -> float:
    """Between the two columns of a table, in nats; `alone` is what it would be if they had nothing to do with each
    other."""
    filled = (table > 0) & (alone > 0)
    return max(0.0, float((table[filled] * np.log(table[filled] / alone[filled])).sum() / table.sum()))


def _raised(table: Floats, alone: Floats, columns: float) -> Floats:
    ratio = np.divide(table, alone, out=np.ones_like(table), where=alone > 0)
    found = alone * np.maximum(ratio, _LEAST) ** (1 / columns)
    return np.asarray(found * table.sum() / found.sum())


def sample(layout: Layout, agreed: Consistent, rows: int, chance: Stream) -> Integers:
    """Labels by their counts, and within each label every column by its own; without a label every column alone."""
    found = np.zeros((rows, layout.columns), np.int64)
    together = np.zeros(rows, np.int64)
    target = layout.target
    if target is not None:
        found[:, target] = systematic(agreed.singles[target][None], together, chance)
    for k in layout.leading:
        if target is None:
            found[:, k] = systematic(agreed.singles[k][None], together, chance)
        elif k != target:
            table = agreed.pairs[min(k, target), max(k, target)]
            found[:, k] = follow(found[:, target], table if target < k else table.T, chance)
    return found
