"""A whole consortium on this machine, over loopback alone: for a first try, for measuring and for tests.

    HOME/consortium/         the consortium's roster, relay and invitation
    HOME/coordinator/        the study, the coordinator's key, and its runs
    HOME/north/ ...          each owner's site file, key, ledger, generated records, and results

Members have separate folders and keys and use the same commands as between organisations. Two things
differ: one person made all of them, and the sites approve all that their policies allow.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import pandas as pd

from comity.crypto import key_file
from comity.crypto.public_block import PublicBlock
from comity.crypto.sealing import PublicIdentity
from comity.data import clinic_schema, clinics
from comity.errors import Stopped
from comity.files import make_file, open_private, write_file
from comity.privacy.ledger import Ledger
from comity.privacy.loss import Approx
from comity.privacy.unit import Neighbours, Unit
from comity.relay import membership
from comity.relay.address import RelayAddress
from comity.relay.invitation import INVITATION, WEB_INVITATION
from comity.relay.server import start
from comity.relay.wire import COORDINATOR

HOST = "127.0.0.1"
_CONSORTIUM = "consortium"


@dataclass(frozen=True)
class Loopback:
    """A consortium with a relay on loopback. `home` has a folder for it and one for each member. With `websocket` all
    members connect by websocket."""

    home: Path
    websocket: bool = False

    @classmethod
    def make(cls, home: Path, parties: Iterable[str], *, websocket: bool = False) -> Self:
        """Create the consortium and admit these parties and the coordinator."""
        loopback, port = cls(home, websocket), free_port()
        membership.create_consortium(
            loopback.consortium,
            address=f"{HOST}:{port}",
            listen=f"{HOST}:{port}",
            websocket=free_port() if websocket else None,
        )
        loopback.admit(COORDINATOR, *parties)
        return loopback

    def admit(self, *names: str) -> None:
        """Admit members, with the keys in their folders or new ones."""
        blocks = []
        for name in names:
            path = self.keys_of(name)
            keys = key_file.load(path) if path.exists() else key_file.create(path)
            blocks.append(PublicBlock(name, keys.public, key_file.load_relay_key(path).user))
        membership.admit_members(self.consortium, blocks)

    @property
    def consortium(self) -> Path:
        return self.home / _CONSORTIUM

    @property
    def invitation(self) -> Path:
        return self.consortium / (WEB_INVITATION if self.websocket else INVITATION)

    def keys_of(self, name: str) -> Path:
        return self.home / name / (f"{name}.key" if name == COORDINATOR else f"{name}.keys")

    def relay_of(self, name: str) -> RelayAddress:
        return RelayAddress.load(self.invitation, self.keys_of(name))

    @contextmanager
    def relay(self) -> Iterator[subprocess.Popen[bytes]]:
        """Run the relay for the duration of the block."""
        process = start(self.consortium)
        try:
            yield process
        finally:
            stop_process(process)


def free_port() -> int:
    with socket.socket() as one:
        one.bind((HOST, 0))
        return int(one.getsockname()[1])


@contextmanager
def run_processes(commands: Iterable[tuple[list[str], Path]]) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run Python processes with these arguments and log files for the duration of the block."""
    running: list[subprocess.Popen[bytes]] = []
    try:
        for words, log in commands:
            running.append(start_process(words, log))
        yield running
    finally:
        for one in running:
            one.terminate()
        for one in running:
            stop_process(one)


def start_process(words: list[str], log: Path) -> subprocess.Popen[bytes]:
    """Start one of several Python processes on this machine; each computes in one thread."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    with os.fdopen(open_private(log, os.O_WRONLY | os.O_APPEND), "ab") as file:
        return subprocess.Popen(
            [sys.executable, *words], stdin=subprocess.DEVNULL, stdout=file, stderr=file, env={**os.environ, **threads}
        )


def stop_process(process: subprocess.Popen[bytes], *, timeout: float = 20.0) -> None:
    """Terminate a process; kill it if it does not end in time."""
    process.terminate()
    try:
        process.wait(timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


RECORDS = 400
DATASET = "visits"
_NAMES = ("north", "south", "east", "west")
_UNUSED = ["disposition", "patient"]
_STUDY = """\
[study]
name = "tried"
protocol = "averaging"
schema = "schema.toml"

[privacy]
unit = "record"
neighbours = "replace"
epsilon = 1.0
delta = 1e-6
colluders = 1

[averaging]
model = "logistic"
scaling = "normalised"
sizes = {records}

"""
_SITE = """\
party = "{party}"
ledger = "{party}.ledger"
keys = "{party}.keys"
invitation = "../consortium/consortium.toml"

