"""Whole runs between processes over a relay on this machine, beside the same runs in one process.

    averaging K, at S ms    the same, where what the coordinator sends and gets is S ms on its way
    averaging K    a study of K organisations with site files, ledgers and keys in folders of their own, from the first
                   ask to the last; beside it the same sites called in this process
    sum KxN        one secure sum of N numbers over K parties, sealed to both ends. Parties share a few processes, which
                   have a core or two here, and each has its own connection, keys and process at the relay

Seconds are those of the clock: run it on a machine that is idle. On a busy one many processes get more of it than one
does, so that the ratio of processor times, `cpu_ratio`, is the one to look at.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median, stdev
from typing import Any

from comity import Study
from comity.crypto import key_file
from comity.federation.coordinator.journal import Journal
from comity.federation.coordinator.lifecycle import execute, run
from comity.federation.messages.channel import Channel, Timeouts
from comity.federation.messages.sealed_channel import SealedChannel, open_ask
from comity.federation.owner.host import Answer, Host
from comity.privacy import ReleasedNoise
from comity.relay import sandbox
from comity.relay.channel import NatsChannel
from comity.relay.deployment import connect_parties, deliver_study, run_deployed
from comity.relay.endpoint import serve
from comity.relay.sandbox import Loopback, run_processes
from comity.relay.wire import COORDINATOR
from comity.site.inbox import Inbox
from comity.site.service import SiteService
from comity.study.local.channel import LocalChannel
from experiments.bench.kernels.securesum_runs import coordinator_of, host_of, keys_of, one_sum
from experiments.bench.running.delay import Delay
from experiments.bench.running.other_processes import peak, processor_time

BAR = 1.3
"""Of a deployed averaging run over 10 sites to the local one."""
WIDE_BAR = 8.0
"""Seconds beyond the local run, of 10 sites at 50 ms."""
_LONGEST_START = 120.0
_PATIENCE = Timeouts(silent=60.0)
_TOGETHER = 8
"""Parties of a sum that share a process."""


def averaging(sites: int, *, repeats: int, delay: float = 0.0, dropouts: int = 0) -> dict[str, Any]:
    """Seconds of a study of two runs each, in turns: with the sites' processes, and with their services in this one.
    `delay` seconds pass on each way between the coordinator and the relay. So many sites as `dropouts` may be lost, and
    none is."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        home, names = Path(folder), sandbox.party_names(sites)
        stack.enter_context(sandbox.sandbox_home(home))
        loopback = sandbox.create_sandbox(home, names)
        asker = home / COORDINATOR
        path, keys = asker / "study.toml", key_file.load(asker / "coordinator.key")
        # All runs together stay below what its policy allows a study.
        text = path.read_text("utf-8").replace("epsilon = 1.0", f"epsilon = {0.2 / (repeats + 1):.3f}")
        path.write_text(text.replace("colluders = 1", f"colluders = 1\ndropouts = {dropouts}"))
        study = Study.load(path)
        relay = stack.enter_context(loopback.relay())
        running = stack.enter_context(run_processes(sandbox.serve_command(home, name) for name in names))
        reached = loopback.relay_of(COORDINATOR)
        if delay:
            reached = stack.enter_context(Delay(reached, delay)).behind(reached)
        channel = stack.enter_context(NatsChannel(reached, names, grace=_LONGEST_START))
        deliver_study(study, keys=keys, channel=channel)
        for name in names:
            Inbox(home / name).approve(study.hash, dataset=sandbox.DATASET, runs=2 * (repeats + 1))
        services = {name: SiteService(home / name / "site.toml") for name in names}

        rounds: list[str] = []

        def deployed(number: int) -> None:
            journal = asker / f"{number}.sqlite"
            rounds.clear()
            run_deployed(
                study, run=f"deployed-{number}", keys=keys, channel=channel, journal=journal, progress=rounds.append
            )

        def local(number: int) -> None:
            journal = Journal(asker / f"local-{number}.sqlite")
            execute(
                connect_parties(
                    study, run=f"local-{number}", channel=LocalChannel(services), journal=journal, keys=keys
                )
            )

        pairs = _measured(deployed, local, [relay.pid, *(one.pid for one in running)], repeats)
        note = f"bar: {BAR} times the local run" if sites == 10 and not delay and not dropouts else ""
        if delay:
            beyond = median(ours.clock - local.clock for ours, local in pairs)
            note = f"{beyond:.1f} s beyond the local run; bar: {WIDE_BAR} s"
        case = f"averaging {sites}" + (f", at {1000 * delay:.0f} ms" if delay else "")
        case += f", {dropouts} may be lost" if dropouts else ""
        found = _row(case, pairs, "local run", note)
        return found | {"relay_mb": peak(relay.pid), "rounds": len(rounds)}


