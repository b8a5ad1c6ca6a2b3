"""A party's host: it answers the asks of one study. The same ask gets the same bytes, and another ask under the same
path is refused."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from threading import Lock
from typing import TYPE_CHECKING, Any

from comity.crypto.sealing import Identity, PublicIdentity
from comity.entropy import fresh_seed
from comity.errors import BadInput, ComityError, Refused, Stopped
from comity.federation.agreement import Agreement
from comity.federation.declare.consortium import COORDINATOR, Consortium
from comity.federation.declare.declaration import Declaration
from comity.federation.declare.policy import Policy, Reservation
from comity.federation.evaluation.holdout import holdout_mask, select_records
from comity.federation.messages import heads
from comity.federation.messages.ask import ABANDON, BEGIN, END, READY, Ask, StepPath
from comity.federation.messages.codec import encode
from comity.federation.messages.received import Received, read_received
from comity.federation.messages.signatures import Digests, sign_reply, verify_ask
from comity.federation.owner.lifecycle import LifecycleSite
from comity.federation.owner.prepared_rows import PreparedRows
from comity.federation.owner.site import Site
from comity.federation.owner.step_execution import StepExecution
from comity.federation.owner.store import NONCE, Store
from comity.federation.part import RUN
from comity.privacy.randomness import NoiseSource

if TYPE_CHECKING:
    from comity.data import LocalRecords

log = logging.getLogger("comity.site")


@dataclass(frozen=True)
class Answer:
    """The signed reply and, where it is a refusal, the sentence for the owner, which does not leave the site. `run` and
    `path` are those of the ask, if the coordinator signed it."""

    reply: bytes
    refusal: ComityError | None = None
    run: str = ""
    path: StepPath | None = None


class RunLocks:
    """One lock per run: a host answers one ask of a run at a time. A repeated ask waits for the stored reply, and the
    second of two asks sees what the first one kept: nothing is given out twice."""

    def __init__(self) -> None:
        self._guard = Lock()
        self._locks: dict[str, tuple[Lock, int]] = {}

    @contextmanager
    def hold(self, run: str) -> Iterator[None]:
        with self._guard:
            lock, waiting = self._locks.get(run, (Lock(), 0))
            self._locks[run] = lock, waiting + 1
        try:
            with lock:
                yield
        finally:
            with self._guard:
                lock, waiting = self._locks.pop(run)
                if waiting > 1:
                    self._locks[run] = lock, waiting - 1


class Host:
    """The records, keys, store, policy, noise and own model of one party. A deployment calls `answer` and nothing else.

    `agreed` is what the owner approved, `policy` its own terms; every host has both. `holdout_key` makes the key that
    decides which records a run holds out: a fresh one, except in a simulation that is to be repeated. `digest` lets a
    run recognise the records that it began with; a simulation, which holds all records in memory, needs none.
    """

    def __init__(
        self,
        agreement: Agreement,
        party: str,
        *,
        records: LocalRecords | Callable[[], LocalRecords],
        keys: Identity,
        store: Store,
        noise: NoiseSource,
        policy: Policy,
        local: Callable[..., Any] | None = None,
        holdout_key: Callable[[], bytes] = fresh_seed,
        digest: Callable[[LocalRecords], str] | None = None,
    ) -> None:
        self.agreement = agreement
        self.party = party
        self._records = records
        self.keys = keys
        self.store = store
        self.noise = noise
        self.policy = policy
        self.local = local
        self.holdout_key = holdout_key
        self._digest = digest
        self._parts: tuple[bytes, LocalRecords, LocalRecords] | None = None
        self._run_key: tuple[bytes, Identity] | None = None
        self.prepared = PreparedRows()
        self._locks = RunLocks()
        # A declaration that can't be kept raises here, before the first ask.
        _ = agreement.declaration, agreement.letters

    @property
    def consortium(self) -> Consortium:
        return self.agreement.consortium

    @property
    def declaration(self) -> Declaration:
        return self.agreement.declaration

    @cached_property
    def records(self) -> LocalRecords:
        if not callable(self._records):
            return self._records
        try:
            return self._records()
        except BadInput:
            raise
        except (Exception, SystemExit):
            # A driver's text may hold a path or a password.
            log.exception("%s: the records can't be read", self.party)
            raise BadInput("the records can't be read; the log of this site says why", code="stopped") from None

    @cached_property
    def records_digest(self) -> str | None:
        """A digest of private records: it stays in the owner's file and is deleted with the run."""
        return None if self._digest is None else self._digest(self.records)

    def part_of_records(self, key: bytes, *, holdout: bool) -> LocalRecords:
        """The records that this key holds out, or the others."""
        # A local variable: the thread of another run may replace `_parts` meanwhile.
        parts = self._parts
        if parts is None or parts[0] != key:
            consortium, whole = self.consortium, self.records
            terms = consortium.evaluation
            assert terms is not None
            model_evaluation = self.agreement.model_evaluation
            aligned = model_evaluation is not None and model_evaluation.common == "identifiers"
            which = holdout_mask(
                whole, terms, key, unit=consortium.unit, neighbours=consortium.neighbours, aligned=aligned
            )
            parts = self._parts = (key, select_records(whole, ~which), select_records(whole, which))
        _, training, held_out = parts
        return held_out if holdout else training

    def run_key(self, secret: bytes) -> Identity:
        """This party's key of the run with this secret. The last one stays expanded until its run ends, because
        expanding a key takes longer than opening a letter."""
        # A local variable: the thread of another run may replace `_run_key` meanwhile.
        known = self._run_key
        if known is None or known[0] != secret:
            known = self._run_key = (secret, Identity(secret))
        return known[1]

    def identity_of(self, party: str) -> PublicIdentity:
        identity = self.consortium.roster.get(party)
        if identity is None:
            raise Refused(f"{party!r} has no pinned key in the roster", code="stranger")
        return identity

    def permit_run(self, run: str) -> None:
        self.permit(self.store.runs_of(self.agreement.study, other_than=run))

    def permit(self, runs: int) -> None:
        """Refuse a run that the owner's policy rules out, after so many other runs of the study."""
        agreement = self.agreement
        self.policy.check(
            study=agreement.study,
            runs=runs,
            protocol=agreement.protocol.name,
            variant=agreement.protocol.variant,
            declaration=agreement.declaration,
            party=self.party,
            consortium=agreement.consortium,
            counted_in=None if self.policy.epsilon_per_study is None else self.store.counted_in(),
        )
        for mount in (*agreement.protocol.parts, *agreement.evaluation_mounts):
            self.policy.check_disclosures(agreement.declared(mount), self.party, agreement.consortium)

    def received(self, run: str) -> Received:
        """What this party has of a run: what was released to it, and what its own steps delivered."""
        return read_received(self.store.delivered(run), self.declaration)

    def answer(self, raw: bytes, digests: Digests | None = None) -> Answer:
        """The signed reply to an ask. It never raises: a refusal leaves the site as a code and a key, any other error
        as "stopped". The refusal's sentence is for the site's operator. `digests` are those of `raw`, if known."""
        digests = digests or Digests.of_signed(raw)
        refusal: ComityError | None = None
        ask: Ask | None = None
        try:
            ask = Ask.parse(verify_ask(self.identity_of(COORDINATOR), self.party, raw, digests))
            reply, sent = self._reply(ask, digests)
        except ComityError as error:
            refusal = error
            log.warning("%s refused: %s", self.party, error)
        except (Exception, SystemExit):
            refusal = Refused(f"{self.party} failed; see the log of this site", code="stopped")
            log.exception("%s failed", self.party)
        if refusal is not None:
            # Whether records can be read is a fact about the data: it looks like any other stop. So does a full disk,
            # which is no decision of the owner: the run is resumed once there is space.
            stopped = isinstance(refusal, BadInput | Stopped) or refusal.code == "ledger"
            code = "stopped" if stopped else refusal.code
            reply = encode({"refused": code, "key": "" if code == "stopped" else refusal.key})
            sent = None
        signed = sign_reply(self.keys, self.party, raw, reply, digests, sent)
        return Answer(signed, refusal) if ask is None else Answer(signed, refusal, ask.run, ask.path)

    def _reply(self, ask: Ask, digests: Digests) -> tuple[bytes, bytes | None]:
        """The reply, and its SHA-256 where that is known."""
        if ask.study != self.agreement.study:
            raise Refused(f"study {ask.study[:12]!r} is not the one approved here", code="study")
        with self._locks.hold(ask.run):
            status = self.store.run_status(ask.run, ask.path)
            bound = status.nonce
            if bound is not None and bound != ask.nonce:
                raise Refused(f"run {ask.run} was begun by another journal", code="journal", key="run")
            stored = self.store.answered(status, digests.body)
            if stored is not None:
                return stored, None
            self._check_heads(ask.seen)
            if ask.path not in (READY, BEGIN, ABANDON):
                status.require_begun(ask.study)
            return self._step(ask, digests.body)

    def _check_heads(self, seen: list[heads.Head]) -> None:
        """Compare the heads that others saw of this ledger with its own; one that it lacks freezes it."""
        for head in seen:
            self.store.check_head(head, partial(heads.verify, self.keys.public, self.party, head))

    def _step(self, ask: Ask, digest: bytes) -> tuple[bytes, bytes | None]:
        agreement, mount = self.agreement, ask.path.mount
        function, spec = agreement.step(ask.path)
        site = Site(self, ask.run, ask.path, spec.sends)
        if self._digest is not None and ask.path not in (READY, BEGIN, END, ABANDON):
            site.require_same_records()
        view = LifecycleSite(self, site) if mount == RUN else site
        execution = StepExecution(agreement, site, partial(function, view), spec, agreement.declared(mount))
        values = execution.open_values(ask.values)
        if ask.path == BEGIN:
            # From now on the run belongs to the journal with this nonce.
            site.effects.state[NONCE] = ask.nonce
        for letter in ask.mail:
            site.mailbox.open(letter)
        if spec.sends is not None:
            # Records that can't be read stop the step here, whatever the bound: the owner must see it.
            _ = self.records
        reply = execution.reply(execution.run(values))
        if ask.path in (END, ABANDON):
            self.prepared.clear()
            self._run_key = None
        if site.effects.dry_run:
            return self.store.dry_run(self.reservation(), ask.run, reply, keys=self.keys, party=self.party), None
        return self.store.commit(
            agreement.study,
            ask.run,
            ask.path,
            digest,
            reply,
            site.effects,
            self.reservation() if site.effects.reserve else None,
            keys=self.keys,
            party=self.party,
        )

    def reservation(self) -> Reservation:
        """What a run of the study reserves here, and within which terms."""
        agreement = self.agreement
        return Reservation(
            study=agreement.study,
            title=agreement.title,
            draws=tuple(agreement.declaration.draws(self.party, self.consortium)),
            max_runs=self.policy.allowed(agreement.study),
            period=self.policy.period,
        )
