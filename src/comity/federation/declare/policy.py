"""An owner's terms: which studies may run at its site, at what cost, and with which parties it knows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Literal

from comity.crypto.sealing.sealed import PublicIdentity
from comity.errors import Refused
from comity.federation.declare.consortium import COORDINATOR, Consortium, fold
from comity.federation.declare.declaration import Declaration
from comity.federation.declare.payers import spent_by
from comity.federation.declare.protection import Disclosed, Summed
from comity.privacy.ledger import Draw, Transaction
from comity.privacy.loss import shown
from comity.privacy.unit import Neighbours, Unit

Standing = Literal["you", "pinned", "not pinned"]


@dataclass(frozen=True)
class PartyIdentity:
    """A party as its owner's peers see it. `fingerprint` is that of its key in the study, empty where there is none."""

    name: str
    fingerprint: str
    standing: Standing


@dataclass(frozen=True)
class KnownParties:
    """Which parties of a study an owner knows, and how many colluders the others count as.

    A study names its parties. A submitter can invent parties and hold their keys: these follow the protocol in every
    message and add no noise. The owner is then protected by the noise of parties whose keys it pinned.

    Promise    Where `missing_colluders` is 0, the declared loss holds against a coordinator that invented every party
               whose key the owner has not pinned.
    Why        Shared noise is sufficient with U − t honest parts (U parties survive, t collude). All u unknown parties
               may add nothing and tell the coordinator all that they see, so masks and noise need t >= u. A known party
               that colludes with nobody reads the result and knows its own part: with known parties t >= u + 1. Without
               any, t = K − 1 counts everybody else already, and each party adds all the noise itself.

    `colluders` is how many the study assumes.
    """

    parties: tuple[PartyIdentity, ...]
    colluders: int

    @classmethod
    def of(cls, who: Consortium, party: str, pinned: Mapping[str, PublicIdentity]) -> KnownParties:
        """A party is known where the study's key of it is the one that the owner pinned under its name."""
        keys = {fold(name): key for name, key in pinned.items()}

        def seen(name: str) -> PartyIdentity:
            key = who.roster.get(name)
            known = key is not None and keys.get(fold(name)) == key
            standing: Standing = "you" if name == party else "pinned" if known else "not pinned"
            return PartyIdentity(name, "" if key is None else key.fingerprint, standing)

        return cls(tuple(seen(name) for name in who.parties), who.colluders)

    @property
    def known(self) -> tuple[str, ...]:
        """Others whom the owner knows."""
        return tuple(one.name for one in self.parties if one.standing == "pinned")

    @property
    def unknown(self) -> tuple[str, ...]:
        return tuple(one.name for one in self.parties if one.standing == "not pinned")

    @property
    def needed_colluders(self) -> int:
        """How many colluders cover every unknown party, and one known party that reads the result."""
        if not self.unknown:
            return 0
        return len(self.unknown) + (1 if self.known else 0)

    @property
    def missing_colluders(self) -> int:
        """How many more colluders the study would have to assume; 0 where its loss holds as declared."""
        return max(0, self.needed_colluders - self.colluders)

    def in_words(self) -> str:
        others = len(self.parties) - 1
        if not others:
            return "you are the only party"
        return f"you know {len(self.known)} of {others} other {'party' if others == 1 else 'parties'}"

    def noise_left(self, declaration: Declaration, who: Consortium, party: str) -> float:
        """The smallest share of the variance of shared noise, over this party's releases, that is left if unknown
        parties add none and one known reader takes off its own part; 1 where noise is as declared."""
        shares = [1.0]
        for release in declaration.releases:
            if not isinstance(release.protection, Summed) or not who.includes(release.source, party):
                continue
            over = release.summed_over(who)
            gone = sum(over.knows(name) for name in self.unknown)
            reader = any(over.knows(name) for name in self.known)
            shares.append(max(1, over.survivors - gone - reader) / release.parts(who))
        return min(shares)


