"""A site as one step sees it: data, the way out, memory between steps. All effects wait for the commit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from comity.crypto.sealing.sealed import Identity, PublicIdentity
from comity.entropy import Stream, derive, fresh_seed
from comity.errors import BadInput, Malformed, Refused, Stopped
from comity.federation.coordinator.delivery import OWN, SIGNATURES, Named, check_received
from comity.federation.declaring.agreed import is_release_name
from comity.federation.declaring.bounds import Opened
from comity.federation.declaring.consortium import COORDINATOR, ITSELF, Consortium
from comity.federation.declaring.declaration import Release
from comity.federation.declaring.protection import Computed, Entrusted, EntrustedRounds, Selected, Summed
from comity.federation.messages import heads as ledger_heads
from comity.federation.messages.codec import decode, encode
from comity.federation.messages.letters import Head, seal, seal_in_common
from comity.federation.messages.paths import StepPath
from comity.federation.messages.sealed_values import opened_value
from comity.federation.messages.vouched import Signatures, SignaturesForm, check_vouched
from comity.federation.owner.effects import Effects
from comity.federation.owner.rows import Rows
from comity.federation.owner.standing import NONCE

if TYPE_CHECKING:
    from comity.data import Held, Records
    from comity.federation.owner.host import Host

log = logging.getLogger("comity.site")

_SECRET = "run:secret"
_COORDINATOR_KEY = "run:coordinator"
_KEY_OF = "run:key:"
_PARTS = "run:parts"
_RECORDS = "run:records"
YOURS = "yours"
"""The name under which a run's end brings what is for one party alone."""


