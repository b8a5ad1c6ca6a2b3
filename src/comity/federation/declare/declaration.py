"""A declaration: every value that may cross a trust boundary in a run. No data, no input or output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from comity.crypto.share_holders import choose_degree
from comity.errors import Malformed, Refused
from comity.federation.declare.bounds import OpenedValue
from comity.federation.declare.consortium import COORDINATOR, ITSELF, Consortium, format_participants
from comity.federation.declare.evaluation import HOLDOUT, TRAINING
from comity.federation.declare.protection import (
    Computed,
    Correlated,
    Curated,
    Derived,
    Disclosed,
    Entrusted,
    EntrustedRounds,
    Noised,
    Perturbed,
    Summed,
)
from comity.federation.declare.release import Release
from comity.privacy.ledger import Draw
from comity.privacy.parallel import WHOLE
from comity.representation import short_repr

__all__ = ["DISCLOSING", "PRIVATE", "Declaration", "Quorums", "Release", "SumGroup", "is_unproven"]

PRIVATE = "private"
DISCLOSING = "not private: what is marked EXACT leaves as it is, outside every guarantee"
"""The claim of a protocol that discloses on purpose. A site's policy must name each such release."""


def is_unproven(claim: str) -> bool:
    """Whether a method with this claim is not private as its authors claim."""
    return claim not in (PRIVATE, DISCLOSING)


Quorums = tuple[tuple[frozenset[str], int], ...]
"""Groups of parties, and how many of each."""


@dataclass(frozen=True)
class Declaration:
    """Every release of a protocol, the adversary it holds against, and the claim: "private", or why not as claimed.

    `exposed` names the participants against whom the losses do not hold, because the method leaves them a way round its
    noise: against them nothing is bounded. `holdout` names the paid releases that are made from held-out records only.
    A method can't set it: at a site only the steps of the evaluation see held-out records, and they see no others.
    """

    __repr__ = short_repr

    releases: tuple[Release, ...]
    adversary: str
    claim: str = PRIVATE
    holdout: tuple[str, ...] = ()
    exposed: str = ""

    def __post_init__(self) -> None:
        names = [release.name for release in self.releases]
        if len(set(names)) != len(names):
            raise ValueError(f"two releases of one declaration have the same name: {names}")

    def __getitem__(self, name: str) -> Release:
        release = self._named.get(name)
        if release is None:
            raise Malformed(f"{name!r} is not declared", code="undeclared")
        return release

    @cached_property
    def _named(self) -> Mapping[str, Release]:
        return {release.name: release for release in self.releases}

    def accept(self, consortium: Consortium, beside: Declaration | None = None) -> Declaration:
        """The declaration as it applies to this consortium.

        Refuses, before anything is reserved, what public figures rule out: noise that can't be as declared, releases
        without a source, sums that the survivors could not open, shared noise that a reader could subtract. A part's
        releases may be made from those `beside` it, which the whole protocol declares.

        A sum over one party opens that party's own value: no mask hides it, and it holds all of the noise. It counts,
        and is shown, as noised at the site.
        """
        for release in self.releases:
            _require_participants(release, consortium)
        settled = replace(self, releases=tuple(_settled(release, consortium) for release in self.releases))
        for release in settled.releases:
            if isinstance(release.protection, Summed):
                over = release.summed_over(consortium)
                choose_degree(over.size, over.colluders, over.dropouts)
            if release.noise is not None and not (isinstance(release.protection, Entrusted) and release.grid):
                release.scale(consortium)
        known = {release.name: release for release in (*(() if beside is None else beside.releases), *settled.releases)}
        for release in settled.releases:
            origins = _origins(release, known)
            _require_debits(release, origins)
            _require_hidden_parts(release, origins, consortium)
        return settled

    @property
    def private(self) -> bool:
        return self.claim == PRIVATE

    @property
    def unproven(self) -> bool:
        """Whether the method's own claim does not hold."""
        return is_unproven(self.claim)

    def paid_by(self, party: str, consortium: Consortium) -> tuple[Release, ...]:
        """The releases whose noise this party pays for."""
        return tuple(r for r in self.releases if r.loss is not None and consortium.includes(r.source, party))

    def draws(self, party: str, consortium: Consortium) -> list[Draw]:
        """What a run may draw at this party; reserved when the run begins."""
        return [
            draw
            for release in self.paid_by(party, consortium)
            for draw in release.draws(self.part_of(release, consortium))
        ]

    def quorums(self, consortium: Consortium) -> Quorums:
        """How many parties of each group a run needs: of each release's source, as many as must send it."""
        sources = {frozenset(consortium.among(one.source)): one.min_parties(consortium) for one in self.releases}
        return tuple((members, least) for members, least in sources.items() if members)

    def part_of(self, release: Release, consortium: Consortium) -> str:
        """The part of the records that a release is made from, where that lowers the cost: a unit that lies in one part
        loses nothing by releases of the other."""
        if consortium.evaluation is None or not consortium.evaluation.parallel:
            return WHOLE
        return HOLDOUT if release.name in self.holdout else TRAINING

    def disclosures(self, party: str, consortium: Consortium) -> tuple[Release, ...]:
        return tuple(
            r for r in self.releases if isinstance(r.protection, Disclosed) and consortium.includes(r.source, party)
        )

    def seen_by(self, name: str, consortium: Consortium) -> tuple[Release, ...]:
        """What a participant receives."""
        return tuple(r for r in self.releases if consortium.includes(r.to, name))

    def sums(self) -> tuple[str, ...]:
        """Labels of the secure sums of a run: release/index."""
        return self._sums

    @cached_property
    def _sums(self) -> tuple[str, ...]:
        return tuple(f"{r.name}/{i}" for r in self.releases if isinstance(r.protection, Summed) for i in range(r.times))

    def sum_groups(self, consortium: Consortium) -> tuple[SumGroup, ...]:
        """The sums of a run, grouped by their parties: sums over the same parties share one set-up of masks."""
        found: dict[tuple[str, ...], tuple[Consortium, list[str]]] = {}
        for release in self.releases:
            if isinstance(release.protection, Summed):
                over = release.summed_over(consortium)
                _, labels = found.setdefault(tuple(over.parties), (over, []))
                labels += [f"{release.name}/{index}" for index in range(release.times)]
        return tuple(SumGroup(place, over, tuple(labels)) for place, (over, labels) in enumerate(found.values()))