@dataclass(frozen=True, kw_only=True)
class Period:
    """A ceiling on what all studies together spend of one dataset within so many days, by the owner's own clock.

    The grant of the ledger is what its owner promises for ever; this is how fast it may go. Where the clock was behind
    when a run was paid for, the run still counts; where it is ahead, the ceiling forgets early.
    """

    epsilon: Decimal
    delta: Decimal
    days: int
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)

    def check(self, transaction: Transaction, dataset: str | None, title: str) -> None:
        """Refuse a run whose reservation, which this transaction holds already, goes beyond the ceiling."""
        now = self.clock().astimezone(UTC)
        since = now - timedelta(days=self.days)
        asked = transaction.spent_since(_text(since), now=_text(now), dataset=dataset).epsilon_at(self.delta)
        if asked > self.epsilon:
            raise Refused(
                f"refused: with {title} the studies of {self.days} days cost {dataset or 'the dataset'} eps "
                f"{shown(asked, decimals=2)} at delta {self.delta}, policy.epsilon_per_period is {self.epsilon}; wait, "
                "or raise it in the site file",
                code="policy",
                key="epsilon_per_period",
            )


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds")


@dataclass(frozen=True, kw_only=True)
class Reservation:
    """`most` is for how many runs the study is approved, None without a limit. It and the `period` are compared in the
    transaction that reserves, or runs that begin at the same moment would all be the first."""

    study: str
    title: str
    draws: tuple[Draw, ...]
    most: int | None = None
    period: Period | None = None


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Checked before the reservation, at the site, whatever the coordinator says.

    `approved` maps a study's hash to how many runs of it are allowed: without the number, a new run id would spend
    again. A policy that says nothing approves nothing; None approves every study, which only a simulation does.
    `epsilon_per_study` is a ceiling at `delta_per_study`, without which studies with Gaussian noise have none that is
    finite, in the ledger's own unit and relation: a study that states its loss under another one is converted upwards,
    as the ledger does it; `period` one for all studies of a dataset together, compared where the run is reserved.
    `submitters` are those whose studies may run, by the keys that the owner knows of them: a study names its own
    coordinator, and its word for who that is counts for nothing. `pinned` are the keys that the owner knows of others,
    by their names: a study that pins another key of one of them is refused, because whoever has that key would read and
    answer in its place. `unproven` allows methods that are not private as their authors claim, at the loss that does
    hold; where nothing is bounded against somebody, `records_may_leave` must allow it too. `joint_predictions` is how
    many new records a run may score jointly: each is an exact score, and of two parties each one's exact part of it.
    """

    protocols: tuple[str, ...] | None = None
    variants: tuple[str, ...] | None = None
    submitters: Mapping[str, PublicIdentity] | None = None
    pinned: Mapping[str, PublicIdentity] = field(default_factory=dict)
    epsilon_per_study: Decimal | float | None = None
    delta_per_study: Decimal | float = Decimal(0)
    period: Period | None = None
    disclosures: frozenset[str] = frozenset()
    joint_predictions: int = 0
    unproven: bool = False
    approved: Mapping[str, int] | None = field(default_factory=dict)

    def __post_init__(self) -> None:
        # As it was written: 0.1 in a site's file is a tenth, not the nearest double.
        for name in ("epsilon_per_study", "delta_per_study"):
            if isinstance(getattr(self, name), float | int):
                object.__setattr__(self, name, Decimal(repr(getattr(self, name))))

    def allowed(self, study: str) -> int | None:
        """For how many runs a study is approved here; None without a limit."""
        return None if self.approved is None else self.approved.get(study, 0)

    def check(
        self,
        *,
        study: str,
        runs: int,
        protocol: str,
        declaration: Declaration,
        party: str,
        who: Consortium,
        variant: str = "default",
        counted_in: tuple[Unit, Neighbours] | None = None,
    ) -> None:
        """`runs` is how many other runs of the study this site has begun; `counted_in` the unit and relation of its
        ledger, by default the study's. Raises Refused, naming the key."""
        allowed = self.allowed(study)
        if allowed is not None and runs >= allowed:
            raise Refused(
                f"refused: study {study[:12]} is approved for {_runs(allowed)} here and {runs} were begun; approve it: "
                f"comity site approve {study[:12]}",
                code="approval",
            )
        if self.submitters is not None and who.roster.get(COORDINATOR) not in self.submitters.values():
            named = ", ".join(self.submitters) or "nobody"
            raise Refused(
                f"refused: policy.submitters allows {named}, and the study pins a coordinator whose key is none of "
                "theirs; if you know it by another way, add it to the site file",
                code="policy",
                key="submitters",
            )
        self.check_pinned(who)
        for key, allows, runs_it in (("protocols", self.protocols, protocol), ("variants", self.variants, variant)):
            if allows is not None and runs_it not in allows:
                raise Refused(
                    f"refused: policy.{key} allows {', '.join(allows) or 'none'}, the study runs {runs_it}",
                    code="policy",
                    key=key,
                )
        self.check_unproven(declaration)
        self.check_disclosures(declaration, party, who)
        if self.epsilon_per_study is not None:
            spent = spent_by(declaration, party, who, runs=runs + 1, counted_in=counted_in)
            asked = spent.epsilon_at(Decimal(self.delta_per_study))
            if asked > self.epsilon_per_study:
                # Gaussian noise has no finite epsilon at delta 0.
                hint = "" if asked.is_finite() else "; policy.delta_per_study allows no such noise, raise that first"
                raise Refused(
                    f"refused: {_runs(runs + 1)} of the study ask eps {shown(asked, decimals=2)} at delta "
                    f"{self.delta_per_study}, policy.epsilon_per_study is {self.epsilon_per_study}{hint}",
                    code="policy",
                    key="epsilon_per_study",
                )

    def check_pinned(self, who: Consortium) -> None:
        """Refuses a study in which somebody whom the owner knows has another key."""
        if not self.pinned:
            return
        parties = {fold(party): party for party in who.parties}
        for name, key in self.pinned.items():
            party = parties.get(fold(name))
            if party is not None and who.roster.get(party) != key:
                raise Refused(
                    f"refused: the study pins another key of {party} than [pinned.{name}] of the site file; ask {name} "
                    "by another way which one is its own",
                    code="keys",
                    key=f"pinned.{name}",
                )

    def check_unproven(self, declaration: Declaration) -> None:
        """A method whose claim does not hold runs where the owner allows that, at the loss that does hold. Somebody
        against whom nothing is bounded may as well be handed the records."""
        if declaration.unproven and not self.unproven:
            raise Refused(
                f"refused: the study is {declaration.claim}. policy.unproven does not allow such a method",
                code="policy",
                key="unproven",
            )
        if declaration.exposed and _RECORDS not in self.disclosures:
            raise Refused(
                f"refused: no loss is bounded against {declaration.exposed}, which is as if records left; "
                f"policy.{_RECORDS} does not allow that",
                code="policy",
                key=_RECORDS,
            )

    def check_unattended(self, declaration: Declaration, who: Consortium, party: str) -> None:
        """Refuses to decide in the owner's place where terms alone do not say what is lost: a method that is not
        private as claimed, or noise that rests on parties whom the owner does not know."""
        if declaration.unproven:
            raise Refused(
                f"refused: the study is {declaration.claim}. It waits for you: comity site approve",
                code="policy",
                key="unproven",
            )
        self.check_known(who, party)

    def check_known(self, who: Consortium, party: str) -> None:
        """Refuses to decide in the owner's place about a study whose noise rests on parties that it does not know."""
        found = KnownParties.of(who, party, self.pinned)
        if found.missing_colluders:
            names = ", ".join(found.unknown[:_NAMED]) + (", ..." if len(found.unknown) > _NAMED else "")
            raise Refused(
                f"refused: {found.in_words()}; nothing shows that the others ({names}) add noise. The study assumes "
                f"privacy.colluders = {who.colluders}, and {found.needed_colluders} would cover them. Pin their keys "
                "([pinned.NAME]), or decide by hand: comity site approve",
                code="policy",
                key="pinned",
            )

    def check_disclosures(self, declaration: Declaration, party: str, who: Consortium) -> None:
        """Whatever leaves exactly as it is must be named in the policy, also where a part of the protocol sends it."""
        for release in declaration.disclosures(party, who):
            assert isinstance(release.protection, Disclosed)
            needed = release.protection.policy
            if needed == _JOINT:
                if not 0 < release.protection.most <= self.joint_predictions:
                    raise Refused(
                        f"refused: the run scores up to {release.protection.most} new records jointly and exactly, "
                        f"policy.joint_predictions is {self.joint_predictions}",
                        code="policy",
                        key=needed,
                    )
            elif needed not in self.disclosures:
                raise Refused(
                    f"refused: {release.name} leaves exactly as it is and policy.{needed} does not allow it",
                    code="policy",
                    key=needed,
                )


def _runs(number: int) -> str:
    return f"{number} run" if number == 1 else f"{number} runs"


_JOINT = "joint_predictions"
_RECORDS = "records_may_leave"
_NAMED = 5

SIMULATION = Policy(
    approved=None,
    unproven=True,
    disclosures=frozenset({"records_may_leave", "sizes_may_leave"}),
    joint_predictions=1 << 62,
)
"""One person holds all the data of a simulation: everything is allowed and labelled."""
