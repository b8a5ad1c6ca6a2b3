"""The coordinator's side of the secure sum: sets it up once per run, opens each sum, and finds out who did wrong.

Whatever a party sends is checked before it counts: a key or a signature that does not verify, a list of holders or a
vector of another form, shares that are missing or of the wrong kind make it a lost party, within the drop-outs that the
study allows. A share that does not belong to its secret is left out, and its giver is lost from then on. Only a party
that dealt wrong shares to nearly everyone ends the run, since what it masked can't be unmasked; the error names it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from comity.crypto import masks, shamir
from comity.crypto.sealing import unlock
from comity.errors import Malformed, SiteLost, Stopped
from comity.federation.declare.consortium import Consortium
from comity.federation.declare.declaration import Circle
from comity.federation.declare.release import Release
from comity.federation.messages.codec import decode, encode
from comity.federation.sum.terms import degree_of, digest_of, to_units, word


class Summing(Protocol):
    """The run that a sum is opened in, as this needs it; `ask` asks for steps of the secure sum."""

    @property
    def study(self) -> str: ...

    @property
    def run(self) -> str: ...

    @property
    def consortium(self) -> Consortium: ...

    @property
    def alive(self) -> list[str]: ...

    @property
    def set_ups(self) -> dict[int, SetUp]: ...

    @property
    def run_keys(self) -> Mapping[str, Mapping[str, bytes]]: ...

    def lose(self, party: str, why: str) -> None: ...

    def ask(
        self,
        step: str,
        *,
        to: Iterable[str] | None = None,
        each: Mapping[str, Mapping[str, Any]] | None = None,
        label: str | int = 0,
        need: int | None = None,
        valid: Callable[[str, Mapping[str, Any]], None] | None = None,
        **values: Any,
    ) -> Mapping[str, Mapping[str, Any]]: ...


@dataclass(eq=False)
class SetUp:
    """What the parties of a circle agreed on for all of its sums, and what was seen of them since."""

    members: tuple[str, ...]
    holders: Mapping[str, tuple[str, ...]]  # of each party, itself last: the points of its shares
    wills: Mapping[str, Mapping[str, bytes]]
    roll: Mapping[str, bytes]
    seated: bool = False  # who has masked once has seen the signatures of the roll
    wrong: set[str] = field(default_factory=set)  # gave a share that does not belong to its secret

    @cached_property
    def held(self) -> Mapping[str, set[str]]:
        """The members whose shares each one holds."""
        return {holder: set(of) for holder, of in _inverse({p: self.holders[p] for p in self.members}).items()}


@dataclass(frozen=True, eq=False)
class Sum:
    """The sum of a contributed release in grid units, and over whose contributions."""

    units: NDArray[np.int64]
    over: tuple[str, ...]


# The rounds of one secure sum, with the check of each reply beside its round.
def open_sum(parties: Summing, circle: Circle, release: Release, index: int) -> Sum:  # noqa: C901
    """Open one sum of a circle, once each of its parties has contributed."""
    label, who, degree = f"{release.name}/{index}", circle.consortium, degree_of(circle.consortium)
    agreed = _set_up(parties, circle)
    # In the complete graph a threshold suffices; in a sparse one every party needs enough of its own holders.
    need = degree.threshold if degree.degree == who.size - 1 else who.survivors
    present = set(parties.alive)
    asked = [party for party in agreed.members if party in present]
    signatures = {} if agreed.seated else agreed.roll
    agreed.seated = True
    roll = {party: {"roll": _of_holders(agreed, party, signatures, degree.quorum)} for party in asked}
    dtype = word(release, who)

    def is_masked(party: str, values: Mapping[str, Any]) -> None:
        if values["masked"].shape != release.shape or values["masked"].dtype.str != dtype:
            raise Malformed(f"{party} sent a masked vector of another form than {label} declares", code="form")

    masked = parties.ask("mask", each=roll, label=label, need=who.survivors, valid=is_masked)
    survivors = sorted(masked)
    listed = digest_of(list(agreed.members), survivors)

    def consents(party: str, values: Mapping[str, Any]) -> None:
        _verify(parties, party, values["consent"], "survivors", label, listed)

    signed = parties.ask("agree", survivors=survivors, to=survivors, label=label, need=need, valid=consents)
    consent = {party: values["consent"] for party, values in signed.items()}
    alive = set(survivors)

    def opens(party: str, values: Mapping[str, Any]) -> None:
        held, opening = agreed.held.get(party, set()), values["opening"]
        if set(opening["self"]) != held & alive or set(opening["will"]) != held - alive:
            raise Malformed(f"{party} gave shares of other parties than those it holds them of", code="form")

    each = {party: {"consents": _of_holders(agreed, party, consent, degree.quorum)} for party in consent}
    opened = parties.ask("unmask", each=each, label=label, need=need, valid=opens)

    def rebuilt(kind: str, party: str) -> bytes:
        points = {giver: point for point, giver in enumerate(agreed.holders[party], 1)}
        givers = [giver for giver in points if giver in opened and giver not in agreed.wrong]
        if len(givers) < degree.threshold:
            raise SiteLost(f"{label}: too few holders of {party}'s shares are left to open the sum")
        shares = {points[giver]: opened[giver]["opening"][kind][party] for giver in givers}
        try:
            secret, strangers = shamir.rebuild(shares, degree.threshold)
        except Malformed as error:
            raise Stopped(
                f"{label}: the shares of {party}'s secret do not belong together: it dealt wrong ones, or too many of "
                "its holders gave wrong ones. The sum can't be opened; leave it out and begin a new run"
            ) from error
        for giver in givers:
            if points[giver] in strangers:
                agreed.wrong.add(giver)
                parties.lose(giver, f"gave a wrong share in sum.unmask[{label}]")
        return secret

    total = np.zeros(release.shape, dtype)
    for values in masked.values():
        total += values["masked"]
    for party in survivors:
        masks.subtract(total, rebuilt("self", party))
    for lost in agreed.members:
        if lost not in alive:
            _without(total, lost, _will(parties, agreed, label, lost, rebuilt("will", lost)), alive)
    return Sum(to_units(total) >> np.int64(64 - release.ring), tuple(survivors))


def _without(total: Any, lost: str, will: Mapping[str, Mapping[str, bytes]], alive: Collection[str]) -> None:
    """Take off the pair masks that survivors added with a party that was lost."""
    for way, apply in (("given", masks.add), ("taken", masks.subtract)):
        for party, seed in will[way].items():
            if party in alive:
                apply(total, seed)


def _will(parties: Summing, agreed: SetUp, label: str, lost: str, key: bytes) -> Mapping[str, Mapping[str, bytes]]:
    context = encode([parties.study, parties.run, "will", label, lost])
    try:
        match decode(unlock(key, agreed.wills[lost][label], context)):
            case {"given": dict(given), "taken": dict(taken)} if all(
                type(seed) is bytes for seed in (*given.values(), *taken.values())
            ):
                return {"given": given, "taken": taken}
    except Malformed:
        pass
    raise Stopped(f"{label}: {lost} was lost, and what it left behind opens nothing; begin a new run without it")


def _of_holders(agreed: SetUp, party: str, signatures: Mapping[str, bytes], quorum: int) -> dict[str, bytes]:
    """As many signatures of a party's own holders as it asks for."""
    return {holder: signatures[holder] for holder in [h for h in agreed.holders[party] if h in signatures][:quorum]}


