"""What a grant is counted in. A ledger is spent study by study, each chosen after a look at earlier results; losses of
different kinds can't be mixed that way, so each grant adds up in one kind, fixed when it is granted.

    pure          Σε against the ε granted.
    gaussian      Σμ² against the largest μ whose exact curve passes below the (ε, δ) granted.
    concentrated  Σρ against the largest ρ that implies the (ε, δ) granted.
    approx        Σε and Σδ against the ε and δ granted.

In each of them the sum holds whatever is chosen after whatever result (proof.md, 1 to 4). What may enter which:

    loss          pure     gaussian             concentrated     approx
    ε             ε        μ² of ε (proof, 3)   ε²/2             (ε, 0)
    μ             -        μ²                   μ²/2 + a hair    -
    ρ             -        -                    ρ                -
    (ε, δ)        -        -                    -                (ε, δ)
"""

from __future__ import annotations

from enum import StrEnum


class Currency(StrEnum):
    PURE = "pure"
    GAUSSIAN = "gaussian"
    CONCENTRATED = "concentrated"
    APPROX = "approx"

    @property
    def spoken(self) -> str:
        return _SPOKEN[self]


_SPOKEN = {
    Currency.PURE: "pure eps",
    Currency.GAUSSIAN: "Gaussian DP (mu)",
    Currency.CONCENTRATED: "concentrated DP (rho)",
    Currency.APPROX: "(eps, delta)",
}