class Site:
    """What one step may use. `label` is the index of this ask; `dims` are the public sizes that the run has learnt."""

    def __init__(self, host: Host, run: str, path: StepPath, sends: str | None) -> None:
        self._host = host
        self._study = host.agreed.study
        self._run = run
        self._path = path
        self._sends = sends
        self.label = path.label
        self._aside = host.agreed.is_aside(path.mount)
        self.party = host.party
        self.consortium: Consortium = host.agreed.consortium
        self.effects = Effects()
        # What leaves under the name of the release that the step sends.
        self.contribution: Any = None
        self.contributed = False
        self.dims: Mapping[str, int] = _Dimensions(self)
        self._run_key: Identity | None = None
        self._written: set[tuple[str, str]] = set()

    # The owner's records.

    @property
    def records(self) -> Held:
        """The records that this step may see. Where the study has an evaluation they are those of the step's part, and
        no others: what a release of one part costs rests on it. The run is bound to them from here on."""
        digest = self._host.records_digest
        if digest is not None and self._stored(_RECORDS) is None:
            self.effects.state[_RECORDS] = digest.encode()
        if self.consortium.evaluation is None:
            return self._host.records
        return self._host.part_of_records(self._parts_key(), aside=self._aside)

    def require_same_records(self) -> None:
        """A step that ran is not run again, so that a site which starts again with other records would mix what it made
        of the old ones with what it makes of these. Found before the step, so that it costs nothing; for others it is a
        stop like any other."""
        bound = self._stored(_RECORDS)
        if bound is not None and bound.decode() != self._host.records_digest:
            raise Stopped(
                f"run {self._run} began with other records than are there now; put them back, or end the run: comity "
                f"site end {self._run}",
                key="data",
            )

    def _parts_key(self) -> bytes:
        measuring = self._host.agreed.measuring
        if measuring is not None and measuring.common:
            return derive(self._study.encode(), "set aside")
        key: bytes | None = self.kept(_PARTS)
        if key is None:
            raise Refused("this run has set no records aside here, because it has not begun", code="unreserved")
        return key

    def total(self, part: Callable[[Rows], NDArray[np.float64]]) -> NDArray[np.float64]:
        """Σ `part(rows)` over blocks of this owner's records, which need not fit into memory; over one block where they
        are there already.

        `part` bounds each record by itself, as it would with all of them before it: where blocks begin is no secret
        and no promise. Every record is in one block of one pass. What goes wrong while they are read is a stop that
        the owner sees, whatever the bound of the release: it is no failed fit that may be answered neutrally.
        """
        found: NDArray[np.float64] | None = None
        records = self.records
        for block in self._blocks(records):
            one = part(Rows(block.features, block.labels, np.ones(len(block), np.bool_), len(records)))
            # A sum of its own: what a part hands back may be the block itself, which the next one overwrites.
            found = np.array(one) if found is None else np.add(found, one, out=found)
        assert found is not None
        return found

    def _blocks(self, records: Held) -> Iterator[Records]:
        try:
            yield from records.blocks()
        except BadInput as error:
            raise Refused(str(error), code="stopped") from error
        except (Exception, SystemExit):
            # A driver's text may hold a path or a password.
            log.exception("%s: the records can't be read", self.party)
            raise Refused("the records can't be read; the log of this site says why", code="stopped") from None

    @property
    def features(self) -> NDArray[np.float64]:
        try:
            return self.records.features
        except BadInput as error:
            # More records than fit into memory are no failed fit, to be answered neutrally and paid for.
            raise Refused(str(error), code="stopped") from error

    @property
    def labels(self) -> NDArray[Any]:
        if self.records.labels is None:
            raise Refused(f"{self.party} holds no labels", code="stopped")
        return self.records.labels

    @property
    def filled(self) -> NDArray[np.bool_]:
        """Which rows are records rather than padding: all of them at a real site."""
        return np.ones(len(self.records), bool)

    @property
    def local(self) -> Callable[..., Any] | None:
        """The owner's own model, where it gave one; without it a protocol uses its built-in classifier."""
        return self._host.local

    # Towards the coordinator.

    def contribute(self, value: NDArray[np.float64] | None = None, *, share: NDArray[np.uint64] | None = None) -> None:
        """Bound, put on the grid, debit, add this party's noise; then it leaves as the declaration says.

        None is the neutral contribution of a party that has nothing to say. `share` is a share of a value that exists
        nowhere in whole; it is on the grid already.
        """
        if self._sends is None or self.contributed:
            raise Refused(f"{self._path} contributes nothing, or a second time", code="undeclared")
        release = self._host.agreed.declaration[self._sends]
        self._require_source(release)
        shape, index = release.shape, int(self.label)
        if isinstance(release.bound, Opened):
            if share is None or share.shape != shape:
                raise Malformed(f"{release.name}: a share of shape {shape} was declared", code="form", key=release.name)
            units = share.astype("<u8").view("<i8")
        else:
            if value is None:
                value = release.bounded.neutral(shape)
            if np.shape(value) != shape:
                found = np.shape(value)
                raise Malformed(f"{release.name}: declared {shape}, found {found}", code="form", key=release.name)
            bounded = release.bounded.enforce(np.asarray(value, np.float64), shape)
            units = np.rint(bounded / release.spacing(self.consortium)).astype("<i8")
        # Whatever can be wrong is found before the draw is noted: from there on there is no way back.
        in_clear = isinstance(release.protection, Entrusted | EntrustedRounds)
        scale = None if in_clear else release.scale(self.consortium)
        permit = None
        if not isinstance(release.protection, EntrustedRounds):
            permit = self.effects.draw(release.name, index)
        elif self.kept(_paid(release.name)) is None:
            self.effects.draw(release.name, 0)
            self.keep(_paid(release.name), True)
        self.contributed = True
        if scale is not None and permit is not None:
            noise = release.noise
            assert noise is not None
            part = isinstance(release.protection, Summed)
            units = units + noise.draw(self._host.noise, scale, shape, permit=permit, part=part)
        if isinstance(release.protection, Summed):
            # Where the secure sum looks for it, whichever part it is of.
            self.effects.state[f"out:{release.name}/{index}"] = encode(units << np.int64(64 - release.ring))
        else:
            self.contribution = units

    def compute(self, values: Any, *, name: str | None = None) -> Any:
        """Run the mechanism of a computed release on this party's values; what it found.

        One debit, noted before anything is drawn, covers all that the mechanism draws. What the step `sends` leaves
        with the reply. A release whose receiver is the party itself stays, under its `name`, for later steps
        (`computed`). The same ask again finds the same result.
        """
        name = name or self._sends or ""
        release, index = self._host.agreed.declaration[name], int(self.label)
        protection, stays = release.protection, release.to == ITSELF
        leaves = name == self._sends and not self.contributed
        if not isinstance(protection, Computed) or not (stays or leaves):
            raise Refused(f"{self._path} computes no {name}, or a second time", code="undeclared", key=name)
        self._require_source(release)
        if index >= release.times or (name, index) in self.effects.draws:
            raise Refused(f"{self._path}: {name} is computed more often than declared", code="too-often", key=name)
        protection.mechanism.check(values)
        permit = self.effects.draw(name, index)
        result = protection.mechanism.run(self._host.noise, values, permit=permit)
        release.check(result, self.party, self.party if stays else COORDINATOR, self.consortium, self.dims)
        if stays:
            self.keep(_computed(name, index), result)
        else:
            self.contribution, self.contributed = result, True
        return result

    def _require_source(self, release: Release) -> None:
        """This party pays for it, and out of the part of the records that this step sees: by what it reads, and not by
        what anybody says of it."""
        if (release.name in self._host.agreed.declaration.aside) != self._aside:
            raise Refused(f"{self._path} does not see the records of {release.name}", code="undeclared")
        if not self.consortium.includes(release.source, self.party):
            raise Refused(f"{release.name} does not come from {self.party}", code="undeclared", key=release.name)

    def computed(self, name: str, index: int = 0) -> Any:
        """What an earlier step, or this one, computed for the party itself."""
        return self.kept(_computed(name, index))

    def draw(self, name: str, *, sensitivity: float) -> NDArray[np.int64]:
        """The noise of a release that is selected under encryption, in grid units; drawing it is the debit.

        Its scale is this party's own secret, because `sensitivity` depends on how many records it has; the declared
        sensitivity is the largest that there can be. The noise may leave this step only encrypted or shared.
        """
        release = self._host.agreed.declaration[name]
        noise = release.noise
        if not isinstance(release.protection, Selected) or noise is None:
            raise Refused(f"{name} is not declared with noise that is selected", code="undeclared", key=name)
        self._require_source(release)
        if not 0 < sensitivity <= release.sensitivity:
            raise Refused(f"{name}: a sensitivity of at most {release.sensitivity} was declared", code="stopped")
        scale = noise.scale(sensitivity=sensitivity, shape=release.shape, grid=release.grid)
        permit = self.effects.draw(release.name, 0)
        return noise.draw(self._host.noise, scale, release.shape, permit=permit)

    # Towards another party.

    def send(self, to: str, name: str, value: Any, key: PublicIdentity | None = None) -> None:
        """Seal a declared value to a party's key of this run and sign it; the coordinator relays it with the next ask.

        `key` is that key where a step was shown it; without one it is taken from those that `run.meet` brought.
        """
        self._check_sealed([to], name, value)
        sealed = seal(self._host.keys, key or self._key_of(to), self._head(to, name), encode(value))
        self.effects.mail.append(sealed)

    def send_all(self, receivers: Iterable[str], name: str, value: Any) -> None:
        """`send` to several parties, for a value so large that it should be encrypted, relayed and journalled once."""
        heads = {to: self._head(to, name) for to in receivers}
        self._check_sealed(heads, name, value)
        letters, box = seal_in_common(self._host.keys, {to: self._key_of(to) for to in heads}, heads, encode(value))
        self.effects.mail += letters
        self.effects.boxes.append(box)

    def post(self, name: str, value: Any) -> None:
        """A letter to oneself: `received` gives it like those of the others."""
        self._host.agreed.letter(str(self._path), name)
        self.hold(name, self.party, str(self._path), encode(value))

    def heads(self, sender: str, to: str | None = None) -> Callable[[str], Head]:
        """Makes the head of a value by its name, for this ask; to this party where nobody else is named."""
        return lambda name: Head(self._study, self._run, str(self._path), sender, to or self.party, name)

    def _head(self, to: str, name: str) -> Head:
        return self.heads(self.party, to)(name)

    @property
    def run(self) -> str:
        return self._run

    def _check_sealed(self, receivers: Iterable[str], name: str, value: Any) -> None:
        if self._host.agreed.writer_of(name, aside=self._aside) != self._path.mount:
            raise Refused(f"{name} is not declared as a letter between parties", code="undeclared", key=name)
        release = self._host.agreed.declared(self._path.mount)[name]
        for to in receivers:
            release.check(value, self.party, to, self.consortium, self.dims)
            if (to, name) in self._written:
                raise Refused(f"{name} was written to {to} in this step already", code="undeclared", key=name)
            self._written.add((to, name))

    def hold(self, name: str, sender: str, path: str, raw: bytes) -> bool:
        """Keep a letter that arrived. The first one under a name and sender stays until it is taken, and one that was
        there before does not come again: a later letter replaces nothing."""
        aside = self._host.agreed.is_aside(StepPath.parse(path).mount)
        slot, known = _of_part(_slot(name, sender), aside=aside), _of_part(_had(name, sender), aside=aside)
        stored = self._stored(known)
        had = [] if stored is None else decode(stored)
        if path in had or self._stored(slot) is not None:
            return False
        # The one canonical form of the value: no need to encode it again.
        self.effects.state[slot] = raw
        self.effects.state[known] = encode([*had, path])
        return True

    def received(self, name: str, senders: Iterable[str] | None = None) -> dict[str, Any]:
        """What other parties sent under a declared name in this run, by sender."""
        asked = self.consortium.parties if senders is None else senders
        found = ((party, self.kept(_slot(name, party))) for party in asked)
        return {party: value for party, value in found if value is not None}

    def take(self, name: str, senders: Iterable[str] | None = None) -> dict[str, Any]:
        """`received`, once: what is taken is gone with this step, and is not even stored if it came with its ask."""
        found = self.received(name, senders)
        for party in found:
            self.forget(_slot(name, party))
        return found

    # Towards this owner.

    def deliver(self, name: str, value: Any) -> None:
        """Leave a value with this party's owner, in its own results, and nowhere else: no ask or reply carries it.

        What a party makes for itself (its own model, trained on what was shared) is not released, so that its name is
        none of the declared ones. It is delivered once: the same again is no harm, another value is refused.
        """
        declared = {release.name for release in self._host.agreed.declaration.releases}
        if name in declared or not is_release_name(name):
            raise Refused(f"{name!r} can't be delivered: a plain name that no release has was expected", code="form")
        raw = encode(value)
        before = self.effects.delivered.get((name, OWN), self._delivered(name).get(OWN))
        if before is not None and before != raw:
            raise Refused(f"{name} was delivered with another value before", code="delivered", key=name)
        if before is None:
            self.effects.delivered[name, OWN] = raw

    def arrived(self, release: Release, value: Any) -> None:
        """Keep a value of a release that an ask brought."""
        self.effects.delivered[release.name, str(self._path)] = encode(value)

    def receive(self, released: Mapping[str, Any], box: bytes, signed: Signatures) -> None:
        """Keep what the end of a run brings, if each value was declared to this party, is of its form, and is signed by
        the coordinator so that others can be shown it. Of values that came before, good signatures are kept too."""
        alone = opened_value(box, self.run_key(), self.heads(COORDINATOR)(YOURS)) if box else {}
        if not Named().fits(alone, self.dims, self.consortium) or set(alone) & set(released):
            raise Malformed("what a run releases to a party has names, each once", code="form")
        own = alone.pop(SIGNATURES, {})
        if not SignaturesForm().fits(own, self.dims, self.consortium):
            raise Malformed("signatures on what a run releases stand by name and ask", code="form")
        for name, value in {**released, **alone}.items():
            release = self._host.agreed.declaration[name]
            check_received(release, value, self.party, self.consortium, self.dims)
            raw = encode(value)
            if release.times == 1 and any(before != raw for before in self._delivered(name).values()):
                raise Refused(f"{name} was released with another value before", code="delivered", key=name)
            self.effects.delivered[name, str(self._path)] = raw
        self._keep_signatures({**signed, **own})

    def _keep_signatures(self, signed: Signatures) -> None:
        now = {(name, path): raw for (name, path), raw in self.effects.delivered.items() if path != OWN}
        before = self._host.store.delivered(self._run)
        earlier = {(name, path): raw for name, by in before.items() for path, raw in by.items() if path != OWN}
        coordinator, good = self._host.identity_of(COORDINATOR), dict[str, dict[str, bytes]]()
        for (name, path), raw in {**earlier, **now}.items():
            signature = signed.get(name, {}).get(path, b"")
            try:
                check_vouched(coordinator, signature, self._study, self._run, name, path, raw)
            except Malformed:
                if (name, path) in now:
                    raise Malformed(
                        f"{name} is not signed by the coordinator as what the run released", code="signature", key=name
                    ) from None
                # It was used as it came, and stays: what it lacks is proof for others.
                log.warning("%s: %s of %s came without a signature that lasts", self.party, name, path)
                continue
            good.setdefault(name, {})[path] = signature
        self.effects.delivered[SIGNATURES, str(self._path)] = encode(good)

    def _delivered(self, name: str) -> dict[str, bytes]:
        return self._host.store.delivered(self._run, name).get(name, {})

    # Between steps of a run. What steps of one part of the records keep is not seen by those of the other.

    def keep(self, name: str, value: Any) -> None:
        self.effects.state[_of_part(name, aside=self._aside)] = encode(value)

    def forget(self, name: str) -> None:
        self.effects.state[_of_part(name, aside=self._aside)] = None

    def kept(self, name: str, default: Any = None) -> Any:
        raw = self._raw(name)
        return default if raw is None else decode(raw)

    def _raw(self, name: str) -> bytes | None:
        return self._stored(_of_part(name, aside=self._aside))

    def _stored(self, name: str) -> bytes | None:
        state = self.effects.state
        return state[name] if name in state else self._host.store.state(self._run, name)

    # Secrets and signatures, bound to the study and the run.

    def secret(self) -> bytes:
        return fresh_seed()

    def seed(self, secret: bytes, *label: str | int) -> bytes:
        return derive(secret, self._study, self._run, *label)

    def sign(self, *what: Any) -> bytes:
        return self._host.keys.sign(encode([self._study, self._run, *what]))

    def verify(self, party: str, signature: bytes, *what: Any) -> None:
        self._host.identity_of(party).verify(signature, encode([self._study, self._run, *what]))

    def context(self, *what: Any) -> bytes:
        return encode([self._study, self._run, *what])

    # The life of a run.

    def sums(self) -> tuple[str, ...]:
        return self._host.agreed.declaration.sums()

    def release(self, name: str) -> Release:
        return self._host.agreed.declaration[name]

    def public_stream(self, *purpose: str | int) -> Stream:
        """Public randomness of this run, the same at every participant."""
        return Stream.public(self._study, self._run, *purpose)

    def run_key(self) -> Identity:
        """This party's own key of this run, which opens what is sealed to it and is deleted with the run."""
        if self._run_key is None:
            secret = self.kept(_SECRET)
            if secret is None:
                raise Refused("this run has no key here", code="sealed")
            self._run_key = Identity(secret)
        return self._run_key

    def new_run_key(self, coordinator_key: bytes) -> dict[str, bytes]:
        """A fresh key for this run, signed by the pinned one."""
        PublicIdentity.from_sealing(coordinator_key)
        self.keep(_SECRET, self.secret())
        self.keep(_COORDINATOR_KEY, coordinator_key)
        key = self.run_key().public.sealing()
        return {"key": key, "signature": self.sign("run key", self.party, key)}

    def coordinator_key(self) -> PublicIdentity:
        """The coordinator's key of this run."""
        key = self.kept(_COORDINATOR_KEY)
        if key is None:
            raise Refused("this run has no key of its coordinator here", code="sealed")
        return PublicIdentity.from_sealing(key)

    def checked_key(self, party: str, signed: Mapping[str, bytes]) -> PublicIdentity:
        """Another party's key of this run, if its pinned one signed it."""
        self.verify(party, signed["signature"], "run key", party, signed["key"])
        return PublicIdentity.from_sealing(signed["key"])

    def keep_keys(self, keys: Mapping[str, Mapping[str, bytes]]) -> None:
        for party, signed in keys.items():
            self.keep(f"{_KEY_OF}{party}", signed)

    def _key_of(self, party: str) -> PublicIdentity:
        signed = self.kept(f"{_KEY_OF}{party}")
        if signed is None:
            raise Refused(f"{party} has shown no key for this run", code="sealed")
        return self.checked_key(party, signed)

    def remembered(self) -> dict[str, list[ledger_heads.Head]]:
        """The heads that this site keeps of the parties it watches."""
        roster, known = self.consortium.roster, self._host.store.all_remembered()
        watched = ((p, roster[p].sign) for p in ledger_heads.watched(self.consortium, self.party) if p in roster)
        return {party: known[party, key] for party, key in watched if (party, key) in known}

    def remember(self, shown: Mapping[str, list[ledger_heads.Head]]) -> None:
        """Keep the heads of parties that this site watches; those that they did not sign are left out."""
        watched = set(ledger_heads.watched(self.consortium, self.party))
        for party, found in shown.items():
            if party in watched:
                identity = self._host.identity_of(party)
                self.effects.heads[party, identity.sign] = ledger_heads.authentic(identity, party, found)

    def look_ahead(self) -> None:
        """Whether this run could begin here, which promises nothing."""
        self._host.permit_run(self._run)
        self.effects.look_ahead = True

    def reserve(self) -> None:
        self._host.permit_run(self._run)
        self.effects.reserve = True
        if self.consortium.evaluation is not None and self.kept(_PARTS) is None:
            # Kept with the run: resumed, it has the same parts, and the next one has others.
            self.keep(_PARTS, self._host.chance())

    def bind(self, nonce: bytes) -> None:
        """From here on the run belongs to the journal with this nonce."""
        self.effects.state[NONCE] = nonce

    def close(self) -> None:
        self.effects.close = True

    def abandon(self) -> None:
        self.effects.abandon = True


def _of_part(name: str, *, aside: bool) -> str:
    """Where a part's steps keep a value; what belongs to the run has one place."""
    return f"aside:{name}" if aside and not name.startswith("run:") else name


def _computed(name: str, index: int) -> str:
    return f"computed:{name}/{index}"


def _paid(name: str) -> str:
    return f"paid:{name}"


def _slot(name: str, sender: str) -> str:
    # A sender may be called anything; the name of a release has no colon, so that two slots never coincide.
    return f"in:{name}:{sender}"


def _had(name: str, sender: str) -> str:
    return f"had:{name}:{sender}"


class _Dimensions(Mapping[str, int]):
    def __init__(self, site: Site) -> None:
        self._site = site

    def __getitem__(self, name: str) -> int:
        value = self._site.kept(f"dim:{name}")
        if value is None:
            raise KeyError(name)
        return int(value)

    def __iter__(self) -> Iterator[str]:
        raise TypeError("the dimensions of a run are looked up by name")

    def __len__(self) -> int:
        raise TypeError("the dimensions of a run are looked up by name")
