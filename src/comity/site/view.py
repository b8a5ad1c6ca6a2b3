"""A study as one owner sees it: what leaves this site, to whom, at what cost to it, and what is left of its budget."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import ROUND_FLOOR
from typing import Any

from comity.federation.declare.consortium import COORDINATOR, worded
from comity.federation.declare.declaration import Release
from comity.federation.declare.payers import delta_of, describe, spent_by
from comity.federation.declare.policy import KnownParties
from comity.federation.owner.host import Host
from comity.federation.plan import Plan
from comity.privacy.ledger.account import figure
from comity.untrusted.text import one_line


@dataclass(frozen=True)
class Crossing:
    """One value that leaves the site, or reaches it."""

    release: str
    other: str
    protection: str
    loss: str


@dataclass(frozen=True)
class OwnersView:
    """`before` and `after` are the epsilon that is left of the dataset, now and if the approved runs were all begun."""

    plan: Plan
    study: str
    party: str
    coordinator: str
    parties: KnownParties
    noise_left: float
    dataset: str
    runs: int
    leaves: tuple[Crossing, ...]
    exactly: tuple[str, ...]
    reaches: tuple[Crossing, ...]
    cost: str
    before: str
    after: str

    def as_json(self) -> dict[str, Any]:
        return {
            "study": self.plan.study,
            "hash": self.study,
            "party": self.party,
            "coordinator": self.coordinator,
            "parties": [vars(one) for one in self.parties.parties],
            "parties_known": len(self.parties.known),
            "noise_left": self.noise_left,
            "dataset": self.dataset,
            "runs": self.runs,
            "leaves": [vars(one) for one in self.leaves],
            "leaves_exactly": list(self.exactly),
            "reaches_you": [vars(one) for one in self.reaches],
            "cost": self.cost,
            "left_before": self.before,
            "left_after": self.after,
            "plan": self.plan.as_json(),
        }

    def as_text(self) -> str:
        plan = self.plan
        lines = [
            f"{plan.study} · {plan.protocol} · {plan.parties} parties · unit: {plan.unit}, {plan.neighbours}",
            f"  study hash     {self.study}",
            f"  coordinator    {self.coordinator}",
            *parties_lines(self.parties),
            f"  what leaves {self.party}",
            *_table(("release", "to", "protection", "loss a run"), self.leaves, "nothing"),
            *(f"    EXACTLY      {one}" for one in self.exactly),
            f"  what reaches {self.party}",
            *_table(("release", "from", "protection", ""), self.reaches, "nothing"),
            f"  cost           {self.cost} of {self.dataset} for {_runs(self.runs)}",
            f"  left           {self.before} now, {self.after} after",
        ]
        lines += [f"  true loss      {loss}" for loss in plan.true_losses]
        lines += [f"  WARNING        {one}" for one in plan.claim_warnings]
        if self.parties.missing_colluders:
            lines.append(f"  WARNING        {self._unknown_warning()}")
        lines += [f"  WARNING        {warning}" for warning in plan.warnings]
        lines.append(f"  holds against  {plan.adversary}")
        lines += [f"  note           {note}" for note in plan.notes]
        # A study comes from somebody else, and the lines by which its owner decides are ours.
        return "\n".join(map(one_line, lines))

    def _unknown_warning(self) -> str:
        found = self.parties
        left = (
            ""
            if self.noise_left == 1
            else f" The noise that hides your records would have {self.noise_left:.2g} of the variance that this cost "
            f"rests on; with Gaussian noise you would lose {self.noise_left**-0.5:.2g} times as much."
        )
        return (
            f"{len(found.unknown)} of {len(found.parties) - 1} other parties are unknown to you. The study's author "
            f"may have invented them, and then they add no noise.{left} Pin the keys of those you know, or ask for "
            f"privacy.colluders = {found.needed_colluders} (the study has {found.colluders})"
        )


def parties_lines(known: KnownParties) -> list[str]:
    """Every party of a study with the fingerprint of its key, and whether the owner pinned it."""
    listed = [(one.name, one.fingerprint or "no key", one.standing) for one in known.parties]
    return [
        f"  parties        {known.in_words()}; compare fingerprints by telephone and pin the keys",
        *_columns(("name", "fingerprint of its key", ""), listed),
    ]


def view_of(host: Host, plan: Plan, *, dataset: str, runs: int) -> OwnersView:
    """What an approval for so many runs would mean. It writes nothing, and raises the refusal that policy or ledger
    would meet these runs with."""
    agreed, party, who = host.agreed, host.party, host.who
    host.permit(runs - 1)
    known = KnownParties.of(who, party, host.policy.pinned)
    begun = host.store.runs_of(agreed.study, other_than="")
    after = host.store.foresee(host.booking(), *(f"run {number}" for number in range(begun, runs)))
    parts = (agreed.declared(mount) for mount in (*agreed.protocol.parts, *agreed.measuring_mounts))
    exact = [release for made in (agreed.declaration, *parts) for release in made.disclosures(party, who)]
    declaration = agreed.declaration
    leaves = [one for one in declaration.releases if one.source != COORDINATOR and who.includes(one.source, party)]
    return OwnersView(
        plan=plan,
        study=agreed.study,
        party=party,
        coordinator=host.identity_of(COORDINATOR).fingerprint,
        parties=known,
        noise_left=known.noise_left(agreed.declaration, who, party),
        dataset=dataset,
        runs=runs,
        leaves=tuple(_crossing(one, one.to) for one in leaves),
        exactly=tuple(dict.fromkeys(f"{one.name}: {one.protection.text}" for one in exact)),
        reaches=tuple(_crossing(one, one.source) for one in declaration.seen_by(party, who) if one not in leaves),
        cost=describe(spent_by(declaration, party, who, runs=runs), delta_of(who)),
        before=_left(host.store.ledger.summary(), dataset),
        after=_left(after, dataset),
    )


def _crossing(release: Release, other: str | tuple[str, ...]) -> Crossing:
    times = f" x{release.times}" if release.times > 1 else ""
    loss = "-" if release.loss is None else str(release.loss * release.times)
    return Crossing(release.name + times, worded(other), release.protection.text, loss)


def _left(accounts: Iterable[Any], dataset: str) -> str:
    left = next(account.left for account in accounts if account.dataset == dataset)
    return "no limit" if left is None else f"eps {figure(left, ROUND_FLOOR)}"


def _table(heads: tuple[str, str, str, str], rows: tuple[Crossing, ...], none: str) -> list[str]:
    if not rows:
        return [f"    {none}"]
    return _columns(heads, [(one.release, one.other, one.protection, one.loss if heads[3] else "") for one in rows])


def _columns(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    lines = [heads, *rows]
    widths = [max(len(line[place]) for line in lines) for place in range(len(heads))]
    return ["    " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines]


def _runs(number: int) -> str:
    return "1 run" if number == 1 else f"{number} runs in all"
