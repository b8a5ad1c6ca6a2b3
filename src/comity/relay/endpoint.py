"""A site's end of the relay: it hands asks to the site's service and packed studies to its inbox, until it is stopped.

Two processes share the work. This one has the hosts and answers. A small one (`agent`) talks to the relay and sends
signs of life, even while a step holds the interpreter's lock. Either may die: answers are stored, and the coordinator
asks again. Several sites may share the two processes: each has its own keys, ledger and folder, its own connection to
the relay, and its own pipe between the processes.
"""

from __future__ import annotations

import json
import logging
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
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
_MAX_THREADS = 32
_RESTART_SECONDS = 1.0
_MAX_NAMED = 5


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
        serve_services([service])


def serve_services(services: Sequence[SiteService]) -> None:
    """Answer for all these sites in this process, until it is stopped."""
    ends = [(service, NatsEndpoint(service.site).relay) for service in services]
    with ExitStack() as locks:
        for service in services:
            locks.enter_context(lock_ledger(service.site))
        serve_together(ends)


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
    serve_together([(site, relay)], max_bytes=max_bytes, stop=stop, ready=ready)


def serve_together(
    sites: Sequence[tuple[RequestHandler, RelayAddress]],
    *,
    max_bytes: int = MAX_BYTES,
    stop: threading.Event | None = None,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """`serve` for several sites, with one agent process and one pool of threads for all of them."""
    stop, named = stop or threading.Event(), ", ".join(site.party for site, _ in sites[:_MAX_NAMED])
    with _stop_on_signals(stop):
        ready()
        while not stop.is_set():
            _serve_once(sites, max_bytes, stop)
            if not stop.wait(_RESTART_SECONDS):
                log.warning("%s: the process that talks to the relay ended; it is started again", named)


def _serve_once(sites: Sequence[tuple[RequestHandler, RelayAddress]], max_bytes: int, stop: threading.Event) -> None:
    """Serve while the agent's process lives, or until `stop`."""
    pools = _make_pools(len(sites))
    with ExitStack() as pipes:
        pairs = [[pipes.enter_context(end) for end in socket.socketpair()] for _ in sites]
        described = [
            {
                "party": site.party,
                "address": relay.address,
                "invitation": str(relay.invitation),
                "keys": str(relay.keys),
                "pipe": its.fileno(),
            }
            for (site, relay), (_, its) in zip(sites, pairs)
        ]
        # A separate session keeps Ctrl-C for this process, which first finishes its answers. The agent ends when this
        # end of the pipes closes, however this process ends.
        agent = subprocess.Popen(
            [sys.executable, "-m", "comity.relay.agent", current_form().value, str(max_bytes)],
            stdin=subprocess.PIPE,
            start_new_session=True,
            pass_fds=[its.fileno() for _, its in pairs],
        )
        assert agent.stdin is not None
        with suppress(BrokenPipeError), agent.stdin as told:
            told.write(json.dumps(described).encode())
        for _, its in pairs:
            its.close()
        workers = [Worker(ours, site, pools) for (site, _), (ours, _) in zip(sites, pairs)]
        reading = [threading.Thread(target=worker.run, name="asks", daemon=True) for worker in workers]
        for one in reading:
            one.start()
        try:
            # The agent closes all pipes when it ends, and one that fails ends it.
            while reading[0].is_alive() and not stop.is_set():
                reading[0].join(0.1)
        finally:
            for worker in workers:
                worker.end()
            agent.terminate()
            agent.wait()


Pools = tuple[ThreadPoolExecutor, ThreadPoolExecutor]
"""For asks, and for packs."""


def _make_pools(sites: int) -> Pools:
    """Threads that answer asks of so many sites, and a separate one for packs: a slow one delays no run's answers."""
    threads = min(MAX_CONCURRENT_ASKS * sites, _MAX_THREADS)
    return ThreadPoolExecutor(threads, "answer"), ThreadPoolExecutor(1, "study")


class Worker:
    """Assembles asks from the pipe of one site, answers them in threads, and sends the replies back."""

    def __init__(self, line: socket.socket, site: RequestHandler, pools: Pools | None = None) -> None:
        self._line = line
        self._site = site
        self._arriving: dict[bytes, BytesIO] = {}
        self._threads, self._packs = pools or _make_pools(1)
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
