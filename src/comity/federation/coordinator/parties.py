"""The coordinator's side of a run: what `coordinate` talks to.

Everything here is rebuilt from the journal, so that running again with the same run id is resuming. An ask stays open
until the journal closes it; who was lost in it is part of the record. A reply is looked at before that: a party whose
reply is not what was declared, that refuses or that stopped, is lost like one that is silent, and the run goes on if
enough are left.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.crypto.sealing.sealed import Identity, PublicIdentity
from comity.entropy import fresh_seed
from comity.errors import Refused, Stopped
from comity.federation.coordinator.delivery import SIGNATURES, at_the_end
from comity.federation.coordinator.exchange import Cancelling, Round, Terms, Valid, Watch, exchanged, lacking
from comity.federation.coordinator.journal import ABANDONED, BEGUN, RELEASED, Journal, Own
from comity.federation.coordinator.kept import Kept, Sent, opened
from comity.federation.coordinator.released import Total, checked, curated, perturbed
from comity.federation.coordinator.replies import Given, Reader, too_few
from comity.federation.coordinator.transcript import Transcript, entrusted_steps, transcript_of
from comity.federation.declaring.agreed import Agreed
from comity.federation.declaring.consortium import COORDINATOR, Consortium
from comity.federation.declaring.declaration import Declaration, Needed, Release
from comity.federation.declaring.forms import Count
from comity.federation.declaring.protection import Computed, Summed
from comity.federation.messages import heads
from comity.federation.messages.channel import FOR_EVER, Channel, Patience
from comity.federation.messages.codec import encode
from comity.federation.messages.letters import Head
from comity.federation.messages.paths import ABANDON, BEGIN, END, READY, StepPath
from comity.federation.messages.sealed_values import sealed_value, sealed_values
from comity.federation.messages.vouched import Signatures, by_party
from comity.federation.owner.site import YOURS
from comity.federation.protocol import EVALUATION, spec_of
from comity.privacy.randomness import NoiseSource

log = logging.getLogger("comity.coordinator")

Progress = Callable[[str], None]

_KEY = "run:key"
RUN_KEYS = "run_keys"
"""Where `memo` keeps each party's signed key of this run."""


@dataclass(eq=False)
class _Memory:
    """What one run has learnt so far; shared by all views of it."""

    alive: list[str]
    heads: dict[tuple[str, bytes], list[heads.Head]]
    mail: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    memo: dict[str, Any] = field(default_factory=dict)
    dims: dict[str, int] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)
    kept: Kept = field(default_factory=Kept)
    cancelling: Cancelling = field(default_factory=Cancelling)


