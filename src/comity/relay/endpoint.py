"""A site's end of the relay: it hands asks to the site's service and packed studies to its inbox, until it is stopped.

Two processes share the work. This one has the hosts and answers. A small one (`agent`) talks to the relay and sends
signs of life, even while a step holds the interpreter's lock. Either may die: answers are stored, and the coordinator
asks again.
"""

from __future__ import annotations

import logging
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from io import BytesIO
from typing import Protocol

from comity.errors import Refused, StudyError
from comity.federation.messages.channel import MOST
from comity.relay.address import Relay
from comity.relay.certificates import CERTIFICATE
from comity.relay.membership import membership
from comity.relay.wire import PIECE, Frame, Kind, frames, packed, piece_of
from comity.site.logs import current_form
from comity.site.service import Desk, alone
from comity.site.site_file import SiteFile

log = logging.getLogger("comity.site")

RUNS = 4
"""Asks that are answered at once. A run has one open at a time, so that this many runs go on beside each other."""
_PAUSE = 1.0


class Answering(Protocol):
    """What a site does with what arrives, from several threads. What it raises stays at home."""

    @property
    def party(self) -> str: ...

    def answer(self, raw: bytes) -> bytes:
        """The signed reply to an ask."""

    def receive(self, pack: bytes) -> bytes:
        """Take in a packed study; the signed reply to it."""

    def dropped(self, why: bytes) -> None:
        """Something arrived that nobody works on (`frames`); said once a second at most."""


def serve(
    site: Answering,
    relay: Relay,
    *,
    most: int = MOST,
    stop: threading.Event | None = None,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Dial the relay and answer, until `stop` is set or, in a main thread, this process is told to end. An answer that
    is being made is finished and stored before this returns."""
    stop = stop or threading.Event()
    with _told_to_end(stop):
        ready()
        while not stop.is_set():
            _serve_once(site, relay, most, stop)
            if not stop.wait(_PAUSE):
                log.warning("%s: the process that talks to the relay ended; it is started again", site.party)


def _serve_once(site: Answering, relay: Relay, most: int, stop: threading.Event) -> None:
    """As long as the desk's process lives, or until `stop`."""
    ours, its = socket.socketpair()
    with ours, its:
        files = map(str, (relay.certificate, relay.key, relay.authority))
        words = [current_form().value, site.party, str(most), relay.address, *files]
        # A session of its own: Ctrl-C is for us, and what we are doing is finished first. It ends with our end of the
        # pipe, however we end.
        desk = subprocess.Popen(
            [sys.executable, "-m", "comity.relay.agent", *words], stdin=its.fileno(), start_new_session=True
        )
        its.close()
        worker = Worker(ours, site)
        reading = threading.Thread(target=worker.run, name="asks", daemon=True)
        reading.start()
        try:
            while reading.is_alive() and not stop.is_set():
                reading.join(0.1)
        finally:
            worker.end()
            desk.terminate()
            desk.wait()


class Worker:
    """Puts asks together from the line, lets threads answer them, and sends the replies back."""

    def __init__(self, line: socket.socket, site: Answering) -> None:
        self._line = line
        self._site = site
        self._coming: dict[bytes, BytesIO] = {}
        self._threads = ThreadPoolExecutor(RUNS, "answer")
        # Apart, so that packs that take long keep nobody's run from its answers.
        self._packs = ThreadPoolExecutor(1, "study")
        self._sending = threading.Lock()

    def run(self) -> None:
        """Until the other end is gone."""
        for frame in frames(self._line):
            match frame.kind:
                case Kind.PIECE:
                    self._coming.setdefault(frame.id, BytesIO()).write(frame.body)
                case Kind.HAVE:
                    message = self._coming.pop(frame.id, BytesIO()).getvalue()
                    is_study = frame.number == Kind.STUDY
                    work, threads = (
                        (self._site.receive, self._packs) if is_study else (self._site.answer, self._threads)
                    )
                    with suppress(RuntimeError):  # it is told to end; the coordinator asks again
                        threads.submit(self._work, work, frame.id, message)
                    del message
                case Kind.FAILED:
                    self._site.dropped(bytes(frame.body))
                case Kind.DONE:
                    self._coming.pop(frame.id, None)

    def end(self) -> None:
        """Take no more; returns when what is being answered is done."""
        self._packs.shutdown(wait=False, cancel_futures=True)
        self._threads.shutdown(cancel_futures=True)
        self._packs.shutdown()

    def _work(self, work: Callable[[bytes], bytes], name: bytes, message: bytes) -> None:
        try:
            reply = work(message)
        except Exception:
            log.exception("an ask could not be answered")
            self._send(Frame(Kind.FAILED, name))
            return
        del message
        self._send(Frame(Kind.REPLY, name, len(reply)))
        for number in range(-(-len(reply) // PIECE)):
            self._send(Frame(Kind.PIECE, name, number, piece_of(reply, number)))

    def _send(self, frame: Frame) -> None:
        try:
            with self._sending:
                self._line.sendall(packed(frame))
        except OSError:
            log.info("a reply was not taken; it is stored, and is given when it is asked for again")


@contextmanager
def _told_to_end(stop: threading.Event) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class NatsEndpoint:
    """Refuses a certificate that makes its holder another member than the party of the site file: nobody would hear
    what is asked of that party."""

    def __init__(self, site: SiteFile) -> None:
        assert site.relay is not None
        self.relay = Relay(site.relay.address, site.home / (site.relay.certificate or f"relay/{CERTIFICATE}"))
        member, joined = membership(self.relay.certificate.parent)
        if member != site.party:
            raise StudyError(
                f"{site.where}: party = {site.party!r}, and {self.relay.certificate} is a certificate for {member!r}; "
                "correct one of them",
                key="party",
            )
        if joined.address != self.relay.address:
            raise StudyError(
                f"{site.where}: relay.address = {self.relay.address!r}, and the invitation said {joined.address!r}; "
                "correct it, or join again",
                key="relay.address",
            )

        self.relay.require()

    def serve(self, desk: Desk) -> None:
        with alone(desk.site):
            serve(_AtDesk(desk), self.relay)


class _AtDesk:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.party = desk.site.party

    def answer(self, raw: bytes) -> bytes:
        return self._desk.answered(raw).reply

    def receive(self, pack: bytes) -> bytes:
        return self._desk.submitted(pack)

    def dropped(self, why: bytes) -> None:
        word = why.decode("ascii")
        self._desk.refused(
            Refused(f"refused: {_DROPPED.get(word, 'something that can not be read arrived')}", code=word)
        )


_DROPPED = {
    "size": "a message was announced that is larger than a site takes",
    "frame": "something arrived at this site's subject that is no message of Comity",
    "untrue": "a message arrived that is another than was announced",
}
