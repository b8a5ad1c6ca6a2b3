"""The coordinator's side of a run: what a method's `coordinate` talks to.

`Parties` asks parties for steps, opens sums, and adds a trusted coordinator's noise. An ask stays open until the
journal closes it, and the journal records which parties were lost in it. The coordinator checks a reply before the ask
is decided: a party whose reply is not as declared, that refuses or that stopped is lost like a silent one, and the run
continues if enough parties are left.

All state is rebuilt from the journal: running again with the same run id resumes the run.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from comity.crypto.sealing import Identity, PublicIdentity
from comity.entropy import fresh_seed
from comity.errors import Refused, Stopped
from comity.federation.agreement import Agreement
from comity.federation.coordinator.delivery import KeptValues, Sent, opened_sum
from comity.federation.coordinator.exchange import Cancellation, Check, Round, Terms, Watch, count_missing, exchange
from comity.federation.coordinator.journal import Journal, PartyAsk
from comity.federation.coordinator.released import Total, curate, open_release, perturb, summed_release
from comity.federation.coordinator.replies import PartyValues, Reader, too_few
from comity.federation.coordinator.transcript import Transcript, entrusted_steps, transcript_of
from comity.federation.declare.bounds import Range
from comity.federation.declare.consortium import COORDINATOR, Consortium
from comity.federation.declare.declaration import Declaration, Quorums
from comity.federation.declare.plausibility import require_plausible, require_ranges
from comity.federation.declare.protection import Summed
from comity.federation.declare.release import Count, Release
from comity.federation.messages import heads as ledger_heads
from comity.federation.messages.ask import StepPath
from comity.federation.messages.channel import NO_TIMEOUT, Channel, Timeouts
from comity.federation.messages.codec import encode
from comity.federation.messages.letters import Head, seal_values
from comity.federation.part import SUM, spec_of
from comity.federation.sum.coordinator import SetUp, prepare_sums
from comity.privacy.randomness import NoiseSource

log = logging.getLogger("comity.coordinator")

Progress = Callable[[str], None]

_KEY = "run:key"


@dataclass(eq=False)
class RunMemory:
    """What the coordinator has learnt in a run so far, shared by all views of the run. It is not stored: the journal
    gives it again."""

    alive: list[str]
    heads: dict[tuple[str, bytes], list[ledger_heads.Head]]
    mail: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    dims: dict[str, int] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)
    kept: KeptValues = field(default_factory=KeptValues)
    cancellation: Cancellation = field(default_factory=Cancellation)
    run_key: Identity | None = None
    run_keys: dict[str, Mapping[str, bytes]] = field(default_factory=dict)
    set_ups: dict[int, SetUp] = field(default_factory=dict)

    def lose(self, party: str, why: str) -> bool:
        """Whether the party was not lost before."""
        if party not in self.alive:
            return False
        self.alive.remove(party)
        self.lost[party] = why
        return True

    def count(self, release: Release) -> int:
        """The index of the release that is made now. A resumed run counts from 0 again."""
        index = self.counts.get(release.name, -1) + 1
        self.counts[release.name] = index
        return index

    def remember(self, found: Mapping[tuple[str, bytes], list[ledger_heads.Head]]) -> None:
        for ledger, of in found.items():
            self.heads[ledger] = ledger_heads.newest(self.heads.get(ledger, []), of)


class Parties:
    """The parties of one run.

    `keys` are the coordinator's, pinned in the roster. `noise` is the trusted coordinator's, where the method has one.
    `timeouts` is how long an ask waits unless it says otherwise; `watch` receives what each party shows meanwhile.
    """

    def __init__(
        self,
        agreement: Agreement,
        *,
        run: str,
        channel: Channel,
        journal: Journal,
        keys: Identity,
        noise: NoiseSource | None = None,
        progress: Progress | None = None,
        timeouts: Timeouts = NO_TIMEOUT,
        watch: Watch | None = None,
    ) -> None:
        self.agreement = agreement
        self.protocol = agreement.protocol
        self.consortium: Consortium = agreement.consortium
        self.declaration: Declaration = agreement.declaration
        self.study = agreement.study
        self.run = run
        self.channel = channel
        self.journal = journal
        self.keys = keys
        self.noise = noise
        self.progress = progress
        self.timeouts = timeouts
        self.watch = watch
        self._mount = ""
        self._memory = RunMemory(list(agreement.consortium.parties), journal.heads())

    def under(self, mount: str) -> Self:
        """The same run, with steps looked up in the part that is mounted here."""
        view = copy.copy(self)
        view._mount = mount
        return view

    # What is known of the run.

    @property
    def alive(self) -> list[str]:
        return list(self._memory.alive)

    @property
    def lost(self) -> dict[str, str]:
        """Why each lost party was lost."""
        return dict(self._memory.lost)

    @property
    def dims(self) -> Mapping[str, int]:
        """Public sizes that this run has bound."""
        return self._memory.dims

    @property
    def set_ups(self) -> dict[int, SetUp]:
        """The set-ups of the secure sum, by the place of their group."""
        return self._memory.set_ups

    @property
    def kept(self) -> dict[str, Any]:
        """What this run has paid for so far, by release, as its receivers got it."""
        return self._memory.kept.values(self.declaration)

    @property
    def sent(self) -> list[Sent]:
        """What asks of this run have sent parties so far, and parties may keep."""
        return self._memory.kept.sent

    @property
    def transcript(self) -> Transcript:
        return transcript_of(self.journal, self.study, self.run, entrusted=entrusted_steps(self.agreement))

    def lose(self, party: str, why: str) -> None:
        """Stop asking a party: what it sent can't be used."""
        if self._memory.lose(party, why):
            log.warning("%s is lost: it %s", party, why)

    def cancel(self) -> None:
        """Stop waiting, in all views of this run. Callable from any thread; a pending `ask` raises Stopped. Nothing is
        decided by it: running again resumes the run."""
        self._memory.cancellation.cancel()

    # Releases.

    def sum(self, step: Callable[..., Any], **values: Any) -> Total:
        """Run a step that contributes, and open its release as declared: by the secure sum or by adding. The total is
        compared with what public figures allow."""
        spec = spec_of(step, self.consortium)
        release = summed_release(self.declaration, spec)
        index = self._memory.count(release)
        sources = self.consortium.among(release.source)
        if isinstance(release.protection, Summed):
            # Masks come first: parties mask in the reply with which they pay.
            sources = prepare_sums(self.under(SUM), self.agreement.sum_group(f"{release.name}/{index}")).members
        got = self.ask(step, label=index, need=release.min_parties(self.consortium), to=sources, **values)
        found = open_release(self.under(SUM), self.agreement, release, index, got)
        require_plausible(release, self.consortium, found.value, found.parties)
        if isinstance(release.protection, Summed):
            self._memory.kept.add(release, f"{spec.name}[{index}]", opened_sum(found.value, found.parties))
        return found

    def require(self, name: str, parties: int, ranges: Iterable[Range], *, sender: str = "") -> None:
        """End the run if an opened value lies outside of `ranges`, which the method knows from public figures. The
        value is of `parties` contributions, or of the one party `sender`."""
        require_ranges(self.declaration[name], self.consortium, parties, ranges, sender=sender)

    def perturb(self, name: str, value: NDArray[np.float64]) -> NDArray[np.float64]:
        """Add a trusted coordinator's noise to a value made from entrusted releases. The noise is drawn once for each
        time the release is made, and journalled."""
        release = self.declaration[name]
        index = self._memory.count(release)
        noisy = perturb(release, index, value, self.consortium, self.noise, self.once)
        self._memory.kept.add(release, f"{name}[{index}]", noisy)
        return noisy

    def compute(self, name: str, values: Any) -> Any:
        """Run a trusted coordinator's mechanism on values from entrusted releases. It runs once for each time the
        release is made, and its result is journalled."""
        release = self.declaration[name]
        index = self._memory.count(release)
        found = curate(release, index, values, self.consortium, self.noise, self.once)
        self._memory.kept.add(release, f"{name}[{index}]", found)
        return found

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """A random value or a decision of the coordinator, made once per run and journalled."""
        return self.journal.once(self.run, f"{self._mount}.{name}" if self._mount else name, make)

    # Asks.

    def ask(
        self,
        step: Callable[..., Any] | str,
        *,
        to: Iterable[str] | None = None,
        each: Mapping[str, Mapping[str, Any]] | None = None,
        label: str | int = 0,
        need: int | None = None,
        quorums: Quorums = (),
        valid: Check | None = None,
        unanimous: bool = False,
        timeouts: Timeouts | None = None,
        **values: Any,
    ) -> dict[str, PartyValues]:
        """Run a step at some parties and return the values that they give, by party. All of them get `values`, and a
        party also gets its entry of `each`.

        Lost parties are missing from the result: those that are silent, refused or stopped, and those whose reply is
        not as declared or fails `valid`, which raises Malformed. Fewer replies than `need` (default: as many as are
        named, lost before or not), or than `needed` of a group, stop the run, to be resumed. With `unanimous` one
        refusal ends the ask, whatever is needed. `timeouts` is how long this ask waits.
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
                quorums=quorums,
                unanimous=unanimous,
                valid=valid,
                timeouts=timeouts or self.timeouts,
            )
            self._decide(path, terms)
        got = self._read(path)
        part = self.agreement.declared(path.mount)
        self._memory.kept.add_exchange(self.declaration, part, str(path), values, each or {}, got)
        return got

    def tell(
        self, step: str, to: Iterable[str], each: Mapping[str, Mapping[str, Any]] | None = None, **values: Any
    ) -> bool:
        """Tell parties, lost ones included, that the run is over; whether all have heard it. The ask stays open until
        then, and running again repeats it. A party that refuses it has heard it."""
        path = self._path(step, 0)
        if self.progress is not None:
            self.progress(str(path))
        receivers = list(to)
        self._open(path, receivers, values, each or {})
        if self.journal.is_closed(self.run, str(path)):
            return True
        # No reply decides this ask: none may shorten the wait for the others.
        done = self._send(path, Terms(need=len(receivers), timeouts=replace(self.timeouts, grace=None)))
        for party, refusal in done.refusals.items():
            if refusal.code != "stopped":
                done.answers[party] = encode({"refused": refusal.code, "key": refusal.key})
                done.answered.append(party)
        here = {*self.journal.answered(self.run, str(path)), *done.answered}
        missing = [party for party in self.journal.asked(self.run, str(path)) if party not in here]
        self.journal.record(self.run, str(path), done.answers, decided=not missing)
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
        declared = self.agreement.declared(path.mount)
        for_one = {key: value for key, value in values.items() if declared[key].sealed}
        for party in asked:
            mine = {**values, **each.get(party, {})}
            for key, value in mine.items():
                if isinstance(declared[key].form, Count):
                    self._memory.dims[key] = value
            for key, value in mine.items():
                declared[key].check(value, COORDINATOR, party, self.consortium, self._memory.dims)
        mail = {party: self._memory.mail.pop(party, []) for party in asked}

        def party_asks() -> Iterator[tuple[str, PartyAsk]]:
            for party in asked:
                mine = {**for_one, **each.get(party, {})}
                if any(declared[key].sealed for key in mine):
                    mine = seal_values(mine, declared, self._sealing_key(party), self._heads(path, party))
                yield party, PartyAsk(encode(mine), encode(mail[party]), self.seen(party))

        common = {key: value for key, value in values.items() if key not in for_one}
        self.journal.open(self.run, str(path), encode(common), party_asks())

    def _heads(self, path: StepPath, to: str) -> Callable[[str], Head]:
        return lambda name: Head(self.study, self.run, str(path), COORDINATOR, to, name)

    def _reader(self, path: StepPath) -> Reader:
        _, spec = self.agreement.step(path)
        return Reader(self.agreement, self.run, path, spec, self._memory.dims, self.run_key)

    def _decide(self, path: StepPath, terms: Terms) -> None:
        before = self.journal.answered(self.run, str(path))
        left = tuple((members - {*before}, least - len(members & {*before})) for members, least in terms.quorums)
        done = self._send(path, replace(terms, need=terms.need - len(before), quorums=left))
        got = len(before) + len(done.answered)
        said_no = {party: one for party, one in done.refusals.items() if one.code != "stopped"}
        lacks = max(terms.need - got, count_missing(terms.quorums, [*before, *done.answered]))
        enough = lacks <= 0 and not (terms.unanimous and said_no)
        self.journal.record(self.run, str(path), done.answers, decided=enough, why=done.faults)
        if not enough:
            raise too_few(path, got, got + max(0, lacks), done.faults, said_no)

    def _send(self, path: StepPath, terms: Terms) -> Round:
        missing = [party for party, here in self.journal.asked(self.run, str(path)).items() if not here]
        cancellation = self._memory.cancellation
        done = Round()

        def store(done: Round) -> None:
            self.remember(done.heads)
            self.journal.record(self.run, str(path), done.answers, decided=False)
            done.answers, done.heads, done.unstored_bytes = {}, {}, 0

        terms = replace(terms, watch=self.watch, cancellation=cancellation)
        if not cancellation.cancelled:
            done = exchange(self._reader(path), missing, self.keys, self.channel, self.journal, terms, store)
        if cancellation.cancelled:
            # No party is lost by it: the replies that came count, and the ask stays open.
            store(done)
            raise Stopped(f"{path}: cancelled. Nothing is lost: run again with the same run id to resume")
        self.remember(done.heads)
        return done

    def _read(self, path: StepPath) -> dict[str, PartyValues]:
        out: dict[str, PartyValues] = {}
        reader, faults = self._reader(path), None
        for party, raw in self.journal.each_reply(self.run, str(path)):
            if raw is None:
                if party in self._memory.alive:
                    faults = self.journal.faults(self.run, str(path)) if faults is None else faults
                    why = f"{path}: {faults.get(party, 'no answer')}"
                    self._memory.lose(party, why)
                    log.warning("%s is lost in %s", party, why)
                continue
            out[party], mail = reader.read_stored(party, raw)
            for letter in mail:
                self._memory.mail.setdefault(letter["to"], []).append(letter)
        return out

    # Keys of this run, and heads of ledgers.

    @property
    def run_key(self) -> Identity:
        """The coordinator's own key of this run, deleted with it."""
        if self._memory.run_key is None:
            self._memory.run_key = Identity(self.journal.once(self.run, _KEY, fresh_seed))
        return self._memory.run_key

    @property
    def run_keys(self) -> Mapping[str, Mapping[str, bytes]]:
        """Each party's key of this run, signed by its pinned one."""
        return self._memory.run_keys

    def meet(self, keys: Mapping[str, Mapping[str, bytes]]) -> None:
        """From now on, seal a value for one party to its key of this run."""
        self._memory.run_keys = dict(keys)

    def _sealing_key(self, party: str) -> PublicIdentity:
        signed = self.run_keys.get(party)
        if signed is None:
            raise Refused(f"{party} has shown no key for this run, which has not begun there", code="sealed")
        return PublicIdentity.from_sealing(signed["key"])

    def seen(self, party: str) -> list[ledger_heads.Head]:
        """The newest heads of this party's ledgers that the coordinator or a peer saw."""
        identity = self.consortium.roster.get(party)
        return [] if identity is None else self._memory.heads.get((party, identity.sign), [])

    def remember(self, found: Mapping[tuple[str, bytes], list[ledger_heads.Head]]) -> None:
        """Keep heads of ledgers, whose signatures were verified, in the journal and for the next ask."""
        self.journal.remember_heads(found)
        self._memory.remember(found)