class Parties:
    """Asks steps of the parties of one run. `keys` are the coordinator's own, pinned in the roster under its name;
    `noise` is the trusted coordinator's, where a method has one. `patience` is how long each ask waits, unless the ask
    itself says otherwise; `watch` is told what is heard of each party while it does."""

    def __init__(
        self,
        agreed: Agreed,
        *,
        run: str,
        channel: Channel,
        journal: Journal,
        keys: Identity,
        noise: NoiseSource | None = None,
        progress: Progress | None = None,
        patience: Patience = FOR_EVER,
        watch: Watch | None = None,
        _mount: str = "",
        _memory: _Memory | None = None,
    ) -> None:
        self.agreed = agreed
        self.protocol = agreed.protocol
        self.consortium: Consortium = agreed.consortium
        self.declaration: Declaration = agreed.declaration
        self.study = agreed.study
        self.run = run
        self.channel = channel
        self.journal = journal
        self.keys = keys
        self.noise = noise
        self.progress = progress
        self.patience = patience
        self.watch = watch
        self._mount = _mount
        self._memory = _memory or _Memory(list(agreed.consortium.parties), journal.heads())

    @property
    def alive(self) -> list[str]:
        return list(self._memory.alive)

    @property
    def lost(self) -> dict[str, str]:
        """Why parties are no longer there, by party."""
        return dict(self._memory.lost)

    @property
    def memo(self) -> dict[str, Any]:
        return self._memory.memo

    @property
    def dims(self) -> Mapping[str, int]:
        """Public sizes that this run has bound."""
        return self._memory.dims

    def lose(self, party: str, why: str) -> None:
        """Ask this party no more: what it sent can't be used."""
        if party in self._memory.alive:
            self._memory.alive.remove(party)
            self._memory.lost[party] = why
            log.warning("%s is lost: it %s", party, why)

    def cancel(self) -> None:
        """Wait for nobody any more, in any view of this run; callable from another thread. Whoever is asking gets
        Stopped. Nothing is decided by it: the run is resumed by running it again."""
        self._memory.cancelling.cancel()

    def under(self, mount: str) -> Parties:
        """The same run, with steps looked up in a part of the protocol."""
        return Parties(
            self.agreed,
            run=self.run,
            channel=self.channel,
            journal=self.journal,
            keys=self.keys,
            noise=self.noise,
            progress=self.progress,
            patience=self.patience,
            watch=self.watch,
            _mount=mount,
            _memory=self._memory,
        )

    def ask(
        self,
        step: Callable[..., Any] | str,
        *,
        to: Iterable[str] | None = None,
        each: Mapping[str, Mapping[str, Any]] | None = None,
        label: str | int = 0,
        need: int | None = None,
        needed: Needed = (),
        valid: Valid | None = None,
        unanimous: bool = False,
        patience: Patience | None = None,
        **values: Any,
    ) -> dict[str, Given]:
        """Run a step at some parties; the values they return, by party. `each` gives a party values of its own.

        Lost parties are missing from the answer: the silent, those that refused or stopped, and those whose reply is
        not what was declared or not `valid`, which raises Malformed about the values of a party. Fewer than `need`
        (default: all that are named, whether or not they were lost before), or than `needed` of a group, stops the run,
        to be resumed. With `unanimous` one refusal ends the ask, whatever is needed. `patience` is how long this ask
        waits.
        """
        path = self._path(step, label)
        named = list(to if to is not None else each or self.consortium.parties)
        alive = set(self._memory.alive)
        if self.progress is not None:
            self.progress(str(path))
        self._open(path, [party for party in named if party in alive], values, each or {})
        if not self.journal.is_closed(self.run, str(path)):
            terms = Terms(
                need=len(named) if need is None else need,
                needed=needed,
                unanimous=unanimous,
                valid=valid,
                patience=patience or self.patience,
            )
            self._decide(path, terms)
        got = self._read(path)
        own = self.agreed.declared(path.mount)
        self._memory.kept.exchanged(self.declaration, own, str(path), values, each or {}, got)
        return got

    def tell(
        self, step: str, to: Iterable[str], each: Mapping[str, Mapping[str, Any]] | None = None, **values: Any
    ) -> bool:
        """A last word to parties, lost ones included; whether all have heard it. It stays open until each has, and is
        said again when the run is run again. Whoever refuses it has heard it: there is nothing left to tell."""
        path = self._path(step, 0)
        if self.progress is not None:
            self.progress(str(path))
        told = list(to)
        self._open(path, told, values, each or {})
        if self.journal.is_closed(self.run, str(path)):
            return True
        # Nobody's answer decides this one.
        done = self._send(path, Terms(need=len(told), patience=replace(self.patience, grace=None)))
        for party, refusal in done.refusals.items():
            if refusal.code != "stopped":
                done.answers[party] = encode({"refused": refusal.code, "key": refusal.key})
                done.answered.append(party)
        here = {*self.journal.answered(self.run, str(path)), *done.answered}
        missing = [party for party in self.journal.standing(self.run, str(path)) if party not in here]
        self.journal.got(self.run, str(path), done.answers, decided=not missing)
        for party in missing:
            log.warning("%s has not heard %s of run %s yet", party, path, self.run)
        return not missing

    def _path(self, step: Callable[..., Any] | str, label: str | int) -> StepPath:
        name = step if isinstance(step, str) else spec_of(step).name
        return StepPath(self._mount, name, str(label))

    def _open(
        self,
        path: StepPath,
        asked: list[str],
        values: Mapping[str, Any],
        each: Mapping[str, Mapping[str, Any]],
    ) -> None:
        declared = self.agreed.declared(path.mount)
        for_one = {key: value for key, value in values.items() if declared[key].sealed}
        for party in asked:
            mine = {**values, **each.get(party, {})}
            for key, value in mine.items():
                if isinstance(declared[key].form, Count):
                    self._memory.dims[key] = value
            for key, value in mine.items():
                declared[key].check(value, COORDINATOR, party, self.consortium, self._memory.dims)
        mail = {party: self._memory.mail.pop(party, []) for party in asked}

        def own() -> Iterator[tuple[str, Own]]:
            for party in asked:
                mine = {**for_one, **each.get(party, {})}
                if any(declared[key].sealed for key in mine):
                    mine = sealed_values(mine, declared, self._sealing_key(party), self._heads(path, party))
                yield party, Own(encode(mine), encode(mail[party]), self.seen(party))

        common = {key: value for key, value in values.items() if key not in for_one}
        self.journal.open(self.run, str(path), encode(common), own())

    def _heads(self, path: StepPath, to: str) -> Callable[[str], Head]:
        return lambda name: Head(self.study, self.run, str(path), COORDINATOR, to, name)

    def seen(self, party: str) -> list[heads.Head]:
        """The newest heads of this party's ledgers that the coordinator or a peer saw."""
        identity = self.consortium.roster.get(party)
        return [] if identity is None else self._memory.heads.get((party, identity.sign), [])

    def _sealing_key(self, party: str) -> PublicIdentity:
        """What a value for this party alone is sealed to: its key of this run."""
        signed = self.memo.get(RUN_KEYS, {}).get(party)
        if signed is None:
            raise Refused(f"{party} has shown no key for this run, which has not begun there", code="sealed")
        return PublicIdentity.from_sealing(signed["key"])

    @property
    def run_key(self) -> Identity:
        """The coordinator's own key of this run, deleted with it."""
        if _KEY not in self.memo:
            self.memo[_KEY] = Identity(self.journal.once(self.run, _KEY, fresh_seed))
        found: Identity = self.memo[_KEY]
        return found

    def _reader(self, path: StepPath) -> Reader:
        _, spec = self.agreed.step(path)
        return Reader(self.agreed, self.run, path, spec, self._memory.dims, self.run_key)

    def _decide(self, path: StepPath, terms: Terms) -> None:
        before = self.journal.answered(self.run, str(path))
        left = tuple((members - {*before}, least - len(members & {*before})) for members, least in terms.needed)
        done = self._send(path, replace(terms, need=terms.need - len(before), needed=left))
        got = len(before) + len(done.answered)
        said_no = {party: one for party, one in done.refusals.items() if one.code != "stopped"}
        lacks = max(terms.need - got, lacking(terms.needed, [*before, *done.answered]))
        enough = lacks <= 0 and not (terms.unanimous and said_no)
        self.journal.got(self.run, str(path), done.answers, decided=enough, why=done.faults)
        if not enough:
            raise too_few(path, got, got + max(0, lacks), done.faults, said_no)

    def _send(self, path: StepPath, terms: Terms) -> Round:
        missing = [party for party, here in self.journal.standing(self.run, str(path)).items() if not here]
        cancelling = self._memory.cancelling
        done = Round()

        def keep(done: Round) -> None:
            self.remember(done.heads)
            self.journal.got(self.run, str(path), done.answers, decided=False)
            done.answers, done.heads, done.held = {}, {}, 0

        terms = replace(terms, watch=self.watch, cancelling=cancelling)
        if not cancelling.cancelled:
            done = exchanged(self._reader(path), missing, self.keys, self.channel, self.journal, terms, keep)
        if cancelling.cancelled:
            # Nobody is lost by it: what came counts, and the ask stays open.
            keep(done)
            raise Stopped(f"{path}: cancelled. Nothing is lost: run again with the same run id to resume")
        self.remember(done.heads)
        return done

    def remember(self, found: Mapping[tuple[str, bytes], list[heads.Head]]) -> None:
        """Keep heads of ledgers, whose signatures were verified, in the journal and for the next ask."""
        self.journal.remember_heads(found)
        for whose, of in found.items():
            self._memory.heads[whose] = heads.newest(self._memory.heads.get(whose, []), of)

    def _read(self, path: StepPath) -> dict[str, Given]:
        out: dict[str, Given] = {}
        reader, faults = self._reader(path), None
        for party, raw in self.journal.each_reply(self.run, str(path)):
            if raw is None:
                if party in self._memory.alive:
                    faults = self.journal.faults(self.run, str(path)) if faults is None else faults
                    self._memory.alive.remove(party)
                    self._memory.lost[party] = f"{path}: {faults.get(party, 'no answer')}"
                    log.warning("%s is lost in %s", party, self._memory.lost[party])
                continue
            out[party], mail = reader.stored(party, raw)
            for letter in mail:
                self._memory.mail.setdefault(letter["to"], []).append(letter)
        return out

    def sum(self, step: Callable[..., Any], **values: Any) -> Total:
        """Run a step that contributes and open its release the way the declaration says; the same call for each."""
        spec = spec_of(step, self.consortium)
        if spec.sends is None:
            raise Refused(f"{spec.name} contributes nothing", code="undeclared")
        release = self.declaration[spec.sends]
        if isinstance(release.protection, Computed):
            raise Refused(f"{release.name} is computed at each site, there is no sum: ask for it", code="no-step")
        index = self._next(release)
        sources = self.consortium.among(release.source)
        got = self.ask(step, label=index, need=release.least(self.consortium), to=sources, **values)
        grid = release.spacing(self.consortium)
        if isinstance(release.protection, Summed):
            from comity.federation.subprotocols.sum_opening import open_sum

            units, names = open_sum(self, release, index)
        else:
            units = np.zeros(release.shape, "<i8")
            for values_of in got.values():
                units += values_of[release.name]
            names = tuple(got)
        value = np.asarray(units * grid, np.float64)
        if isinstance(release.protection, Summed):
            self._memory.kept.add(release, f"{spec.name}[{index}]", opened(value, len(names)))
        given = {party: {k: v for k, v in of.items() if k != release.name} for party, of in got.items()}
        return Total(value, len(names), names, given)

    def perturb(self, name: str, value: NDArray[np.float64]) -> NDArray[np.float64]:
        """A trusted coordinator's noise on a value made from entrusted releases: drawn once for each time that the
        release is made, in their order, and journalled."""
        release = self.declaration[name]
        index = self._next(release)
        noisy = perturbed(release, index, value, self.consortium, self.noise, self.once)
        self._memory.kept.add(release, f"{name}[{index}]", noisy)
        return noisy

    def compute(self, name: str, values: Any) -> Any:
        """What a trusted coordinator's mechanism makes of values from entrusted releases: drawn once for each time that
        the release is made, in their order, and journalled."""
        release = self.declaration[name]
        index = self._next(release)
        found = curated(release, index, values, self.consortium, self.noise, self.once)
        self._memory.kept.add(release, f"{name}[{index}]", found)
        return found

    def _next(self, release: Release) -> int:
        """The index of a release that is made now: running again counts again from the first."""
        index = self._memory.counts.get(release.name, -1) + 1
        self._memory.counts[release.name] = index
        return index

    @property
    def kept(self) -> dict[str, Any]:
        """What this run paid for so far, by release, as it was received."""
        return self._memory.kept.values(self.declaration)

    @property
    def sent(self) -> list[Sent]:
        """What asks of this run brought to parties so far, of what is theirs to keep."""
        return self._memory.kept.sent

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """Chance or a decision of the coordinator: made once per run and journalled."""
        return self.journal.once(self.run, f"{self._mount}.{name}" if self._mount else name, make)

    @property
    def transcript(self) -> Transcript:
        return transcript_of(self.journal, self.study, self.run, entrusted=entrusted_steps(self.agreed))


