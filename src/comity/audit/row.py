"""What an audit finds: a row for each claim, with the broken twins that the same attack has to catch."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Control:
    """A broken twin of what a claim is about. An audit that does not catch it proves nothing."""

    name: str
    caught: bool
    measured: float
    claimed: float

    def as_json(self) -> dict[str, Any]:
        return {
            "case": f"control {self.name}",
            "caught": int(self.caught),
            "measured": _number(self.measured),
            "claimed": self.claimed,
        }


@dataclass(frozen=True, eq=False)
class Claim:
    """A claimed loss beside what the strongest known attack proves to be lost at least.

    `measured` and `claimed` are ε at the same δ. `design` is what the attack's pair of neighbours could show with
    endless draws. `view` says who sees what, `pair` which records differ. `curve` is the ROC of the attack on the whole
    group.
    """

    name: str
    claimed: float
    measured: float
    design: float
    delta: float
    view: str
    pair: str
    group: int = 1
    draws: int = 0
    controls: tuple[Control, ...] = ()
    curve: NDArray[np.float64] | None = field(default=None, repr=False)
    seconds: float = 0.0

    @property
    def held(self) -> bool:
        return self.measured <= self.claimed

    def as_json(self) -> dict[str, Any]:
        return {
            "case": f"claim {self.name}",
            "held": int(self.held),
            "measured": _number(self.measured),
            "claimed": self.claimed,
            "design": _number(self.design),
            "ratio": _number(self.measured / self.claimed if self.claimed else math.nan),
            "delta": self.delta,
            "group": self.group,
            "draws": self.draws,
            "view": self.view,
            "pair": self.pair,
            "seconds": round(self.seconds, 1),
        }


@dataclass(frozen=True)
class Check:
    """A property that holds or does not, without any sampling: batch independence, grids, debits, variances."""

    name: str
    held: bool
    found: str

    def as_json(self) -> dict[str, Any]:
        return {"case": f"check {self.name}", "held": int(self.held), "found": self.found}


@dataclass(frozen=True)
class Membership:
    """What an attack on the released `kind`, a model or a dataset, finds: an illustration, and no bound.

    `right` is the probability that of a record that was learned from and one that was not, the attacker names the right
    one; a coin toss has 0.5. `error` is the standard error of it. `rates` are how many records learned from, and how
    many others, the attack takes for learned from.
    """

    kind: str
    attack: str
    right: float
    error: float
    rates: tuple[float, float]
    runs: int
    records: int
    pairs: bool = True

    @property
    def sentence(self) -> str:
        """In words for people, with what it does not say."""
        if self.pairs:
            text = (
                f"Shown a record that a simulated run learned from and one that it did not, {self.attack} picks the "
                f"right one {self.right:.0%} of the time (± {2 * self.error:.0%}); a coin toss, 50% of the time."
            )
        else:
            own, others = self.rates
            text = f"{self.attack} succeeds on {own:.1%} of the records learned from, and on {others:.1%} of others."
        return f"{text} This is an illustration on generated records, and no bound."

    def as_json(self) -> dict[str, Any]:
        return {
            "case": f"illustration membership in a {self.kind}, {self.attack}",
            "right": round(self.right, 4),
            "error": round(self.error, 4),
            "rate": round(self.rates[0], 4),
            "rate_of_others": round(self.rates[1], 4),
            "runs": self.runs,
            "records": self.records,
            "bound": False,
        }


@dataclass(frozen=True, eq=False)
class Audit:
    """All rows of one audit. It passed where every claim and check held and every control was caught.

    `confidence` is that of all claims together: that no lower bound in the table is above the truth. `illustrations`
    decide nothing.
    """

    title: str
    confidence: float
    claims: tuple[Claim, ...]
    checks: tuple[Check, ...] = ()
    controls: tuple[Control, ...] = ()
    illustrations: tuple[Membership, ...] = ()

    @property
    def every_control(self) -> tuple[Control, ...]:
        return (*(control for claim in self.claims for control in claim.controls), *self.controls)

    @property
    def passed(self) -> bool:
        held = all(claim.held for claim in self.claims) and all(check.held for check in self.checks)
        return held and all(control.caught for control in self.every_control)

    def as_json(self) -> dict[str, Any]:
        rows: tuple[Claim | Check | Control | Membership, ...] = (
            *self.claims,
            *self.checks,
            *self.every_control,
            *self.illustrations,
        )
        return {
            "name": self.title,
            "confidence": self.confidence,
            "passed": self.passed,
            "rows": [row.as_json() for row in rows],
        }


def _number(value: float) -> float | None:
    return round(value, 4) if math.isfinite(value) else None
