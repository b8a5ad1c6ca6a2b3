"""SIGKILL at random moments of a study between organisations over a real relay: a site, the relay or the coordinator.

Whoever is killed is started again at once, as a service manager would; a coordinator goes on with its run folder. Relay
and sites live through many runs. All but the relay and the small processes that talk to it are forked from a process
that has run the study before.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np

from comity.cli import main
from comity.relay import deployment, server
from comity.relay.sandbox import stop_process
from tests.faults import seen
from tests.faults.checks import broken
from tests.faults.consortia import COORDINATOR, Folder
from tests.faults.local_kills import warmed
from tests.faults.outcomes import COMPLETED, ENDED, RESUMED, Tally
from tests.support.children import fork

ROLES = ("site", "coordinator", "relay")
_LONGEST = 1800
_PATIENCE = 240.0
_CLEAR = (3, 4, 5)


class Deployment:
    """The processes of a consortium. What they say lies in `log` of each folder."""

    def __init__(self, place: Folder) -> None:
        self.place = place
        self.record = seen.Record(place.folder / "seen")
        self.relay: subprocess.Popen[bytes] | None = None
        self.sites: dict[str, int] = {}

    def __enter__(self) -> Deployment:
        self.start_relay()
        for party in self.place.parties:
            self.start_site(party)
        return self

    def __exit__(self, *_: object) -> None:
        for pid in self.sites.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        if self.relay is not None:
            stop_process(self.relay)

    # Starting.

    def start_relay(self) -> None:
        self.relay = server.start(self.place.loopback.consortium, timeout=60.0)

    def start_site(self, party: str) -> None:
        words = ["site", "serve", "--site", str(self.place.site(party))]
        self.sites[party] = self._forked(words, self.place.folder / party / "log", seen.at_a_site)

    def submit(self, run: Path | None = None, also: Callable[[], None] = lambda: None) -> int:
        """The coordinator's process, which begins a run or goes on with one; `also` is called in it first."""
        place, folder = self.place, self.place.folder / COORDINATOR
        words = ["study", "submit", str(place.study_file), "--keys", str(place.key_file), "--quiet"]
        words += ["--invitation", str(place.loopback.invitation), "--out", str(self.runs)]
        words += [] if run is None else ["--resume", str(run)]

        def watch(record: seen.Record) -> None:
            _watch_coordinator(record)
            also()

        return self._forked(words, folder / "log", watch)

    def _forked(self, words: list[str], log: Path, watch: Callable[[seen.Record], None]) -> int:
        child = fork()
        if child:
            return child
        code = 1
        try:
            signal.alarm(_LONGEST)
            os.environ["COMITY_HOME"] = str(self.place.folder / "home")
            said = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(said, 1)
            os.dup2(said, 2)
            # Whoever runs tests may have put something else in their places.
            sys.stdout = sys.stderr = os.fdopen(said, "w", buffering=1)
            watch(self.record)
            code = main(words)
        finally:
            os._exit(code)

    # Looking.

    @property
    def runs(self) -> Path:
        return self.place.folder / COORDINATOR / "runs"

    def newest(self, known: set[str]) -> Path | None:
        """The run folder that has come since, once a run can be resumed from it."""
        found = [path for path in self.runs.glob("*/run.json") if path.parent.name not in known]
        return found[0].parent if found else None

    def said(self, member: str = COORDINATOR) -> str:
        return "\n".join((self.place.folder / member / "log").read_text("utf-8", "replace").splitlines()[-12:])

    # Killing.

    def kill(self, role: str, child: int, which: int) -> None:
        """Kill, and start again whatever is not the coordinator."""
        if role == "coordinator":
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        elif role == "relay":
            assert self.relay is not None
            self.relay.kill()
            self.relay.wait()
            self.start_relay()
        else:
            self._kill_site(self.place.parties[which % len(self.place.parties)], talks=bool(which % 2))

    def _kill_site(self, party: str, *, talks: bool) -> None:
        """The process that answers, or the one that talks to the relay, which the other starts again."""
        pid = self.sites[party]
        children = Path(f"/proc/{pid}/task/{pid}/children")
        agents = children.read_text().split() if talks and children.exists() else []
        if agents:
            os.kill(int(agents[0]), signal.SIGKILL)
            return
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        self.start_site(party)


