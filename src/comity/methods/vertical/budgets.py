"""Budgets: the loss about one party's columns from the study's loss, and the study's loss from budgets of blocks.

Ledgers debit the loss about whole records. The release tells less about *one party's own* columns when all others are
fixed, unless that party holds half of the squared norm or more (proof.md, 5).

From the bottom up, each party names an ε for its own block and each pair one for theirs; the study's ε follows. An
entry of the released moments lies in one *block*: of one party (its own sums, with those of the constant), or of a pair
(sums of products across the two). Block j of L1 sensitivity Δ_j gets Laplace noise of scale Δ_j/ε_j or slightly more.
One release has all blocks. Entries of block j are multiplied by an integer weight w_j (shares can be multiplied by
nothing else) and noise of one scale b is added to all: block j has noise of scale b/w_j.

A replaced record moves every block. It moves the weighted vector by at most Σ_j w_j Δ_j, and by at most max_j w_j times
the sensitivity Δ of all entries together: the loss about whole records is the smaller of the two over b (proof.md, 8).
The paper's Corollary 1 multiplies each ε_j by a ratio of sensitivities that is in the noise already.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal
from itertools import combinations
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from comity.errors import StudyError
from comity.methods.vertical.design import Design
from comity.methods.vertical.moments import (
    MomentEntries,
    block_sensitivity,
    l1_sensitivity,
    l1_sensitivity_about,
    l2_sensitivity,
    pair_sensitivity,
    party_share,
)
from comity.privacy.accounting import gaussian_budget, gdp_epsilon
from comity.privacy.loss import Approx, Loss, Pure, format_up

LARGEST_WEIGHT = 255
"""The largest weight of a block: eight bits of the ring. Weights are rounded down, so a block's noise is slightly more
than its ε needs."""

KEY = "vertical.block_epsilon"

Block = tuple[str, ...]


def party_losses(design: Design, loss: Loss, carry: float = 0.0) -> dict[str, float]:
    """The ε about each party's own columns, at the δ of the study.

    `carry` is the part of the sensitivity, in the norm of the noise, that comes from inexact products. It may move the
    release whichever columns change: it counts in full for each party.
    """
    if isinstance(loss, Pure):
        return {party: float(loss.epsilon) * pure_share(design, party, carry) for party in design.parties}
    square, delta = float(gaussian_budget(loss).square), _delta(loss)
    return {party: gdp_epsilon(square * square_share(design, party, carry), delta) for party in design.parties}


def affordable_epsilon(design: Design, ceilings: Mapping[str, float], delta: float, carry: float = 0.0) -> float:
    """The largest ε about whole records that keeps every party's own columns within its ceiling; δ = 0 is pure."""
    largest = float("inf")
    for party, epsilon in ceilings.items():
        if party not in design.parties:
            raise StudyError(
                f"vertical.party_epsilon names {party}, the parties are {', '.join(design.parties)}; correct it",
                key="vertical.party_epsilon",
            )
        if not delta:
            largest = min(largest, epsilon / pure_share(design, party, carry))
            continue
        square = float(gaussian_budget(Approx(epsilon, delta)).square) / square_share(design, party, carry)
        largest = min(largest, gdp_epsilon(square, delta))
    return largest


def pure_share(design: Design, party: str, carry: float = 0.0) -> float:
    """The share of a pure ε that the release tells about one party's columns."""
    return (l1_sensitivity_about(design, party) + carry) / (l1_sensitivity(design) + carry)


def square_share(design: Design, party: str, carry: float = 0.0) -> float:
    """The share of a ρ, which grows with the square of what one party can move."""
    whole = l2_sensitivity(design)
    return ((sqrt(party_share(design, party)) * whole + carry) / (whole + carry)) ** 2


def format_rounded_up(epsilon: float, limit: Decimal | None = None) -> str:
    """Three digits, rounded up by more than the error of the few operations before. Rounding stops at `limit`: no part
    loses more than the whole."""
    if not epsilon:
        return "0"
    up = Decimal(epsilon * (1 + 1e-12))
    return format_up(up if limit is None else min(up, limit), decimals=2, digits=3)


def _delta(loss: Loss) -> float:
    if not isinstance(loss, Approx) or loss.delta == Decimal(0):
        raise StudyError("Gaussian noise needs privacy.delta above 0", key="privacy.delta")
    return float(loss.delta)


