"""The studies that one party serves in one process: the host of the study that an ask names answers it.

Promise    An ask reaches the host of its study if the coordinator that the study pins signed it for this party. All
           other asks get the same refusal, "study": those of an unknown or withdrawn study, from another study's
           coordinator, unsigned or garbled. After `withdraw` has returned, no step of the study runs here.
Against    Coordinators of approved studies, members of the consortium and carriers of the bytes, who try hashes:
           without the right key, neither the reply nor the work that it takes shows whether a study is served here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import Condition
from typing import TYPE_CHECKING, Any

from comity.crypto.sealing import Identity
from comity.data import digest_records
from comity.entropy import fresh_seed
from comity.errors import Refused
from comity.federation.agreement import Agreement
from comity.federation.declare.consortium import COORDINATOR
from comity.federation.declare.policy import Policy
from comity.federation.messages.ask import study_of
from comity.federation.messages.codec import encode
from comity.federation.messages.signatures import Digests, sign_reply, verify_ask
from comity.federation.owner.host import Answer, Host
from comity.federation.owner.store import Store
from comity.privacy.ledger import Ledger
from comity.privacy.randomness import NoiseSource, ReleasedNoise

if TYPE_CHECKING:
    from comity.data import LocalRecords

log = logging.getLogger("comity.site")


@dataclass(frozen=True, kw_only=True)
class Approval:
    """What an owner approved: a study by its hash, one of the owner's datasets, and how many runs."""

    study: str
    dataset: str
    runs: int = 1


@dataclass(frozen=True, kw_only=True)
class Owner:
    """What an owner's site file says. All of its studies share keys, ledger and policy.

    `datasets` read records as a study needs them, when a step first asks for them. The policy's list of approved
    studies is not used: each study comes with its approval.
    """

    party: str
    keys: Identity
    ledger: Ledger
    policy: Policy
    datasets: Mapping[str, Callable[[Agreement], LocalRecords]]
    noise: NoiseSource = field(default_factory=ReleasedNoise)
    local: Callable[..., Any] | None = None


def host_of(owner: Owner, agreement: Agreement, approval: Approval) -> Host:
    """The host of an approved study. Refuses what it could never answer: a study other than the approved one, a party
    outside of the study, keys that the study does not pin, a dataset without records or without a budget."""
    consortium, study = agreement.consortium, agreement.study
    if approval.study != study:
        raise Refused(
            f"study {study[:12]} was given, but study {approval.study[:12]} is approved; approve the one to run",
            code="study",
        )
    if approval.runs < 1:
        raise Refused(f"study {study[:12]} is approved for {approval.runs} runs; expected 1 or more", code="approval")
    if owner.party not in consortium.parties:
        raise Refused(
            f"study {study[:12]} has no party {owner.party!r}; see its [parties]", code="study", key="parties"
        )
    for name in (COORDINATOR, owner.party):
        if name not in consortium.roster:
            raise Refused(f"study {study[:12]} pins no keys of {name}; add them to it", code="keys", key="keys")
    if consortium.roster[owner.party] != owner.keys.public:
        raise Refused(
            f"study {study[:12]} pins another key of {owner.party} than this site has; send yours to its author",
            code="keys",
            key="keys",
        )
    if approval.dataset not in owner.datasets:
        raise Refused(
            f"the site has the datasets {', '.join(owner.datasets)}, the approval names {approval.dataset!r}",
            code="approval",
            key="dataset",
        )
    budgets = [account.dataset for account in owner.ledger.summary()]
    if approval.dataset not in budgets:
        raise Refused(
            f"the ledger has a budget for {', '.join(budgets)}, the approval names {approval.dataset!r}",
            code="approval",
            key="dataset",
        )
    return Host(
        agreement,
        owner.party,
        records=lambda: owner.datasets[approval.dataset](agreement),
        keys=owner.keys,
        store=Store(
            owner.ledger,
            unit=consortium.unit,
            neighbours=consortium.neighbours,
            dataset=approval.dataset,
            study=agreement.study,
        ),
        noise=owner.noise,
        policy=replace(owner.policy, approved={study: approval.runs}),
        local=owner.local,
        digest=digest_records,
    )


class Registry:
    """The hosts of one party, by the hash of their study. Callable from any thread, also while studies are added and
    withdrawn."""

    def __init__(self, party: str, keys: Identity) -> None:
        self.party = party
        self._keys = keys
        self._no_coordinator = Identity(fresh_seed()).public
        self._changed = Condition()
        self._hosts: dict[str, Host] = {}
        self._busy: dict[Host, int] = {}

    @property
    def studies(self) -> tuple[str, ...]:
        """The hashes of the studies that are served."""
        with self._changed:
            return tuple(self._hosts)

    def admit(self, host: Host) -> None:
        """Serve a study from now on. To serve it under another approval, withdraw it first."""
        if host.party != self.party or host.keys.public != self._keys.public:
            raise Refused(f"a host of {host.party!r} with its keys can't be served by {self.party!r}", code="keys")
        host.identity_of(COORDINATOR)
        study = host.agreement.study
        with self._changed:
            if study in self._hosts:
                raise Refused(f"study {study[:12]} is served already; withdraw it first", code="exists", key="study")
            self._hosts[study] = host

    def withdraw(self, study: str, *, wait: bool = True) -> None:
        """Stop serving a study. Returns when no step of it runs; without `wait`, as soon as no further step can begin.
        What was drawn stays spent, and open runs stay open until they are abandoned or the study is admitted again."""
        with self._changed:
            host = self._hosts.pop(study, None)
            if host is not None and wait:
                self._changed.wait_for(lambda: host not in self._busy)

    def answer(self, raw: bytes) -> Answer:
        """The signed reply to an ask, and the sentence of a refusal for the site's operator. It never raises."""
        digests = Digests.of_signed(raw)
        named = study_of(raw)
        with self._serving(named) as host:
            asker = self._no_coordinator if host is None else host.identity_of(COORDINATOR)
            try:
                verify_ask(asker, self.party, raw, digests)
            except Refused as error:
                why = (
                    f"its coordinator did not sign this for us ({error})"
                    if host
                    else "it is not served here; comity site inbox shows whether it waits for your approval"
                )
                refusal = Refused(f"study {(named or '?')[:12]!r}: {why}", code="study")
            else:
                assert host is not None
                return host.answer(raw, digests)
        log.warning("%s refused: %s", self.party, refusal)
        reply = encode({"refused": refusal.code, "key": ""})
        return Answer(sign_reply(self._keys, self.party, raw, reply, digests), refusal)

    @contextmanager
    def _serving(self, study: str | None) -> Iterator[Host | None]:
        with self._changed:
            host = None if study is None else self._hosts.get(study)
            if host is not None:
                self._busy[host] = self._busy.get(host, 0) + 1
        try:
            yield host
        finally:
            if host is not None:
                with self._changed:
                    self._busy[host] -= 1
                    if not self._busy[host]:
                        del self._busy[host]
                    self._changed.notify_all()
