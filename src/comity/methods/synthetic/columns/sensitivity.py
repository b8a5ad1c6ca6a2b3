"""How far one replaced record moves the counts that are opened from shares. Derivations are in proof.md."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

from comity.federation.declare.bounds import Counts
from comity.methods.synthetic.columns.holding import Holding
from comity.methods.synthetic.layout import Layout

# More than the rounding of the few floating-point operations below.
_UP = 1 + 1e-12


@dataclass(frozen=True)
class Sensitivity:
    l1: float
    l2: float


def sensitivity(layout: Layout, holding: Holding, carry: float) -> Sensitivity:
    """Of the weighted counts. `carry` is how far a count across parties may lie from the table, either way: 0 with
    a dealer. It may lie above for one neighbour and below for the other."""
    moved = Counts(layout.weights, replaced=True, records=1)
    across = list(holding.across(layout))
    l1 = sum(2 * carry * block.weight * block.cells for block in across)
    l2 = 2 * carry * sqrt(sum(block.weight**2 * block.cells for block in across))
    # Whole numbers, or their roots, need no rounding up but where something is added to them.
    return Sensitivity((moved.l1 + l1) * _UP, (moved.l2 + l2) * _UP) if carry else Sensitivity(moved.l1, moved.l2)