def _verify(parties: Summing, party: str, signature: bytes, *what: Any) -> None:
    parties.consortium.roster[party].verify(signature, encode([parties.study, parties.run, *what]))


# Once per run and circle, for all of its sums.


def _set_up(parties: Summing, circle: Circle) -> SetUp:
    if circle.place not in parties.set_ups:
        parties.set_ups[circle.place] = _agreed(parties, circle)
    return parties.set_ups[circle.place]


def _agreed(parties: Summing, circle: Circle) -> SetUp:
    who, label = circle.consortium, circle.place
    least, sums = who.survivors, set(circle.sums)

    def advertises(party: str, values: Mapping[str, Any]) -> None:
        chosen = values["holders"]
        if len(chosen) != degree_of(who).degree or party in chosen or not all(map(who.knows, chosen)):
            raise Malformed(f"{party} chose other holders than it may", code="form")

    advertised = parties.ask("advertise", to=who.parties, label=label, need=least, valid=advertises)
    holders = {party: (*values["holders"], party) for party, values in advertised.items()}
    signed = parties.run_keys
    keys = {p: {"keys": {h: signed[h] for h in holders[p] if h in holders and h != p}} for p in holders}
    dealt = parties.ask("deal", each=keys, label=label, need=least)
    dealt_to = _inverse({party: holders[party] for party in dealt})
    dealers = {party: {"dealers": [dealer for dealer in dealt_to[party] if dealer != party]} for party in dealt}

    def meets(party: str, values: Mapping[str, Any]) -> None:
        if set(values["wills"]) != sums or not set(values["unserved"]) <= set(dealers[party]["dealers"]):
            raise Malformed(f"{party} left no will for each sum", code="form")

    met = parties.ask("meet", each=dealers, label=label, need=least, valid=meets)
    members = _members({party: values["unserved"] for party, values in met.items()}, who)
    listed = digest_of(members)

    def enlists(party: str, values: Mapping[str, Any]) -> None:
        _verify(parties, party, values["enlisted"], "members", str(label), listed)

    enlisted = parties.ask("enlist", members=members, to=members, label=label, need=least, valid=enlists)
    return SetUp(
        members=tuple(members),
        holders=holders,
        wills={party: met[party]["wills"] for party in members},
        roll={party: values["enlisted"] for party, values in enlisted.items()},
    )


def _inverse(holders: Mapping[str, Sequence[str]]) -> dict[str, dict[str, None]]:
    """Whose shares each party holds, in the order of those."""
    out: dict[str, dict[str, None]] = {}
    for party, of in holders.items():
        for holder in of:
            out.setdefault(holder, {})[party] = None
    return out


def _members(unserved: Mapping[str, list[str]], who: Consortium) -> list[str]:
    """The parties that met, without those that the others could not work with.

    Holders name whoever dealt them something that is no share, and may name others without cause: the one with most
    quarrels goes first, and of two that have as many the one who was named.
    """
    members = set(unserved)
    quarrels = {(named, by) for by, names in unserved.items() for named in names if named in members}
    while quarrels:
        counts: dict[str, tuple[int, int]] = {}
        for named, by in quarrels:
            for party, weight in ((named, 1), (by, 0)):
                count, blamed = counts.get(party, (0, 0))
                counts[party] = (count + 1, blamed + weight)
        worst = max(sorted(counts), key=lambda party: counts[party])
        members.discard(worst)
        quarrels = {pair for pair in quarrels if worst not in pair}
    if len(members) < who.survivors:
        raise SiteLost(f"sum.meet: {len(members)} parties are left that exchanged shares, {who.survivors} are needed")
    return sorted(members)
