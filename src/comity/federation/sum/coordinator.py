"""What the coordinator does in a secure sum: set it up once per group, open each sum, and find parties that cheat.

The coordinator checks what a party sends before it counts. A party is lost, within the dropouts that the study allows,
if its key or a signature does not verify, if its list of holders or its vector has another form, or if shares are
missing or of the wrong kind. A share that does not fit its secret is left out, and the party that gave it is lost from
then on. Only a party that dealt wrong shares to nearly all of its holders ends the run, because its masks can't be
removed; the error names it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from comity.crypto import masks, shamir
from comity.crypto.sealing import unlock
from comity.errors import Malformed, SiteLost, Stopped
from comity.federation.declare.consortium import Consortium
from comity.federation.declare.declaration import SumGroup
from comity.federation.declare.release import Release
from comity.federation.messages.codec import decode, encode
from comity.federation.sum.terms import Masked, degree_of, digest_of, is_complete_graph, seeded_by, to_units, word_type

if TYPE_CHECKING:
    from comity.federation.coordinator.parties import Parties


@dataclass(eq=False)
class SetUp:
    """What the parties of a group agreed on for all of its sums, and which of them have cheated since."""

    members: tuple[str, ...]
    holders: Mapping[str, tuple[str, ...]]  # by party, itself last: in the order of the points of its shares
    recovery_seeds: Mapping[str, Mapping[str, bytes]] = field(default_factory=dict)  # by party and sum, locked
    wrong: set[str] = field(default_factory=set)  # parties that gave a share that does not fit its secret

    @cached_property
    def held(self) -> Mapping[str, set[str]]:
        """The members whose shares each party holds."""
        return {holder: set(of) for holder, of in _inverse({p: self.holders[p] for p in self.members}).items()}


@dataclass(frozen=True, eq=False)
class Sum:
    """The sum of a contributed release in grid units, and the parties that contributed."""

    units: NDArray[np.int64]
    over: tuple[str, ...]


def check_masked(party: str, value: Any, release: Release, consortium: Consortium) -> None:
    """Refuse a masked contribution of another form than declared. `consortium` are the parties of the sum."""
    fits = isinstance(value, np.ndarray) and value.shape == release.shape
    if not fits or value.dtype.str != word_type(release, consortium):
        raise Malformed(f"{party} sent a masked vector of another form than {release.name} declares", code="form")


# The rounds of one sum, with the check of each reply beside its round.
def open_sum(  # noqa: C901
    parties: Parties, sum_group: SumGroup, release: Release, index: int, masked: Mapping[str, Masked]
) -> Sum:
    """Open one sum of a group. `masked` are what its parties contributed."""
    label, consortium, degree = f"{release.name}/{index}", sum_group.consortium, degree_of(sum_group.consortium)
    set_up, survivors = prepare_sums(parties, sum_group), sorted(masked)
    total = np.zeros(release.shape, word_type(release, consortium))
    for words in masked.values():
        total += words
    if not consortium.dropouts:
        if tuple(survivors) != set_up.members:
            raise SiteLost(f"{label}: this sum is of all its parties, and not all have sent their part")
        return _in_units(total, release, survivors)
    # If all parties hold shares of all, a threshold of replies suffices; otherwise each party needs its own holders.
    need = degree.threshold if is_complete_graph(consortium) else consortium.survivors
    # Where no member was lost, holders open without a list of survivors (proof.md, 4).
    nobody_lost = is_complete_graph(consortium) and tuple(survivors) == set_up.members
    listed = digest_of(list(set_up.members), survivors)

    def consents(party: str, values: Mapping[str, Any]) -> None:
        _verify(parties, party, values["consent"], "survivors", label, listed)

    consent: dict[str, bytes] = {}
    if not nobody_lost:
        signed = parties.ask("agree", survivors=survivors, to=survivors, label=label, need=need, valid=consents)
        consent = {party: values["consent"] for party, values in signed.items()}
    alive = set(survivors)

    def opens(party: str, values: Mapping[str, Any]) -> None:
        held, opening = set_up.held.get(party, set()), values["opening"]
        if set(opening["self"]) != held & alive or set(opening["recovery"]) != held - alive:
            raise Malformed(f"{party} gave shares of other parties than those whose shares it holds", code="form")

    asked = [party for party in survivors if nobody_lost or party in consent]
    each = {party: {"consents": _of_holders(set_up, party, consent, degree.quorum)} for party in asked}
    opened = parties.ask("unmask", each=each, label=label, need=need, valid=opens)

    def rebuilt(kind: str, party: str) -> bytes:
        points = {giver: point for point, giver in enumerate(set_up.holders[party], 1)}
        givers = [giver for giver in points if giver in opened and giver not in set_up.wrong]
        if len(givers) < degree.threshold:
            raise SiteLost(f"{label}: too few share holders of {party} are left to open the sum")
        shares = {points[giver]: opened[giver]["opening"][kind][party] for giver in givers}
        try:
            secret, strangers = shamir.rebuild(shares, degree.threshold)
        except Malformed as error:
            raise Stopped(
                f"{label}: the shares of {party}'s secret do not fit together: {party} dealt wrong shares, or too many "
                "of its holders gave wrong ones. The sum can't be opened; begin a new run without this party"
            ) from error
        for giver in givers:
            if points[giver] in strangers:
                set_up.wrong.add(giver)
                parties.lose(giver, f"gave a wrong share in sum.unmask[{label}]")
        return secret

    for party in survivors:
        masks.subtract(total, rebuilt("self", party))
    for lost in set_up.members:
        if lost not in alive:
            seeds = _unlock_pair_seeds(parties, set_up, label, lost, rebuilt("recovery", lost))
            _remove_pair_masks(total, seeds, alive)
    return _in_units(total, release, survivors)


def _in_units(total: Any, release: Release, over: Sequence[str]) -> Sum:
    return Sum(to_units(total) >> np.int64(64 - release.ring), tuple(over))


def _remove_pair_masks(total: Any, seeds: Mapping[str, Mapping[str, bytes]], alive: Collection[str]) -> None:
    """Remove the pair masks that survivors made with a lost party."""
    for way, apply in (("given", masks.add), ("taken", masks.subtract)):
        for party, seed in seeds[way].items():
            if party in alive:
                apply(total, seed)


def _unlock_pair_seeds(
    parties: Parties, set_up: SetUp, label: str, lost: str, key: bytes
) -> Mapping[str, Mapping[str, bytes]]:
    """The pair seeds of a lost party, from its recovery seeds and their key."""
    context = encode([parties.study, parties.run, "recovery", label, lost])
    try:
        match decode(unlock(key, set_up.recovery_seeds[lost][label], context)):
            case {"given": dict(given), "taken": dict(taken)} if all(
                type(seed) is bytes for seed in (*given.values(), *taken.values())
            ):
                return {"given": given, "taken": taken}
    except Malformed:
        pass
    raise Stopped(f"{label}: {lost} was lost, and its recovery seeds can't be read; begin a new run without it")


def _of_holders(set_up: SetUp, party: str, signatures: Mapping[str, bytes], quorum: int) -> dict[str, bytes]:
    """Signatures of a party's own holders, as many as it asks for."""
    return {holder: signatures[holder] for holder in [h for h in set_up.holders[party] if h in signatures][:quorum]}


