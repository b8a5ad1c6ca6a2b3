"""Answers for an owner: what the owner approved, and nothing else. Any transport can bring asks and carry replies.

Sealed     Asks and packed studies arrive sealed to this site, and replies leave sealed to the sender
           (`comity.federation.messages.sealed_channel`). The service refuses anything that is not sealed.
Current    The service checks the site file and the owner's decisions before every ask, so a decision counts from the
           next ask on. While the site file cannot be used, the service answers nothing: its terms may be narrower now.
Transport  A transport registers the scheme of its addresses in `ENDPOINTS`. The local channel needs none: it calls the
           service as it calls a host.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from threading import Lock, RLock
from typing import Protocol

from comity.errors import BadInput, ComityError, Malformed, Refused, Stopped, StudyError
from comity.federation.coordinator.replies import plain
from comity.federation.messages.ask import END, study_of
from comity.federation.messages.codec import encode
from comity.federation.messages.sealed_channel import open_ask
from comity.federation.messages.signatures import sign_reply
from comity.federation.owner.host import Answer, Host
from comity.federation.owner.registry import Approval, Registry
from comity.files import locked, read_file_state
from comity.site.approval import choose_dataset, host_for, preview_approval
from comity.site.decisions import MAX_REASON, append_decision
from comity.site.inbox import WITHIN_POLICY, Arrival, Inbox
from comity.site.results import are_written, is_scored, score_results, write_results
from comity.site.site_file import SiteFile
from comity.site.status import Refusals, list_runs
from comity.study.study import Study

log = logging.getLogger("comity.site")
DECLINED = "declined"
"""The code that tells a coordinator that the owner refused its study; with it goes the owner's reason."""
RETRY_SECONDS = 5.0
"""How often a closed site tries to open again while its files stay the same."""