def run(parties: Parties) -> dict[str, Any]:
    """The whole life of a run: what its method releases at the end."""
    return whole_run(parties)[0]


def whole_run(parties: Parties) -> tuple[dict[str, Any], dict[str, Any]]:
    """The whole life of a run: what its method releases at the end, and what was released on the way.

    Calling it again with the same run id resumes it, or gives the same values again, and tells the end to whoever has
    not heard it. Nobody begins before all have said that they would: where one says no, nothing is written anywhere and
    the run may be tried again. A refusal later on ends the run for all of them, and frees what they never drew.
    """
    journal, name = parties.journal, parties.run
    refused = journal.made(name, ABANDONED)
    if refused is not None:
        _abandoned(parties)
        raise Refused(f"run {name} was abandoned: {refused['why']}; begin a new run", code=refused["code"])
    released = journal.made(name, RELEASED)
    if released is None:
        if journal.is_closed(name, str(READY)) or not journal.is_closed(name, str(BEGIN)):
            ready(parties)
        begun = False
        try:
            begin(parties)
            begun = True
            released = journal.once(name, RELEASED, lambda: _released(parties))
        except Refused as refusal:
            if begun and not refusal.party:
                # Not a party's word, but something about this coordinator: it may be put right.
                raise
            said = {"why": str(refusal), "code": refusal.code}
            journal.once(name, ABANDONED, lambda: said)
            _abandoned(parties)
            raise
    values, kept, keys, signed, alone = released
    _end(parties, values, kept, keys, signed, alone)
    return values, kept


