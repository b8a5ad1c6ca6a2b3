"""One soft-label run over many sites on this machine, over a real relay, with several sites to a process.

Each site has its own keys, its own connection to the relay, and a ledger in a file of its own folder. The sites of a
process share one agreement and one pool of threads, as with `comity site serve FOLDER...`; site files and approvals are
left out. Messages are sealed and signed as between organisations. Counted are the processor seconds and the peak of
memory of the coordinator, the relay and all processes of sites, from the beginning of the run to its end, and the bytes
that the coordinator sent and got. `growth` is the exponent between two numbers of sites.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from math import log
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import Any

import numpy as np

from comity import Ledger
from comity.crypto import key_file
from comity.crypto.sealing import Identity
from comity.data import Records
from comity.entropy import Stream
from comity.federation.agreement import Agreement
from comity.federation.coordinator.journal import Journal
from comity.federation.coordinator.lifecycle import run
from comity.federation.coordinator.parties import Parties
from comity.federation.declare.consortium import Consortium
from comity.federation.declare.policy import SIMULATION
from comity.federation.messages.channel import Timeouts
from comity.federation.messages.sealed_channel import SealedChannel, open_ask
from comity.federation.owner.host import Answer, Host
from comity.federation.owner.store import Store
from comity.methods.softlabel import SoftLabel
from comity.privacy import Neighbours, Pure, ReleasedNoise, Unit
from comity.privacy.currency import Currency
from comity.relay.channel import NatsChannel
from comity.relay.endpoint import serve_together
from comity.relay.sandbox import Loopback, run_processes
from comity.relay.wire import COORDINATOR
from experiments.bench.running.other_processes import peak, processor_time

TOGETHER = 100
"""Sites of a process."""
FEATURES, RECORDS, PUBLIC = 20, 22, 500
_LONGEST_START = 600.0
_TIMEOUTS = Timeouts(silent=300.0)


def measure(*, quick: bool = False) -> list[dict[str, Any]]:
    """Rows `sites K`: processor seconds of all processes; the anchor is the coordinator's part of them."""
    return [row(sites) for sites in ((30,) if quick else (100, 300, 1000))]


def row(sites: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        home, names = Path(folder), [f"site-{number:04}" for number in range(sites)]
        loopback = Loopback.make(home, names)
        keys = key_file.load(loopback.keys_of(COORDINATOR))
        agreement = _agreement(home, names)
        relay = stack.enter_context(loopback.relay())
        groups = [names[start : start + TOGETHER] for start in range(0, sites, TOGETHER)]
        commands = [(["-m", __name__, folder, str(sites), *group], home / f"log-{group[0]}") for group in groups]
        running = stack.enter_context(run_processes(commands))
        channel = stack.enter_context(NatsChannel(loopback.relay_of(COORDINATOR), names, grace=_LONGEST_START))
        asked = Parties(
            agreement,
            run="run-1",
            channel=SealedChannel(channel, agreement.consortium.roster),
            journal=Journal(home / "journal.sqlite"),
            keys=keys,
            timeouts=_TIMEOUTS,
        )
        while not all((home / group[0] / "ready").exists() for group in groups):
            if any(process.poll() is not None for process in running):
                logged = (home / f"log-{groups[0][0]}").read_text("utf-8").splitlines()
                raise ArithmeticError(f"a process of sites ended: {logged[-1:]}")
            time.sleep(0.2)
        pids = [relay.pid, *_with_agents([one.pid for one in running])]
        before, clock = (time.process_time(), [processor_time([pid]) or 0.0 for pid in pids]), time.perf_counter()
        model = run(asked)["model"]
        clock = time.perf_counter() - clock
        cpu = time.process_time() - before[0]
        others = [(processor_time([pid]) or 0.0) - was for pid, was in zip(pids, before[1])]
        lines = asked.transcript.lines
        memory = [getrusage(RUSAGE_SELF).ru_maxrss / 1024, *((peak(pid) or 0.0) for pid in pids)]
        if not np.isfinite(model).all():
            raise ArithmeticError("the model is not finite")
        return {
            "case": f"sites {sites}",
            "ours": cpu + sum(others),
            "anchor": cpu,
            "anchor_name": "the coordinator",
            "ratio": (cpu + sum(others)) / cpu,
            "relay": others[0],
            "sites": sum(others[1:]),
            "clock": clock,
            "coordinator_mb": memory[0],
            "relay_mb": memory[1],
            "sites_mb": sum(memory[2:]),
            "bytes": sum(line.bytes for line in lines),
            "unit": "s of processor time",
            "better": "lower",
            "note": "one soft-label run of all processes together; anchor: the coordinator's part",
        }


def growth(rows: Sequence[dict[str, Any]], figure: str) -> list[float]:
    """The exponents of a figure between one number of sites and the next."""
    sizes = [int(one["case"].split()[1]) for one in rows]
    pairs = list(zip(rows, rows[1:], sizes, sizes[1:]))
    return [log(two[figure] / one[figure]) / log(more / few) for one, two, few, more in pairs]


def _with_agents(pids: Sequence[int]) -> list[int]:
    """Processes and their children, which talk to the relay."""
    found = list(pids)
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found


def _agreement(home: Path, names: Sequence[str]) -> Agreement:
    roster = {name: _keys(home, name).public for name in (COORDINATOR, *names)}
    public = Stream.public("bench", "many sites").uniform((PUBLIC, FEATURES)) / FEATURES
    protocol = SoftLabel.over_rows(
        auxiliary=public, classes=("0", "1"), statistic="votes", sizes=RECORDS, local_l2=1e-2
    )
    consortium = Consortium(parties=tuple(names), loss=Pure(1), unit=Unit.PARTY, roster=roster)
    return Agreement("a" * 64, protocol, consortium)


def _keys(home: Path, name: str) -> Identity:
    return key_file.load(Loopback(home).keys_of(name))


class _Sealed:
    """A host behind a seal, as an owner's service has it."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.party = host.party

    def answer(self, raw: bytes) -> Answer:
        ask = open_ask(self._host.keys, self.party, raw)
        return Answer(ask.seal_reply(self._host.answer(ask.raw).reply))

    def receive(self, raw: bytes) -> bytes:
        return b""

    def record_refusal(self, error: Exception) -> None:
        pass


def _host(home: Path, agreement: Agreement, name: str) -> Host:
    rows = Stream.public("bench", "many sites", name).uniform((RECORDS, FEATURES)) / FEATURES
    ledger = Ledger.create(
        home / name / "ledger",
        dataset=name,
        grant=Pure(3.0),
        currency=Currency.PURE,
        unit=Unit.PARTY,
        neighbours=Neighbours.REPLACE,
    )
    return Host(
        agreement,
        name,
        records=Records(rows, (rows[:, 0] > 0.5 / FEATURES).astype(np.int64)),
        keys=_keys(home, name),
        store=Store(ledger, unit=Unit.PARTY, neighbours=Neighbours.REPLACE),
        noise=ReleasedNoise(),
        policy=SIMULATION,
    )


def _serve(folder: str, sites: str, *names: str) -> None:
    home = Path(folder)
    agreement = _agreement(home, [f"site-{number:04}" for number in range(int(sites))])
    loopback = Loopback(home)
    ends = [(_Sealed(_host(home, agreement, name)), loopback.relay_of(name)) for name in names]
    serve_together(ends, ready=(home / names[0] / "ready").touch)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
