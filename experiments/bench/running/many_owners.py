"""One soft-label study of many owners on this machine, with everything that an owner has: a site file that pins the
keys of all others, an inbox, and a policy that approves.

`comity site serve FOLDER...` serves a hundred owners from a process. The coordinator delivers the packed study to every
inbox over a real relay, each site examines and approves it, and the run follows. `deliver` counts the first part, `run`
the second: processor seconds of the coordinator, the relay and all processes of sites, those included that examine
packs. Memory and disk are those at the end.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from math import log
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import Any

import pandas as pd

from comity.crypto import key_file
from comity.crypto.sealing import PublicIdentity
from comity.federation.messages.channel import Timeouts
from comity.files import make_file, write_file
from comity.methods import entry_of, load_object
from comity.privacy import Ledger, Neighbours, Unit
from comity.privacy.loss import Approx
from comity.relay.channel import NatsChannel
from comity.relay.deployment import deliver_study, run_deployed
from comity.relay.sandbox import Loopback, run_processes, sandbox_home
from comity.relay.wire import COORDINATOR
from comity.study.study import Study
from experiments.bench.running.other_processes import peak, processor_time

TOGETHER = 100
"""Sites of a process."""
_TIMEOUTS = Timeouts(silent=600.0)
_LONGEST_START = 600.0
_SITE = """\
party = "{party}"
ledger = "{party}.ledger"
keys = "{party}.keys"
invitation = "../consortium/consortium.toml"

[data.visits]
source = "parquet"
path = "visits.parquet"

[policy]
protocols = ["softlabel"]
epsilon_per_study = 1.0
delta_per_study = 1e-5
submitters = ["coordinator"]
approval = "within-policy"
"""


def measure(*, quick: bool = False) -> list[dict[str, Any]]:
    """Rows `owners K`: processor seconds of all processes; the anchor is the run, without the delivery."""
    rows: list[dict[str, Any]] = []
    for owners in (20,) if quick else (100, 300, 1000):
        rows.append(row(owners))
        if len(rows) > 1:
            more = log(rows[-1]["ours"] / rows[-2]["ours"]) / log(owners / int(rows[-2]["case"].split()[1]))
            rows[-1]["note"] += f"; exponent {more:.2f}"
    return rows


def row(owners: int) -> dict[str, Any]:
    names = [f"site-{number:04}" for number in range(owners)]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        home = Path(folder)
        stack.enter_context(sandbox_home(home))
        loopback = Loopback.make(home, names)
        study = write_owners(loopback, names)
        relay = stack.enter_context(loopback.relay())
        groups = [names[start : start + TOGETHER] for start in range(0, owners, TOGETHER)]
        serving = [(["-m", "comity", "site", "serve", *(str(home / one) for one in group)]) for group in groups]
        logs = [home / f"log-{group[0]}" for group in groups]
        running = stack.enter_context(run_processes(zip(serving, logs)))
        channel = stack.enter_context(NatsChannel(loopback.relay_of(COORDINATOR), names, grace=_LONGEST_START))
        keys = key_file.load(loopback.keys_of(COORDINATOR))
        pids = [relay.pid, *(one.pid for one in running)]
        with counted(pids) as deliver:
            deliver_study(study, keys=keys, channel=channel, timeouts=_TIMEOUTS)
        with counted(pids) as ran:
            journal = home / "journal.sqlite"
            run_deployed(study, run="run-1", keys=keys, channel=channel, journal=journal, timeouts=_TIMEOUTS)
        memory = [getrusage(RUSAGE_SELF).ru_maxrss / 1024, *(_peak_with_children(pid) for pid in pids)]
        disk = sum(path.stat().st_size for path in (home / names[0]).rglob("*") if path.is_file())
        sizes = {"coordinator_mb": memory[0], "relay_mb": memory[1], "sites_mb": sum(memory[2:]), "site_disk": disk}
    total = {part: sum(seconds[:3]) for part, seconds in (("deliver", deliver), ("run", ran))}
    return {
        "case": f"owners {owners}",
        "ours": sum(total.values()),
        "anchor": total["run"],
        "anchor_name": "the run, without delivery and approval",
        "ratio": sum(total.values()) / total["run"],
        "deliver": dict(zip(("coordinator", "relay", "sites", "clock"), deliver)),
        "run": dict(zip(("coordinator", "relay", "sites", "clock"), ran)),
        **sizes,
        "unit": "s of processor time",
        "better": "lower",
        "note": f"delivery, approval and run of all processes; {sum(memory):,.0f} MB together",
    }


def write_owners(loopback: Loopback, names: Sequence[str]) -> Study:
    """The folders of all owners, each with records, a ledger and a site file; and the study between them."""
    home = loopback.home
    keys = {name: key_file.load(loopback.keys_of(name)).public for name in (COORDINATOR, *names)}
    texts = {name: _texts(public) for name, public in keys.items()}
    source = home / COORDINATOR
    load_object(entry_of("softlabel").starter)(source)
    terms, _, _ = (source / "study.toml").read_text("utf-8").partition("[parties]")
    tables = [f"[coordinator.keys]\n{texts[COORDINATOR]}", *(f"[parties.{name}.keys]\n{texts[name]}" for name in names)]
    make_file(source / "all.toml")
    (source / "all.toml").write_text(terms + "\n".join(tables), "utf-8")
    records = pd.read_parquet(source / "records.parquet")
    records = records[records.clinic == records.clinic.iloc[0]].drop(columns=["clinic"])
    for name in names:
        folder = home / name
        Ledger.create(
            folder / f"{name}.ledger",
            dataset="visits",
            grant=Approx(10.0, 1e-5),
            unit=Unit.PARTY,
            neighbours=Neighbours.REPLACE,
        )
        make_file(folder / "visits.parquet")
        records.to_parquet(folder / "visits.parquet", index=False)
        pinned = "".join(f"\n[pinned.{other}]\n{text}" for other, text in texts.items() if other != name)
        write_file(folder / "site.toml", _SITE.format(party=name) + pinned)
    return Study.load(source / "all.toml")


def _texts(public: PublicIdentity) -> str:
    return "".join(f'{name} = "{text}"\n' for name, text in public.to_texts().items())


@contextmanager
def counted(pids: Sequence[int]) -> Iterator[list[float]]:
    """Processor seconds of this process, of the first of `pids` and of the others, and seconds of the clock; filled
    when the block ends."""
    found: list[float] = []
    before, own, clock = [_seconds(pid) for pid in pids], time.process_time(), time.perf_counter()
    yield found
    used = [_seconds(pid) - was for pid, was in zip(pids, before)]
    found += [time.process_time() - own, used[0], sum(used[1:]), time.perf_counter() - clock]


def _seconds(pid: int) -> float:
    """Processor seconds of a process, and of its children that run or that it has waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()
    return (processor_time([pid]) or 0.0) + sum(map(int, fields[13:15])) / os.sysconf("SC_CLK_TCK")


def _peak_with_children(pid: int) -> float:
    started = [
        int(one) for task in Path(f"/proc/{pid}/task").iterdir() for one in (task / "children").read_text().split()
    ]
    return sum(peak(one) or 0.0 for one in (pid, *started))