class SiteService:
    """Answers each message that reaches a site, on any thread. `answer` never raises for what arrives."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._lock = RLock()
        self._receiving = Lock()
        self._state: tuple[object, ...] | None = None
        # Why the site is closed, logged once, and when it last tried to open.
        self._closed_for, self._tried = "", 0.0
        self._served: dict[str, tuple[Approval, Host]] = {}
        # A site file that is wrong from the start raises here, in front of its owner.
        self._open()
        self.refresh()

    @property
    def party(self) -> str:
        return self.site.party

    @property
    def studies(self) -> tuple[str, ...]:
        """The hashes of the studies that this site serves."""
        return self._registry.studies

    def answer(self, raw: bytes) -> Answer:
        """The sealed reply to a sealed ask. A refusal's sentence goes to the owner and is recorded for it."""
        began = time.monotonic()
        self.refresh()
        keys, party = self._owner.keys, self.site.party
        try:
            ask = open_ask(keys, party, raw)
        except Malformed as error:
            # There is no key to seal this reply to; it reveals nothing but a code.
            self.record_refusal(error)
            return Answer(sign_reply(keys, party, raw, _verdict(error)), error)
        if self._is_closed:
            # This decides about no study: open runs continue once the site file works again.
            closed = self._closed_refusal()
            return Answer(ask.seal_reply(sign_reply(keys, party, ask.raw, _verdict(closed))), closed)
        answer = self._registry.answer(ask.raw)
        study = study_of(ask.raw)
        self._log_answer(answer, study, time.monotonic() - began)
        if answer.refusal is not None:
            self._record(answer.refusal, study, answer.run)
        elif answer.path == END and study in self._served:
            self._deliver(self._served[study][1], answer.run)
        return replace(answer, reply=ask.seal_reply(answer.reply))

    def receive(self, raw: bytes) -> bytes:
        """The sealed and signed reply to a sealed pack: that it arrived, or the code of a refusal, whose sentence is
        recorded here. It never raises."""
        self.refresh()
        keys, party = self._owner.keys, self.site.party
        try:
            box = open_ask(keys, party, raw, "study")
        except Malformed as error:
            self.record_refusal(error)
            return sign_reply(keys, party, raw, _verdict(error))
        refusal: ComityError | None = None
        try:
            decision = self.take_in(box.raw).decision
            if decision is not None and decision.decision == "refused":
                # Only the study's own coordinator reads why: its signature on the pack was verified.
                declined = encode({"refused": DECLINED, "key": "", "why": decision.why[:MAX_REASON]})
                return box.seal_reply(sign_reply(keys, party, box.raw, declined))
        except ComityError as error:
            refusal = error
            log.warning("%s refused a packed study: %s", party, error)
        except Exception:
            refusal = Stopped("a packed study could not be stored; the log of this site says why")
            log.exception("%s: a packed study could not be stored; its sender may submit it again", party)
            self._record(refusal)
        return box.seal_reply(sign_reply(keys, party, box.raw, _verdict(refusal)))

    def take_in(self, pack: bytes) -> Arrival:
        """Take in a packed study. It waits for its owner, unless the site file leaves the decision to the policy. A
        joint prediction always waits for the owner: each one reveals as many exact scores as the policy allows a run.
        A refusal is recorded for the owner and raised."""
        # Its submitter decides, within limits, how long reading a pack takes; no ask waits for it.
        with self._receiving:
            with self._lock:
                self.refresh()
                if self._is_closed:
                    raise self._closed_refusal()
                inbox, site, key = self.inbox, self.site, self._owner.keys.public
            try:
                arrival = inbox.receive(pack, party=site.party, key=key, policy=site.policy)
            except ComityError as error:
                self._record(error)
                raise
            if site.approval == "within-policy" and arrival.decision is None:
                study = inbox.study(arrival.study)
                if study.prediction is None:
                    self._decide_within_policy(arrival, study)
            return inbox.find(arrival.study)

    def refresh(self, *, parsed: Study | None = None) -> None:
        """Serve what is approved now. `parsed` is a study that the caller has already read from its files."""
        with self._lock:
            state = (read_file_state(self._path), self.inbox.decision_states())
            if state == self._state and not self._may_try_again():
                return
            try:
                if self._is_closed or state[0] != self._opened:
                    self._close()
                    self._open()
                self._sync_hosts(parsed)
            except ComityError as error:
                self._close()
                if str(error) != self._closed_for:
                    log.error("%s answers nothing until this is corrected: %s", self.site.party, error)
                    self._record(error)
                self._closed_for = str(error)
            else:
                self._closed_for = ""
            self._state, self._tried = state, time.monotonic()

    def _may_try_again(self) -> bool:
        """A missing ledger or folder may be back, which does not show in the site file."""
        return self._is_closed and time.monotonic() - self._tried > RETRY_SECONDS

    def _open(self) -> None:
        # Taken before the file is read: if the file changes meanwhile, it is read again.
        self._opened = read_file_state(self._path)
        self.site = SiteFile.load(self._path)
        self._owner = self.site.owner()
        self.inbox, self.refusals = Inbox(self.site.home), Refusals(self.site.home)
        self._registry = Registry(self.site.party, self._owner.keys)
        self._is_closed = False

    def _close(self) -> None:
        """Serve nothing until the site file can be read: its terms may be narrower now."""
        self._is_closed = True
        for study in list(self._served):
            self._withdraw(study)

    def _closed_refusal(self) -> Refused:
        where = self.site.where
        return Refused(f"{where} can't be used; see what is wrong: comity doctor --site {where}", code="stopped")

    def _sync_hosts(self, parsed: Study | None) -> None:
        arrivals = [one for one in self.inbox.arrivals() if one.approval is not None]
        approved = {one.study: one.approval for one in arrivals if one.approval is not None}
        by_policy = {one.study for one in arrivals if one.decision is not None and one.decision.why == WITHIN_POLICY}
        for study, (approval, _) in list(self._served.items()):
            if approved.get(study) != approval:
                self._withdraw(study)
        for study, approval in approved.items():
            if study not in self._served:
                known = parsed if parsed is not None and parsed.hash == study else None
                self._start_host(study, approval, known, by_policy=study in by_policy)

    def _start_host(self, study: str, approval: Approval, parsed: Study | None, *, by_policy: bool) -> None:
        try:
            parsed = self.inbox.study(study) if parsed is None else parsed
            if by_policy:
                # The site file may no longer pin the keys that it pinned when the policy approved the study.
                self._check_unattended(parsed)
            host = host_for(self.site, self._owner, parsed, approval)
            self._registry.admit(host)
        except ComityError as error:
            log.error("%s can't serve the approved study %s: %s", self.site.party, study[:12], error)
            self._record(error, study, "")
            return
        self._served[study] = approval, host
        for run in list_runs(self._owner.ledger):
            # A process may have ended between the end of a run and the writing of its results.
            home = self.site.home
            complete = are_written(home, study, run.run) and is_scored(home, study, run.run)
            if run.is_of(study) and run.state == "closed" and not complete:
                self._deliver(host, run.run)

    def _withdraw(self, study: str) -> None:
        del self._served[study]
        self._registry.withdraw(study, wait=False)

    def _decide_within_policy(self, arrival: Arrival, study: Study) -> None:
        """Approve a study that the policy allows. This reads all records, so no ask waits for it; if the terms change
        meanwhile, it starts again."""
        while True:
            with self._lock:
                self.refresh()
                if self._is_closed or self.site.approval != "within-policy":
                    return
                site, owner = self.site, self._owner
            refusal: ComityError | None = None
            try:
                dataset = choose_dataset(site, None)
                preview_approval(site, owner, study, dataset=dataset, runs=1)
            except ComityError as error:
                refusal = error
            with self._lock:
                self.refresh()
                if self.site is not site or self._is_closed:
                    continue
                try:
                    if refusal is None:
                        self._check_unattended(study)
                except ComityError as error:
                    refusal = error
                if refusal is not None:
                    log.warning("%s: study %s waits for its owner: %s", site.party, arrival.study[:12], refusal)
                    self._record(refusal, arrival.study, "")
                    return
                decision = self.inbox.make_approval(dataset=dataset, runs=1, why=WITHIN_POLICY)
                append_decision(site.home, owner.keys, site.party, arrival, decision)
                self.inbox.decide(arrival.study, decision)
                self.refresh(parsed=study)
                return

    def _check_unattended(self, study: Study) -> None:
        agreed = study.agreement
        self.site.policy.check_unattended(agreed.declaration, agreed.consortium, self.site.party)

    def _deliver(self, host: Host, run: str) -> None:
        """Write the owner's results of a run that ended, and score them on the owner's records. The ledger keeps the
        values, so this can be repeated."""
        try:
            write_results(host, self.site.home, run)
        except Exception:
            log.exception("%s: the results of run %s can't be written; a restart tries again", self.site.party, run)
            return
        score_results(host, self.site.home, run)

    def _log_answer(self, answer: Answer, study: str | None, seconds: float) -> None:
        """Log one line for each ask that a coordinator signed: which step, and how it went; nothing of its content."""
        if answer.path is None:
            return
        code = "" if answer.refusal is None else answer.refusal.code
        fields = {
            "party": self.site.party,
            "study": plain((study or "")[:12]),
            "run": plain(answer.run),
            "step": plain(str(answer.path)),
            "milliseconds": round(seconds * 1e3, 1),
            **({"code": code} if code else {}),
        }
        how = f"refused ({code})" if code else "answered"
        log.info("%s %s %s of run %s", self.site.party, how, fields["step"], fields["run"], extra=fields)

    def record_refusal(self, error: ComityError) -> None:
        """Log a refusal that concerns no study, and record it for the owner."""
        log.warning("%s refused: %s", self.site.party, error)
        self._record(error)

    def _record(self, error: ComityError, study: str | None = None, run: str = "") -> None:
        """Record a refusal for the owner, who sees it with: comity site status"""
        try:
            self.refusals.record(error, study=study, run=run)
        except OSError:
            log.exception("%s: a refusal can't be recorded; check the disk", self.site.party)


