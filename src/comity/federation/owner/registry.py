"""The studies that one party serves in one process: an ask is answered by the host of the study that it names.

Promise    An ask reaches the host of its study if the coordinator that this study pins signed it for this party. Any
           other gets one and the same refusal, "study": of an unknown or withdrawn study, by the coordinator of
           another, unsigned, garbled. Once `withdraw` has returned, nothing of the study runs here or will.
Against    Coordinators of approved studies, members of the consortium and whoever carries the bytes, who try out
           hashes: without the right key, whether a study is served here can't be read from the reply, and the same
           work is done for each.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition

from comity.crypto.sealing import Identity
from comity.entropy import fresh_seed
from comity.errors import Refused
from comity.federation.declare.consortium import COORDINATOR
from comity.federation.messages.ask import study_of
from comity.federation.messages.codec import encode
from comity.federation.messages.envelope import Digests, sign_reply, verify_ask
from comity.federation.owner.host import Answer, Host

log = logging.getLogger("comity.site")


class Registry:
    """Hosts of one party by the hash of their study. Callable from any thread; studies come and go while it serves."""

    def __init__(self, party: str, keys: Identity) -> None:
        self.party = party
        self._keys = keys
        self._nobody = Identity(fresh_seed()).public
        self._changed = Condition()
        self._hosts: dict[str, Host] = {}
        self._busy: dict[Host, int] = {}

    @property
    def studies(self) -> tuple[str, ...]:
        """The hashes of what is served."""
        with self._changed:
            return tuple(self._hosts)

    def admit(self, host: Host) -> None:
        """Serve a study from now on. Another approval of one that is served: withdraw it first."""
        if host.party != self.party or host.keys.public != self._keys.public:
            raise Refused(f"a host of {host.party!r} with its keys can't be served by {self.party!r}", code="keys")
        host.identity_of(COORDINATOR)
        study = host.agreed.study
        with self._changed:
            if study in self._hosts:
                raise Refused(f"study {study[:12]} is served already; withdraw it first", code="exists", key="study")
            self._hosts[study] = host

    def withdraw(self, study: str, *, wait: bool = True) -> None:
        """Serve a study no more; returns when no step of it runs, or without `wait` as soon as none begins any more.
        What was drawn stays spent, and its open runs stay open until they are abandoned or the study is admitted
        again."""
        with self._changed:
            host = self._hosts.pop(study, None)
            if host is not None and wait:
                self._changed.wait_for(lambda: host not in self._busy)

    def answer(self, raw: bytes) -> bytes:
        """The signed reply to an ask. It never raises."""
        return self.answered(raw).reply

    def answered(self, raw: bytes) -> Answer:
        """`answer`, with the sentence of a refusal for whoever is at home here."""
        digests = Digests.of_signed(raw)
        named = study_of(raw)
        with self._serving(named) as host:
            asker = self._nobody if host is None else host.identity_of(COORDINATOR)
            try:
                verify_ask(asker, self.party, raw, digests)
            except Refused as error:
                why = (
                    f"its coordinator did not sign this for us ({error})"
                    if host
                    else "it is not served here; comity site inbox tells whether it waits for you"
                )
                refusal = Refused(f"study {(named or '?')[:12]!r}: {why}", code="study")
            else:
                assert host is not None
                return host.answered(raw, digests)
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
