"""Parallel composition: releases of disjoint parts of the records, where each unit is in one part.

A unit's part does not depend on its data (`comity.federation.evaluation`, proof.md), so the unit loses what the
releases of its part cost, and nothing by the others. Together they cost what the most expensive part costs:

    cost = sum of the releases of all records + largest sum over the parts

The largest is taken figure by figure (ε, μ², ρ, δ): never less than the cost of any part. Sums are exact, so the order
of the releases does not matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce

from comity.privacy.accounting import Spent
from comity.privacy.loss import Loss

WHOLE = ""
"""The part of a release that may read every record."""


class Parts:
    """The sums of one run, by part. Each `add` returns what it adds to the cost of the run."""

    def __init__(self) -> None:
        self._sums: dict[str, Spent] = {}

    @classmethod
    def of(cls, losses: Iterable[tuple[str, Loss]]) -> Parts:
        parts = cls()
        for part, loss in losses:
            parts.add(part, loss)
        return parts

    def add(self, part: str, loss: Loss, times: int = 1) -> Spent:
        if part == WHOLE:
            self._sums[WHOLE] = self._sums.get(WHOLE, Spent.zero()).add(loss, times)
            return Spent.zero().add(loss, times)
        before = self._largest
        self._sums[part] = self._sums.get(part, Spent.zero()).add(loss, times)
        return self._largest.minus(before)

    @property
    def cost(self) -> Spent:
        return self._sums.get(WHOLE, Spent.zero()).plus(self._largest)

    @property
    def sums(self) -> Mapping[str, Spent]:
        return dict(self._sums)

    @property
    def _largest(self) -> Spent:
        return reduce(Spent.maximum, (spent for part, spent in self._sums.items() if part != WHOLE), Spent.zero())
