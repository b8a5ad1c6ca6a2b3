"""The running side of a party: answers asks. Same ask, same bytes; a different ask under the same key is refused."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from comity.crypto.sealed import Identity, PublicIdentity
from comity.data import Records
from comity.errors import BadInput, ComityError, Malformed, Refused
from comity.federation.codec import decode, encode
from comity.federation.consortium import COORDINATOR, Consortium
from comity.federation.declaration import Declaration
from comity.federation.envelope import Digests, sign_reply, verify_ask
from comity.federation.forms import Count
from comity.federation.letters import Head, is_letter, unseal
from comity.federation.policy import SIMULATION, Policy
from comity.federation.protocol import Protocol, StepSpec, spec_of
from comity.federation.sealed_values import opened_values, sealed_values
from comity.federation.site import Site
from comity.federation.store import Store
from comity.privacy.ledger import Draw
from comity.privacy.randomness import NoiseSource

log = logging.getLogger("comity.site")


class Host:
    """Data, keys, store, policy, noise and own model of one party. A deployment calls `answer` and nothing else."""

    def __init__(
        self,
        party: str,
        *,
        records: Records | Callable[[], Records],
        keys: Identity,
        store: Store,
        noise: NoiseSource,
        protocol: Protocol,
        who: Consortium,
        study: str,
        title: str = "study",
        policy: Policy = SIMULATION,
        local: Callable[..., Any] | None = None,
    ) -> None:
        self.party = party
        self._records = records
        self.keys = keys
        self.store = store
        self.noise = noise
        self.protocol = protocol
        self.who = who
        self.study = study
        self.title = title
        self.policy = policy
        self.local = local
        self.declaration: Declaration = protocol.declare(who).accept(who)
        self.refusal: ComityError | None = None

    @cached_property
    def records(self) -> Records:
        return self._records() if callable(self._records) else self._records

    def declared(self, path: str) -> Declaration:
        owner, _ = self.protocol.find(path.partition("[")[0])
        return self.declaration if owner is self.protocol else owner.declare(self.who)

    def identity_of(self, party: str) -> PublicIdentity:
        identity = self.who.roster.get(party)
        if identity is None:
            raise Refused(f"{party} has no pinned key in the roster", code="stranger")
        return identity

    def permit_run(self, study: str, run: str) -> None:
        begun = self.store.runs_of(study) - {run}
        self.policy.check(
            study=study,
            runs=len(begun),
            protocol=self.protocol.name,
            declaration=self.declaration,
            party=self.party,
            who=self.who,
        )
        for part in self.protocol.parts.values():
            self.policy.check_disclosures(part.declare(self.who), self.party, self.who)

    def answer(self, raw: bytes) -> bytes:
        """The signed reply to an ask that the coordinator signed. A refusal crosses as a code and a key; its sentence
        stays in `refusal` and the log."""
        digests = Digests.of_signed(raw)
        return sign_reply(self.keys, self.party, raw, self._reply(raw, digests), digests)

    def _reply(self, raw: bytes, digests: Digests) -> bytes:
        self.refusal = None
        try:
            return self._answer(
                verify_ask(self.identity_of(COORDINATOR), self.party, raw, digests), digest=digests.body
            )
        except ComityError as error:
            self.refusal = error
            log.warning("%s refused: %s", self.party, error)
            # Whether records could be read is a fact about the data: it looks like any other stop.
            code = "stopped" if isinstance(error, BadInput) else error.code
            return encode({"refused": code, "key": "" if code == "stopped" else error.key})

    def _answer(self, ask: bytes, *, digest: bytes) -> bytes:
        study, run, path, body, mail = _parse(ask)
        if study != self.study:
            raise Refused(f"study {study[:12]} is not the one approved here", code="study")
        stored = self.store.reply(run, path, digest)
        if stored is not None:
            return stored
        name, bracket, label = path.partition("[")
        if not bracket or not label.endswith("]"):
            raise Malformed(f"{path!r} is not a path", code="no-step")
        label = label[:-1]
        if name != "run.begin":
            self.store.require_begun(study, run)
        _, function = self.protocol.find(name)
        spec = spec_of(function)
        self._check_label(path, spec, label)
        site = Site(self, study, run, path, spec.sends, label)
        body = self._checked_body(site, spec, body, self.declared(path))
        for letter in mail:
            self._open(site, study, run, letter)
        reply = self._run(site, function, spec, body)
        draws = [
            Draw(release.name, index, release.loss, type(release.noise).__name__, release.sensitivity)
            for release in self.declaration.paid_by(self.party, self.who)
            if release.loss is not None
            for index in range(release.times)
        ]
        most = None if self.policy.approved is None else self.policy.approved.get(study, 0)
        return self.store.commit(
            study, run, path, digest, encode(reply), site.effects, draws, title=self.title, most=most
        )

    def _check_label(self, path: str, spec: StepSpec, label: str) -> None:
        if spec.per_sum and label in self.declaration.sums():
            return
        times = self.declaration[spec.sends].times if spec.sends else spec.times
        if not label.isdecimal() or label != str(int(label)) or int(label) >= times:
            raise Refused(f"{path}: asked for more often than declared", code="too-often")

    def _checked_body(
        self, site: Site, spec: StepSpec, body: Mapping[str, Any], declared: Declaration
    ) -> dict[str, Any]:
        """The values of an ask, out of their boxes, each of its declared form."""
        if set(body) != set(spec.takes):
            raise Malformed(f"{spec.name} takes {list(spec.takes)}, found {sorted(body)}", code="form")
        values = opened_values(body, declared, self.keys, self._heads(site, COORDINATOR, self.party))
        for key, value in values.items():
            release = declared[key]
            release.check(value, COORDINATOR, self.party, self.who, site.dims)
            if isinstance(release.form, Count):
                if site.kept(f"dim:{key}", value) != value:
                    raise Refused(f"{key} was bound to another number in this run", code="form", key=key)
                site.keep(f"dim:{key}", value)
        return values

    @staticmethod
    def _heads(site: Site, sender: str, to: str) -> Callable[[str], Head]:
        return lambda name: Head(site._study, site._run, site._path, sender, to, name)

    def _open(self, site: Site, study: str, run: str, letter: dict[str, Any]) -> None:
        head = Head.of(letter)
        if (head.study, head.run, head.to) != (study, run, self.party):
            raise Malformed("a sealed message belongs to another study, run or party", code="sealed")
        raw = unseal(self.keys, self.identity_of(head.sender), head, letter)
        self.declared(head.path)[head.name].check(decode(raw), head.sender, self.party, self.who, site.dims)
        # The one canonical form of the value: no need to encode it again.
        site.effects.state[f"in:{head.name}/{head.sender}"] = raw

    def _may_be_neutral(self, spec: StepSpec) -> bool:
        """Whether the neutral value is within the declared sensitivity of whatever this party would have sent."""
        bound = None if spec.sends is None else self.declaration[spec.sends].bound
        return bound is not None and bound.neutral_within

    def _run(self, site: Site, function: Callable[..., Any], spec: StepSpec, body: Mapping[str, Any]) -> dict[str, Any]:
        if spec.sends is not None:
            # Records that can't be read at all are found here: a stop that its owner must see, whatever the bound.
            _ = self.records
        try:
            values = function(site, **body)
        except Exception as error:
            if site.effects.draws:
                log.exception("%s failed in %s", self.party, spec.name)
                return _stopped(site)
            of_data = isinstance(error, BadInput) or not isinstance(error, ComityError)
            if not of_data or not self._may_be_neutral(spec):
                if isinstance(error, ComityError):
                    raise
                log.exception("%s failed in %s", self.party, spec.name)
                raise Refused(f"{spec.name} failed; see the log of this site", code="stopped") from None
            # A failed fit takes part neutrally: a party that is missing because of its data would be a release.
            log.exception("%s failed in %s and takes part neutrally", self.party, spec.name)
            values = None
            site.contribute(None)
        declared = self.declared(site._path)
        for key, value in (values or {}).items():
            declared[key].check(value, self.party, COORDINATOR, self.who, site.dims)
        if values:
            heads = self._heads(site, self.party, COORDINATOR)
            values = sealed_values(values, declared, self.identity_of(COORDINATOR), heads)
        if site.contribution is not None:
            assert spec.sends is not None
            values = {spec.sends: site.contribution}
        reply: dict[str, Any] = {"ok": values or {}, "mail": site.effects.mail}
        return {**reply, "boxes": site.effects.boxes} if site.effects.boxes else reply


def _stopped(site: Site) -> dict[str, Any]:
    """After a draw there is no way back: it is spent, and "stopped" is the answer for ever."""
    site.effects.mail.clear()
    site.effects.boxes.clear()
    site.effects.state.clear()
    return {"stopped": True}


def _parse(ask: bytes) -> tuple[str, str, str, dict[str, Any], list[dict[str, Any]]]:
    match decode(ask):
        case [str(study), str(run), str(path), bytes(shared), bytes(own), list(mail)]:
            pass
        case _:
            raise Malformed("an ask has study, run, path, common and own values, and mail", code="form")
    if not 0 < len(run) <= 200 or len(path) > 400:
        raise Malformed("a run id has 1 to 200 characters and a path at most 400", code="form")
    common, private = decode(shared), decode(own)
    if not isinstance(common, dict) or not isinstance(private, dict) or set(common) & set(private):
        raise Malformed("the values of an ask are named, each once", code="form")
    if not all(map(is_letter, mail)):
        raise Malformed("mail has a receiver, a head, a box, a signature, and perhaps a key", code="form")
    return study, run, path, {**common, **private}, mail
