"""The running side of a party: answers asks. Same ask, same bytes; a different ask under the same key is refused."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from comity.crypto.sealing import Identity, PublicIdentity
from comity.entropy import fresh_seed
from comity.errors import BadInput, ComityError, Refused, Stopped
from comity.federation.agreement import Agreement
from comity.federation.declare.consortium import COORDINATOR, Consortium
from comity.federation.declare.declaration import Declaration
from comity.federation.declare.policy import Policy, Reservation
from comity.federation.evaluation.split import holdout_mask, only
from comity.federation.messages import heads
from comity.federation.messages.ask import Ask
from comity.federation.messages.codec import encode
from comity.federation.messages.delivered import Received, received
from comity.federation.messages.envelope import Digests, sign_reply, verify_ask
from comity.federation.messages.paths import ABANDON, BEGIN, END, READY, StepPath
from comity.federation.owner.life_site import LifeSite
from comity.federation.owner.running import Running
from comity.federation.owner.site import Site
from comity.federation.owner.standing import NONCE
from comity.federation.owner.store import Store
from comity.federation.owner.sum_site import SumSite
from comity.federation.owner.turns import Turns
from comity.federation.part import RUN, SUM
from comity.privacy.randomness import NoiseSource

if TYPE_CHECKING:
    from comity.data import LocalRecords

log = logging.getLogger("comity.site")

# What a step sees beyond what a step of a method may use.
_KINDS: Mapping[str, type[Site]] = {RUN: LifeSite, SUM: SumSite}


@dataclass(frozen=True)
class Answer:
    """The signed reply, and where it is a refusal the sentence for the owner, which does not cross. `run` and `path`
    say what was asked for, once it is known that the coordinator asked."""

    reply: bytes
    refusal: ComityError | None = None
    run: str = ""
    path: StepPath | None = None


class Host:
    """Data, keys, store, policy, noise and own model of one party. A deployment calls `answer` and nothing else.

    `agreed` is what the owner approved, `policy` its own terms: there is no host without either. `chance` gives the key
    by which records are set aside; only a simulation that is to be repeated gives any but fresh ones. By `digest` a run
    knows the records that it began with; a simulation, which has all records at once, needs none.
    """

    def __init__(
        self,
        agreed: Agreement,
        party: str,
        *,
        records: LocalRecords | Callable[[], LocalRecords],
        keys: Identity,
        store: Store,
        noise: NoiseSource,
        policy: Policy,
        local: Callable[..., Any] | None = None,
        chance: Callable[[], bytes] = fresh_seed,
        digest: Callable[[LocalRecords], str] | None = None,
    ) -> None:
        self.agreed = agreed
        self.party = party
        self._records = records
        self.keys = keys
        self.store = store
        self.noise = noise
        self.policy = policy
        self.local = local
        self.chance = chance
        self._digest = digest
        self._parts: tuple[bytes, LocalRecords, LocalRecords] | None = None
        self._turns = Turns()
        # What can't be kept as declared is found before anything is asked.
        _ = agreed.declaration, agreed.letters

    @property
    def who(self) -> Consortium:
        return self.agreed.consortium

    @property
    def declaration(self) -> Declaration:
        return self.agreed.declaration

    @cached_property
    def records(self) -> LocalRecords:
        if not callable(self._records):
            return self._records
        try:
            return self._records()
        except BadInput:
            raise
        except (Exception, SystemExit):
            # A driver's text may hold a path or a password, and its code is not one of ours.
            log.exception("%s: the records can't be read", self.party)
            raise BadInput("the records can't be read; the log of this site says why", code="stopped") from None

    @cached_property
    def records_digest(self) -> str | None:
        """Tells of private records: it stays in the owner's file, and is deleted with the run."""
        return None if self._digest is None else self._digest(self.records)

    def part_of_records(self, key: bytes, *, aside: bool) -> LocalRecords:
        """The records that this key sets aside, or the others."""
        # In a variable of its own: another run's thread may put its own parts there meanwhile.
        parts = self._parts
        if parts is None or parts[0] != key:
            terms, who, whole = self.who.evaluation, self.who, self.records
            assert terms is not None
            measuring = self.agreed.measuring
            aligned = measuring is not None and measuring.common == "identifiers"
            which = holdout_mask(whole, terms, key, unit=who.unit, neighbours=who.neighbours, aligned=aligned)
            parts = self._parts = (key, only(whole, ~which), only(whole, which))
        _, training, set_aside = parts
        return set_aside if aside else training

    def identity_of(self, party: str) -> PublicIdentity:
        identity = self.who.roster.get(party)
        if identity is None:
            raise Refused(f"{party!r} has no pinned key in the roster", code="stranger")
        return identity

    def permit_run(self, run: str) -> None:
        self.permit(self.store.runs_of(self.agreed.study, other_than=run))

    def permit(self, runs: int) -> None:
        """Refuse a run that the owner's terms rule out, after so many others of the study."""
        agreed = self.agreed
        self.policy.check(
            study=agreed.study,
            runs=runs,
            protocol=agreed.protocol.name,
            variant=agreed.protocol.variant,
            declaration=agreed.declaration,
            party=self.party,
            consortium=agreed.consortium,
            counted_in=None if self.policy.epsilon_per_study is None else self.store.counted_in(),
        )
        for mount in (*agreed.protocol.parts, *agreed.measuring_mounts):
            self.policy.check_disclosures(agreed.declared(mount), self.party, agreed.consortium)

    def received(self, run: str) -> Received:
        """What this party has of a run: what was released to it, and what its own steps left with it."""
        return received(self.store.delivered(run), self.declaration)

    def answer(self, raw: bytes) -> bytes:
        """The signed reply to an ask that the coordinator signed. It never raises: a refusal crosses as a code and a
        key, whatever else goes wrong as "stopped"; the sentence stays in the log of this site."""
        return self.answered(raw).reply

    def answered(self, raw: bytes, digests: Digests | None = None) -> Answer:
        """`answer`, with the sentence of a refusal for whoever is at home here. `digests` are those of `raw`, where
        they are known."""
        digests = digests or Digests.of_signed(raw)
        refusal: ComityError | None = None
        ask: Ask | None = None
        try:
            ask = Ask.parse(verify_ask(self.identity_of(COORDINATOR), self.party, raw, digests))
            reply = self._reply(ask, digests)
        except ComityError as error:
            refusal = error
            log.warning("%s refused: %s", self.party, error)
        except (Exception, SystemExit):
            refusal = Refused(f"{self.party} failed; see the log of this site", code="stopped")
            log.exception("%s failed", self.party)
        if refusal is not None:
            # Whether records could be read is a fact about the data: it looks like any other stop. A full disk is no
            # decision of the owner's: the run goes on once that is put right.
            stopped = isinstance(refusal, BadInput | Stopped) or refusal.code == "ledger"
            code = "stopped" if stopped else refusal.code
            reply = encode({"refused": code, "key": "" if code == "stopped" else refusal.key})
        signed = sign_reply(self.keys, self.party, raw, reply, digests)
        return Answer(signed, refusal) if ask is None else Answer(signed, refusal, ask.run, ask.path)

    def _reply(self, ask: Ask, digests: Digests) -> bytes:
        if ask.study != self.agreed.study:
            raise Refused(f"study {ask.study[:12]!r} is not the one approved here", code="study")
        with self._turns.of(ask.run):
            standing = self.store.standing(ask.run, ask.path)
            bound = standing.nonce
            if bound is not None and bound != ask.nonce:
                raise Refused(f"run {ask.run} was begun by another journal", code="journal", key="run")
            stored = standing.stored(digests.body)
            if stored is not None:
                return stored
            self._look_at(ask.seen)
            if ask.path not in (READY, BEGIN, ABANDON):
                standing.require_begun(ask.study)
            return self._step(ask, digests.body)

    def _look_at(self, seen: list[heads.Head]) -> None:
        """Compare the heads that others saw of this ledger with what it knows; one that it lacks freezes it."""
        for head in seen:
            self.store.look_at(head, partial(heads.verify, self.keys.public, self.party, head))

    def _step(self, ask: Ask, digest: bytes) -> bytes:
        agreed, mount = self.agreed, ask.path.mount
        function, spec = agreed.step(ask.path)
        site = _KINDS.get(mount, Site)(self, ask.run, ask.path, spec.sends)
        if self._digest is not None and ask.path not in (READY, BEGIN, END, ABANDON):
            site.require_same_records()
        running = Running(agreed, site, function, spec, agreed.declared(mount))
        given = running.given(ask.values)
        if ask.path == BEGIN:
            # From here on the run belongs to the journal with this nonce.
            site.effects.state[NONCE] = ask.nonce
        for letter in ask.mail:
            site.open(letter)
        if spec.sends is not None:
            # Records that can't be read at all are found here: a stop that its owner must see, whatever the bound.
            _ = self.records
        reply = running.reply(running.outcome(given))
        if site.effects.look_ahead:
            return self.store.looked_ahead(self.booking(), ask.run, reply, keys=self.keys, party=self.party)
        return self.store.commit(
            agreed.study,
            ask.run,
            ask.path,
            digest,
            reply,
            site.effects,
            self.booking() if site.effects.reserve else None,
            keys=self.keys,
            party=self.party,
        )

    def booking(self) -> Reservation:
        """What a run of the study reserves here, and within what terms."""
        agreed = self.agreed
        return Reservation(
            study=agreed.study,
            title=agreed.title,
            draws=tuple(agreed.declaration.draws(self.party, self.who)),
            max_runs=self.policy.allowed(agreed.study),
            period=self.policy.period,
        )
