"""The plan: what a study would release, to whom and at what cost, in words for people. No data is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from comity.crypto.share_holders import choose_degree
from comity.federation.declare.consortium import Consortium, format_participants
from comity.federation.declare.declaration import PRIVATE, Declaration, TrueLoss, is_unproven
from comity.federation.declare.payers import (
    Payer,
    delta_of,
    format_payers,
    format_spent,
    payer_groups,
    payers,
    spent_at_two_parties,
)
from comity.federation.declare.protection import Summed
from comity.federation.protocol import Protocol
from comity.privacy.accounting import Spent, convert
from comity.privacy.loss import Loss, shown, shown_small
from comity.privacy.unit import Neighbours, Unit
from comity.representation import html_table, short_repr
from comity.untrusted.text import escape_line


@dataclass(frozen=True)
class PlanRow:
    release: str
    source: str
    to: str
    protection: str
    loss: str
    noise_sd: float | None


_HEADS = ("release", "from", "to", "protection", "loss per party")


@dataclass(frozen=True)
class Plan:
    """Every release with its receiver, protection and cost; who pays what; the adversary; the claim.

    `guarantee` is the largest cost of the run to a party; `payers` are groups with different costs, the largest first.
    `true_losses` are those of a published method, each beside what its paper claims.
    """

    __repr__ = short_repr

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
    warnings: tuple[str, ...] = ()
    payers: tuple[Payer, ...] = ()
    true_losses: tuple[TrueLoss, ...] = ()
    exposed: str = ""

    @property
    def in_all(self) -> str:
        """What the run costs whom."""
        return format_payers(self.payers) if self.payers else f"{self.guarantee} for each party"

    @property
    def claim_warnings(self) -> tuple[str, ...]:
        """Warnings beside a claim that does not hold: how the charge to ledgers compares with the true loss."""
        found: tuple[str, ...] = () if self.claim == PRIVATE else (self.claim,)
        if is_unproven(self.claim):
            found += (
                "NOT PRIVATE AS CLAIMED: see each true loss, and to whom. Ledgers are charged the loss per party, "
                "which is at least every true loss that has a bound",
            )
        if self.exposed:
            found += (f"NO BOUND against {self.exposed}: no charge to a ledger covers that",)
        return found

    def as_json(self) -> dict[str, Any]:
        return {
            "study": self.study,
            "protocol": self.protocol,
            "parties": self.parties,
            "unit": self.unit,
            "neighbours": self.neighbours,
            "releases": [vars(row) for row in self.rows],
            "loss_per_party": self.guarantee,
            "payers": [vars(payer) for payer in self.payers],
            "adversary": self.adversary,
            "claim": self.claim,
            "true_losses": [vars(loss) for loss in self.true_losses],
            "unproven": is_unproven(self.claim),
            "exposed": self.exposed,
            "expected": self.expected,
            "notes": list(self.notes),
            "warnings": list(self.warnings),
        }

    def as_text(self) -> str:
        table = [_HEADS, *self._cells]
        widths = [max(len(row[i]) for row in table) for i in range(len(_HEADS))]
        lines = [self._title]
        lines += ["  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in table]
        lines += [f"  {name:14} {text}" for name, text in self._remarks]
        return "\n".join(map(escape_line, lines))

    __str__ = as_text

    def _repr_html_(self) -> str:
        remarks = [f"{name}: {text}" for name, text in self._remarks]
        return html_table(self._title, _HEADS, self._cells, remarks)

    @property
    def _title(self) -> str:
        return f"{self.study} · {self.protocol} · {self.parties} parties · unit: {self.unit}, {self.neighbours}"

    @property
    def _cells(self) -> list[tuple[str, ...]]:
        return [(r.release, r.source, r.to, r.protection, r.loss) for r in self.rows]

    @property
    def _remarks(self) -> list[tuple[str, str]]:
        paid = [format_payers((payer,)) for payer in self.payers] or [self.in_all]
        found = [("in all", one) for one in paid]
        found += [("true loss", str(loss)) for loss in self.true_losses]
        found += [("WARNING", one) for one in (*self.claim_warnings, *self.warnings)]
        found.append(("holds against", self.adversary))
        found += [("expected", self.expected)] if self.expected else []
        return found + [("note", note) for note in self.notes]


def plan(study: str, protocol: Protocol, consortium: Consortium) -> Plan:
    declaration = protocol.accepted(consortium)
    rows, sufficient = [], dict[str, list[str]]()
    for release in declaration.releases:
        times = f" x{release.times}" if release.times > 1 else ""
        noise_sd = None
        if release.noise is not None:
            scale = release.scale(consortium) if release.loss is None or release.grid is None else None
            noise_sd = None if scale is None else release.deviation(scale) * scale.grid
        loss = "-" if release.loss is None else str(release.loss * release.debits)
        source, to = format_participants(release.source), format_participants(release.to)
        rows.append(PlanRow(release.name + times, source, to, release.protection.text, loss, noise_sd))
        if isinstance(release.protection, Summed):
            over, parts = release.summed_over(consortium), release.parts(consortium)
            if over.size != parts:
                known = max(over.colluders, release.known_parts)
                sufficient.setdefault(_sufficient(over.size, over.dropouts, known, parts), []).append(release.name)
    notes = [f"{', '.join(names)}: {sentence}" for sentence, names in sufficient.items()]
    notes += _holders(declaration, consortium)
    notes += _evaluated(consortium)
    if consortium.unit is not Unit.PARTY and any(release.loss is not None for release in declaration.releases):
        charged = protocol.charged_once or two_parties_note(declaration, consortium)
        notes.append(f"the unit is {_UNITS[consortium.unit.value]}. {charged[0].upper()}{charged[1:]}")
    spent = payer_groups(declaration, consortium)[0].spent
    return Plan(
        study=study,
        protocol=protocol.title_in(consortium),
        parties=consortium.size,
        unit=_UNITS[consortium.unit.value],
        neighbours="replaced" if consortium.neighbours.value == "replace" else "added or removed",
        rows=tuple(rows),
        total=consortium.loss,
        guarantee=format_spent(spent, delta_of(consortium)),
        adversary=declaration.adversary,
        claim=declaration.claim,
        exposed=declaration.exposed,
        expected=protocol.expectation(consortium),
        notes=(*notes, *protocol.notes(consortium)),
        warnings=(
            *loose_warnings(spent, protocol.declared_units(consortium), consortium),
            *protocol.warnings(consortium),
        ),
        payers=payers(declaration, consortium),
        true_losses=_true_losses(protocol, consortium),
    )


def _true_losses(protocol: Protocol, consortium: Consortium) -> tuple[TrueLoss, ...]:
    """The true losses; a published method must state them."""
    found = protocol.true_losses(consortium)
    if protocol.variant == "published" and not found:
        raise ValueError(f"{type(protocol).__name__} runs a published method but states no true loss beside its claim")
    return found


def _sufficient(parties: int, dropouts: int, known: int, parts: int) -> str:
    """Who may be missing from shared noise, and what that costs. `known` parties may subtract their own part of it."""
    risks = [(dropouts, "drops out", "drop out"), (known, "colludes", "collude")]
    said = " and ".join(f"up to {count} {one if count == 1 else many}" for count, one, many in risks if count)
    factor = _factor(parties / parts)
    return (
        f"the noise stays sufficient if, of {parties} parties, {said} (variance {factor} times a trusted coordinator's)"
    )


def _factor(factor: float) -> str:
    """Three figures, and as many more as it takes to tell a factor from 1."""
    digits = 3
    while digits < 9 and f"{factor:.{digits}g}" == "1":
        digits += 1
    return f"{factor:.{digits}g}"


def _holders(declaration: Declaration, consortium: Consortium) -> list[str]:
    """The probability and the assumption of secure sums where only some parties hold shares of a mask."""
    summed = [release for release in declaration.releases if isinstance(release.protection, Summed)]
    sizes = {over.size: over for over in (release.summed_over(consortium) for release in summed)}
    graphs = [(size, choose_degree(size, over.colluders, over.dropouts)) for size, over in sizes.items()]
    return [
        f"secure sums: each party keeps a share of its mask and picks {graph.degree} others at random to hold shares; "
        f"any {graph.threshold} of these {graph.degree + 1} can recover the mask. A coordinator that lies about "
        "dropouts opens the sum of all parties or nothing, except with probability 2^-39, if its colluders were fixed "
        "before the share holders were picked"
        for size, graph in graphs
        if graph.degree < size - 1
    ]


def _evaluated(consortium: Consortium) -> list[str]:
    """What measuring the model costs, and on what it is measured."""
    terms = consortium.evaluation
    if terms is None:
        return []
    share = f"evaluation: {100 * terms.share:.3g} % of each owner's records are held out (by a keyed hash)"
    if terms.parallel:
        return [
            f"{share}. Every record is either trained on or measured on, never both, so the evaluation costs nothing "
            "beyond the study's epsilon"
        ]
    return [f"{share}. A whole party is in both parts and pays for both, out of the study's epsilon"]


def two_parties_note(declaration: Declaration, consortium: Consortium) -> str:
    """What someone with records at two parties loses: group privacy.

    Two databases that differ in m units are m steps apart. Under pure ε each step adds ε. Under Gaussian noise what
    is released moves m times as far, which is m times μ and m² times ρ, whether the noise is shared or each site's own.
    """
    losses = {release.name: release.loss for release in declaration.releases if release.loss is not None}
    delta = delta_of(consortium)
    once = payer_groups(declaration, consortium)[0].spent
    twice = spent_at_two_parties(declaration, consortium, {name: double_loss(loss) for name, loss in losses.items()})
    records = "" if consortium.unit is Unit.PERSON else "with records "
    return (
        f"someone {records}at two parties is protected at eps {_epsilon(twice, delta)} instead of "
        f"{_epsilon(once, delta)}{f' (delta {shown_small(delta)})' if delta else ''}; each ledger is charged for one"
    )


def _epsilon(spent: Spent, delta: Decimal) -> str:
    return shown(spent.epsilon_at(delta), decimals=2)


def double_loss(loss: Loss) -> Loss:
    """The loss of two units at once: a replaced unit is one that left and one that came."""
    return convert(loss, Unit.RECORD, Neighbours.ADD_REMOVE, Unit.RECORD, Neighbours.REPLACE)


LOOSE_EPSILON = 20
_UNDECLARED = 10_000


def loose_warnings(spent: Spent, units: int | None, consortium: Consortium) -> tuple[str, ...]:
    """Warnings about an epsilon or delta so large that the guarantee says next to nothing."""
    found, delta = [], delta_of(consortium)
    epsilon = spent.epsilon_at(delta)
    if epsilon > LOOSE_EPSILON:
        found.append(
            f"eps {shown(epsilon, decimals=2)} is above {LOOSE_EPSILON}: someone who sees the result may tell one "
            "unit's data from another's almost surely; lower privacy.epsilon"
        )
    if delta * (units or _UNDECLARED) > 1:
        counted = f"1/{units}, and the study declares {units} units" if units else f"1/{_UNDECLARED}"
        found.append(
            f"delta {shown_small(delta)} is above {counted}: it allows the whole data of some units to be given away; "
            "set privacy.delta far below 1 / (number of units)"
        )
    return tuple(found)


_UNITS: Mapping[str, str] = {"record": "a record", "person": "a person", "party": "a whole party"}
