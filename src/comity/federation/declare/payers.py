"""Who pays what in a run: groups of parties with the same cost, and the largest cost.

A party pays for the releases whose source it belongs to, so roles pay differently. Parties that no role and no release
names pay alike; there may be a million of them, so they are handled as one group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import combinations_with_replacement

from comity.federation.declare.consortium import Consortium
from comity.federation.declare.declaration import Declaration, Release
from comity.privacy.accounting import Spent, convert
from comity.privacy.loss import GDP, ZCDP, Approx, Loss, format_small, format_up
from comity.privacy.parallel import Parts
from comity.privacy.unit import Neighbours, Unit

_NAMES = 3


@dataclass(frozen=True)
class Payer:
    """Parties with the same cost: what to call them, how many they are, what each of them pays. `epsilon` is that cost
    at the study's delta, rounded up; empty for those who pay nothing."""

    name: str
    parties: int
    loss: str
    epsilon: str = ""


@dataclass(frozen=True)
class Group:
    """Parties that pay for the same releases; `parts` says which part of the records each release is made from."""

    parties: Sequence[str]
    releases: tuple[Release, ...]
    parts: Mapping[str, str]

    @property
    def spent(self) -> Spent:
        """What a whole run costs one of them. Losses are fixed before the run begins, so they add up by kind."""
        return _sum((self.parts[release.name], release.loss, release.debits) for release in self.releases)


def delta_of(consortium: Consortium) -> Decimal:
    """The δ that the study agreed on."""
    return consortium.loss.delta if isinstance(consortium.loss, Approx) else Decimal(0)


def payer_groups(declaration: Declaration, consortium: Consortium) -> tuple[Group, ...]:
    """The parties grouped by what they pay for, the largest cost first."""
    paid = [release for release in declaration.releases if release.loss is not None]
    everybody = [release for release in paid if len(consortium.among(release.source)) == consortium.size]
    parts = _parts(declaration, consortium)
    if len(everybody) == len(paid):
        return (Group(consortium.parties, tuple(paid), parts),)
    found: dict[tuple[str, ...], tuple[tuple[Release, ...], list[str]]] = {}
    for party in consortium.parties:
        own = declaration.paid_by(party, consortium)
        found.setdefault(tuple(release.name for release in own), (own, []))[1].append(party)
    made = [Group(tuple(parties), own, parts) for own, parties in found.values()]
    return tuple(sorted(made, key=lambda group: -group.spent.epsilon_at(delta_of(consortium))))


def largest_cost(declaration: Declaration, consortium: Consortium) -> Spent:
    """The largest cost of a run to any party."""
    return payer_groups(declaration, consortium)[0].spent


def spent_by(
    declaration: Declaration,
    party: str,
    consortium: Consortium,
    *,
    runs: int = 1,
    counted_in: tuple[Unit, Neighbours] | None = None,
) -> Spent:
    """What a whole run, or several `runs`, cost one party. Every run holds out other records: those that one run
    measures on, the next may train on. `counted_in` is the unit and neighbour relation of the party's ledger where they
    differ from the study's; losses are then converted as that ledger converts them."""
    parts = _parts(declaration, consortium)
    unit, neighbours = counted_in or (consortium.unit, consortium.neighbours)

    def counted(loss: Loss | None) -> Loss | None:
        return None if loss is None else convert(loss, consortium.unit, consortium.neighbours, unit, neighbours)

    return _sum(
        (parts[one.name], counted(one.loss), one.debits * runs) for one in declaration.paid_by(party, consortium)
    )


def _parts(declaration: Declaration, consortium: Consortium) -> dict[str, str]:
    return {release.name: declaration.part_of(release, consortium) for release in declaration.releases}


def payers(declaration: Declaration, consortium: Consortium) -> tuple[Payer, ...]:
    """Each distinct payer, the largest cost first."""
    found = payer_groups(declaration, consortium)
    delta = delta_of(consortium)

    def payer(name: str, group: Group) -> Payer:
        if not group.releases:
            return Payer(name, len(group.parties), "nothing")
        epsilon = format_up(group.spent.epsilon_at(delta), decimals=2)
        return Payer(name, len(group.parties), format_spent(group.spent, delta), epsilon)

    if len(found) == 1:
        spent = found[0].spent
        epsilon = format_up(spent.epsilon_at(delta), decimals=2)
        return (Payer("each party", consortium.size, format_spent(spent, delta), epsilon),)
    return tuple(payer(_called(group.parties, consortium), group) for group in found)


def format_payers(paid: Sequence[Payer]) -> str:
    """One clause for all of them."""
    return "; ".join(f"{one.loss} for {one.name}" for one in paid)


def spent_at_two_parties(declaration: Declaration, consortium: Consortium, doubled: Mapping[str, Loss]) -> Spent:
    """The largest loss of a unit with records at two parties: two units' loss for a release that both pay for, one
    unit's loss for a release that only one of them pays for."""
    found = payer_groups(declaration, consortium)
    pairs = ((a, b) for a, b in combinations_with_replacement(found, 2) if a is not b or len(a.parties) > 1)
    return max(
        (_of_pair(a, b, doubled) for a, b in pairs),
        key=lambda spent: spent.epsilon_at(delta_of(consortium)),
        default=_sum((found[0].parts[one.name], doubled[one.name], one.debits) for one in found[0].releases),
    )


def _of_pair(a: Group, b: Group, doubled: Mapping[str, Loss]) -> Spent:
    """What both pay for, and what only one of them pays for. The unit's records at the other party may lie in another
    part, so parts of a and parts of b do not compose in parallel."""
    both = {release.name for release in a.releases} & {release.name for release in b.releases}
    shared = _sum((a.parts[one.name], doubled[one.name], one.debits) for one in a.releases if one.name in both)
    for group in (a, b):
        alone = _sum((group.parts[one.name], one.loss, one.debits) for one in group.releases if one.name not in both)
        shared = shared.plus(alone)
    return shared


def _sum(losses: Iterable[tuple[str, Loss | None, int]]) -> Spent:
    """The cost of losses by part of the records; parts compose in parallel."""
    parts = Parts()
    for part, loss, times in losses:
        assert loss is not None
        parts.add(part, loss, times)
    return parts.cost


def _called(parties: Sequence[str], consortium: Consortium) -> str:
    """Their role, where nobody else has it, and their names."""
    names = ", ".join(parties[:_NAMES]) + (f" and {len(parties) - _NAMES:,} more" if len(parties) > _NAMES else "")
    role = next((role for role, own in consortium.roles.items() if set(own) == set(parties)), None)
    if role is None:
        return names
    return f"{role} ({names})" if len(parties) == 1 else f"each {role} ({names})"


def format_spent(spent: Spent, delta: Decimal) -> str:
    """The loss for people, at the agreed δ."""
    kinds = _kinds(spent)
    if kinds in ([], ["pure"]):
        return f"eps {format_up(spent.pure + spent.approx_epsilon, decimals=2)}"
    return f"eps {format_up(spent.epsilon_at(delta), decimals=2)}, delta {format_small(delta)}"


def format_charged(spent: Spent, delta: Decimal) -> str:
    """The loss as ledgers add it up, and what it is for people."""
    kinds, shown = _kinds(spent), format_spent(spent, delta)
    if kinds == ["gaussian"]:
        return f"{GDP.squared(spent.gaussian)} = ({shown})"
    return f"{ZCDP(spent.rho)} = ({shown})" if kinds == ["rho"] else shown


def _kinds(spent: Spent) -> list[str]:
    return [kind for kind in ("pure", "gaussian", "rho", "delta") if getattr(spent, kind)]
