"""What opened triples add to the fit of a mixture.

The mixture of the pairs expects something of every triple. What a triple's counts add to that, beyond its pairs and
beyond noise, is an interaction of three columns. Wanted is the expectation plus this interaction, and the mixture's
third moments are drawn to it: Σ_k p_k ⊗ p_k ⊗ p_k / K over groups of cells.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.methods.synthetic.triples import OpenedTriples

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class _Middle:
    """All triples with one middle column: where its groups lie, and those of the columns before and after it."""

    before: slice
    here: slice
    after: slice
    wanted: Singles
    weight: Singles


@dataclass(frozen=True, eq=False)
class ThirdOrder:
    """Squared distances of a mixture's triples from the wanted ones, summed over groups and weighted."""

    opened: OpenedTriples
    wanted: tuple[Floats, ...]
    """Shares of the records, for each block of the triples."""
    least_deviation: float
    """Counts are treated as no more exact than this."""

    @cached_property
    def merge(self) -> Singles:
        """Cells (of all columns) to groups (of the columns in the triples' order)."""
        triples, starts = self.opened.triples, _starts(self.opened)
        found = np.zeros((triples.layout.width, starts[-1]), np.float32)
        for column, start in zip(triples.order, starts):
            cells = triples.layout.offsets[column] + np.arange(triples.layout.sizes[column])
            found[cells, start + self.opened.groups[column]] = 1
        return found

    @cached_property
    def _middles(self) -> tuple[_Middle, ...]:
        triples, starts = self.opened.triples, _starts(self.opened)
        place = {column: at for at, column in enumerate(triples.order)}
        found = []
        for at in range(1, len(triples.order) - 1):
            # With the target alone, the first column is the target.
            before, after = slice(0, starts[1 if triples.labelled else at]), slice(starts[at + 1], starts[-1])
            shape = (before.stop, starts[at + 1] - starts[at], after.stop - after.start)
            wanted, weight = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
            for block, table in zip(triples.blocks, self.wanted):
                first, middle, last = (place[column] for column in block.key)
                if middle == at:
                    rows = slice(starts[first], starts[first + 1])
                    columns = slice(starts[last] - after.start, starts[last + 1] - after.start)
                    wanted[rows, :, columns] = table
                    weight[rows, :, columns] = 1 / max(self.opened.deviation, self.least_deviation) ** 2
            flat = (shape[0] * shape[1], shape[2])
            here = slice(starts[at], starts[at + 1])
            found.append(_Middle(before, here, after, wanted.reshape(flat), weight.reshape(flat)))
        return tuple(found)

    def add_gradient(self, gradient: NDArray[Any], probabilities: NDArray[Any], scale: float) -> None:
        """Add the gradient of `scale` times the distances. One product serves all triples of a middle column."""
        components = len(probabilities)
        grouped = probabilities @ self.merge
        moved = np.zeros_like(grouped)
        for middle in self._middles:
            before, here = grouped[:, middle.before], grouped[:, middle.here]
            after = np.ascontiguousarray(grouped[:, middle.after])
            both = (before[:, :, None] * here[:, None, :]).reshape(components, -1)
            off = both.T @ after
            off /= components
            off -= middle.wanted
            off *= middle.weight
            moved[:, middle.after] += both @ off
            slope = (after @ off.T).reshape(components, before.shape[1], here.shape[1])
            moved[:, middle.before] += (slope * here[:, None, :]).sum(2)
            moved[:, middle.here] += (slope * before[:, :, None]).sum(1)
        gradient += (moved * np.float32(2 * scale / components)) @ self.merge.T


def want_triples(opened: OpenedTriples, probabilities: Floats, total: float, least_deviation: float) -> ThirdOrder:
    """What the mixture with these probabilities (components, cells) expects of triples, plus the mean of two estimates
    of their interactions: as opened, and what stands out of the noise in each triple. Noise has no structure that many
    triples share, so the fit averages the former; the latter shrinks a triple by itself. Their mean is nearer than the
    latter on training records of credit defaults at epsilon 10, by 10 %, and as near as either on those of bikes."""
    triples, starts = opened.triples, _starts(opened)
    grouped = probabilities @ ThirdOrder(opened, (), least_deviation).merge
    place = {column: at for at, column in enumerate(triples.order)}
    wanted = []
    for block in triples.blocks:
        first, second, third = (grouped[:, starts[place[one]] : starts[place[one] + 1]] for one in block.key)
        both = (first[:, :, None] * second[:, None, :]).reshape(len(grouped), -1)
        expected = (both.T @ third).reshape(block.shape) / len(grouped)
        off = opened.table(block) / total - expected
        wanted.append(expected + (_centre(off) + keep_interaction(off, opened.deviation / total)) / 2)
    return ThirdOrder(opened, tuple(wanted), least_deviation)


def keep_interaction(table: Floats, deviation: float) -> Floats:
    """The part of a table of three columns that no two of them explain, shrunk by what noise of this deviation adds to
    its square (James and Stein 1961)."""
    strength = interaction_strength(table, deviation)
    return _centre(table) * max(0.0, 1 - 1 / max(strength, 1e-300))


def interaction_strength(table: Floats, deviation: float) -> float:
    """The square of that part over what noise of this deviation would give it."""
    free = prod(max(1, size - 1) for size in table.shape)
    return float((_centre(table) ** 2).sum() / (free * deviation**2))


def _centre(table: Floats) -> Floats:
    for axis in range(table.ndim):
        table = table - table.mean(axis, keepdims=True)
    return table


def _starts(opened: OpenedTriples) -> list[int]:
    """Where the groups of each column begin, in the triples' order, and where the last ends."""
    return [0, *np.cumsum([opened.triples.size(column) for column in opened.triples.order]).tolist()]
