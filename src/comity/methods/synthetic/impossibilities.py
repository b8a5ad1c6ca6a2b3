"""Rows without impossible records: what the schema declares impossible is part of the fit.

A rule is a set of cells in each of several columns; a record that lies in all of them is impossible. A component of the
mixture, in which columns are independent, gives a rule no probability exactly if it gives the cells of one of its
columns none. So every component excludes, for every rule, the cells of one column. The first pass of the fit learns
which, by a penalty on the probability of impossible records, and the end of the second pass fits all tables under the
exclusions.

Rules are public, and everything here reads released counts: it costs nothing (proof.md, 3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.entropy import Stream
from comity.errors import DataError
from comity.methods.synthetic.counts import Layout

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

# How often a row of naive Bayes that is impossible is offered an exchange of each of its values: a limit of time.
_OFFERS = 20


@dataclass(frozen=True)
class Impossibilities:
    """The rules of a layout, as indices of cells in a row of all columns' cells."""

    layout: Layout

    def __bool__(self) -> bool:
        return bool(self.layout.impossible)

    @cached_property
    def rules(self) -> tuple[tuple[Integers, ...], ...]:
        """The cells of each rule's columns."""
        offsets = self.layout.offsets
        return tuple(
            tuple(offsets[column] + np.array(cells, np.int64) for column, cells in rule)
            for rule in self.layout.impossible
        )

    # Tables.

    @cached_property
    def possible_pairs(self) -> Mapping[tuple[int, int], Flags]:
        """For each pair of columns with a rule about these two alone, which of its cells are possible."""
        found: dict[tuple[int, int], Flags] = {}
        for rule in self.layout.impossible:
            if len(rule) != 2:
                continue
            (i, first), (j, second) = sorted(rule)
            table = found.setdefault((i, j), np.ones((self.layout.sizes[i], self.layout.sizes[j]), np.bool_))
            table[np.ix_(first, second)] = False
        return found

    def clear(self, pairs: Mapping[tuple[int, int], Floats]) -> dict[tuple[int, int], Floats]:
        """These tables with zeros in the impossible cells, and the totals that they had."""
        cleared = dict(pairs)
        for pair, possible in self.possible_pairs.items():
            if pair in cleared:
                cleared[pair] = _scale(cleared[pair] * possible, float(cleared[pair].sum()))
        return cleared

    # The mixture.

    def add_penalty(self, gradient: NDArray[Any], probabilities: NDArray[Any], weight: float) -> None:
        """Add the gradient of `weight` times the mixture's probability of impossible records, rule by rule."""
        scale = gradient.dtype.type(weight / len(probabilities))
        for rule in self.rules:
            masses = np.stack([probabilities[:, cells].sum(1) for cells in rule])
            for place, cells in enumerate(rule):
                others = np.delete(masses, place, axis=0).prod(0)
                gradient[:, cells] += scale * others[:, None]

    def exclude(self, probabilities: Floats) -> Floats:
        """The same components, each without the cells of one column of each rule: those that it gives least.

        A component for which no choice leaves a possible record takes the place of the one before it.
        """
        found = probabilities.copy()
        lost = np.zeros(len(found), np.bool_)
        for rule in self.rules:
            masses = np.stack([found[:, cells].sum(1) for cells in rule])
            chosen = masses.argmin(0)
            lost |= masses.min(0) > 1 - 1e-9
            for place, cells in enumerate(rule):
                here = np.nonzero(chosen == place)[0]
                found[np.ix_(here, cells)] = 0.0
            found = self._normalise(found)
        if lost.all():
            raise DataError(
                "the schema's [[impossible]] tables leave no possible record that agrees with the counts; remove the "
                "rules that contradict each other",
                key="impossible",
            )
        kept = np.nonzero(~lost)[0]
        found[lost] = found[kept[np.arange(int(lost.sum())) % len(kept)]]
        return found

    def _normalise(self, probabilities: Floats) -> Floats:
        starts, sizes = np.array(self.layout.offsets), np.array(self.layout.sizes)
        totals = np.repeat(np.add.reduceat(probabilities, starts, axis=1), sizes, axis=1)
        return np.asarray(np.divide(probabilities, totals, out=np.zeros_like(probabilities), where=totals > 0))

    # Rows.

    def holding(self, codes: Integers) -> Flags:
        """Which rows (n, columns) of cells are impossible."""
        found = np.zeros(len(codes), np.bool_)
        for rule in self.layout.impossible:
            found |= np.logical_and.reduce([np.isin(codes[:, column], cells) for column, cells in rule])
        return found

    def possible_cells(self, codes: Integers, column: int) -> Flags:
        """For every row, which cells of one column its other columns allow: (n, cells)."""
        found = np.ones((len(codes), self.layout.sizes[column]), np.bool_)
        for rule in self.layout.impossible:
            own = dict(rule).get(column)
            if own is not None:
                others = [np.isin(codes[:, k], cells) for k, cells in rule if k != column]
                found[np.ix_(np.nonzero(np.logical_and.reduce(others))[0], np.array(own))] = False
        return found

    def exchange(self, codes: Integers, groups: Integers, stream: Stream) -> None:
        """Make impossible rows possible, in place: exchange a value with a row of the same group if both are possible
        afterwards. How often a value comes in a group stays the same. What no exchange mends becomes a copy of a
        possible row, of the same group where there is one."""
        columns = sorted({column for rule in self.layout.impossible for column, _ in rule} - {self.layout.target})
        for _ in range(_OFFERS):
            for column in columns:
                wrong = np.nonzero(self.holding(codes))[0]
                if not len(wrong):
                    return
                self._offer(codes, groups, wrong, column, stream)
        left = self.holding(codes)
        possible = np.nonzero(~left)[0]
        if not len(possible):
            raise DataError(
                "the schema's [[impossible]] tables leave no possible record that agrees with the counts; remove the "
                "rules that contradict each other",
                key="impossible",
            )
        for row in np.nonzero(left)[0]:
            alike = possible[groups[possible] == groups[row]]
            choices = alike if len(alike) else possible
            codes[row] = codes[choices[int(stream.uniform() * len(choices))]]

    def _offer(self, codes: Integers, groups: Integers, wrong: Integers, column: int, stream: Stream) -> None:
        """Offer each wrong row the value of a random row of its group. No row takes part twice."""
        order = np.lexsort((stream.words(len(codes)), groups))
        place = np.empty(len(codes), np.int64)
        place[order] = np.arange(len(codes))
        first = np.searchsorted(groups[order], groups[wrong], side="left")
        count = np.searchsorted(groups[order], groups[wrong], side="right") - first
        partner = order[first + (stream.uniform(len(wrong)) * count).astype(np.int64)]
        _, once = np.unique(partner, return_index=True)
        pairs = [(a, b) for a, b in zip(wrong[once], partner[once])]
        taken = set(wrong.tolist())
        mine = np.array([a for a, b in pairs if int(b) not in taken], np.int64)
        theirs = np.array([b for a, b in pairs if int(b) not in taken], np.int64)
        tried, other = codes[mine], codes[theirs]
        tried[:, column], other[:, column] = other[:, column].copy(), tried[:, column].copy()
        good = ~self.holding(tried) & ~self.holding(other)
        codes[mine[good]], codes[theirs[good]] = tried[good], other[good]


def _scale(table: Floats, total: float) -> Floats:
    found = float(table.sum())
    return table * (total / found) if found > 0 else table
