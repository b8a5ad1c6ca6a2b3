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
from comity.federation.owner.store import STUDY_PREFIX, Store
from comity.privacy.ledger import Ledger
from comity.privacy.unit import Neighbours, Unit

if TYPE_CHECKING:
    from comity.site.inbox import Arrival

NAME = "refusals.jsonl"
MAX_BYTES = 1 << 20
_MAX_SENTENCE, _MAX_KEY = 2_000, 200
_HASH_CHARACTERS = 12
"""Of a study's hash, in a refusal."""
_ALL = 1 << 30


@dataclass(frozen=True)
class Refusal:
    """`study` and `run` are what the sender asked for, as far as known."""

    time: str
    code: str
    key: str
    sentence: str
    study: str = ""
    run: str = ""

    @property
    def moment(self) -> datetime:
        return datetime.fromisoformat(self.time)


def open_refusals(refusals: Refusals, arrivals: Sequence[Arrival], most: int) -> list[Refusal]:
    """The newest refusals, without those of a study that its owner approved afterwards. The file keeps all."""
    decided = [(one.study, one.decision) for one in arrivals if one.decision is not None]
    approved = {
        study[:_HASH_CHARACTERS]: decision.moment for study, decision in decided if decision.decision == "approved"
    }
    still_open = [
        one for one in refusals.last(_ALL) if not (one.study in approved and one.moment < approved[one.study])
    ]
    return still_open[-most:] if most else []


class Refusals:
    """The refusals of one site, in a file that its owner alone can read."""

    def __init__(self, home: Path, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._path = home / NAME
        self._clock = clock
        self._lock = Lock()

    def record(self, error: ComityError, *, study: str | None = None, run: str = "") -> None:
        time = self._clock().astimezone(UTC).isoformat(timespec="milliseconds")
        short = plain((study or "")[:_HASH_CHARACTERS])
        page = Refusal(time, error.code, error.key[:_MAX_KEY], str(error)[:_MAX_SENTENCE], short, plain(run))
        line = json.dumps(asdict(page)) + "\n"
        with self._lock:
            if self._path.exists() and self._path.stat().st_size > MAX_BYTES:
                self._path.replace(self._older)
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            with os.fdopen(descriptor, "a", encoding="utf-8") as file:
                file.write(line)

    def last(self, most: int) -> list[Refusal]:
        """The newest refusals, the newest last; unreadable lines, as a crash may leave, are skipped."""
        refusals: list[Refusal] = []
        for path in (self._older, self._path):
            if path.exists():
                for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
                    try:
                        one = Refusal(**json.loads(line))
                        if one.moment.tzinfo is not None:
                            refusals.append(one)
                    except (ValueError, TypeError):
                        continue
        return refusals[-most:]

    @property
    def _older(self) -> Path:
        return self._path.with_name(NAME + ".older")


@dataclass(frozen=True)
class SiteRun:
    """A run in a site's ledger. `mark` is the beginning of the study's hash, `run` the coordinator's id, `state` is
    open or how the run ended."""

    mark: str
    run: str
    dataset: str
    title: str
    state: str

    @property
    def key(self) -> str:
        """The run's name in the ledger."""
        return f"{self.mark}/{self.run}" if self.mark else self.run

    def is_of(self, study: str) -> bool:
        return bool(self.mark) and study.startswith(self.mark)


def list_runs(ledger: Ledger) -> list[SiteRun]:
    """The runs in a ledger, open ones first."""
    runs = []
    for one in ledger.runs():
        mark, slash, run = one.run.partition("/")
        marked = bool(slash) and len(mark) == STUDY_PREFIX
        runs.append(SiteRun(mark if marked else "", run if marked else one.run, one.dataset, one.study, one.state))
    return sorted(runs, key=lambda one: one.state != "open")


def list_steps(ledger: Ledger, run: SiteRun) -> list[str]:
    """The paths of the steps that a run was answered here, in their order."""
    with ledger.reading() as connection:
        has_replies = connection.execute("select 1 from sqlite_master where name = 'reply'").fetchone()
        query = "select path from reply where owner = ? and run = ? order by rowid"
        rows = connection.execute(query, (ledger.owner, run.key)).fetchall() if has_replies else []
    return [str(path) for (path,) in rows]


def end_run(ledger: Ledger, named: str) -> SiteRun:
    """Abandon an open run for good: free what it never drew, delete its masks and replies. `named` is its id, or
    HASH/ID if several studies have a run of that id."""
    open_runs = [one for one in list_runs(ledger) if one.state == "open"]
    mark, slash, run = named.partition("/")
    matching = [one for one in open_runs if named == one.run]
    matching = matching or [one for one in open_runs if slash and one.run == run and one.mark.startswith(mark)]
    if len(matching) != 1:
        listed = ", ".join(f"{one.mark[:12]}/{one.run}" for one in open_runs) or "none"
        many = f"{len(matching)} open runs are" if matching else "no open run is"
        raise BadInput(f"{many} called {named!r}; open are: {listed}", key="run")
    Store(ledger, unit=Unit.RECORD, neighbours=Neighbours.REPLACE).abandon(matching[0].key)
    return matching[0]