[data.visits]
source = "parquet"
path = "visits.parquet"

[policy]
protocols = ["averaging"]
epsilon_per_study = 1.0
delta_per_study = 1e-5
submitters = ["coordinator"]
approval = "within-policy"

[pinned.coordinator]
{pinned}
"""


@dataclass(frozen=True)
class SandboxResult:
    """The coordinator's run folder, and each owner's results."""

    run: Path
    results: dict[str, Path]


def party_names(parties: int) -> list[str]:
    return [*_NAMES[:parties], *(f"site-{number}" for number in range(len(_NAMES) + 1, parties + 1))]


def create_sandbox(home: Path, names: Sequence[str]) -> Loopback:
    """Create the folders of all members, with generated records and a study that every site's policy allows."""
    loopback = Loopback.make(home, names)
    coordinator = key_file.load(loopback.keys_of(COORDINATOR)).public
    pinned = [f"[coordinator.keys]\n{_texts(coordinator)}"]
    # A policy approves a study by itself only if the owner has pinned the keys of all parties.
    owners = {name: key_file.load(loopback.keys_of(name)).public for name in names}
    with sandbox_home(home):
        for name, identity in owners.items():
            folder = home / name
            pinned.append(f"[parties.{name}.keys]\n{_texts(identity)}")
            Ledger.create(
                folder / f"{name}.ledger",
                dataset=DATASET,
                grant=Approx(3.0, 1e-5),
                unit=Unit.RECORD,
                neighbours=Neighbours.REPLACE,
            )
            visits = pd.concat(clinics(RECORDS // 100, 100, f"consortium try, {name}").values(), ignore_index=True)
            make_file(folder / "visits.parquet")
            visits.drop(columns=_UNUSED).to_parquet(folder / "visits.parquet", index=False)
            others = [f"\n[pinned.{other}]\n{_texts(keys)}\n" for other, keys in owners.items() if other != name]
            text = _SITE.format(party=name, pinned=_texts(coordinator)) + "".join(others)
            write_file(folder / "site.toml", text)
    study = home / COORDINATOR
    write_file(study / "schema.toml", replace(clinic_schema("readmitted"), identifier=None).to_toml())
    write_file(study / "study.toml", _STUDY.format(records=RECORDS) + "\n\n".join(pinned) + "\n")
    return loopback


def run_sandbox(loopback: Loopback, names: Sequence[str]) -> SandboxResult:
    """Start relay and sites, submit the study as the coordinator, and stop them."""
    home, coordinator = loopback.home, loopback.home / COORDINATOR
    with ExitStack() as stack:
        stack.enter_context(sandbox_home(home))
        stack.enter_context(loopback.relay())
        stack.enter_context(run_processes(serve_command(home, name) for name in names))
        words = ["study", "submit", str(coordinator / "study.toml"), "--keys", str(coordinator / "coordinator.key")]
        places = ["--invitation", str(loopback.invitation), "--out", str(coordinator / "runs"), "--quiet"]
        log = coordinator / "log"
        submission = start_process(["-m", "comity", *words, *places], log)
        stack.callback(stop_process, submission)
        if submission.wait():
            lines = log.read_text("utf-8", "replace").strip().splitlines()
            raise Stopped(f"{log}: the study did not finish ({lines[-1] if lines else 'the log is empty'})")
    folder = max((coordinator / "runs").iterdir(), key=lambda path: path.stat().st_mtime)
    return SandboxResult(folder, {name: _results(home / name) for name in names})


def serve_command(home: Path, name: str) -> tuple[list[str], Path]:
    """The arguments of a site's process, and its log file."""
    return ["-m", "comity", "site", "serve", "--site", str(home / name / "site.toml")], home / name / "log"


def _results(folder: Path) -> Path:
    folders = sorted((folder / "results").iterdir()) if (folder / "results").is_dir() else []
    if not folders:
        raise Stopped(f"{folder}: nothing was delivered here; see {folder / 'log'}")
    return folders[-1]


@contextmanager
def sandbox_home(home: Path) -> Iterator[None]:
    """Keep what this machine remembers of the sandbox's ledgers inside the sandbox: both are deleted together."""
    before = os.environ.get("COMITY_HOME")
    os.environ["COMITY_HOME"] = str(home / "witness")
    try:
        yield
    finally:
        if before is None:
            del os.environ["COMITY_HOME"]
        else:
            os.environ["COMITY_HOME"] = before


def _texts(public: PublicIdentity) -> str:
    return "\n".join(f'{name} = "{text}"' for name, text in public.to_texts().items())