def summed(parties: int, length: int, *, repeats: int = 1) -> dict[str, Any]:
    """Seconds of one secure sum of all parties; its opened value is looked at."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        agreement = one_sum(parties, length)
        names = list(agreement.consortium.parties)
        loopback = Loopback.make(Path(folder), names)
        relay = stack.enter_context(loopback.relay())
        groups = [names[start : start + _TOGETHER] for start in range(0, parties, _TOGETHER)]
        commands = [
            (["-m", __name__, folder, str(parties), str(length), *group], Path(folder, f"log-{number}"))
            for number, group in enumerate(groups)
        ]
        running = stack.enter_context(run_processes(commands))
        channel = stack.enter_context(NatsChannel(loopback.relay_of(COORDINATOR), names, grace=_LONGEST_START))

        def over(reached: Channel) -> Callable[[int], None]:
            def once(number: int) -> None:
                asked = coordinator_of(
                    agreement, SealedChannel(reached, agreement.consortium.roster), run=f"sum-{number}"
                )
                asked.timeouts = _PATIENCE
                opened = run(asked)["result"]
                # Each contributes the same unit vector; the noise of the mean is far below one.
                if opened.shape != (length,) or not abs(float(opened.mean()) * length**0.5 - 1) < 1:
                    raise ArithmeticError(f"the sum of {parties} parties is not what they contributed")

            return once

        here = LocalChannel({name: _Sealed(host_of(agreement, name, ReleasedNoise())) for name in names})
        pairs = _measured(over(channel), over(here), [relay.pid, *(one.pid for one in running)], repeats)
        row = _row(f"sum {parties}x{length}", pairs, "local channel", "one core or two for all parties")
        return row | {"relay_mb": peak(relay.pid)}


@dataclass(frozen=True)
class _Took:
    """Seconds of the clock, and of all processors for everybody together, where the system says so."""

    clock: float
    cpu: float | None


Pairs = list[tuple[_Took, _Took]]


def _measured(deployed: Callable[[int], None], local: Callable[[int], None], pids: list[int], repeats: int) -> Pairs:
    """In turns. The first of each waits for processes that start, imports and compiles, and is not counted."""
    turns = range(repeats + 1)
    return [(_took(deployed, number, pids), _took(local, number, [])) for number in turns][1:]


def _took(work: Callable[[int], None], number: int, others: list[int]) -> _Took:
    """`others` work beside this process."""
    before, started = (time.process_time(), processor_time(others)), time.perf_counter()
    work(number)
    clock, after = time.perf_counter() - started, (time.process_time(), processor_time(others))
    theirs = None if before[1] is None or after[1] is None else after[1] - before[1]
    return _Took(clock, None if theirs is None else after[0] - before[0] + theirs)


def _row(case: str, pairs: Pairs, anchor: str, note: str) -> dict[str, Any]:
    ours, local = ([pair[place].clock for pair in pairs] for place in (0, 1))
    spent = [[pair[place].cpu for pair in pairs] for place in (0, 1)]
    known = [[cpu for cpu in one if cpu is not None] for one in spent]
    cpu = [median(one) if len(one) == len(pairs) else None for one in known]
    return {
        "case": case,
        "ours": median(ours),
        "anchor": median(local),
        "anchor_name": anchor,
        "ratio": median(ours) / median(local),
        "cpu": cpu[0],
        "anchor_cpu": cpu[1],
        "cpu_ratio": None if cpu[0] is None or not cpu[1] else cpu[0] / cpu[1],
        "unit": "s",
        "better": "lower",
        "repeats": len(pairs),
        "spread": stdev(ours) if len(ours) > 1 else 0.0,
        "note": "; ".join(one for one in ("seconds of the clock", note) if one),
    }


class _Sealed:
    """A host behind a seal, as an owner's service has it."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.party = host.party

    def answer(self, raw: bytes) -> Answer:
        ask = open_ask(keys_of(self.party), self.party, raw)
        return Answer(ask.seal_reply(self._host.answer(ask.raw).reply))

    def receive(self, pack: bytes) -> bytes:
        return b""


def _serve(folder: str, parties: str, length: str, *names: str) -> None:
    agreement, stop = one_sum(int(parties), int(length)), threading.Event()
    ends = [
        threading.Thread(
            target=serve,
            args=(_Sealed(host_of(agreement, name, ReleasedNoise())), Loopback(Path(folder)).relay_of(name)),
            kwargs={"stop": stop},
            daemon=True,
        )
        for name in names
    ]
    for end in ends:
        end.start()
    for end in ends:
        end.join()


if __name__ == "__main__":
    _serve(*sys.argv[1:])
