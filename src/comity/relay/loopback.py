"""A whole consortium on this machine, on loopback alone: for trying, measuring and testing.

Members have folders, keys and certificates of their own, as between organisations; what differs is that one person made
all of them.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from comity.files import open_private
from comity.relay import consortium
from comity.relay.certificates import Authority, install
from comity.relay.dialling import Relay
from comity.relay.relay import start
from comity.relay.roster import Roster

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
        invitations = consortium.init(
            made.consortium,
            address=f"{HOST}:{port}",
            listen=f"{HOST}:{port}",
            websocket=free_port() if websocket else None,
            parties=list(parties),
        )
        authority, roster = Authority.load(made.consortium / "authority"), Roster.load(made.consortium)
        for invitation in invitations:
            name = invitation.stem
            joined = consortium.join(invitation, made.relay_folder(name), websocket=websocket)
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
        return consortium.membership(self.relay_folder(name))[1]

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