def _verdict(refusal: ComityError | None) -> bytes:
    """What the sender learns: a refusal's code, or that all is well."""
    return encode({"ok": True} if refusal is None else {"refused": refusal.code, "key": ""})


class Endpoint(Protocol):
    """A site's end of a channel (`comity.federation.messages.channel`)."""

    def serve(self, service: SiteService) -> None:
        """Pass asks to `service.answer` and packed studies to `service.receive` until the process is stopped. Asks
        may come twice and in any order, from several threads; answers in progress are finished."""


@contextmanager
def lock_ledger(site: SiteFile, *, timeout: float = 5.0) -> Iterator[None]:
    """Be the only process that answers for a ledger; refuse while another one does. Steps of one run take turns within
    a process, but would not between two. The system releases the lock however a process ends."""
    path = site.ledger.with_name(f"{site.ledger.name}.serving")

    def blocked() -> BadInput:
        return BadInput(f"{path}: another process serves with this ledger; stop it first", code="serving", key="ledger")

    with locked(path, seconds=timeout, blocked=blocked):
        yield


def _over_nats(site: SiteFile) -> Endpoint:
    from comity.relay.endpoint import NatsEndpoint

    # The endpoint's agent alone imports the client, in a process where its absence would only show in the log.
    if find_spec("nats") is None:
        raise StudyError(
            f"{site.where}: invitation needs the extra deploy (nats is missing); run: pip install 'comity[deploy]'",
            key="invitation",
        )
    return NatsEndpoint(site)


ENDPOINTS: dict[str, Callable[[SiteFile], Endpoint]] = {"tls": _over_nats, "wss": _over_nats}
"""Transports by the scheme of their addresses, as in tls://relay.example.org:4222 or wss://relay.example.org:443."""


def open_endpoint(site: SiteFile) -> Endpoint:
    """The endpoint for the address in the invitation that the site file names."""
    from comity.relay.invitation import Invitation

    if site.invitation is None:
        raise StudyError(
            f'{site.where}: invitation is missing; add invitation = "consortium.toml" and put the file that your '
            "consortium's holder gave you there",
            key="invitation",
        )
    try:
        address = Invitation.load(site.invitation).address
    except BadInput as error:
        raise StudyError(f"{site.where}: {error}", code=error.code, key="invitation") from error
    scheme, separator, _ = address.partition("://")
    if not separator or scheme not in ENDPOINTS:
        known = ", ".join(f"{name}://" for name in ENDPOINTS) or "none"
        raise StudyError(
            f"{site.invitation}: address = {address!r}: this installation has no transport for it (known: {known}); "
            "correct the address, or install the transport",
            key="invitation",
        )
    return ENDPOINTS[scheme](site)