def _verify(parties: Parties, party: str, signature: bytes, *what: Any) -> None:
    parties.consortium.roster[party].verify(signature, encode([parties.study, parties.run, *what]))


# The set-up, once per run and group, for all of its sums.


def prepare_sums(parties: Parties, sum_group: SumGroup) -> SetUp:
    """The set-up of a group, made before its first party contributes."""
    if sum_group.place not in parties.set_ups:
        parties.set_ups[sum_group.place] = _make_set_up(parties, sum_group)
    return parties.set_ups[sum_group.place]


def _make_set_up(parties: Parties, sum_group: SumGroup) -> SetUp:
    consortium, label = sum_group.consortium, sum_group.place
    least = consortium.survivors
    holders = _pick_holders(parties, sum_group)
    signed = parties.run_keys
    keys = {p: {"keys": {h: signed[h] for h in holders[p] if h in holders and h != p}} for p in holders}
    dealt = parties.ask("deal", each=keys, label=label, need=least)
    dealt_to = _inverse({party: _receivers(consortium, party, holders[party]) for party in dealt})
    dealers = {party: {"dealers": [dealer for dealer in dealt_to.get(party, ()) if dealer != party]} for party in dealt}
    sums = set(sum_group.sums) if consortium.dropouts else set()

    def meets(party: str, values: Mapping[str, Any]) -> None:
        if set(values["recovery_seeds"]) != sums or not set(values["unserved"]) <= set(dealers[party]["dealers"]):
            raise Malformed(f"{party} left no recovery seeds for each sum", code="form")

    met = parties.ask("meet", each=dealers, label=label, need=least, valid=meets)
    members = _members({party: values["unserved"] for party, values in met.items()}, consortium)
    if not consortium.dropouts:
        return SetUp(members=tuple(members), holders=holders)
    listed = digest_of(members)

    def enlists(party: str, values: Mapping[str, Any]) -> None:
        _verify(parties, party, values["enlisted"], "members", str(label), listed)

    enlisted = parties.ask("enlist", members=members, to=members, label=label, need=least, valid=enlists)
    roll, quorum = {party: values["enlisted"] for party, values in enlisted.items()}, degree_of(consortium).quorum
    found = SetUp(
        members=tuple(members),
        holders=holders,
        recovery_seeds={party: met[party]["recovery_seeds"] for party in members},
    )
    parties.ask(
        "seat",
        each={party: {"roll": _of_holders(found, party, roll, quorum)} for party in roll},
        label=label,
        need=least,
    )
    return found


