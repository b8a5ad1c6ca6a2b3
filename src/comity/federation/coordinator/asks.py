"""Asking parties for steps: an ask from where it is opened to where its replies are read.

An ask stays open until the journal closes it; who was lost in it is part of the record. A reply is looked at before
that: a party whose reply is not what was declared, that refuses or that stopped, is lost like one that is silent, and
the run goes on if enough are left.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Self

from comity.crypto.sealing.sealed import Identity, PublicIdentity
from comity.entropy import fresh_seed
from comity.errors import Refused, Stopped
from comity.federation.agreement import Agreement
from comity.federation.coordinator.exchange import Round, Terms, Valid, Watch, exchanged, lacking
from comity.federation.coordinator.journal import Journal, Own
from comity.federation.coordinator.replies import Given, Reader, too_few
from comity.federation.coordinator.run_memory import RunMemory
from comity.federation.declare.consortium import COORDINATOR, Consortium
from comity.federation.declare.declaration import Declaration, Needed
from comity.federation.declare.release import Count
from comity.federation.messages import heads
from comity.federation.messages.channel import FOR_EVER, Channel, Patience
from comity.federation.messages.codec import encode
from comity.federation.messages.letters import Head
from comity.federation.messages.paths import StepPath
from comity.federation.messages.sealed_values import sealed_values
from comity.federation.step import spec_of
from comity.privacy.randomness import NoiseSource

log = logging.getLogger("comity.coordinator")

Progress = Callable[[str], None]

_KEY = "run:key"


class Asks:
    """A run, as far as steps are asked of its parties. `keys` are the coordinator's own, pinned in the roster under its
    name; `noise` is the trusted coordinator's, where a method has one. `patience` is how long each ask waits, unless
    the ask itself says otherwise; `watch` is told what is heard of each party while it does."""

    def __init__(
        self,
        agreed: Agreement,
        *,
        run: str,
        channel: Channel,
        journal: Journal,
        keys: Identity,
        noise: NoiseSource | None = None,
        progress: Progress | None = None,
        patience: Patience = FOR_EVER,
        watch: Watch | None = None,
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
        self._mount = ""
        self._memory = RunMemory(list(agreed.consortium.parties), journal.heads())

    @property
    def alive(self) -> list[str]:
        return list(self._memory.alive)

    @property
    def lost(self) -> dict[str, str]:
        """Why parties are no longer there, by party."""
        return dict(self._memory.lost)

    @property
    def run_keys(self) -> Mapping[str, Mapping[str, bytes]]:
        """Each party's key of this run, signed by its pinned one."""
        return self._memory.run_keys

    def meet(self, keys: Mapping[str, Mapping[str, bytes]]) -> None:
        """From here on values for one party alone can be sealed to its key of this run."""
        self._memory.run_keys = dict(keys)

    @property
    def dims(self) -> Mapping[str, int]:
        """Public sizes that this run has bound."""
        return self._memory.dims

    def lose(self, party: str, why: str) -> None:
        """Ask this party no more: what it sent can't be used."""
        if self._memory.lose(party, why):
            log.warning("%s is lost: it %s", party, why)

    def cancel(self) -> None:
        """Wait for nobody any more, in any view of this run; callable from another thread. Whoever is asking gets
        Stopped. Nothing is decided by it: the run is resumed by running it again."""
        self._memory.cancelling.cancel()

    def under(self, mount: str) -> Self:
        """The same run, with steps looked up in a part of the protocol."""
        view = copy.copy(self)
        view._mount = mount
        return view

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
        signed = self.run_keys.get(party)
        if signed is None:
            raise Refused(f"{party} has shown no key for this run, which has not begun there", code="sealed")
        return PublicIdentity.from_sealing(signed["key"])

    @property
    def run_key(self) -> Identity:
        """The coordinator's own key of this run, deleted with it."""
        if self._memory.run_key is None:
            self._memory.run_key = Identity(self.journal.once(self.run, _KEY, fresh_seed))
        return self._memory.run_key

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
        self._memory.remember(found)

    def _read(self, path: StepPath) -> dict[str, Given]:
        out: dict[str, Given] = {}
        reader, faults = self._reader(path), None
        for party, raw in self.journal.each_reply(self.run, str(path)):
            if raw is None:
                if party in self._memory.alive:
                    faults = self.journal.faults(self.run, str(path)) if faults is None else faults
                    why = f"{path}: {faults.get(party, 'no answer')}"
                    self._memory.lose(party, why)
                    log.warning("%s is lost in %s", party, why)
                continue
            out[party], mail = reader.stored(party, raw)
            for letter in mail:
                self._memory.mail.setdefault(letter["to"], []).append(letter)
        return out
