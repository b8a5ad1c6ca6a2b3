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
from pathlib import Path
from threading import Lock, RLock
from typing import Protocol

from comity.artefacts.file_state import file_state
from comity.errors import BadInput, ComityError, Malformed, Refused, Stopped, StudyError
from comity.federation.coordinator.replies import plain
from comity.federation.messages.ask import study_of
from comity.federation.messages.codec import encode
from comity.federation.messages.envelope import sign_reply
from comity.federation.messages.paths import END
from comity.federation.messages.sealed_channel import opened_ask
from comity.federation.owner.host import Answer, Host
from comity.federation.owner.hosting import Approval
from comity.federation.owner.registry import Registry
from comity.files import locked
from comity.site.approval import considered, dataset_for, host_for
from comity.site.inbox import WITHIN_POLICY, Arrival, Inbox
from comity.site.results import are_written, is_scored, score_results, write_results
from comity.site.site_file import SiteFile
from comity.site.status import Refusals, runs_of
from comity.study.study import Study

log = logging.getLogger("comity.site")
RETRY_SECONDS = 5.0
"""How often a closed site looks whether it can be opened, where its files did not change."""


class Desk:
    """What a site's process calls with each message, from any thread. `answered` never raises for what arrives."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._lock = RLock()
        self._taking_in = Lock()
        self._state: tuple[object, ...] | None = None
        # What the site is closed for, told once, and when it was last tried to open it.
        self._trouble, self._tried = "", 0.0
        self._served: dict[str, tuple[Approval, Host]] = {}
        # A study that was read from its files outside of the lock, for the time of its approval.
        self._parsed: Study | None = None
        # A site file that is wrong from the start is for its owner to see.
        self._open()
        self.refresh()

    @property
    def studies(self) -> tuple[str, ...]:
        """The hashes of what is served."""
        return self._registry.studies

    def answered(self, raw: bytes) -> Answer:
        """The sealed reply to a sealed ask, with the sentence of a refusal for the owner, which is written down too."""
        began = time.monotonic()
        self.refresh()
        keys, party = self._owner.keys, self.site.party
        try:
            ask = opened_ask(keys, party, raw)
        except Malformed as error:
            # There is no key to seal this reply to, and it says nothing.
            self.refused(error)
            return Answer(sign_reply(keys, party, raw, _said(error)), error)
        if self._is_closed:
            # No decision about any study: runs that are open go on once the file is mended.
            shut = self._shut()
            return Answer(ask.reply(sign_reply(keys, party, ask.raw, _said(shut))), shut)
        answer = self._registry.answered(ask.raw)
        study = study_of(ask.raw)
        self._log(answer, study, time.monotonic() - began)
        if answer.refusal is not None:
            self._note(answer.refusal, study, answer.run)
        elif answer.path == END and study in self._served:
            self._deliver(self._served[study][1], answer.run)
        return replace(answer, reply=ask.reply(answer.reply))

    def submitted(self, raw: bytes) -> bytes:
        """The sealed and signed reply to a sealed pack, which says that it arrived, or the code of a refusal; the
        sentence is written down here. It never raises."""
        self.refresh()
        keys, party = self._owner.keys, self.site.party
        try:
            box = opened_ask(keys, party, raw, "study")
        except Malformed as error:
            self.refused(error)
            return sign_reply(keys, party, raw, _said(error))
        refusal: ComityError | None = None
        try:
            self.received(box.raw)
        except ComityError as error:
            refusal = error
            log.warning("%s refused a packed study: %s", party, error)
        except Exception:
            refusal = Stopped("a packed study could not be kept; the log of this site says why")
            log.exception("%s: a packed study could not be kept", party)
            self._note(refusal)
        return box.reply(sign_reply(keys, party, box.raw, _said(refusal)))

    def received(self, pack: bytes) -> Arrival:
        """Take in a packed study. It waits for its owner, unless the site file leaves the decision to the policy. A
        joint prediction always waits: each one tells as many exact scores as the policy allows a run. A refusal is
        written down for the owner and raised."""
        # Reading a pack takes as long as its submitter likes, within limits: no ask waits for it.
        with self._taking_in:
            with self._lock:
                self.refresh()
                if self._is_closed:
                    raise self._shut()
                inbox, site, key = self.inbox, self.site, self._owner.keys.public
            try:
                arrival = inbox.receive(pack, party=site.party, key=key, policy=site.policy)
            except ComityError as error:
                self._note(error)
                raise
            if site.approval == "within-policy" and arrival.decision is None:
                study = inbox.study(arrival.study)
                if study.prediction is None:
                    self._decide_within_policy(arrival, study)
            return inbox.find(arrival.study)

    def refresh(self) -> None:
        """Serve what is approved now."""
        with self._lock:
            state = (file_state(self._path), self.inbox.decision_states())
            if state == self._state and not self._may_try_again():
                return
            try:
                if self._is_closed or state[0] != self._opened:
                    self._close()
                    self._open()
                self._serve()
            except ComityError as error:
                self._close()
                if str(error) != self._trouble:
                    log.error("%s serves nothing: %s", self.site.party, error)
                    self._note(error)
                self._trouble = str(error)
            else:
                self._trouble = ""
            self._state, self._tried = state, time.monotonic()

    def _may_try_again(self) -> bool:
        """A ledger or a folder that was missing may be back, which the site file does not show."""
        return self._is_closed and time.monotonic() - self._tried > RETRY_SECONDS

    def _open(self) -> None:
        # Before the file is read: one that changes meanwhile is read again.
        self._opened = file_state(self._path)
        self.site = SiteFile.load(self._path)
        self._owner = self.site.owner()
        self.inbox, self.refusals = Inbox(self.site.home), Refusals(self.site.home)
        self._registry = Registry(self.site.party, self._owner.keys)
        self._is_closed = False

    def _close(self) -> None:
        """Serve nothing until the site file is read again: its terms may have become narrower."""
        self._is_closed = True
        for study in list(self._served):
            self._withdraw(study)

    def _shut(self) -> Refused:
        return Refused(f"{self.site.where} can't be used; mend it", code="stopped")

    def _serve(self) -> None:
        arrivals = [one for one in self.inbox.arrivals() if one.approval is not None]
        approved = {one.study: one.approval for one in arrivals if one.approval is not None}
        by_policy = {one.study for one in arrivals if one.decision is not None and one.decision.why == WITHIN_POLICY}
        for study, (approval, _) in list(self._served.items()):
            if approved.get(study) != approval:
                self._withdraw(study)
        for study, approval in approved.items():
            if study not in self._served:
                self._admit(study, approval, by_policy=study in by_policy)

    def _admit(self, study: str, approval: Approval, *, by_policy: bool) -> None:
        try:
            known = self._parsed
            found = known if known is not None and known.hash == study else self.inbox.study(study)
            if by_policy:
                # Keys that were pinned when the policy approved it may be gone from the site file by now.
                self._check_unattended(found)
            host = host_for(self.site, self._owner, found, approval)
            self._registry.admit(host)
        except ComityError as error:
            log.error("%s can't serve study %s: %s", self.site.party, study[:12], error)
            self._note(error, study, "")
            return
        self._served[study] = approval, host
        for run in runs_of(self._owner.ledger):
            # Of a process that ended between the run's end and the writing of its results.
            home = self.site.home
            here = are_written(home, study, run.run) and is_scored(home, study, run.run)
            if run.is_of(study) and run.state == "closed" and not here:
                self._deliver(host, run.run)

    def _withdraw(self, study: str) -> None:
        del self._served[study]
        self._registry.withdraw(study, wait=False)

    def _decide_within_policy(self, arrival: Arrival, study: Study) -> None:
        """Approve a study that the policy allows. All records are read for that, so no ask waits for it; terms that
        changed meanwhile are asked again."""
        while True:
            with self._lock:
                self.refresh()
                if self._is_closed or self.site.approval != "within-policy":
                    return
                site, owner = self.site, self._owner
            refusal: ComityError | None = None
            try:
                dataset = dataset_for(site, None)
                considered(site, owner, study, dataset=dataset, runs=1)
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
                    self._note(refusal, arrival.study, "")
                    return
                self.inbox.approve(arrival.study, dataset=dataset, runs=1, why=WITHIN_POLICY)
                self._parsed = study
                self.refresh()
                self._parsed = None
                return

    def _check_unattended(self, study: Study) -> None:
        agreed = study.agreed
        self.site.policy.check_unattended(agreed.declaration, agreed.consortium, self.site.party)

    def _deliver(self, host: Host, run: str) -> None:
        """Write the owner's results of a run that ended, and score them on its records for its own eyes; the ledger's
        file keeps them, so that this can be repeated."""
        try:
            write_results(host, self.site.home, run)
        except Exception:
            log.exception("%s: the results of run %s can't be written", self.site.party, run)
            return
        score_results(host, self.site.home, run)

    def _log(self, answer: Answer, study: str | None, seconds: float) -> None:
        """One line for each ask that a coordinator signed: which, and how it went; nothing of what it said."""
        if answer.path is None:
            return
        code = "" if answer.refusal is None else answer.refusal.code
        told = {
            "party": self.site.party,
            "study": plain((study or "")[:12]),
            "run": plain(answer.run),
            "step": plain(str(answer.path)),
            "milliseconds": round(seconds * 1e3, 1),
            **({"code": code} if code else {}),
        }
        how = f"refused ({code})" if code else "answered"
        log.info("%s %s %s of run %s", self.site.party, how, told["step"], told["run"], extra=told)

    def refused(self, error: ComityError) -> None:
        """Log a refusal of what belongs to no study, and write it down for the owner."""
        log.warning("%s refused: %s", self.site.party, error)
        self._note(error)

    def _note(self, error: ComityError, study: str | None = None, run: str = "") -> None:
        """Write a refusal down for the owner, who sees it by: comity site status"""
        try:
            self.refusals.note(error, study=study, run=run)
        except OSError:
            log.exception("%s: a refusal can't be written down", self.site.party)


def _said(refusal: ComityError | None) -> bytes:
    """What crosses of it: a code, or that all is well."""
    return encode({"ok": True} if refusal is None else {"refused": refusal.code, "key": ""})


class Endpoint(Protocol):
    """A site's end of a channel (`comity.federation.messages.channel`)."""

    def serve(self, desk: Desk) -> None:
        """Bring asks to `desk.answered` and packed studies to `desk.received` until the process is told to stop. Asks
        may come twice and in any order, from several threads; what is being answered then is finished."""


