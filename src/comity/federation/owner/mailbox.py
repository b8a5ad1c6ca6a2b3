"""Letters between the parties of a run: sealed to the receiver's key of that run, signed, and relayed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from comity.crypto.sealing import Identity, PublicIdentity
from comity.errors import Malformed, Refused
from comity.federation.messages.codec import decode, encode
from comity.federation.messages.letters import Head, Letter, seal, seal_in_common, unseal
from comity.federation.messages.paths import StepPath
from comity.federation.owner.memory import Memory, of_part

if TYPE_CHECKING:
    from comity.federation.owner.host import Host

log = logging.getLogger("comity.site")

SECRET = "run:secret"
COORDINATOR_KEY = "run:coordinator"
KEY_OF = "run:key:"
"""Where a run's own keys are kept."""


class Mailbox(Memory):
    def __init__(self, host: Host, run: str, path: StepPath) -> None:
        super().__init__(host, run, path)
        self._run_key: Identity | None = None
        self._written: set[tuple[str, str]] = set()

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

    def heads(self, sender: str, to: str | None = None) -> Callable[[str], Head]:
        """Makes the head of a value by its name, for this ask; to this party where nobody else is named."""
        return lambda name: Head(self._study, self._run, str(self._path), sender, to or self.party, name)

    def _head(self, to: str, name: str) -> Head:
        return self.heads(self.party, to)(name)

    def _check_sealed(self, receivers: Iterable[str], name: str, value: Any) -> None:
        if self._host.agreed.writer_of(name, holdout=self._aside) != self._path.mount:
            raise Refused(f"{name} is not declared as a letter between parties", code="undeclared", key=name)
        release = self._host.agreed.declared(self._path.mount)[name]
        for to in receivers:
            release.check(value, self.party, to, self.consortium, self.dims)
            if (to, name) in self._written:
                raise Refused(f"{name} was written to {to} in this step already", code="undeclared", key=name)
            self._written.add((to, name))

    def hold(self, name: str, sender: str, path: str, raw: bytes) -> bool:
        """Keep a letter that arrived. The first of a name and sender stays until it is taken, and the same letter is
        not taken twice: a later one replaces nothing."""
        aside = self._host.agreed.is_holdout(StepPath.parse(path).mount)
        slot, known = of_part(_slot(name, sender), aside=aside), of_part(_had(name, sender), aside=aside)
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

    def open(self, letter: Letter) -> None:
        """Hold a letter that is for this run and party. One that its sender did not write as it should is as good as
        one that never came: were it refused, a bad sender would end the turn of those that it writes to."""
        head = Head.of(letter)
        if (head.study, head.run, head.to) != (self._study, self._run, self.party):
            raise Malformed("a sealed message belongs to another study, run or party", code="sealed")
        sender = self._host.identity_of(head.sender)
        try:
            release = self._host.agreed.letter(head.path, head.name)
            raw = unseal(self.run_key(), sender, head, letter)
            release.check(decode(raw), head.sender, self.party, self._host.who, self.dims)
        except Refused as error:
            log.warning("%s ignores a letter of %r: %s", self.party, head.sender, error)
            return
        if not self.hold(head.name, head.sender, head.path, raw):
            log.warning("%s ignores a second letter %r of %r", self.party, head.name, head.sender)

    # Keys of this run, deleted with it.

    def run_key(self) -> Identity:
        """This party's own key of this run, which opens what is sealed to it and is deleted with the run."""
        if self._run_key is None:
            secret = self.kept(SECRET)
            if secret is None:
                raise Refused("this run has no key here", code="sealed")
            self._run_key = Identity(secret)
        return self._run_key

    def coordinator_key(self) -> PublicIdentity:
        """The coordinator's key of this run."""
        key = self.kept(COORDINATOR_KEY)
        if key is None:
            raise Refused("this run has no key of its coordinator here", code="sealed")
        return PublicIdentity.from_sealing(key)

    def checked_key(self, party: str, signed: Mapping[str, bytes]) -> PublicIdentity:
        """Another party's key of this run, if its pinned one signed it."""
        self.verify(party, signed["signature"], "run key", party, signed["key"])
        return PublicIdentity.from_sealing(signed["key"])

    def _key_of(self, party: str) -> PublicIdentity:
        signed = self.kept(f"{KEY_OF}{party}")
        if signed is None:
            raise Refused(f"{party} has shown no key for this run", code="sealed")
        return self.checked_key(party, signed)


def _slot(name: str, sender: str) -> str:
    # A sender may be called anything; the name of a release has no colon, so that two slots never coincide.
    return f"in:{name}:{sender}"


def _had(name: str, sender: str) -> str:
    return f"had:{name}:{sender}"