def _pick_holders(parties: Parties, sum_group: SumGroup) -> dict[str, tuple[str, ...]]:
    """The share holders of each party, itself last."""
    consortium = sum_group.consortium
    alive = set(parties.alive)
    if is_complete_graph(consortium):
        named = consortium.parties
        return {one: (*(other for other in named if other != one), one) for one in named if one in alive}

    def advertises(party: str, values: Mapping[str, Any]) -> None:
        chosen = values["holders"]
        if len(chosen) != degree_of(consortium).degree or party in chosen or not all(map(consortium.knows, chosen)):
            raise Malformed(f"{party} picked share holders that it may not pick", code="form")

    advertised = parties.ask(
        "advertise", to=consortium.parties, label=sum_group.place, need=consortium.survivors, valid=advertises
    )
    return {party: (*values["holders"], party) for party, values in advertised.items()}


def _receivers(consortium: Consortium, party: str, holders: Sequence[str]) -> Sequence[str]:
    """The parties to which a party deals: its holders or, where there are no shares, those that get a pair seed."""
    return holders if consortium.dropouts else seeded_by(consortium, party, holders[:-1])


def _inverse(holders: Mapping[str, Sequence[str]]) -> dict[str, dict[str, None]]:
    """The parties whose shares each party holds, in the order of `holders`."""
    out: dict[str, dict[str, None]] = {}
    for party, of in holders.items():
        for holder in of:
            out.setdefault(holder, {})[party] = None
    return out


def _members(unserved: Mapping[str, list[str]], consortium: Consortium) -> list[str]:
    """The parties that opened their shares, without those in dispute.

    A holder names dealers whose letters held no shares, and may name others without cause. The party with the most
    disputes is removed first; of two with as many, the one that was named more often.
    """
    members = set(unserved)
    disputes = {(named, by) for by, names in unserved.items() for named in names if named in members}
    while disputes:
        counts: dict[str, tuple[int, int]] = {}
        for named, by in disputes:
            for party, weight in ((named, 1), (by, 0)):
                count, blamed = counts.get(party, (0, 0))
                counts[party] = (count + 1, blamed + weight)
        worst = max(sorted(counts), key=lambda party: counts[party])
        members.discard(worst)
        disputes = {pair for pair in disputes if worst not in pair}
    if len(members) < consortium.survivors:
        raise SiteLost(f"sum.meet: {len(members)} parties have exchanged shares, {consortium.survivors} are needed")
    return sorted(members)
