"""Who pays what in a run: parties that it costs the same, and the most that it costs anybody.

A party pays for the releases whose source it belongs to, so that roles pay differently. Parties that no role and no
release names pay alike, and there may be a million of them: they are looked at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import combinations_with_replacement

from comity.federation.declare.consortium import Consortium
from comity.federation.declare.declaration import Declaration, Release
from comity.privacy.accounting import Spent, convert
from comity.privacy.loss import GDP, ZCDP, Approx, Loss, shown, shown_small
from comity.privacy.parallel import Parts
from comity.privacy.unit import Neighbours, Unit

_NAMES = 3


@dataclass(frozen=True)
class Payer:
    """Parties that a run costs the same: what to call them, how many they are, what each of them pays."""

    name: str
    parties: int
    loss: str


@dataclass(frozen=True)
class Group:
    """Parties that pay for the same releases; `parts` says of which part of the records each of them is."""

    parties: Sequence[str]
    releases: tuple[Release, ...]
    parts: Mapping[str, str]

    @property
    def spent(self) -> Spent:
        """What a whole run costs one of them: losses that are fixed before it begins, so that they add up by kind."""
        return _sum((self.parts[release.name], release.loss, release.debits) for release in self.releases)


def delta_of(who: Consortium) -> Decimal:
    """The δ that the study agreed on."""
    return who.loss.delta if isinstance(who.loss, Approx) else Decimal(0)


def groups(declaration: Declaration, who: Consortium) -> tuple[Group, ...]:
    """The parties by what they pay for, those that pay most first."""
    paid = [release for release in declaration.releases if release.loss is not None]
    everybody = [release for release in paid if len(who.among(release.source)) == who.size]
    parts = _parts(declaration, who)
    if len(everybody) == len(paid):
        return (Group(who.parties, tuple(paid), parts),)
    found: dict[tuple[str, ...], tuple[tuple[Release, ...], list[str]]] = {}
    for party in who.parties:
        own = declaration.paid_by(party, who)
        found.setdefault(tuple(release.name for release in own), (own, []))[1].append(party)
    made = [Group(tuple(parties), own, parts) for own, parties in found.values()]
    return tuple(sorted(made, key=lambda group: -group.spent.epsilon_at(delta_of(who))))


def largest(declaration: Declaration, who: Consortium) -> Spent:
    """The most that a run costs a party."""
    return groups(declaration, who)[0].spent


def spent_by(
    declaration: Declaration,
    party: str,
    who: Consortium,
    *,
    runs: int = 1,
    counted_in: tuple[Unit, Neighbours] | None = None,
) -> Spent:
    """What a whole run, or so many, cost one party. Every run sets other records aside: what is measured on in one is
    trained on in the next. `counted_in` is the unit and relation of the party's ledger, where they are not the study's:
    the losses are converted as that ledger converts them."""
    parts = _parts(declaration, who)
    unit, neighbours = counted_in or (who.unit, who.neighbours)

    def counted(loss: Loss | None) -> Loss | None:
        return None if loss is None else convert(loss, who.unit, who.neighbours, unit, neighbours)

    return _sum((parts[one.name], counted(one.loss), one.debits * runs) for one in declaration.paid_by(party, who))


def _parts(declaration: Declaration, who: Consortium) -> dict[str, str]:
    return {release.name: declaration.part_of(release, who) for release in declaration.releases}


def payers(declaration: Declaration, who: Consortium) -> tuple[Payer, ...]:
    """Each distinct payer, the largest first."""
    found = groups(declaration, who)
    if len(found) == 1:
        return (Payer("each party", who.size, describe(found[0].spent, delta_of(who))),)
    return tuple(
        Payer(
            _called(group.parties, who),
            len(group.parties),
            describe(group.spent, delta_of(who)) if group.releases else "nothing",
        )
        for group in found
    )


def in_words(paid: Sequence[Payer]) -> str:
    """One clause for all of them."""
    return "; ".join(f"{one.loss} for {one.name}" for one in paid)


def at_two_parties(declaration: Declaration, who: Consortium, doubled: Mapping[str, Loss]) -> Spent:
    """The most that a unit at two parties loses: two units' loss for a release that both pay for, one unit's for a
    release that only one of them pays for."""
    found = groups(declaration, who)
    pairs = ((a, b) for a, b in combinations_with_replacement(found, 2) if a is not b or len(a.parties) > 1)
    return max(
        (_of_pair(a, b, doubled) for a, b in pairs),
        key=lambda spent: spent.epsilon_at(delta_of(who)),
        default=_sum((found[0].parts[one.name], doubled[one.name], one.debits) for one in found[0].releases),
    )


def _of_pair(a: Group, b: Group, doubled: Mapping[str, Loss]) -> Spent:
    """What both pay for, and beside it what one of them alone pays for: the unit's records at the other party may lie
    in another part, so that parts of a and parts of b do not compose in parallel."""
    both = {release.name for release in a.releases} & {release.name for release in b.releases}
    shared = _sum((a.parts[one.name], doubled[one.name], one.debits) for one in a.releases if one.name in both)
    for group in (a, b):
        alone = _sum((group.parts[one.name], one.loss, one.debits) for one in group.releases if one.name not in both)
        shared = shared.plus(alone)
    return shared


def _sum(losses: Iterable[tuple[str, Loss | None, int]]) -> Spent:
    """Of losses by part of the records, which compose in parallel."""
    parts = Parts()
    for part, loss, times in losses:
        assert loss is not None
        parts.add(part, loss, times)
    return parts.cost


def _called(parties: Sequence[str], who: Consortium) -> str:
    """By their role where it is theirs alone."""
    names = ", ".join(parties[:_NAMES]) + (f" and {len(parties) - _NAMES:,} more" if len(parties) > _NAMES else "")
    role = next((role for role, own in who.roles.items() if set(own) == set(parties)), None)
    if role is None:
        return names
    return f"{role} ({names})" if len(parties) == 1 else f"each {role} ({names})"


def describe(spent: Spent, delta: Decimal) -> str:
    """The loss in words, at the δ that was agreed on."""
    kinds = [kind for kind in ("pure", "gaussian", "rho", "delta") if getattr(spent, kind)]
    if kinds in ([], ["pure"]):
        return f"eps {shown(spent.pure + spent.approx_epsilon, decimals=2)}"
    pair = f"(eps {shown(spent.epsilon_at(delta), decimals=2)}, delta {shown_small(delta)})"
    if kinds == ["gaussian"]:
        return f"{GDP.squared(spent.gaussian)} = {pair}"
    return f"{ZCDP(spent.rho)} = {pair}" if kinds == ["rho"] else pair