def _released(parties: Parties) -> list[dict[str, Any]]:
    """In one record, because a run that is killed before its end finds what was released on the way there too: values,
    what was released on the way, the keys of parties that are to receive something alone, and the signatures that each
    party keeps on what it was released, those apart on what it receives alone."""
    values = checked(parties.protocol.coordinate(parties), parties.declaration, parties.consortium, parties.dims)
    if parties.agreed.measuring is not None:
        found = parties.agreed.measuring.measure(parties.under(EVALUATION), values)
        values = {**values, **checked(found, parties.declaration, parties.consortium, parties.dims)}
    kept = parties.kept
    common, single = at_the_end(parties.agreed, values, kept)
    keys = {party: signed["key"] for party, signed in parties.memo[RUN_KEYS].items() if party in single}
    last = [Sent(name, str(END), value) for name, value in common.items()]
    boxed = [
        Sent(name, str(END), own={party: mine[name] for party, mine in single.items() if name in mine})
        for name in dict.fromkeys(name for mine in single.values() for name in mine)
    ]
    signed, alone = (
        by_party(parties.agreed, parties.keys, parties.run, sent) for sent in ([*parties.sent, *last], boxed)
    )
    return [values, kept, keys, signed, alone]


def ready(parties: Parties) -> None:
    """Ask every party whether it would begin, which binds nobody: whoever is not ready says why, and all are named."""
    who = parties.consortium
    needed = parties.declaration.needed(who)
    parties.under("run").ask("ready", need=who.survivors, needed=needed, unanimous=True)


