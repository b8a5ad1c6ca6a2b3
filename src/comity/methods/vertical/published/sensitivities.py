"""How far records move the coefficients of the objective: as the paper prints it, and in truth (proof.md, 6).

Features and a linear label lie in [−1, 1], a class is 0 or 1. Distances are in L1 over all coefficients, one for each
ordered pair of features. All results are exact fractions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from comity.methods.vertical.budgets import Block

# As printed.


def printed_sensitivity(features: int, *, logistic: bool) -> Fraction:
    """Δ_f of all coefficients (Lemma 1 for the two models)."""
    d = Fraction(features)
    return d * d / 4 + d if logistic else 2 * (1 + 2 * d + d * d)


def printed_share(own: int, features: int, *, logistic: bool, label: bool) -> Fraction:
    """Theorem 2: the share of ε that a party with `own` features loses about its columns. The holder of the label
    counts it among its columns."""
    d, k = Fraction(features), Fraction(own)
    if logistic:
        moved = (d if label else k) + k * (2 * d - k) / 4
    else:
        moved = 2 * (1 + 2 * d + k * d) if label else 2 * (2 * k + k * d)
    return moved / printed_sensitivity(features, logistic=logistic)


# In truth.


def true_sensitivity(changing: int, features: int, *, logistic: bool, label: bool) -> Fraction:
    """The largest distance where `changing` of the features may change, and the label if `label` says so."""
    return _logistic(changing, features, label) if logistic else _linear(changing + label, features + 1)


def true_share(changing: int, features: int, *, logistic: bool, label: bool) -> Fraction:
    """The true share of ε that a party loses about its columns alone, the others' being fixed, under the printed
    noise: `changing` of its features may change (a constant never does), and the label too if it holds the `label`."""
    moved = true_sensitivity(changing, features, logistic=logistic, label=label)
    return moved / printed_sensitivity(features, logistic=logistic)


def true_record_share(features: int, *, logistic: bool) -> Fraction:
    """The true share of ε that a whole record loses: half for squared loss, little more for logistic loss."""
    return true_share(features, features, logistic=logistic, label=True)


def _linear(changing: int, every: int) -> Fraction:
    """Of `every` coordinates of (x, y), `changing` may move by T in the sense of the proof: 4·T·(N − T) at most."""
    moved = min(Fraction(changing), Fraction(every, 2))
    return 4 * moved * (every - moved)


def _logistic(changing: int, features: int, label: bool) -> Fraction:
    """S·T/2 + T where the label stays, S·T/2 + S where it changes, with S + T = d and T at most `changing`."""
    d = Fraction(features)
    stays = min(Fraction(changing), (d + 2) / 2)
    found = stays * (d + 2 - stays) / 2
    if label:
        turned = min(Fraction(changing), max(Fraction(0), (d - 2) / 2))
        found = max(found, (d - turned) * (turned + 2) / 2)
    return found


# From the bottom up.


@dataclass(frozen=True)
class BlockSensitivities:
    """The sensitivities of the blocks of coefficients: one for each party, one for each pair of parties.

    `features` says how many each party has. A pair's block holds both orders of every product across the two, and
    the products with the label. Printed block sensitivities add up to the printed Δ_f.
    """

    features: Mapping[str, int]
    label_at: str
    logistic: bool

    def printed(self, block: Block) -> Fraction:
        """Δ_g^k of one party, or Δ_h^kl of a pair: twice the largest sum of absolute coefficients of a record."""
        if len(block) == 1:
            k, label = Fraction(self.features[block[0]]), block[0] == self.label_at
            if self.logistic:
                return k * k / 4 + (k if label else 0)
            return 2 * (k * k + (1 + 2 * k if label else 0))
        # Products with the label are in the block of the label's holder and the features' owner.
        first, second = (Fraction(self.features[party]) for party in block)
        with_label = sum(self.features[party] for party in block if party != self.label_at)
        label = self.label_at in block
        if self.logistic:
            return first * second / 2 + (with_label if label else 0)
        return 4 * first * second + (4 * with_label if label else 0)

    def true(self, block: Block) -> Fraction:
        """The largest distance within the block: about half of the printed one within a party, all of it in a pair,
        where one side changes its signs."""
        if len(block) == 2:
            return self.printed(block)
        own, label = self.features[block[0]], block[0] == self.label_at
        if self.logistic and not label:
            return Fraction(own * own, 8)
        if self.logistic:
            return _logistic(own, own, label) if own else Fraction(0)
        return _linear(own + label, own + label)


def corollary_1(epsilons: Mapping[Block, Fraction], printed: Mapping[Block, Fraction]) -> Fraction:
    """Corollary 1 as printed: Σ (Δ_f/Δ_j)·ε_j over all blocks j. The sum of the ε_j is enough (proof.md, 6)."""
    whole = sum(printed.values(), Fraction(0))
    return sum((whole / printed[block] * epsilon for block, epsilon in epsilons.items()), Fraction(0))
