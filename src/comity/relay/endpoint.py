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

from comity.errors import BadInput, ComityError, Refused, StudyError
from comity.federation.messages.channel import MAX_BYTES
from comity.federation.owner.host import Answer
from comity.relay.address import RelayAddress
from comity.relay.wire import PIECE_BYTES, Frame, Kind, get_piece, pack_frame, read_frames
from comity.site.logs import current_form
from comity.site.service import SiteService, lock_ledger
from comity.site.site_file import SiteFile

log = logging.getLogger("comity.site")

MAX_CONCURRENT_ASKS = 4
"""Asks that a site answers at once. A run has one open at a time, so this many runs proceed side by side."""
_RESTART_SECONDS = 1.0


class NatsEndpoint:
    """A site's end of the relay, made from its site file. The relay must know its key as the party of the site file:
    otherwise nobody would hear what the coordinator asks that party."""

    def __init__(self, site: SiteFile) -> None:
        assert site.invitation is not None
        self.relay = RelayAddress.load(site.invitation, site.keys)
        try:
            self.relay.require_member(site.party)
        except BadInput as error:
            raise StudyError(f"{site.where}: {error}", code=error.code, key=error.key) from error

    def serve(self, service: SiteService) -> None:
        with lock_ledger(service.site):
            serve(service, self.relay)


class RequestHandler(Protocol):
    """What a site does with what arrives; an owner's `SiteService` is one. Several threads call it. What it raises does
    not leave the site."""

    @property
    def party(self) -> str: ...

    def answer(self, raw: bytes) -> Answer:
        """The signed reply to an ask."""

    def receive(self, raw: bytes) -> bytes:
        """Take in a packed study; the signed reply to it."""

    def record_refusal(self, error: ComityError) -> None:
        """Record for the owner that the agent dropped something; called at most once a second."""


_DROPPED = {
    "size": "a message was announced that is larger than a site takes",
    "frame": "something arrived at this site's subject that is no message of Comity",
    "untrue": "a message arrived that is not the one that was announced",
}


def serve(
    site: RequestHandler,
    relay: RelayAddress,
    *,
    max_bytes: int = MAX_BYTES,
    stop: threading.Event | None = None,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Connect to the relay and answer until `stop` is set or, in the main thread, SIGINT or SIGTERM arrives. Answers in
    progress are finished and stored before this returns."""
    stop = stop or threading.Event()
    with _stop_on_signals(stop):
        ready()
        while not stop.is_set():
            _serve_once(site, relay, max_bytes, stop)
            if not stop.wait(_RESTART_SECONDS):
                log.warning("%s: the process that talks to the relay ended; it is started again", site.party)


def _serve_once(site: RequestHandler, relay: RelayAddress, max_bytes: int, stop: threading.Event) -> None:
    """Serve while the agent's process lives, or until `stop`."""
    ours, its = socket.socketpair()
    with ours, its:
        files = map(str, (relay.invitation, relay.keys))
        words = [current_form().value, site.party, str(max_bytes), relay.address, *files]
        # A separate session keeps Ctrl-C for this process, which first finishes its answers. The agent ends when this
        # end of the pipe closes, however this process ends.
        agent = subprocess.Popen(
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
            agent.terminate()
            agent.wait()


class Worker:
    """Assembles asks from the pipe, answers them in threads, and sends the replies back."""

    def __init__(self, line: socket.socket, site: RequestHandler) -> None:
        self._line = line
        self._site = site
        self._arriving: dict[bytes, BytesIO] = {}
        self._threads = ThreadPoolExecutor(MAX_CONCURRENT_ASKS, "answer")
        # A separate thread: a slow pack does not delay the answers of a run.
        self._packs = ThreadPoolExecutor(1, "study")
        self._sending = threading.Lock()

    def run(self) -> None:
        """Work until the agent closes the pipe."""
        for frame in read_frames(self._line):
            match frame.kind:
                case Kind.PIECE:
                    self._arriving.setdefault(frame.id, BytesIO()).write(frame.body)
                case Kind.HAVE:
                    message = self._arriving.pop(frame.id, BytesIO()).getvalue()
                    is_study = frame.number == Kind.STUDY
                    work, threads = (self._site.receive, self._packs) if is_study else (self._answer, self._threads)
                    with suppress(RuntimeError):  # the site is stopping; the coordinator asks again
                        threads.submit(self._work, work, frame.id, message)
                    del message
                case Kind.FAILED:
                    word = bytes(frame.body).decode("ascii")
                    why = _DROPPED.get(word, "something unreadable arrived")
                    self._site.record_refusal(Refused(f"refused: {why}", code=word))
                case Kind.DONE:
                    self._arriving.pop(frame.id, None)

    def end(self) -> None:
        """Accept no more work, and return when the answers in progress are done."""
        self._packs.shutdown(wait=False, cancel_futures=True)
        self._threads.shutdown(cancel_futures=True)
        self._packs.shutdown()

    def _answer(self, raw: bytes) -> bytes:
        return self._site.answer(raw).reply

    def _work(self, work: Callable[[bytes], bytes], name: bytes, message: bytes) -> None:
        try:
            reply = work(message)
        except Exception:
            log.exception("%s: an ask could not be answered; the coordinator learns that it failed", self._site.party)
            self._send(Frame(Kind.FAILED, name))
            return
        del message
        self._send(Frame(Kind.REPLY, name, len(reply)))
        for number in range(-(-len(reply) // PIECE_BYTES)):
            self._send(Frame(Kind.PIECE, name, number, get_piece(reply, number)))

    def _send(self, frame: Frame) -> None:
        try:
            with self._sending:
                self._line.sendall(pack_frame(frame))
        except OSError:
            log.info("%s: a reply was not sent; it is stored and goes out when asked again", self._site.party)


@contextmanager
def _stop_on_signals(stop: threading.Event) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