def begin(parties: Parties) -> None:
    """Let every party reserve, or refuse, and bring the parties the keys of those that they may write to."""
    view, who = parties.under("run"), parties.consortium
    key = parties.run_key.public.sealing()

    def has_key(party: str, values: Mapping[str, Any]) -> None:
        # Else those that are to write to it would find out, and be lost for it.
        signed = values["run_key"]
        text = encode([parties.study, parties.run, "run key", party, signed["key"]])
        who.roster[party].verify(signed["signature"], text)
        PublicIdentity.from_sealing(signed["key"]).seal(b"", b"")

    # Whom nobody could stand in for is not lost here: without it a later ask would wait for ever.
    needed = parties.declaration.needed(who)
    begun = view.ask("begin", need=who.survivors, needed=needed, unanimous=True, valid=has_key, coordinator_key=key)
    keys = parties.memo[RUN_KEYS] = {party: values["run_key"] for party, values in begun.items()}
    parties.remember(heads.handed_back(who, (values["remembered"] for values in begun.values())))
    writers = parties.agreed.writers()
    if writers:
        need = len(writers) - who.dropouts
        needed = tuple((members, least) for members, least in needed if members <= writers.keys())
        circles = {party: {*to, party} for party, to in writers.items()}
        circle = next(iter(circles.values()))
        if all(other == circle for other in circles.values()):
            # All write to all: the same keys for everybody, which are written down once.
            view.ask(
                "meet",
                to=list(writers),
                need=need,
                needed=needed,
                run_keys={p: keys[p] for p in sorted(circle) if p in keys},
            )
        else:
            each = {party: {"run_keys": {p: keys[p] for p in sorted(to) if p in keys}} for party, to in writers.items()}
            view.ask("meet", each=each, need=need, needed=needed)


def _end(
    parties: Parties,
    values: Mapping[str, Any],
    kept: Mapping[str, Any],
    keys: Mapping[str, bytes],
    signed: Mapping[str, Signatures],
    alone: Mapping[str, Signatures],
) -> None:
    """Tell the end to all that began, lost ones included, with what was released to each, and to the others that the
    run is over without them."""
    journal, who, name = parties.journal, parties.consortium, parties.run
    begun = journal.once(name, BEGUN, lambda: journal.answered(name, str(BEGIN)))
    journal.settle(parties.study, name, keeping=[str(END), str(ABANDON)])
    common, single = at_the_end(parties.agreed, values, kept)
    each: dict[str, dict[str, Any]] = {}
    for party in who.parties:
        if party in begun:
            seen = {peer: parties.seen(peer) for peer in heads.watched(who, party)}
            box = b""
            if party in single:
                head = Head(parties.study, name, str(END), COORDINATOR, party, YOURS)
                mine = {**single[party], SIGNATURES: alone[party]}
                box = sealed_value(mine, PublicIdentity.from_sealing(keys[party]), head)
            watched = {peer: of for peer, of in seen.items() if of}
            each[party] = {"heads": watched, YOURS: box, "signed": signed[party]}
    view = parties.under("run")
    heard = view.tell("end", list(each), each, released=common)
    absent = [party for party in who.parties if party not in each]
    if absent:
        heard = _abandon(parties, absent) and heard
    if heard:
        journal.settle(parties.study, name)


def _abandoned(parties: Parties) -> None:
    """Tell all parties that the run is over, which frees what they never drew, and keep nothing that it was made of."""
    journal, name = parties.journal, parties.run
    journal.settle(parties.study, name, keeping=[str(ABANDON)])
    if _abandon(parties, parties.consortium.parties):
        journal.settle(parties.study, name)


def _abandon(parties: Parties, those: Iterable[str]) -> bool:
    return parties.under("run").tell("abandon", those)
