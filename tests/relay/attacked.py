"""Owners with site files behind a real relay, and everybody who may try something: coordinator, members, operator."""

from __future__ import annotations

import contextlib
import io
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from comity.cli import main
from comity.crypto.sealing import Identity
from comity.federation.messages.channel import Lost, Replied, Timeouts
from comity.federation.messages.codec import decode
from comity.federation.messages.sealed_channel import Purpose, seal_messages
from comity.federation.messages.signatures import SIGNATURE_BYTES
from comity.relay.channel import NatsChannel
from comity.relay.deployment import deliver_study, run_deployed
from comity.relay.wire import Frame
from comity.site.status import Refusals
from comity.study.results.result import Result
from comity.study.study import Study
from tests.support.asks import sign_ask, write_ask
from tests.support.relays import Loop, Operated, Site, wait_until
from tests.support.sites import NAMES, Sites, approve

from .relay_client import RawClient

SOON = 20.0
TIMEOUTS = Timeouts(silent=SOON, deadline=3 * SOON)


_NOBODY = "comity.ask.nobody"


@dataclass(frozen=True)
class Carried:
    subject: str
    raw: bytes
    time: float

    @property
    def frame(self) -> Frame:
        found = Frame.of(self.raw)
        assert found is not None
        return found


class Operator:
    """The relay's operator: receives every message and publishes at any subject."""

    def __init__(self, loop: Loop, loopback: Operated) -> None:
        self.loop = loop
        self.carried: list[Carried] = []
        self._client = RawClient(loopback.operator)
        self._do(self._begin())

    async def _begin(self) -> None:
        await self._client.__aenter__()

        async def heard(message: Any) -> None:
            self.carried.append(Carried(message.subject, message.data, time.monotonic()))

        await self._client.client.subscribe(">", cb=heard)
        await self._client.client.flush(10)

    def says(self, subject: str, *raws: bytes) -> None:
        async def said() -> None:
            for raw in raws:
                await self._client.client.publish(subject, raw)
            await self._client.client.flush(10)

        self._do(said())

    def since(self, start: int) -> list[Carried]:
        """All that was carried after the first `start`, until now."""
        before = len(self.carried)
        self.says(_NOBODY, b"")
        # Signs of life may follow it at once.
        wait_until(lambda: any(one.subject == _NOBODY for one in self.carried[before:]))
        return [one for one in self.carried[start:] if one.subject != _NOBODY]

    def end(self) -> None:
        self._do(self._client.__aexit__())

    def _do(self, work: Any) -> None:
        self.loop.start(work).result(SOON)


class Attacked:
    """Sites `north` and `south`; `study` is approved at both, for several runs."""

    def __init__(self, sites: Sites, loopback: Operated) -> None:
        self.sites, self.loopback, self.loop = sites, loopback, Loop()
        loopback.start()
        self.services = sites.services()
        self.ends = [Site(self.loop, loopback, name, service) for name, service in self.services.items()]
        for one in self.ends:
            one.up()
        self.channel = NatsChannel(loopback.relay_of("coordinator"), NAMES, repeat_every=0.2, grace=5.0)
        wait_until(lambda: self.channel.is_connected)
        self.operator = Operator(self.loop, loopback)
        self.study = sites.study(epsilon=0.1)
        self.deliver_study(self.study)
        for service in self.services.values():
            approve(service, service.inbox.find(self.study.hash), runs=9)
        self._runs = 0

    def end(self) -> None:
        self.operator.end()
        self.channel.close()
        for one in self.ends:
            one.end()
        self.loop.close()
        self.loopback.stop()

    # What the coordinator does.

    def new_run(self) -> str:
        self._runs += 1
        return f"attack-{self._runs}"

    def deliver_study(self, study: Study) -> None:
        deliver_study(study, keys=self.sites.coordinator, channel=self.channel, timeouts=TIMEOUTS)

    def run(self, study: Study, run: str | None = None, **more: Any) -> Result:
        run = run or self.new_run()
        journal = self.sites.folder / f"{run.rpartition('/')[2]}.journal"
        asked = {"keys": self.sites.coordinator, "journal": journal, "channel": self.channel, "timeouts": TIMEOUTS}
        return run_deployed(study, run=run, **{**asked, **more})

    def ask(self, path: str, *, party: str = "north", keys: Identity | None = None, **more: Any) -> dict[str, Any]:
        """What `party` replies to one ask, signed by `keys` for it."""
        more = {"study": self.study.hash, "run": "attack", **more}
        return self.said(sign_ask(keys or self.sites.coordinator, party, write_ask(path, **more)), party)

    def submit(self, pack: bytes, party: str = "north") -> dict[str, Any]:
        return self.said(pack, party, "study")

    def said(self, raw: bytes, party: str = "north", purpose: Purpose = "ask") -> dict[str, Any]:
        boxes = seal_messages({party: lambda: raw}, self.study.consortium.roster, purpose)
        return decoded(self.carry(boxes.messages, purpose, boxes.open_reply)[party])

    def carry(
        self, messages: Mapping[str, Any], purpose: Purpose = "ask", opened: Callable[[str, bytes], bytes] | None = None
    ) -> dict[str, Any]:
        """What came back for these very bytes: a reply, or why there is none."""
        begin = self.channel.submit if purpose == "study" else self.channel.ask
        with begin(messages, timeouts=TIMEOUTS) as asking:
            if opened is not None:
                asking.open_with(opened)
            return {
                event.party: event.reply if isinstance(event, Replied) else event.why
                for event in asking
                if isinstance(event, Replied | Lost)
            }

    # What owners have and see.

    def heads(self) -> dict[str, Any]:
        return {name: service.site.owner().ledger.commit_head() for name, service in self.services.items()}

    def refusals(self, name: str = "north") -> list[str]:
        """The sentences of the last refusals, the newest last, from where `comity site status` has them."""
        return self.noted(name)[-10:]

    def noted(self, name: str) -> list[str]:
        return [one.sentence for one in Refusals(self.sites.home(name)).last(100_000)]

    def sees(self, words: str, name: str = "north") -> bool:
        """Whether the newest refusal that an owner is shown says so."""
        last = self.refusals(name)
        return bool(last) and words in last[-1]

    def status(self, name: str = "north") -> str:
        """What `comity site status` prints."""
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            assert main(["site", "status", "--site", str(self.sites.site(name))]) == 0
        return out.getvalue()

    @contextlib.contextmanager
    def site_file(self, name: str, *, more: str = "", swap: tuple[str, str] = ("", "")) -> Iterator[None]:
        """Other words in an owner's site file for a while."""
        path = self.sites.site(name)
        text = path.read_text()
        path.write_text(text.replace(*swap) + more)
        try:
            yield
        finally:
            path.write_text(text)


def decoded(reply: Any) -> dict[str, Any]:
    assert isinstance(reply, bytes), reply
    found: dict[str, Any] = decode(reply[:-SIGNATURE_BYTES])
    return found


@contextlib.contextmanager
def made(pristine: Path, folder: Path) -> Iterator[Attacked]:
    shutil.copytree(pristine, folder / "all")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COMITY_HOME", str(folder / "all" / "home"))
        one = Attacked(Sites.load(folder / "all" / "sites"), Operated.make(folder / "members", NAMES))
        try:
            yield one
        finally:
            one.end()


__all__ = ["Attacked", "Carried", "decoded", "made"]
