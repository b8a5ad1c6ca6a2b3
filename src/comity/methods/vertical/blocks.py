"""Budgets from the bottom up: each party names an ε for its own block, each pair one for theirs; the study's follows.

An entry of the released moments lies in one *block*: of one party (its own sums, those with the constant included), or
of a pair (sums of products across the two). Block j of L1 sensitivity Δ_j gets Laplace noise of scale Δ_j/ε_j or a
little more. One release carries all of them: entries of block j are multiplied by an integer weight w_j, because shares
can be multiplied by nothing else, and noise of one scale b is added to all, so that block j has b/w_j.

A replaced record moves every block. What it moves of the weighted vector is at most Σ_j w_j Δ_j, and at most
max_j w_j times the sensitivity Δ of all entries together: the loss about whole records is the smaller of the two over b
(proof.md, 8). The paper's Corollary 1 multiplies each ε_j by a ratio of sensitivities that is in the noise already.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from comity.errors import StudyError
from comity.methods.vertical.dissection import Dissection
from comity.methods.vertical.layout import Layout
from comity.methods.vertical.sensitivity import block_sensitivity, l1_sensitivity, pair_sensitivity
from comity.privacy.loss import Pure

LARGEST_WEIGHT = 255
"""Of a block: eight bits of the ring. Rounded down, so that the block's noise is a little more than asked."""

KEY = "vertical.block_epsilon"

Block = tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Blocks:
    """What each block asked for, and the weights that one scale of noise serves it with.

    `carry` is how far an entry across parties may lie beside its product (proof.md, 4).
    """

    columns: Layout
    wished: Mapping[Block, float]
    carry: float = 0.0

    @classmethod
    def of(cls, columns: Layout, given: Mapping[str, float], carry: float = 0.0) -> Blocks:
        """From the keys of a study: a party's name, or two joined by "+". Every block needs its own ε."""
        names = {text: block for block in every_block(columns) for text in _texts(block)}
        for text, epsilon in given.items():
            if text not in names:
                raise StudyError(
                    f"{KEY} has a key {text!r}; the blocks are {', '.join(map(_text, every_block(columns)))}; "
                    "correct it",
                    key=KEY,
                )
            if not 0 < epsilon < float("inf"):
                raise StudyError(f"{KEY}: {text!r} must be above 0 and finite, found {epsilon}", key=KEY)
        wished = {names[text]: epsilon for text, epsilon in given.items()}
        missing = [_text(block) for block in every_block(columns) if block not in wished]
        if missing or len(wished) != len(given):
            what = f"nothing for {', '.join(missing)}" if missing else "a pair twice"
            raise StudyError(
                f'{KEY} needs one epsilon for each party and each pair of parties (as "a+b"), found {what}', key=KEY
            )
        return cls(columns, wished, carry)

    def entries(self, dissection: Dissection) -> dict[Block, NDArray[np.bool_]]:
        """Which entries lie in which block; blocks that have none are left out."""
        holder = np.array([piece.party for piece in self.columns.pieces for _ in range(piece.start, piece.stop)])
        first = holder[dissection.first]
        # The constant belongs to nobody: its entries are the other side's own.
        second = np.append(holder, "")[dissection.second]
        second = np.where(second == "", first, second)
        found = {
            block: np.isin(first, block) & np.isin(second, block) & ((first != second) == (len(block) == 2))
            for block in self.wished
        }
        return {block: inside for block, inside in found.items() if inside.any()}

    def sensitivities(self, dissection: Dissection) -> dict[Block, float]:
        """L1, of entries of weight 1, with what the products add."""
        return {
            block: self.carry * int(inside.sum()) + pair_sensitivity(self.columns, *block)
            if len(block) == 2
            else block_sensitivity(self.columns, *block)
            for block, inside in self.entries(dissection).items()
        }

    def weights(self, dissection: Dissection) -> dict[Block, int]:
        """Proportional to ε_j/Δ_j, rounded down."""
        rates = {block: self.wished[block] / spread for block, spread in self.sensitivities(dissection).items()}
        largest = max(rates.values())
        found = {block: int(LARGEST_WEIGHT * rate / largest) for block, rate in rates.items()}
        weak = [block for block, weight in found.items() if not weight]
        if weak:
            raise StudyError(
                f"{KEY}: {_text(weak[0])} asks for more than {LARGEST_WEIGHT} times the noise of the most exact "
                "block; raise it, or lower the others",
                key=KEY,
            )
        return found

    def weighted(self, dissection: Dissection) -> Dissection:
        """The same entries with the weights of their blocks."""
        weight, weights = np.ones(dissection.size, np.int64), self.weights(dissection)
        for block, inside in self.entries(dissection).items():
            weight[inside] = weights[block]
        return Dissection(dissection.columns, dissection.first, dissection.second, weight)

    def sensitivity(self, dissection: Dissection) -> float:
        """Of the weighted entries: the sum of the blocks', or the largest weight times that of all of them."""
        weights, spreads = self.weights(dissection), self.sensitivities(dissection)
        added = sum(weights[block] * spread for block, spread in spreads.items())
        crossing = sum(int(inside.sum()) for block, inside in self.entries(dissection).items() if len(block) == 2)
        together = max(weights.values()) * (l1_sensitivity(self.columns) + self.carry * crossing)
        return min(added, together)

    def loss(self, dissection: Dissection) -> Pure:
        """About whole records, at the scale of noise that gives no block more than it asked for; rounded down, which
        makes the noise larger."""
        weights, spreads = self.weights(dissection), self.sensitivities(dissection)
        scale = max(weights[block] * spread / self.wished[block] for block, spread in spreads.items())
        exact = Decimal(self.sensitivity(dissection) / scale)
        return Pure(exact.quantize(Decimal("1e-6"), ROUND_FLOOR))

    def spent(self, dissection: Dissection) -> dict[Block, float]:
        """What each block tells by itself, never above its wish."""
        weights, spreads = self.weights(dissection), self.sensitivities(dissection)
        scale = self.sensitivity(dissection) / float(self.loss(dissection).epsilon)
        return {block: weights[block] * spread / scale for block, spread in spreads.items()}

    def about(self, dissection: Dissection) -> dict[str, float]:
        """What all blocks tell about one party's columns alone: those that it has a part in add up."""
        most = float(self.loss(dissection).epsilon)
        found = self.spent(dissection)
        return {
            party: min(most, sum(epsilon for block, epsilon in found.items() if party in block))
            for party in self.columns.parties
        }


def every_block(columns: Layout) -> tuple[Block, ...]:
    parties = columns.parties
    return (*((party,) for party in parties), *combinations(parties, 2))


def _texts(block: Block) -> tuple[str, ...]:
    return ("+".join(block), "+".join(reversed(block)))


def _text(block: Block) -> str:
    return "+".join(block)