@contextmanager
def alone(site: SiteFile, *, patience: float = 5.0) -> Iterator[None]:
    """Be the only process that answers for a ledger; refused while another one does. Steps of one run take turns within
    a process; between two processes they would not. The system releases the lock however a process ends."""
    path = site.ledger.with_name(f"{site.ledger.name}.serving")

    def blocked() -> BadInput:
        return BadInput(f"{path}: another process serves with this ledger; end it first", code="serving", key="ledger")

    with locked(path, seconds=patience, blocked=blocked):
        yield


def _over_nats(site: SiteFile) -> Endpoint:
    try:
        from comity.relay.endpoint import NatsEndpoint
    except ModuleNotFoundError as error:
        raise StudyError(
            f"{site.where}: relay.address needs the extra deploy ({error.name} is missing); "
            "run: pip install 'comity[deploy]'",
            key="relay.address",
        ) from error
    return NatsEndpoint(site)


ENDPOINTS: dict[str, Callable[[SiteFile], Endpoint]] = {"tls": _over_nats, "wss": _over_nats}
"""Engines by the scheme of their addresses, as in tls://relay.example.org:4222 or wss://relay.example.org:443."""


def endpoint_of(site: SiteFile) -> Endpoint:
    """The end of the channel that the site file names."""
    if site.relay is None:
        raise StudyError(
            f'{site.where}: relay.address is missing; add [relay] with address = "..." as your consortium gave it',
            key="relay.address",
        )
    scheme, separator, _ = site.relay.address.partition("://")
    if not separator or scheme not in ENDPOINTS:
        known = ", ".join(f"{name}://" for name in ENDPOINTS) or "none"
        raise StudyError(
            f"{site.where}: relay.address = {site.relay.address!r}: this installation has no engine for it (known: "
            f"{known}); correct the address, or install the engine",
            key="relay.address",
        )
    return ENDPOINTS[scheme](site)
