"""Rounds between a coordinator and sites over a relay on this machine, beside the local channel with the same sites;
and whole runs (`deploy_runs`).

Everything is a process of its own and talks TLS 1.3: the relay, each site's two, and
this one. An empty round asks each site a few bytes and waits for all replies; the others carry so many bytes to and
from each. Seconds are those of the clock, because waiting is what a round costs: run it on a machine that is idle.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median, stdev
from typing import Any

from comity.errors import ComityError
from comity.federation.messages.channel import Channel, Replied
from comity.federation.owner.host import Answer
from comity.relay.address import RelayAddress
from comity.relay.channel import NatsChannel
from comity.relay.endpoint import serve
from comity.relay.sandbox import Loopback, run_processes
from comity.study.local.channel import LocalChannel
from experiments.bench.running.delay import Delay
from experiments.bench.running.deploy_runs import averaging, summed
from experiments.bench.running.other_processes import peak

MEGA = 1_000_000
SHORT = 300
BARS = {("empty", 3): 0.004, ("empty", 30): 0.05, ("8MB", 3): 0.4, ("50MB", 3): 2.5}
_LONGEST_START = 120.0


def measure(*, quick: bool = False) -> list[dict[str, Any]]:
    """Rows `empty round K`, `8MB K`, `50MB K` and `200MB K`: seconds of a round, by the number of sites. Rows
    `averaging K` and `sum KxN`: seconds of a run."""
    rows = []
    for sites in (3,) if quick else (3, 10, 30):
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            names = [f"site-{number}" for number in range(sites)]
            loopback = Loopback.make(Path(folder), names)
            relay = stack.enter_context(loopback.relay())
            words = [
                (
                    ["-m", __name__, name, str(loopback.invitation), str(loopback.keys_of(name))],
                    Path(folder, name, "log"),
                )
                for name in names
            ]
            stack.enter_context(run_processes(words))
            channel = stack.enter_context(NatsChannel(loopback.relay_of("coordinator"), names, grace=_LONGEST_START))
            local = LocalChannel({name: _Echo(name) for name in names})
            cases = [("empty", SHORT, 20 if quick else 200)]
            if sites == 3:
                cases.append(("8MB", 8 * MEGA, 2 if quick else 7))
            if sites == 3 and not quick:
                cases += [("50MB", 50 * MEGA, 3), ("200MB", 200 * MEGA, 1)]
            for case, size, repeats in cases:
                rows.append(_row(case, sites, size, repeats, channel, local) | {"relay_mb": peak(relay.pid)})
    rows.append(_wide_row(repeats=1 if quick else 3))
    rows.append(averaging(3, repeats=1 if quick else 3))
    if not quick:
        rows += [averaging(10, repeats=3), averaging(10, repeats=3, delay=0.05)]
        rows += [averaging(10, repeats=1, delay=0.05, dropouts=1), summed(30, 20_000), summed(64, 1_000)]
    return rows


def _wide_row(*, repeats: int) -> dict[str, Any]:
    """16 MB to a site and back, 200 ms away on each way, beside the same without a delay."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        names = ["site-0"]
        loopback = Loopback.make(Path(folder), names)
        stack.enter_context(loopback.relay())
        words = ["-m", __name__, names[0], str(loopback.invitation), str(loopback.keys_of(names[0]))]
        stack.enter_context(run_processes([(words, Path(folder, "log"))]))
        near = loopback.relay_of("coordinator")
        far = stack.enter_context(Delay(near, 0.2)).behind(near)
        channel, wide = (stack.enter_context(NatsChannel(one, names, grace=_LONGEST_START)) for one in (near, far))
        # The first waits for processes that start, and is not counted.
        pairs = [(_round(wide, names, 16 * MEGA), _round(channel, names, 16 * MEGA)) for _ in range(repeats + 1)][1:]
        ours, anchor = ([pair[i] for pair in pairs] for i in (0, 1))
        return {
            "case": "16MB 1, at 200 ms",
            "ours": median(ours),
            "anchor": median(anchor),
            "anchor_name": "the same without a delay",
            "ratio": median(ours) / median(anchor),
            "unit": "s",
            "better": "lower",
            "repeats": repeats,
            "spread": stdev(ours) if repeats > 1 else 0.0,
            "note": "seconds of the clock; two delays pass at least each way; bar: 3.0 s",
        }


def _row(case: str, sites: int, size: int, repeats: int, channel: Channel, local: Channel) -> dict[str, Any]:
    names = [f"site-{number}" for number in range(sites)]
    # The first waits for processes that start, and is not counted.
    _round(channel, names, size)
    pairs = [(_round(channel, names, size), _round(local, names, size)) for _ in range(repeats)]
    ours, anchor = ([pair[i] for pair in pairs] for i in (0, 1))
    bar = BARS.get((case, sites))
    return {
        "case": f"empty round {sites}" if case == "empty" else f"{case} {sites}",
        "ours": median(ours),
        "anchor": median(anchor),
        "anchor_name": "local channel",
        "ratio": median(ours) / median(anchor),
        "unit": "s",
        "better": "lower",
        "repeats": repeats,
        "spread": stdev(ours) if repeats > 1 else 0.0,
        "note": "seconds of the clock" + ("" if bar is None else f"; bar: {bar} s"),
    }


def _round(channel: Channel, names: list[str], size: int) -> float:
    message = bytes(size)
    made: dict[str, Callable[[], bytes]] = {
        name: lambda number=number: number.to_bytes(8, "big") + message  # type: ignore[misc]
        for number, name in enumerate(names, time.monotonic_ns())
    }
    started = time.perf_counter()
    with channel.ask(made) as asking:
        replies = sum(isinstance(event, Replied) for event in asking)
    took = time.perf_counter() - started
    if replies != len(names):
        raise ArithmeticError(f"{replies} of {len(names)} sites replied")
    return took


class _Echo:
    def __init__(self, party: str) -> None:
        self.party = party

    def answer(self, raw: bytes) -> Answer:
        return Answer(raw)

    def receive(self, raw: bytes) -> bytes:
        return b""

    def record_refusal(self, error: ComityError) -> None:
        pass


if __name__ == "__main__":
    serve(_Echo(sys.argv[1]), RelayAddress.load(Path(sys.argv[2]), Path(sys.argv[3])))