@dataclass(frozen=True, eq=False)
class Blocks:
    """The ε of each block, and the weights that give it with noise of one scale.

    `carry` is how far an entry across parties may be off its product (proof.md, 4).
    """

    design: Design
    budgets: Mapping[Block, float]
    carry: float = 0.0

    @classmethod
    def of(cls, design: Design, epsilons: Mapping[str, float], carry: float = 0.0) -> Blocks:
        budgets = read_budgets(design.parties, epsilons)
        return cls(design, budgets, carry)

    def entries_by_block(self, entries: MomentEntries) -> dict[Block, NDArray[np.bool_]]:
        """Which entries lie in which block; blocks that have none are left out."""
        holder = np.array([piece.party for piece in self.design.pieces for _ in range(piece.start, piece.stop)])
        first = holder[entries.first]
        # Entries with the constant belong to the party of the other column.
        second = np.append(holder, "")[entries.second]
        second = np.where(second == "", first, second)
        found = {
            block: np.isin(first, block) & np.isin(second, block) & ((first != second) == (len(block) == 2))
            for block in self.budgets
        }
        return {block: inside for block, inside in found.items() if inside.any()}

    def sensitivities(self, entries: MomentEntries) -> dict[Block, float]:
        """L1 sensitivities of the blocks, for entries of weight 1, with the carry of the products."""
        return {
            block: self.carry * int(inside.sum()) + pair_sensitivity(self.design, *block)
            if len(block) == 2
            else block_sensitivity(self.design, *block)
            for block, inside in self.entries_by_block(entries).items()
        }

    def weights(self, entries: MomentEntries) -> dict[Block, int]:
        """Proportional to ε_j/Δ_j, rounded down."""
        rates = {block: self.budgets[block] / spread for block, spread in self.sensitivities(entries).items()}
        largest = max(rates.values())
        found = {block: int(LARGEST_WEIGHT * rate / largest) for block, rate in rates.items()}
        weak = [block for block, weight in found.items() if not weight]
        if weak:
            raise StudyError(
                f"{KEY}: {_block_name(weak[0])} asks for more than {LARGEST_WEIGHT} times the noise of the most exact "
                "block; raise it, or lower the others",
                key=KEY,
            )
        return found

    def weigh(self, entries: MomentEntries) -> MomentEntries:
        """The same entries with the weights of their blocks."""
        weight, weights = np.ones(entries.size, np.int64), self.weights(entries)
        for block, inside in self.entries_by_block(entries).items():
            weight[inside] = weights[block]
        return MomentEntries(entries.design, entries.first, entries.second, weight)

    def sensitivity(self, entries: MomentEntries) -> float:
        """L1 sensitivity of the weighted entries: the sum over blocks, or the largest weight times that of all
        entries."""
        weights, spreads = self.weights(entries), self.sensitivities(entries)
        added = sum(weights[block] * spread for block, spread in spreads.items())
        crossing = sum(int(inside.sum()) for block, inside in self.entries_by_block(entries).items() if len(block) == 2)
        together = max(weights.values()) * (l1_sensitivity(self.design) + self.carry * crossing)
        return min(added, together)

    def loss(self, entries: MomentEntries) -> Pure:
        """The loss about whole records at the noise under which no block loses more than its ε; rounded down, which
        makes the noise larger."""
        weights, spreads = self.weights(entries), self.sensitivities(entries)
        scale = max(weights[block] * spread / self.budgets[block] for block, spread in spreads.items())
        exact = Decimal(self.sensitivity(entries) / scale)
        return Pure(exact.quantize(Decimal("1e-6"), ROUND_FLOOR))

    def losses(self, entries: MomentEntries) -> dict[Block, float]:
        """The loss of each block separately, never above its ε."""
        weights, spreads = self.weights(entries), self.sensitivities(entries)
        scale = self.sensitivity(entries) / float(self.loss(entries).epsilon)
        return {block: weights[block] * spread / scale for block, spread in spreads.items()}

    def party_losses(self, entries: MomentEntries) -> dict[str, float]:
        """The loss about each party's columns alone: its blocks add up."""
        whole = float(self.loss(entries).epsilon)
        found = self.losses(entries)
        return {
            party: min(whole, sum(epsilon for block, epsilon in found.items() if party in block))
            for party in self.design.parties
        }


def every_block(parties: Sequence[str]) -> tuple[Block, ...]:
    return (*((party,) for party in parties), *combinations(parties, 2))


def read_budgets(parties: Sequence[str], epsilons: Mapping[str, float]) -> dict[Block, float]:
    """From the keys of a study: a party's name, or two joined by "+". Every block needs its own ε."""
    every = every_block(parties)
    names = {text: block for block in every for text in _block_names(block)}
    for text, epsilon in epsilons.items():
        if text not in names:
            raise StudyError(
                f"{KEY} has a key {text!r}; the blocks are {', '.join(map(_block_name, every))}; correct it",
                key=KEY,
            )
        if not 0 < epsilon < float("inf"):
            raise StudyError(f"{KEY}: {text!r} must be above 0 and finite, found {epsilon}", key=KEY)
    budgets = {names[text]: epsilon for text, epsilon in epsilons.items()}
    missing = [_block_name(block) for block in every if block not in budgets]
    if missing or len(budgets) != len(epsilons):
        what = f"nothing for {', '.join(missing)}" if missing else "a pair twice"
        raise StudyError(
            f'{KEY} needs one epsilon for each party and each pair of parties (as "a+b"), found {what}', key=KEY
        )
    return budgets


def _block_names(block: Block) -> tuple[str, ...]:
    return ("+".join(block), "+".join(reversed(block)))


def _block_name(block: Block) -> str:
    return "+".join(block)
