"""A whole consortium on this machine, over loopback alone: for a first try, for measuring and for tests.

    HOME/consortium/         the consortium's authority, roster and relay
    HOME/coordinator/        the study, the coordinator's key, its membership, and its runs
    HOME/north/ ...          each owner's site file, key, ledger, generated records, membership, and results

Members have separate folders, keys and certificates and use the same commands as between organisations. Two things
differ: one person made all of them, and the sites approve whatever their policies allow.
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
from comity.crypto.sealing import PublicIdentity
from comity.data import clinic_schema, clinics
from comity.errors import Stopped
from comity.files import make_file, open_private, write_file
from comity.privacy.ledger import Ledger
from comity.privacy.loss import Approx
from comity.privacy.unit import Neighbours, Unit
from comity.relay import membership
from comity.relay.address import Relay
from comity.relay.certificates import Authority, install
from comity.relay.roster import Roster
from comity.relay.server import start
from comity.relay.wire import COORDINATOR

HOST = "127.0.0.1"
_CONSORTIUM = "consortium"


@dataclass(frozen=True)
class Loopback:
    """`home` has a folder for the consortium and one for each member, named as it is."""

    home: Path

    @classmethod
    def make(cls, home: Path, parties: Iterable[str], *, websocket: bool = False) -> Self:
        """With all of these parties and the coordinator admitted; they dial by websocket if asked to."""
        made, port = cls(home), free_port()
        invitations = membership.init(
            made.consortium,
            address=f"{HOST}:{port}",
            listen=f"{HOST}:{port}",
            websocket=free_port() if websocket else None,
            parties=list(parties),
        )
        authority, roster = Authority.load(made.consortium / "authority"), Roster.load(made.consortium)
        for invitation in invitations:
            name = invitation.stem
            joined = membership.join(invitation, made.relay_folder(name), websocket=websocket)
            issued = authority.sign_member(joined.request.read_text("ascii"), name)
            roster = roster.admitted(name, issued)
            install(made.relay_folder(name), name, issued.pem)
        roster.save(made.consortium)
        return made

    @property
    def consortium(self) -> Path:
        return self.home / _CONSORTIUM

    def relay_folder(self, name: str) -> Path:
        return self.home / name / "relay"

    def relay_of(self, name: str) -> Relay:
        return membership.membership(self.relay_folder(name))[1]

    @contextmanager
    def relay(self) -> Iterator[subprocess.Popen[bytes]]:
        """The relay, until the block is left."""
        process = start(self.consortium)
        try:
            yield process
        finally:
            stop(process)


def free_port() -> int:
    with socket.socket() as one:
        one.bind((HOST, 0))
        return int(one.getsockname()[1])


@contextmanager
def processes(commands: Iterable[tuple[list[str], Path]]) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes of this Python with these arguments, each with the file that it logs to; they end with the block."""
    running: list[subprocess.Popen[bytes]] = []
    try:
        for words, log in commands:
            running.append(started(words, log))
        yield running
    finally:
        for one in running:
            one.terminate()
        for one in running:
            stop(one)


def started(words: list[str], log: Path) -> subprocess.Popen[bytes]:
    """One process among several on this machine: it computes in one thread, so that they do not wait for each other."""
    one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    with os.fdopen(open_private(log, os.O_WRONLY | os.O_APPEND), "ab") as file:
        return subprocess.Popen(
            [sys.executable, *words], stdin=subprocess.DEVNULL, stdout=file, stderr=file, env={**os.environ, **one}
        )


def stop(process: subprocess.Popen[bytes], *, patience: float = 20.0) -> None:
    """Tell it to end, and see that it does."""
    process.terminate()
    try:
        process.wait(patience)
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
rows = "normalised"
sizes = {records}

"""
_SITE = """\
party = "{party}"
ledger = "{party}.ledger"
keys = "{party}.keys"

[relay]
address = "{address}"
certificate = "relay/certificate.pem"

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
class Tried:
    """What came of it: the coordinator's run folder, and each owner's results."""

    run: Path
    results: dict[str, Path]


def names_of(parties: int) -> list[str]:
    return [*_NAMES[:parties], *(f"site-{number}" for number in range(len(_NAMES) + 1, parties + 1))]


def make(home: Path, names: Sequence[str]) -> Loopback:
    """Folders of everybody, with generated records and a study that all of them would approve."""
    loopback = Loopback.make(home, names)
    asks = key_file.create(home / COORDINATOR / "coordinator.key").public
    pinned = [f"[coordinator.keys]\n{_texts(asks)}"]
    # Everybody knows everybody, as a policy that approves by itself needs.
    owners = {name: key_file.create(home / name / f"{name}.keys").public for name in names}
    with witnessed(home):
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
            address = loopback.relay_of(name).address
            others = [f"\n[pinned.{other}]\n{_texts(keys)}\n" for other, keys in owners.items() if other != name]
            text = _SITE.format(party=name, address=address, pinned=_texts(asks)) + "".join(others)
            write_file(folder / "site.toml", text)
    study = home / COORDINATOR
    write_file(study / "schema.toml", replace(clinic_schema("readmitted"), identifier=None).to_toml())
    write_file(study / "study.toml", _STUDY.format(records=RECORDS) + "\n\n".join(pinned) + "\n")
    return loopback


def run(loopback: Loopback, names: Sequence[str]) -> Tried:
    """Start relay and sites, let the coordinator submit the study, and end them."""
    home, asker = loopback.home, loopback.home / COORDINATOR
    with ExitStack() as stack:
        stack.enter_context(witnessed(home))
        stack.enter_context(loopback.relay())
        stack.enter_context(processes(served(home, name) for name in names))
        words = ["study", "submit", str(asker / "study.toml"), "--keys", str(asker / "coordinator.key")]
        places = ["--relay", str(asker / "relay"), "--out", str(asker / "runs"), "--quiet"]
        log = asker / "log"
        coordinator = started(["-m", "comity", *words, *places], log)
        stack.callback(stop, coordinator)
        if coordinator.wait():
            said = log.read_text("utf-8", "replace").strip().splitlines()
            raise Stopped(f"{log}: the study did not run to its end ({said[-1] if said else 'no word'})")
    folder = max((asker / "runs").iterdir(), key=lambda path: path.stat().st_mtime)
    return Tried(folder, {name: _results(home / name) for name in names})


def served(home: Path, name: str) -> tuple[list[str], Path]:
    """The words of a site's process, and the file that it logs to."""
    return ["-m", "comity", "site", "serve", "--site", str(home / name / "site.toml")], home / name / "log"


def _results(folder: Path) -> Path:
    found = sorted((folder / "results").iterdir()) if (folder / "results").is_dir() else []
    if not found:
        raise Stopped(f"{folder}: nothing was delivered here; see {folder / 'log'}")
    return found[-1]


@contextmanager
def witnessed(home: Path) -> Iterator[None]:
    """What this machine remembers of ledgers lies with them, as they are thrown away together."""
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