def _watch_coordinator(record: seen.Record) -> None:
    seen.at_the_coordinator(record)
    execute = cast(Any, deployment).execute

    def watched(parties: Any) -> Any:
        found = execute(parties)
        seen.released(record, parties.run, list(found))
        return found

    cast(Any, deployment).execute = watched


def exit_code(child: int, patience: float = _PATIENCE) -> int | None:
    """None where it was killed; it is killed where it takes too long."""
    end = time.monotonic() + patience
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return None
        time.sleep(0.01)


def tried(at: Deployment, role: str, moment: float, which: int) -> tuple[str, list[str]]:
    """One run with one kill: what became of it, and what did not hold."""
    known = {path.name for path in at.runs.iterdir()} if at.runs.exists() else set()
    child, outcome, wrong = at.submit(), COMPLETED, []
    time.sleep(moment)
    at.kill(role, child, which)
    code = exit_code(child)
    tries = 0
    while code != 0 and tries < 3:
        if code is not None and code not in _CLEAR:
            wrong.append(f"after a kill of the {role} there is no clear status: {at.said()}")
        outcome, tries = RESUMED, tries + 1
        code = exit_code(at.submit(at.newest(known)))
    if code != 0:
        outcome = ENDED
        if code not in _CLEAR:
            wrong.append(f"the resumed run has no clear status: {at.said()}")
    folder = at.newest(known)
    assert folder is not None, at.said()
    return outcome, wrong + _held(at, json.loads((folder / "run.json").read_text())["run"], over=code == 0)


def _held(at: Deployment, run: str, *, over: bool) -> list[str]:
    place = at.place
    with place.witnessed():
        ledgers = {party: place.ledger(party) for party in place.parties}
        wrong, lines = broken(place.study.agreement, ledgers, at.record.sights(run), {}, run)
        end = time.monotonic() + 20
        while over and not all(line[-1].kind == "close" for line in lines.values() if line):
            if time.monotonic() > end:
                wrong.append(f"the run is over and not closed everywhere: {lines}")
                break
            time.sleep(0.2)
            _, lines = broken(place.study.agreement, ledgers, at.record.sights(run), lines, run)
    return wrong


def kills(pristine: Folder, folder: Path, count: int, seed: int) -> Tally:
    """So many kills of each role; the seed says when, and which site."""
    warmed(pristine, folder / "warm")
    chance, tally = np.random.default_rng(seed), Tally()
    with Deployment(pristine.copied(folder / "deployed")) as at:
        span = min(_span(at) for _ in range(2))
        for number, (role, place) in enumerate(_plan(chance, count)):
            moment = span * (place + float(chance.uniform())) / count
            outcome, wrong = tried(at, role, moment, int(chance.integers(100)))
            tally.add(pristine.method, role, outcome)
            for one in wrong:
                tally.violated(pristine.method, role, f"seed {seed}, run {number}: {one}")
    shutil.rmtree(folder / "deployed", ignore_errors=True)
    return tally


def _plan(chance: np.random.Generator, count: int) -> Iterator[tuple[str, int]]:
    """Each role in each part of the length of a run, in no order."""
    every = [(role, place) for role in ROLES for place in range(count)]
    return iter([every[place] for place in chance.permutation(len(every))])


def _span(at: Deployment) -> float:
    """Seconds of an undisturbed run."""
    began = time.perf_counter()
    code = exit_code(at.submit())
    assert code == 0, at.said()
    return time.perf_counter() - began
