"""Letters between the parties of a run: sealed to the receiver's key of that run, signed, and relayed by the
coordinator."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from comity.crypto.sealing import Identity, PublicIdentity
from comity.errors import Malformed, Refused
from comity.federation.declare.consortium import Consortium
from comity.federation.messages.ask import StepPath
from comity.federation.messages.box_store import LARGE_BYTES
from comity.federation.messages.codec import decode, encode
from comity.federation.messages.letters import Head, Letter, seal, seal_in_common, unseal
from comity.federation.owner.run_state import RunState, place_of

if TYPE_CHECKING:
    from comity.federation.owner.host import Host

log = logging.getLogger("comity.site")

SECRET = "run:secret"
COORDINATOR_KEY = "run:coordinator"
KEY_OF = "run:key:"
"""Where the keys of a run are kept."""


class Mailbox:
    """The letters that one step sends and receives, and the keys of the run that seal and open them."""

    def __init__(self, host: Host, run: str, path: StepPath, state: RunState, consortium: Consortium) -> None:
        self._host = host
        self._study = host.agreement.study
        self._run = run
        self._path = path
        self._state = state
        self._consortium = consortium
        self.party = host.party
        self.effects = state.effects
        self._run_key: Identity | None = None
        self._written: set[tuple[str, str]] = set()

    def send(self, to: str, name: str, value: Any, key: PublicIdentity | None = None) -> None:
        """Seal a declared value to a party's key of this run and sign it. The coordinator relays it with the next ask.
        Without `key`, the receiver's key is the one that `run.meet` brought."""
        self._require_letter([to], name, value)
        data, head = encode(value), self._head(to, name)
        if len(data) < LARGE_BYTES:
            self.effects.mail.append(seal(self._host.keys, key or self._key_of(to), head, data))
        else:
            self._send_box({to: key or self._key_of(to)}, {to: head}, data)

    def send_all(self, receivers: Iterable[str], name: str, value: Any) -> None:
        """`send` to several parties. A large value is encrypted, relayed and journalled only once."""
        heads = {to: self._head(to, name) for to in receivers}
        self._require_letter(heads, name, value)
        self._send_box({to: self._key_of(to) for to in heads}, heads, encode(value))

    def _send_box(self, receivers: Mapping[str, PublicIdentity], heads: Mapping[str, Head], data: bytes) -> None:
        letters, box = seal_in_common(self._host.keys, receivers, heads, data)
        self.effects.mail += letters
        self.effects.boxes[letters[0]["bulk"]] = box

    def heads(self, sender: str, to: str | None = None) -> Callable[[str], Head]:
        """A function that makes the head of a value from its name, in this ask; by default to this party."""
        return lambda name: Head(self._study, self._run, str(self._path), sender, to or self.party, name)

    def _head(self, to: str, name: str) -> Head:
        return self.heads(self.party, to)(name)

    def _require_letter(self, receivers: Iterable[str], name: str, value: Any) -> None:
        if self._host.agreement.writer_of(name, holdout=self._state.holdout) != self._path.mount:
            raise Refused(f"{name} is not declared as a letter between parties", code="undeclared", key=name)
        release = self._host.agreement.declared(self._path.mount)[name]
        for to in receivers:
            release.check(value, self.party, to, self._consortium, self._state.dims)
            if (to, name) in self._written:
                raise Refused(f"this step has sent {name} to {to} before", code="undeclared", key=name)
            self._written.add((to, name))

    def received(self, name: str, senders: Iterable[str] | None = None) -> dict[str, Any]:
        """What other parties sent under a declared name in this run, by sender."""
        asked = self._consortium.parties if senders is None else senders
        found = ((party, self._state.kept(_slot(name, party))) for party in asked)
        return {party: value for party, value in found if value is not None}

    def take(self, name: str, senders: Iterable[str] | None = None) -> dict[str, Any]:
        """`received`, once: this step deletes what it takes. A letter that came with this ask is not even stored."""
        found = self.received(name, senders)
        for party in found:
            self._state.forget(_slot(name, party))
        return found

    def open(self, letter: Letter) -> None:
        """Open a letter to this party in this run, and hold it. A malformed letter counts as none: if the site refused
        the ask for it, a bad sender could stop the parties that it writes to."""
        head = Head.of(letter)
        if (head.study, head.run, head.to) != (self._study, self._run, self.party):
            raise Malformed("a sealed message belongs to another study, run or party", code="sealed")
        sender = self._host.identity_of(head.sender)
        try:
            release = self._host.agreement.letter(head.path, head.name)
            raw = unseal(self.run_key(), sender, head, letter)
            release.check(decode(raw), head.sender, self.party, self._host.consortium, self._state.dims)
        except Refused as error:
            log.warning("%s ignores a letter of %r: %s", self.party, head.sender, error)
            return
        if not self._hold(head.name, head.sender, head.path, raw):
            log.warning("%s ignores a second letter %r of %r", self.party, head.name, head.sender)

    def _hold(self, name: str, sender: str, path: str, raw: bytes) -> bool:
        """Keep a letter. The first of a name and sender stays until a step takes it, and no letter is held twice: a
        later one replaces nothing."""
        holdout = self._host.agreement.is_holdout(StepPath.parse(path).mount)
        slot, known = place_of(_slot(name, sender), holdout=holdout), place_of(_had(name, sender), holdout=holdout)
        stored = self._state.stored(known)
        had = [] if stored is None else decode(stored)
        if path in had or self._state.stored(slot) is not None:
            return False
        # Letters hold the canonical encoding: there is no need to encode the value again.
        self.effects.state[slot] = raw
        self.effects.state[known] = encode([*had, path])
        return True

    # Keys of this run, deleted with it.

    def run_key(self) -> Identity:
        """This party's own key of this run."""
        if self._run_key is None:
            secret = self._state.kept(SECRET)
            if secret is None:
                raise Refused("this run has no key here", code="sealed")
            self._run_key = self._host.run_key(secret)
        return self._run_key

    def coordinator_key(self) -> PublicIdentity:
        """The coordinator's key of this run."""
        key = self._state.kept(COORDINATOR_KEY)
        if key is None:
            raise Refused("this run has no key of its coordinator here", code="sealed")
        return PublicIdentity.from_sealing(key)

    def check_key(self, party: str, signed: Mapping[str, bytes]) -> PublicIdentity:
        """Another party's key of this run, if its pinned key signed it."""
        text = encode([self._study, self._run, "run key", party, signed["key"]])
        self._host.identity_of(party).verify(signed["signature"], text)
        return PublicIdentity.from_sealing(signed["key"])

    def _key_of(self, party: str) -> PublicIdentity:
        signed = self._state.kept(f"{KEY_OF}{party}")
        if signed is None:
            raise Refused(f"{party} has shown no key for this run", code="sealed")
        return self.check_key(party, signed)


def _slot(name: str, sender: str) -> str:
    # A sender may have any name, but the name of a release has no colon: two slots never coincide.
    return f"in:{name}:{sender}"


def _had(name: str, sender: str) -> str:
    return f"had:{name}:{sender}"
