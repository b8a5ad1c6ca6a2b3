"""What a study would do, before anything runs: the declaration as people read it. No data is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from comity.federation.consortium import Consortium
from comity.federation.declaration import Declaration
from comity.federation.protection import Summed
from comity.federation.protocol import Protocol
from comity.privacy.accounting import Spent
from comity.privacy.loss import GDP, ZCDP, Approx, Loss, shown, shown_small
from comity.privacy.unit import Unit


@dataclass(frozen=True)
class PlanRow:
    release: str
    source: str
    to: str
    protection: str
    loss: str
    noise_sd: float | None


@dataclass(frozen=True)
class Plan:
    """Every release with its receiver, protection and cost; the adversary; the claim."""

    study: str
    protocol: str
    parties: int
    unit: str
    neighbours: str
    rows: tuple[PlanRow, ...]
    total: Loss | None
    guarantee: str
    adversary: str
    claim: str
    expected: str
    notes: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        return {
            "study": self.study,
            "protocol": self.protocol,
            "parties": self.parties,
            "unit": self.unit,
            "neighbours": self.neighbours,
            "releases": [vars(row) for row in self.rows],
            "loss_per_party": self.guarantee,
            "adversary": self.adversary,
            "claim": self.claim,
            "expected": self.expected,
            "notes": list(self.notes),
        }

    def as_text(self) -> str:
        heads = ("release", "from", "to", "protection", "loss per party")
        table = [heads, *((r.release, r.source, r.to, r.protection, r.loss) for r in self.rows)]
        widths = [max(len(row[i]) for row in table) for i in range(len(heads))]
        lines = [f"{self.study} · {self.protocol} · {self.parties} parties · unit: {self.unit}, {self.neighbours}"]
        lines += ["  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in table]
        lines.append(f"  in all         {self.guarantee} for each party")
        if self.claim != "private":
            lines.append(f"  WARNING        {self.claim}")
        lines.append(f"  holds against  {self.adversary}")
        if self.expected:
            lines.append(f"  expected       {self.expected}")
        lines += [f"  note           {note}" for note in self.notes]
        return "\n".join(lines)


def spent_by(declaration: Declaration, party: str, who: Consortium) -> Spent:
    """What a whole run costs one party: losses that are fixed before it begins, so that they add up by kind."""
    spent = Spent.zero()
    for release in declaration.paid_by(party, who):
        assert release.loss is not None
        spent = spent.add(release.loss, release.times)
    return spent


def plan(study: str, protocol: Protocol, who: Consortium) -> Plan:
    declaration = protocol.declare(who).accept(who)
    rows, notes = [], []
    for release in declaration.releases:
        times = f" x{release.times}" if release.times > 1 else ""
        noise_sd = None
        if release.noise is not None:
            scale = release.scale(who) if release.loss is None or release.grid is None else None
            noise_sd = None if scale is None else release.deviation(scale) * scale.grid
        loss = "-" if release.loss is None else str(release.loss * release.times)
        rows.append(PlanRow(release.name + times, release.source, release.to, release.protection.text, loss, noise_sd))
        if isinstance(release.protection, Summed) and who.size != who.honest_parts:
            notes.append(
                f"{release.name}: noise is laid out for {who.honest_parts} honest parts of {who.size} "
                f"(colluders {who.colluders}, dropouts {who.dropouts}): "
                f"{who.size / who.honest_parts:.3g} times the variance that a trusted coordinator would add"
            )
    if who.unit is not Unit.PARTY:
        notes.append(f"the unit is {_UNITS[who.unit.value]}: {protocol.charged}")
    payer = next(iter(who.parties))
    spent = spent_by(declaration, payer, who)
    guarantee = describe(spent, who.loss.delta if isinstance(who.loss, Approx) else Decimal(0))
    return Plan(
        study=study,
        protocol=protocol.titled(who),
        parties=who.size,
        unit=_UNITS[who.unit.value],
        neighbours="replaced" if who.neighbours.value == "replace" else "added or removed",
        rows=tuple(rows),
        total=who.loss,
        guarantee=guarantee,
        adversary=declaration.adversary,
        claim=declaration.claim,
        expected=protocol.expectation(who),
        notes=(*notes, *protocol.notes(who)),
    )


_UNITS: Mapping[str, str] = {"record": "a record", "person": "a person", "party": "a whole party"}


def describe(spent: Spent, delta: Decimal) -> str:
    """The loss in words, at the δ that was agreed on."""
    kinds = [kind for kind in ("pure", "gaussian", "rho", "delta") if getattr(spent, kind)]
    if kinds in ([], ["pure"]):
        return f"eps {shown(spent.pure + spent.approx_epsilon, decimals=2)}"
    pair = f"(eps {shown(spent.epsilon_at(delta), decimals=2)}, delta {shown_small(delta)})"
    if kinds == ["gaussian"]:
        return f"{GDP.squared(spent.gaussian)} = {pair}"
    return f"{ZCDP(spent.rho)} = {pair}" if kinds == ["rho"] else pair
