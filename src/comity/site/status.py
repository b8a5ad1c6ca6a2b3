"""What `comity site status` shows an owner: the refusals that do not cross the wire, and the runs in its ledger.

Anyone who reaches the site can make it refuse, so the file of refusals is bounded: two halves of at most a megabyte, of
which the older one is dropped.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from comity.errors import BadInput, ComityError
from comity.federation.coordinator.replies import plain
from comity.federation.owner.store import MARK, Store
from comity.privacy.ledger import Ledger
from comity.privacy.unit import Neighbours, Unit

if TYPE_CHECKING:
    from comity.site.inbox import Arrival

NAME = "refusals.jsonl"
MOST = 1 << 20
_SENTENCE, _KEY = 2_000, 200
# Characters of a study's hash that a refusal is kept with.
_MARK = 12
_ALL = 1 << 30


@dataclass(frozen=True)
class Refusal:
    """`study` and `run` are what was asked for, as far as that is known."""

    time: str
    code: str
    key: str
    sentence: str
    study: str = ""
    run: str = ""

    @property
    def moment(self) -> datetime:
        return datetime.fromisoformat(self.time)


def unsettled(refusals: Refusals, arrivals: Sequence[Arrival], most: int) -> list[Refusal]:
    """The newest refusals, without those of a study that its owner approved afterwards: what they complained of is
    decided. The file keeps all."""
    decided = [(one.study, one.decision) for one in arrivals if one.decision is not None]
    approved = {study[:_MARK]: given.moment for study, given in decided if given.decision == "approved"}
    found = [one for one in refusals.last(_ALL) if not (one.study in approved and one.moment < approved[one.study])]
    return found[-most:] if most else []


class Refusals:
    """The file of one site, readable by its owner alone."""

    def __init__(self, home: Path, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._path = home / NAME
        self._clock = clock
        self._lock = Lock()

    def note(self, error: ComityError, *, study: str | None = None, run: str = "") -> None:
        time = self._clock().astimezone(UTC).isoformat(timespec="milliseconds")
        named = plain((study or "")[:_MARK])
        page = Refusal(time, error.code, error.key[:_KEY], str(error)[:_SENTENCE], named, plain(run))
        line = json.dumps(asdict(page)) + "\n"
        with self._lock:
            if self._path.exists() and self._path.stat().st_size > MOST:
                self._path.replace(self._older)
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            with os.fdopen(descriptor, "a", encoding="utf-8") as file:
                file.write(line)

    def last(self, most: int) -> list[Refusal]:
        """The newest ones, the newest last; lines that a crash cut short or another program wrote are left out."""
        found: list[Refusal] = []
        for path in (self._older, self._path):
            if path.exists():
                for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
                    try:
                        one = Refusal(**json.loads(line))
                        if one.moment.tzinfo is not None:
                            found.append(one)
                    except (ValueError, TypeError):
                        continue
        return found[-most:]

    @property
    def _older(self) -> Path:
        return self._path.with_name(NAME + ".older")


@dataclass(frozen=True)
class RunHere:
    """`mark` is the beginning of the study's hash, `run` its coordinator's id, `state` open or how it ended."""

    mark: str
    run: str
    dataset: str
    title: str
    state: str

    @property
    def key(self) -> str:
        """By what the ledger knows it."""
        return f"{self.mark}/{self.run}" if self.mark else self.run

    def is_of(self, study: str) -> bool:
        return bool(self.mark) and study.startswith(self.mark)


def runs_of(ledger: Ledger) -> list[RunHere]:
    """Open ones first."""
    found = []
    for one in ledger.runs():
        mark, slash, run = one.run.partition("/")
        marked = bool(slash) and len(mark) == MARK
        found.append(RunHere(mark if marked else "", run if marked else one.run, one.dataset, one.study, one.state))
    return sorted(found, key=lambda one: one.state != "open")


def end_run(ledger: Ledger, named: str) -> RunHere:
    """Abandon an open run for good: frees what it never drew, deletes its masks and replies. `named` is its id, with
    the beginning of the study's hash and a slash before it where several studies have a run of that id."""
    open_runs = [one for one in runs_of(ledger) if one.state == "open"]
    mark, slash, run = named.partition("/")
    found = [one for one in open_runs if named == one.run]
    found = found or [one for one in open_runs if slash and one.run == run and one.mark.startswith(mark)]
    if len(found) != 1:
        listed = ", ".join(f"{one.mark[:12]}/{one.run}" for one in open_runs) or "none"
        many = f"{len(found)} open runs are" if found else "no open run is"
        raise BadInput(f"{many} called {named!r}; open are: {listed}", key="run")
    Store(ledger, unit=Unit.RECORD, neighbours=Neighbours.REPLACE).abandon(found[0].key)
    return found[0]