@dataclass(frozen=True)
class SumGroup:
    """Parties that sum together: their place among the groups of the run, their consortium, and their sums' labels."""

    place: int
    consortium: Consortium
    sums: tuple[str, ...]


def _settled(release: Release, consortium: Consortium) -> Release:
    protection = release.protection
    alone = isinstance(protection, Summed) and len(consortium.among(release.source)) == 1
    if not alone or isinstance(release.bound, OpenedValue):
        return release
    assert isinstance(protection, Summed)
    return replace(release, protection=Noised(protection.noise))


def _origins(release: Release, known: Mapping[str, Release]) -> list[Release]:
    """Everything that a release is made from, directly or through others, itself included."""
    found, waiting = {release.name: release}, [release]
    while waiting:
        protection = waiting.pop().protection
        of = protection.of if isinstance(protection, Derived | Perturbed | Curated) else ()
        for name in (of,) if isinstance(of, str) else of:
            if name not in known:
                raise ValueError(f"{release.name} is made from {name!r}, which is not declared")
            if name not in found:
                found[name] = known[name]
                waiting.append(known[name])
    return list(found.values())


def _require_participants(release: Release, consortium: Consortium) -> None:
    ends = [one for named in (release.source, release.to) for one in ((named,) if isinstance(named, str) else named)]
    stays = release.to == ITSELF and isinstance(release.protection, Computed)
    if ends.count(ITSELF) != stays:
        raise ValueError(f"{release.name}: only a computed release may go to its own party, and then to no other")
    for one in ends:
        if one != COORDINATOR and not len(consortium.among(one)):
            raise Refused(
                f"{release.name} goes from {format_participants(release.source)} to {format_participants(release.to)}, "
                f'but the study has no party or role {one!r}; give a party the role: [parties.NAME] role = "{one}"',
                code="roles",
                key="parties",
            )


def _require_debits(release: Release, origins: list[Release]) -> None:
    """A trusted coordinator draws no more often than the parties paid for, unless the noise of all rounds is planned
    together or paid for by name."""
    if not isinstance(release.protection, Perturbed | Curated):
        return
    paid = [one.protection for one in origins if isinstance(one.protection, EntrustedRounds)]
    named = any(release.name in one.pays_for for one in paid)
    if (paid or isinstance(release.protection, Curated)) and not named:
        raise ValueError(f"{release.name} is made by the coordinator, but no entrusted release pays for it")
    noise: object = release.noise
    if isinstance(noise, Correlated):
        if release.times > noise.rounds:
            raise ValueError(
                f"{release.name} is made {release.times} times, but its noise is planned for {noise.rounds}"
            )
        return
    for origin in origins:
        if isinstance(origin.protection, Entrusted) and release.times > origin.times:
            raise ValueError(
                f"{release.name} is noised {release.times} times, but {origin.name} pays for {origin.times}"
            )


def _require_hidden_parts(release: Release, origins: list[Release], consortium: Consortium) -> None:
    """A party that contributes to a secure sum knows its own part of the noise. If it reads anything that is made from
    the sum, directly or through other releases, the study must assume at least one colluder. A party that does not
    contribute knows no part."""
    for origin in origins:
        if not isinstance(origin.protection, Summed):
            continue
        over = origin.summed_over(consortium)
        reads = any(consortium.includes(release.to, party) for party in over.parties)
        if not reads or over.colluders or origin.known_parts or over.size == 1:
            continue
        advice = "set privacy.colluders to 1 or more"
        if over.survivors == 1:
            advice = "lower privacy.dropouts or add parties: at least two must be left"
        raise Refused(
            f"{release.name} is made from {origin.name} and goes to parties that know parts of its noise; {advice}",
            code="colluders",
            key="privacy.colluders",
        )


INFINITE = "infinite: no epsilon holds"


@dataclass(frozen=True)
class TrueLoss:
    """What a published method truly loses, beside what its paper claims: one line of a plan.

    It says what is lost `about` someone `to` someone, as `claimed` and in truth, and `why` the two differ or agree. A
    `true` loss that begins with "at most" is the smallest bound that is proved; the others are attained.
    """

    about: str
    to: str
    claimed: str
    true: str
    why: str

    def __str__(self) -> str:
        return f"{self.about}, to {self.to}: {self.true}; the paper claims {self.claimed} ({self.why})"
