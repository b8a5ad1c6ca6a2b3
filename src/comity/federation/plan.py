"""The plan: what a study would release, to whom and at what cost, for people to read. It reads no data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from comity.crypto.share_holders import choose_degree
from comity.data import Schema
from comity.federation.declare.about import UNSTATED, About
from comity.federation.declare.consortium import Consortium, format_participants
from comity.federation.declare.declaration import PRIVATE, Declaration, TrueLoss, is_unproven
from comity.federation.declare.payers import (
    Payer,
    delta_of,
    format_charged,
    format_payers,
    payer_groups,
    payers,
    spent_at_two_parties,
)
from comity.federation.declare.protection import Summed
from comity.federation.protocol import Protocol
from comity.privacy.accounting import Spent, convert
from comity.privacy.loss import Loss, format_small, format_up
from comity.privacy.unit import Neighbours, Unit
from comity.representation import html_table, short_repr
from comity.untrusted.text import escape_line

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class PlanRow:
    """One release. `kind` names its protection (`summed`, `sealed`, `disclosed`, ...), and `why` says what its receiver
    sees where the protection is not noise. `epsilon` is what `loss` means at the study's delta, by itself; empty where
    nothing is lost."""

    release: str
    source: str
    to: str
    protection: str
    loss: str
    noise_sd: float | None
    kind: str = ""
    times: int = 1
    why: str = ""
    epsilon: str = ""

    @property
    def cost(self) -> str:
        """The loss in words. Runs of earlier releases have no epsilon in their files."""
        return f"epsilon {self.epsilon}" if self.epsilon else self.loss


@dataclass(frozen=True)
class Reads:
    """The columns that a run reads at one party, or at each party."""

    __repr__ = short_repr

    party: str
    columns: tuple[str, ...]
    target: str = ""
    identifier: str = ""


_HEADS = ("release", "from", "to", "protection", "loss per party")


@dataclass(frozen=True)
class Plan:
    """Every release with its receiver, protection and cost; the cost to each party; the adversary; the claim.

    `guarantee` is the largest cost of a run to a party. `payers` are groups of parties with the same cost, the largest
    first. `true_losses` are those of a published method, beside what its paper claims. `makes` names what comes out,
    and `reads` the columns that go in. If it `tells_parties_apart`, opened totals have figures of single parties.
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
    about: About = UNSTATED
    makes: str = ""
    reads: tuple[Reads, ...] = ()
    tells_parties_apart: bool = False

    @property
    def in_all(self) -> str:
        """The cost of a run, by payer."""
        return format_payers(self.payers) if self.payers else f"{self.guarantee} for each party"

    @property
    def claim_warnings(self) -> tuple[str, ...]:
        """Warnings about a claim that does not hold, and how the charge to ledgers compares with the true loss."""
        found: tuple[str, ...] = () if self.claim == PRIVATE else (self.claim,)
        if is_unproven(self.claim):
            found += (
                "NOT PRIVATE AS CLAIMED: see each true loss, and who could learn it. Each ledger is charged the loss "
                "per party, which is at least every true loss that has a bound",
            )
        if self.exposed:
            found += (f"NO BOUND against {self.exposed}: no charge to a ledger covers what they may learn",)
        return found

    def as_json(self) -> dict[str, Any]:
        return {
            "study": self.study,
            "about": self.about.given(),
            "protocol": self.protocol,
            "parties": self.parties,
            "makes": self.makes,
            "reads": [vars(one) for one in self.reads],
            "tells_parties_apart": self.tells_parties_apart,
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

    @property
    def frame(self) -> pd.DataFrame:
        """One row for each release."""
        import pandas as pd

        return pd.DataFrame([vars(row) for row in self.rows])

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
        found = [(key.replace("_", " "), text) for key, text in self.about.given().items()]
        found += [("in all", one) for one in paid]
        found += [("charged as", f"{self.guarantee}, the most of a party")] if " = " in self.guarantee else []
        found += [("true loss", str(loss)) for loss in self.true_losses]
        found += [("WARNING", one) for one in (*self.claim_warnings, *self.warnings)]
        found.append(("holds against", self.adversary))
        found += [("expected", self.expected)] if self.expected else []
        return found + [("note", note) for note in self.notes]


def plan(
    study: str,
    protocol: Protocol,
    consortium: Consortium,
    declaration: Declaration | None = None,
    about: About = UNSTATED,
) -> Plan:
    """Plan a run of a protocol in a consortium. Refuses what the declaration rules out. `declaration` is what the
    protocol declares there, where that is known already; `about` is what the study's author says of it."""
    declaration = declaration or protocol.accepted(consortium)
    rows, noise_notes = [], dict[str, list[str]]()
    for release in declaration.releases:
        times = f" x{release.times}" if release.times > 1 else ""
        noise_sd = None
        if release.noise is not None:
            scale = release.scale(consortium) if release.loss is None or release.grid is None else None
            noise_sd = None if scale is None else release.deviation(scale) * scale.grid
        loss, epsilon = "-", ""
        if release.loss is not None:
            lost = release.loss * release.debits
            loss, epsilon = str(lost), _epsilon(Spent.zero().add(lost), delta_of(consortium))
        source, to = format_participants(release.source), format_participants(release.to)
        protection = release.protection
        kind, why = type(protection).__name__.lower(), str(getattr(protection, "why", ""))
        named = release.name + times
        rows.append(PlanRow(named, source, to, protection.text, loss, noise_sd, kind, release.times, why, epsilon))
        if isinstance(release.protection, Summed):
            over, parts = release.summed_over(consortium), release.parts(consortium)
            if over.size != parts:
                known = max(over.colluders, release.known_parts)
                noise_notes.setdefault(_noise_note(over.size, over.dropouts, known, parts), []).append(release.name)
    notes = [f"{', '.join(names)}: {sentence}" for sentence, names in noise_notes.items()]
    notes += _holder_notes(declaration, consortium)
    notes += _evaluation_notes(consortium)
    if consortium.unit is not Unit.PARTY and any(release.loss is not None for release in declaration.releases):
        charged = protocol.charged_once or two_parties_note(declaration, consortium)
        notes.append(f"the unit is {_WORDS[consortium.unit.value]}. {charged[0].upper()}{charged[1:]}")
    spent = payer_groups(declaration, consortium)[0].spent
    return Plan(
        study=study,
        protocol=protocol.title_in(consortium),
        parties=consortium.size,
        unit=_WORDS[consortium.unit.value],
        neighbours="replaced" if consortium.neighbours.value == "replace" else "added or removed",
        rows=tuple(rows),
        total=consortium.loss,
        guarantee=format_charged(spent, delta_of(consortium)),
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
        about=about,
        makes=protocol.makes,
        reads=_reads(protocol, consortium),
        tells_parties_apart=protocol.tells_parties_apart,
    )


def _reads(protocol: Protocol, consortium: Consortium) -> tuple[Reads, ...]:
    """What each party reads: its own columns where these differ, otherwise all columns of the schema."""
    by_party = getattr(protocol, "encoding_of", None)
    if by_party is not None:
        return tuple(_columns_of(by_party(party).schema, party) for party in consortium.parties)
    schema = getattr(getattr(protocol, "encoding", None), "schema", None) or consortium.schema
    return () if schema is None else (_columns_of(schema, "each party"),)


def _columns_of(schema: Schema, party: str) -> Reads:
    target = "" if schema.target is None else schema.target.name
    return Reads(party, schema.names, target, schema.identifier or "")


def _true_losses(protocol: Protocol, consortium: Consortium) -> tuple[TrueLoss, ...]:
    """The true losses; a published method must state them."""
    found = protocol.true_losses(consortium)
    if protocol.variant == "published" and not found:
        raise ValueError(f"{type(protocol).__name__} runs a published method but states no true loss beside its claim")
    return found


def _noise_note(parties: int, dropouts: int, known: int, parts: int) -> str:
    """How many parties the shared noise can lose, and what that costs. `known` parties may subtract their own part."""
    risks = [(dropouts, "drops out", "drop out"), (known, "colludes", "collude")]
    first, *rest = [(count, one if count == 1 else many) for count, one, many in risks if count]
    losses = " and ".join([f"up to {first[0]} of {parties} parties {first[1]}", *(f"up to {n} {do}" for n, do in rest)])
    return f"the noise stays sufficient if {losses} (variance {_factor(parties / parts)} times a trusted coordinator's)"


def _factor(factor: float) -> str:
    """A factor with three digits, or as many as distinguish it from 1."""
    digits = 3
    while digits < 9 and f"{factor:.{digits}g}" == "1":
        digits += 1
    return f"{factor:.{digits}g}"


def _holder_notes(declaration: Declaration, consortium: Consortium) -> list[str]:
    """The probability and the assumption of secure sums in which only some parties hold shares of a mask."""
    summed = [release for release in declaration.releases if isinstance(release.protection, Summed)]
    sizes = {over.size: over for over in (release.summed_over(consortium) for release in summed)}
    graphs = [(size, choose_degree(size, over.colluders, over.dropouts)) for size, over in sizes.items()]
    return [
        f"secure sums: each party keeps a share of its mask and picks {graph.degree} others at random to hold shares; "
        f"any {graph.threshold} of these {graph.degree + 1} can recover the mask. A coordinator that lies about "
        "dropouts opens the sum of all parties or nothing, except with probability 2^-39. This assumes that its "
        "colluders were fixed before the share holders were picked"
        for size, graph in graphs
        if graph.degree < size - 1
    ]


def _evaluation_notes(consortium: Consortium) -> list[str]:
    """What evaluating the model costs, and on which records."""
    terms = consortium.evaluation
    if terms is None:
        return []
    share = f"evaluation: {100 * terms.share:.3g} % of each owner's records are held out (by a keyed hash)"
    if terms.parallel:
        return [
            f"{share}. Every record is used for training or for evaluation, never for both, so the evaluation costs "
            "nothing beyond the study's epsilon"
        ]
    return [
        f"{share}. A whole party takes part in training and in evaluation, and both are paid from the study's epsilon"
    ]


def two_parties_note(declaration: Declaration, consortium: Consortium) -> str:
    """What someone with records at two parties loses, by group privacy.

    Two databases that differ in m units are m steps apart. Under pure ε each step adds ε. Under Gaussian noise the
    released value moves m times as far, which costs m times μ and m² times ρ, for shared noise and for each site's own.
    """
    losses = {release.name: release.loss for release in declaration.releases if release.loss is not None}
    delta = delta_of(consortium)
    once = payer_groups(declaration, consortium)[0].spent
    twice = spent_at_two_parties(declaration, consortium, {name: double_loss(loss) for name, loss in losses.items()})
    records = "" if consortium.unit is Unit.PERSON else "with records "
    return (
        f"someone {records}at two parties is protected at eps {_epsilon(twice, delta)} instead of "
        f"{_epsilon(once, delta)}{f' (delta {format_small(delta)})' if delta else ''}; each ledger is charged for one "
        "party"
    )


def _epsilon(spent: Spent, delta: Decimal) -> str:
    return format_up(spent.epsilon_at(delta), decimals=2)


def double_loss(loss: Loss) -> Loss:
    """The loss of two units at once: to replace a unit is to remove one and to add one."""
    return convert(loss, Unit.RECORD, Neighbours.ADD_REMOVE, Unit.RECORD, Neighbours.REPLACE)


LOOSE_EPSILON = 20
_UNDECLARED = 10_000


def loose_warnings(spent: Spent, units: int | None, consortium: Consortium) -> tuple[str, ...]:
    """Warnings about an epsilon or delta so large that the guarantee means little."""
    found, delta = [], delta_of(consortium)
    epsilon = spent.epsilon_at(delta)
    if epsilon > LOOSE_EPSILON:
        found.append(
            f"eps {format_up(epsilon, decimals=2)} is above {LOOSE_EPSILON}: someone who sees the result may be almost "
            f"sure which of two versions of {_WORDS[consortium.unit.value]} it was made from; lower privacy.epsilon"
        )
    if delta * (units or _UNDECLARED) > 1:
        counted = f"1/{units}, and the study declares {units} units" if units else f"1/{_UNDECLARED}"
        found.append(
            f"delta {format_small(delta)} is above {counted}: such a delta allows a method to reveal all data of some "
            "units; set privacy.delta far below 1 / (number of units)"
        )
    return tuple(found)


_WORDS: Mapping[str, str] = {"record": "a record", "person": "a person", "party": "a whole party"}
UNITS = tuple(_WORDS.values())
"""What plans call the units."""
