"""SIGKILL at random moments of a run between processes over the local channel; then resume.

Processes are forked from one that has run the study before, so that a kill costs the time of a run and not of a start.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from comity.errors import ComityError
from comity.federation.coordinator.journal import Journal
from comity.federation.coordinator.lifecycle import execute
from comity.relay.deployment import connect_parties
from comity.site.service import SiteService
from comity.study.local.channel import LocalChannel
from tests.faults import seen
from tests.faults.checks import Line, broken
from tests.faults.consortia import RUN, Folder
from tests.faults.outcomes import COMPLETED, ENDED, RESUMED, Tally
from tests.support.children import fork
from tests.support.pipes import PIDS, PipeChannel

ROLES = ("site", "coordinator", "everyone")
AGAIN = 0.4
"""The share of killed runs that are killed once more while they are resumed."""
RERUN = 0.2
"""The share of runs that are run again when they are over."""
_MEASURED_EVERY = 25
_DONE, _DEFECT = 0, 1


@dataclass
class Trial:
    """One run, its kills, and what was seen of it."""

    place: Folder
    record: seen.Record
    lines: dict[str, list[Line]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, pristine: Folder, to: Path) -> Trial:
        place = pristine.copied(to)
        return cls(place, seen.Record(place.folder / "seen"))

    def started(self) -> int:
        """Run or resume in a process of its own group; its number."""
        (self.place.folder / PIDS).unlink(missing_ok=True)
        child = fork()
        if child:
            return child
        code = _DEFECT
        try:
            logging.disable(logging.CRITICAL)
            os.environ["COMITY_HOME"] = str(self.place.folder / "home")
            code = self._coordinate()
        except BaseException:
            (self.place.folder / "error").write_text(traceback.format_exc())
        finally:
            os._exit(code)

    def _coordinate(self) -> int:
        place = self.place
        channel = PipeChannel(place.folder, place.parties, self._answering)
        seen.at_the_coordinator(self.record)
        parties = connect_parties(
            place.study, run=RUN, channel=channel, journal=Journal(place.journal), keys=place.keys
        )
        try:
            seen.released(self.record, RUN, list(execute(parties)))
        except ComityError as error:
            (place.folder / "error").write_text(str(error))
            return error.exit_code
        return _DONE

    def _answering(self, party: str) -> Any:
        seen.at_a_site(self.record)
        service = SiteService(self.place.site(party))
        return lambda ask: service.answer(ask).reply

    @property
    def said(self) -> str:
        """Why the last process did not run to the end."""
        path = self.place.folder / "error"
        return path.read_text() if path.exists() else "no word"

    def look(self) -> None:
        """Compare ledgers with what was seen."""
        with self.place.witnessed():
            ledgers = {party: self.place.ledger(party) for party in self.place.parties}
            wrong, self.lines = broken(self.place.study.agreement, ledgers, self.record.sights(RUN), self.lines, RUN)
        self.wrong += [one for one in wrong if one not in self.wrong]

    def ended(self, child: int) -> int | None:
        """The exit code once nobody of the attempt is left; None where it was killed."""
        _, status = os.waitpid(child, 0)
        wait_for_end(self.place.folder)
        return os.WEXITSTATUS(status) if os.WIFEXITED(status) else None


def wait_for_end(folder: Path) -> None:
    """Wait until the sites of an attempt have ended: they see the closed pipe after they have answered."""
    end = time.monotonic() + 60
    while any(map(_is_running, _pids(folder))):
        assert time.monotonic() < end, "a site did not end with its coordinator"
        time.sleep(0.002)


def _pids(folder: Path) -> list[int]:
    with contextlib.suppress(FileNotFoundError):
        return [int(word) for word in (folder / PIDS).read_text().split()]
    return []


def _is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state != "Z"


def kill(child: int, role: str, folder: Path, place: int) -> None:
    """Kill now; a process that has not started yet is not killed, and neither is the rest of its attempt."""
    with contextlib.suppress(ProcessLookupError):
        if role == "everyone":
            os.killpg(child, signal.SIGKILL)
        elif role == "coordinator":
            os.kill(child, signal.SIGKILL)
        elif pids := _pids(folder):
            os.kill(pids[place % len(pids)], signal.SIGKILL)
        else:
            os.killpg(child, signal.SIGKILL)


def span_of(pristine: Folder, folder: Path) -> float:
    """Seconds of an undisturbed run."""
    trial = Trial.of(pristine, folder)
    began = time.perf_counter()
    code = trial.ended(trial.started())
    assert code == _DONE, trial.said
    taken = time.perf_counter() - began
    trial.look()
    assert not trial.wrong, trial.wrong
    shutil.rmtree(folder, ignore_errors=True)
    return taken


def warmed(pristine: Folder, folder: Path) -> None:
    """Run the study once in this process: every fork then has its imports and compiled code."""
    place = pristine.copied(folder)
    with place.witnessed():
        services = {party: SiteService(place.site(party)) for party in place.parties}
        execute(
            connect_parties(place.study, run=RUN, channel=LocalChannel(services), journal=Journal(), keys=place.keys)
        )
    shutil.rmtree(folder, ignore_errors=True)


def tried(
    pristine: Folder, folder: Path, chance: np.random.Generator, moments: Iterator[float]
) -> tuple[list[tuple[str, str]], list[str]]:
    """One run with one kill or more: what became of each kill, by role, and what did not hold. `moments` are the
    seconds after which to kill."""
    trial = Trial.of(pristine, folder)
    kills: list[str] = []
    code: int | None = None
    while not kills or (code != _DONE and chance.random() < AGAIN):
        role, which = ROLES[chance.integers(len(ROLES))], int(chance.integers(100))
        child = trial.started()
        time.sleep(next(moments))
        kill(child, role, trial.place.folder, which)
        kills.append(role)
        code = trial.ended(child)
        trial.look()
        if code == _DEFECT:
            trial.wrong.append(f"after a kill of {role} there is no clear status: {trial.said}")
    outcome = COMPLETED
    if code != _DONE:
        code = trial.ended(trial.started())
        trial.look()
        outcome = RESUMED if code == _DONE else ENDED
        if code not in (_DONE, 4, 5):
            trial.wrong.append(f"the resumed run has no clear status: {trial.said}")
    if code == _DONE and chance.random() < RERUN:
        _look_at_end(trial)
    # What became of a run that was killed again is told by its last kill.
    return [*((role, RESUMED if outcome != ENDED else ENDED) for role in kills[:-1]), (kills[-1], outcome)], trial.wrong


def _look_at_end(trial: Trial) -> None:
    """Running once more gives the same values and costs nothing."""
    before = trial.lines
    if trial.ended(trial.started()) != _DONE:
        trial.wrong.append(f"a run that is over does not give its values again: {trial.said}")
    trial.look()
    for party, lines in trial.lines.items():
        new = [line.kind for line in lines[len(before[party]) :]]
        # Whoever was lost hears the end only now.
        if any(kind not in ("close", "void", "forfeit", "abandon") for kind in new):
            trial.wrong.append(f"{party} paid again for a run that is over")


def kills(pristine: Folder, folder: Path, count: int, seed: int, *, measured: int = 2) -> Tally:
    """So many kills, one in each of as many equal parts of the length of a run; the seed says where and whom. How long
    an undisturbed run takes is the least of so many that are `measured`."""
    warmed(pristine, folder / "warm")
    chance = np.random.default_rng(seed)
    places, tally, span = iter(chance.permutation(count)), Tally(), 0.0

    def moments() -> Iterator[float]:
        while True:
            place = next(places, None)
            yield 0.95 * span * ((chance.uniform() * count if place is None else place + chance.uniform()) / count)

    upcoming, number = moments(), 0
    while tally.kills < count:
        if number % _MEASURED_EVERY == 0:
            # Again and again, because the machine may be busier later on than it was at first.
            span = min(span_of(pristine, folder / f"whole-{number}-{turn}") for turn in range(measured))
        there = folder / str(number)
        found, wrong = tried(pristine, there, chance, upcoming)
        for role, outcome in found:
            tally.add(pristine.method, role, outcome)
        for one in wrong:
            tally.violated(pristine.method, found[-1][0], f"seed {seed}, run {number} ({there}): {one}")
        if not wrong:
            shutil.rmtree(there, ignore_errors=True)
        number += 1
    return tally
