"""An owner's terms: which studies may run at its site, at what cost, and with which parties it knows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Literal

from comity.crypto.sealing import PublicIdentity
from comity.errors import Refused
from comity.federation.declare.consortium import COORDINATOR, Consortium, fold
from comity.federation.declare.declaration import Declaration
from comity.federation.declare.payers import spent_by
from comity.federation.declare.protection import Disclosed, Summed
from comity.privacy.ledger import Draw
from comity.privacy.loss import format_up
from comity.privacy.unit import Neighbours, Unit

if TYPE_CHECKING:
    from comity.privacy.ledger import Transaction

Standing = Literal["you", "pinned", "not pinned"]


@dataclass(frozen=True)
class PartyIdentity:
    """A party as another owner sees it. `fingerprint` is that of its key in the study, empty where there is none."""

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
    def of(cls, consortium: Consortium, party: str, pinned: Mapping[str, PublicIdentity]) -> KnownParties:
        """A party is known if its key in the study is the one that the owner pinned under its name."""
        keys = {fold(name): key for name, key in pinned.items()}

        def seen(name: str) -> PartyIdentity:
            key = consortium.roster.get(name)
            known = key is not None and keys.get(fold(name)) == key
            standing: Standing = "you" if name == party else "pinned" if known else "not pinned"
            return PartyIdentity(name, "" if key is None else key.fingerprint, standing)

        return cls(tuple(seen(name) for name in consortium.parties), consortium.colluders)

    @property
    def known(self) -> tuple[str, ...]:
        """Other parties that the owner knows."""
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
        """How many more colluders the study would have to assume; 0 if its loss holds as declared."""
        return max(0, self.needed_colluders - self.colluders)

    def in_words(self) -> str:
        others = len(self.parties) - 1
        if not others:
            return "you are the only party"
        return f"you know {len(self.known)} of {others} other {'party' if others == 1 else 'parties'}"

    def noise_left(self, declaration: Declaration, consortium: Consortium, party: str) -> float:
        """The share of the variance of shared noise that is left, in the worst of this party's releases, if unknown
        parties add none and one known reader subtracts its own part; 1 where noise is as declared."""
        shares = [1.0]
        for release in declaration.releases:
            if not isinstance(release.protection, Summed) or not consortium.includes(release.source, party):
                continue
            over = release.summed_over(consortium)
            gone = sum(over.knows(name) for name in self.unknown)
            reader = any(over.knows(name) for name in self.known)
            shares.append(max(1, over.survivors - gone - reader) / release.parts(consortium))
        return min(shares)


@dataclass(frozen=True, kw_only=True)
class Period:
    """A ceiling on what all studies together spend of one dataset within so many days, by the owner's clock.

    The ledger's grant limits the total for ever; the period limits the rate. A run that was paid for while the clock
    was behind still counts; while the clock is ahead, old runs stop counting too early.
    """

    epsilon: Decimal
    delta: Decimal
    days: int
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)

    def check(self, transaction: Transaction, dataset: str | None, title: str) -> None:
        """Refuse a run whose reservation, already in this transaction, exceeds the ceiling."""
        now = self.clock().astimezone(UTC)
        since = now - timedelta(days=self.days)
        asked = transaction.spent_since(_text(since), now=_text(now), dataset=dataset).epsilon_at(self.delta)
        if asked > self.epsilon:
            raise Refused(
                f"refused: with {title}, the studies of the last {self.days} days cost {dataset or 'the dataset'} eps "
                f"{format_up(asked, decimals=2)} at delta {self.delta}, and policy.epsilon_per_period is "
                f"{self.epsilon}; wait, or raise it in the site file",
                code="policy",
                key="epsilon_per_period",
            )


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds")


@dataclass(frozen=True, kw_only=True)
class Reservation:
    """What a run reserves at one owner, for a dry run and for a real one.

    `max_runs` is how many runs of the study are approved, None without a limit. It and the `period` are checked in the
    transaction that reserves; otherwise runs that begin at the same moment would all count as the first."""

    study: str
    title: str
    draws: tuple[Draw, ...]
    max_runs: int | None = None
    period: Period | None = None


@dataclass(frozen=True, kw_only=True)
class Policy:
    """The site checks it before it reserves anything, whatever the coordinator says.

    `approved`           How many runs of each study are allowed, by the study's hash. Without the number, a new run id
                         would spend again. Empty approves nothing; None approves every study, for simulations only.
    `epsilon_per_study`  A ceiling at `delta_per_study` (Gaussian noise has no finite epsilon at delta 0), in the
                         ledger's unit and relation; a loss stated under another one is converted upwards.
    `period`             A ceiling for all studies of a dataset together, checked when the run is reserved.
    `submitters`         Coordinators whose studies may run, by keys that the owner knows. The name that a study gives
                         its coordinator does not count.
    `pinned`             Keys of other parties that the owner knows. A study with another key for one of them is
                         refused: the holder of that key would read and answer in its place.
    `unproven`           Allows methods that are not private as their authors claim, at the loss that does hold. If
                         nothing is bounded against someone, `records_may_leave` must allow it too.
    `drafts`             Allows a schema with bounds that were drafted from records, for simulations only: a site has no
                         key for it. A sensitivity that rests on such a bound proves nothing.
    `joint_predictions`  How many new records a run may score jointly. Each score is exact, and so is each of two
                         parties' part of it.
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
    drafts: bool = False
    approved: Mapping[str, int] | None = field(default_factory=dict)

    def __post_init__(self) -> None:
        # 0.1 in a site file is a tenth, not the nearest double.
        for name in ("epsilon_per_study", "delta_per_study"):
            if isinstance(getattr(self, name), float | int):
                object.__setattr__(self, name, Decimal(repr(getattr(self, name))))

    def allowed(self, study: str) -> int | None:
        """How many runs of a study are approved here; None without a limit."""
        return None if self.approved is None else self.approved.get(study, 0)

    def check(
        self,
        *,
        study: str,
        runs: int,
        protocol: str,
        declaration: Declaration,
        party: str,
        consortium: Consortium,
        variant: str = "default",
        counted_in: tuple[Unit, Neighbours] | None = None,
    ) -> None:
        """Refuse a run that these terms rule out, naming the key. `runs` is how many other runs of the study this site
        has begun; `counted_in` the unit and relation of its ledger, by default the study's."""
        allowed = self.allowed(study)
        if allowed is not None and runs >= allowed:
            raise Refused(
                f"refused: study {study[:12]} is approved for {_runs(allowed)} here, and {runs} have begun; approve "
                f"more: comity site approve {study[:12]}",
                code="approval",
            )
        if self.submitters is not None and consortium.roster.get(COORDINATOR) not in self.submitters.values():
            named = ", ".join(self.submitters) or "nobody"
            raise Refused(
                f"refused: policy.submitters allows {named}, but the study's coordinator has another key; if you have "
                "verified that key, add it to the site file",
                code="policy",
                key="submitters",
            )
        self.check_pinned(consortium)
        for key, allows, runs_it in (("protocols", self.protocols, protocol), ("variants", self.variants, variant)):
            if allows is not None and runs_it not in allows:
                raise Refused(
                    f"refused: policy.{key} allows {', '.join(allows) or 'none'}, but the study runs {runs_it}",
                    code="policy",
                    key=key,
                )
        self.check_drafts(consortium)
        self.check_unproven(declaration)
        self.check_disclosures(declaration, party, consortium)
        if self.epsilon_per_study is not None:
            spent = spent_by(declaration, party, consortium, runs=runs + 1, counted_in=counted_in)
            asked = spent.epsilon_at(Decimal(self.delta_per_study))
            if asked > self.epsilon_per_study:
                # Gaussian noise has no finite epsilon at delta 0.
                hint = "" if asked.is_finite() else "; its noise needs policy.delta_per_study above 0: raise that first"
                raise Refused(
                    f"refused: {_runs(runs + 1)} of the study cost eps {format_up(asked, decimals=2)} at delta "
                    f"{self.delta_per_study}, and policy.epsilon_per_study is {self.epsilon_per_study}{hint}",
                    code="policy",
                    key="epsilon_per_study",
                )

    def check_pinned(self, consortium: Consortium) -> None:
        """Refuse a study in which a party that the owner knows has another key."""
        if not self.pinned:
            return
        parties = {fold(party): party for party in consortium.parties}
        for name, key in self.pinned.items():
            party = parties.get(fold(name))
            if party is not None and consortium.roster.get(party) != key:
                raise Refused(
                    f"refused: the study pins another key of {party} than [pinned.{name}] of the site file; ask {name} "
                    "directly which key is theirs",
                    code="keys",
                    key=f"pinned.{name}",
                )

    def check_drafts(self, consortium: Consortium) -> None:
        """Refuse a schema whose bounds its author has not replaced by public knowledge."""
        drafted = () if consortium.schema is None else consortium.schema.drafts
        if drafted and not self.drafts:
            raise Refused(
                f"refused: the study's schema marks {name_drafts(drafted)} as a draft: these bounds may come from "
                "private records, and then the stated loss proves nothing; its author must replace them by public "
                "knowledge and remove draft = true",
                code="policy",
                key="schema",
            )

    def check_unproven(self, declaration: Declaration) -> None:
        """Refuse a method whose claim does not hold, unless the owner allows it at the loss that does hold. Someone
        against whom nothing is bounded might as well receive the records."""
        if declaration.unproven and not self.unproven:
            raise Refused(
                f"refused: the study is {declaration.claim}. policy.unproven does not allow this",
                code="policy",
                key="unproven",
            )
        if declaration.exposed and _RECORDS not in self.disclosures:
            raise Refused(
                f"refused: no loss is bounded against {declaration.exposed}, as if records left; policy.{_RECORDS} "
                "does not allow that",
                code="policy",
                key=_RECORDS,
            )

    def check_unattended(self, declaration: Declaration, consortium: Consortium, party: str) -> None:
        """Refuse to approve without the owner where the terms alone do not say what is lost: a method that is not
        private as claimed, or noise that depends on parties that the owner does not know."""
        if declaration.unproven:
            raise Refused(
                f"refused: the study is {declaration.claim}. It waits for you: comity site approve",
                code="policy",
                key="unproven",
            )
        self.check_known(consortium, party)

    def check_known(self, consortium: Consortium, party: str) -> None:
        """Refuse to approve without the owner a study whose noise depends on parties that the owner does not know."""
        found = KnownParties.of(consortium, party, self.pinned)
        if found.missing_colluders:
            names = ", ".join(found.unknown[:_NAMED]) + (", ..." if len(found.unknown) > _NAMED else "")
            raise Refused(
                f"refused: {found.in_words()}; the others ({names}) might add no noise. The study assumes "
                f"privacy.colluders = {consortium.colluders}; {found.needed_colluders} would cover them. Pin their "
                "keys ([pinned.NAME]), or decide yourself: comity site approve",
                code="policy",
                key="pinned",
            )

    def check_disclosures(self, declaration: Declaration, party: str, consortium: Consortium) -> None:
        """Refuse an exact value that the policy does not name, also where a part of the protocol sends it."""
        for release in declaration.disclosures(party, consortium):
            assert isinstance(release.protection, Disclosed)
            needed = release.protection.policy
            if needed == _JOINT:
                if not 0 < release.protection.most <= self.joint_predictions:
                    raise Refused(
                        f"refused: the run scores up to {release.protection.most} new records jointly and exactly, and "
                        f"policy.joint_predictions is {self.joint_predictions}",
                        code="policy",
                        key=needed,
                    )
            elif needed not in self.disclosures:
                raise Refused(
                    f"refused: {release.name} leaves exactly as it is, and policy.{needed} does not allow it",
                    code="policy",
                    key=needed,
                )


def name_drafts(names: Sequence[str]) -> str:
    """The first few columns whose bounds are a draft, and how many more there are."""
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _runs(number: int) -> str:
    return f"{number} run" if number == 1 else f"{number} runs"


_JOINT = "joint_predictions"
_RECORDS = "records_may_leave"
_NAMED = 5

SIMULATION = Policy(
    approved=None,
    unproven=True,
    drafts=True,
    disclosures=frozenset({"records_may_leave", "sizes_may_leave"}),
    joint_predictions=1 << 62,
)
"""In a simulation one person holds all the data: everything is allowed, and labelled."""
