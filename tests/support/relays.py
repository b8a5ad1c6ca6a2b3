"""A consortium on loopback: a real server, members with keys, and sites that are functions."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, cast

import pytest

from comity.crypto import key_file
from comity.errors import ComityError
from comity.federation.messages.channel import MAX_BYTES
from comity.federation.owner.host import Answer
from comity.relay import sandbox, server
from comity.relay.address import RelayAddress
from comity.relay.agent import RelayAgent
from comity.relay.channel import NatsChannel
from comity.relay.endpoint import Worker
from comity.relay.wire import COORDINATOR

# A server that is installed and does not run is a failure, not a reason to skip.
needs_server = pytest.mark.skipif(
    server.locate_server() is None, reason="there is no nats-server here; the extra [deploy-try] has one"
)


class Loopback(sandbox.Loopback):
    """A loopback consortium whose relay can be killed, paused and started."""

    process: subprocess.Popen[bytes] | None = None

    @property
    def folder(self) -> Path:
        return self.consortium

    def start(self) -> None:
        self._now(server.start(self.folder))

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self._now(None)

    def _now(self, process: subprocess.Popen[bytes] | None) -> None:
        object.__setattr__(self, "process", process)

    def down(self, seconds: float) -> None:
        """Kill the relay now, and start it again after so many seconds."""
        self.stop()
        threading.Timer(seconds, self.start).start()

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Pause the relay's process, which keeps its connections."""
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.process.pid, signal.SIGCONT)

    def stranger(self, folder: Path) -> RelayAddress:
        """Somebody with the invitation and keys that are not in the roster."""
        key_file.create(folder / "stranger.keys")
        return RelayAddress.load(self.invitation, folder / "stranger.keys")


class Operated(Loopback):
    """A relay whose operator is hostile: it gave itself a user in the coordinator's account that subscribes to and
    publishes at every subject."""

    @property
    def operator(self) -> RelayAddress:
        folder = self.home / "operator"
        if not folder.exists():
            return self.stranger(folder)
        return RelayAddress.load(self.invitation, folder / "stranger.keys")

    def start(self) -> None:
        user = self.operator.relay_key().user
        written = cast(Any, server).server_configuration
        everything = json.dumps({"publish": [">"], "subscribe": [">"]})
        place = f'"{COORDINATOR}" {{\n    users: [ '

        def with_operator(*arguments: Any, **options: Any) -> str:
            text: str = written(*arguments, **options)
            assert place in text
            return text.replace(place, f'{place}{{ nkey: "{user}", permissions: {everything} }}, ')

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(server, "server_configuration", with_operator)
            super().start()


class Loop:
    """An event loop in a thread, for the agents of many sites in one process."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def start(self, work: Any) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def close(self) -> None:
        async def end() -> None:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        self.start(end()).result(20)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


class FunctionHandler:
    """A site's request handler made from one function."""

    def __init__(self, party: str, answer: Callable[[bytes], bytes]) -> None:
        self.party, self._answer = party, answer

    def answer(self, raw: bytes) -> Answer:
        return Answer(self._answer(raw))

    def receive(self, raw: bytes) -> bytes:
        return b"" if raw.startswith(b"pack") else b"policy"

    def record_refusal(self, error: ComityError) -> None:
        pass


class Site:
    """One site in this process: its agent in a loop, its worker in threads."""

    def __init__(self, loop: Loop, loopback: Loopback, party: str, answer: Any, most: int = MAX_BYTES) -> None:
        ours, its = socket.socketpair()
        self.line = ours
        self.worker = Worker(ours, answer if hasattr(answer, "receive") else FunctionHandler(party, answer))
        threading.Thread(target=self.worker.run, daemon=True).start()
        self.agent = RelayAgent(party, loopback.relay_of(party), its, max_bytes=most)
        self.running = loop.start(self.agent.run())

    def up(self, seconds: float = 20.0) -> None:
        wait_until(lambda: self.agent._link.is_connected, seconds)

    def end(self) -> None:
        with contextlib.suppress(OSError):
            self.line.shutdown(socket.SHUT_RDWR)
        self.line.close()
        with contextlib.suppress(Exception):
            self.running.result(20)


def wait_until(true: Callable[[], object], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


class NatsLine:
    """The line of the conformance suite over a relay: each channel has separate sites, all in this process."""

    can_go_down = True
    copies = 1
    margin = 0

    def __init__(self, loopback: Loopback, *, beat: float = 0.2, grace: float = 0.5) -> None:
        self.loopback, self.beat, self.grace = loopback, beat, grace
        self.loop = Loop()
        self.gone: set[str] = set()
        self.sites: dict[str, Site] = {}
        self.channels: list[NatsChannel] = []
        self.timers: list[threading.Timer] = []

    def channel(self, sites: Mapping[str, Callable[[bytes], bytes]], *, most: int = MAX_BYTES) -> NatsChannel:
        self.end_sites()
        for name, answer in sites.items():
            if name not in self.gone:
                self.sites[name] = Site(self.loop, self.loopback, name, answer, most)
        for site in self.sites.values():
            site.up()
        made = NatsChannel(
            self.loopback.relay_of(COORDINATOR), list(sites), max_bytes=most, repeat_every=self.beat, grace=self.grace
        )
        self.channels.append(made)
        wait_until(lambda: made.is_connected)
        return made

    def take_away(self, party: str) -> None:
        self.gone.add(party)

    def down(self, seconds: float) -> None:
        # The coordinator may be back before the sites are.
        for one in self.channels:
            one._grace = 10.0
        self.loopback.down(seconds)

    def cut(self, party: str) -> bool:
        for one in self.channels:
            one._grace = 10.0
        link = self.sites[party].agent._link if party else self.channels[-1]._link
        loop = self.loop.loop if party else self.channels[-1]._loop
        before = link._client
        assert before is not None
        carrier: Any = before._transport
        wire = carrier._ws._writer if hasattr(carrier, "_ws") else carrier._io_writer
        loop.call_soon_threadsafe(wire.transport.abort)
        wait_until(lambda: link._client is not before)
        return True

    def worsen(self, *, loss: float = 0.0, twice: float = 0.0, swapped: float = 0.0, delay: float = 0.0) -> bool:
        """Drop, repeat, reorder and delay frames between both ends and their clients, as bus and client may."""
        chance = random.Random(len(self.sites))
        for link in (self.channels[-1]._link, *(site.agent._link for site in self.sites.values())):
            cast(Any, link).send = _badly(link.send, chance, loss, twice, swapped, delay)
        return True

    def end_sites(self) -> None:
        for site in self.sites.values():
            site.end()
        self.sites.clear()

    def end(self) -> None:
        for one in self.channels:
            one.close()
        self.end_sites()
        self.loop.close()
        if self.loopback.process is None:
            wait_until(lambda: self.loopback.process is not None)


def _badly(send: Any, chance: random.Random, loss: float, twice: float, swapped: float, delay: float) -> Any:
    held: list[tuple[object, ...]] = []

    async def sent(*what: object) -> None:
        await asyncio.sleep(delay * chance.random())
        if chance.random() < loss:
            return
        if chance.random() < swapped and not held:
            held.append(what)
            return
        for _ in range(1 + (chance.random() < twice)):
            await send(*what)
        while held:
            await send(*held.pop())

    return sent
