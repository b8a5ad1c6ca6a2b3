"""What a journal tells a reader beside the run: which steps were asked, who answered, who was lost and why.

Promise    The file is opened for reading, and closed before this returns: a run never waits for its reader. No message
           and no value is read.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from comity.errors import StudyError
from comity.federation.coordinator.journal import ABANDONED, RELEASED
from comity.federation.messages.codec import decode

_TIMEOUT_SECONDS = 2.0


@dataclass(frozen=True)
class AskedStep:
    """One step: which parties were asked and have answered, and why others were lost. `decided` once it is over."""

    path: str
    answered: tuple[str, ...]
    waiting: tuple[str, ...]
    lost: Mapping[str, str]
    decided: bool


@dataclass(frozen=True)
class JournalView:
    """`abandoned` is why the run was abandoned, or empty."""

    steps: tuple[AskedStep, ...] = ()
    released: bool = False
    abandoned: str = ""
    lost: Mapping[str, str] = field(default_factory=dict)


def read_journal(path: Path, run: str) -> JournalView:
    """The state of a run; empty where no journal exists yet."""
    if not path.exists():
        return JournalView()
    try:
        with _reading(path) as connection:
            steps = tuple(_steps(connection, run))
            names = dict(connection.execute("select name, value from once where run = ?", (run,)).fetchall())
    except sqlite3.Error as error:
        raise StudyError(f"the run's journal {path} can't be read ({error}); open the page again") from error
    abandoned = decode(bytes(names[ABANDONED])) if ABANDONED in names else None
    why = str(abandoned["why"]) if isinstance(abandoned, dict) else ""
    lost = {party: reason for step in steps for party, reason in step.lost.items()}
    return JournalView(steps, RELEASED in names, why, lost)


@contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    address = f"file:{quote(str(path.absolute()))}?mode=ro"
    with closing(sqlite3.connect(address, uri=True, timeout=_TIMEOUT_SECONDS)) as connection:
        yield connection


def _steps(connection: sqlite3.Connection, run: str) -> Iterator[AskedStep]:
    decided = {path for (path,) in connection.execute("select path from closed where run = ?", (run,))}
    # A settled run has no replies any more; their sizes remain.
    query = (
        "select ask.path, ask.party, ask.reply is not null or coalesce(trace.replied, 0) > 0, ask.why from ask "
        "left join trace on trace.run = ask.run and trace.path = ask.path and trace.party = ask.party "
        "where ask.run = ? order by ask.seq"
    )
    found: dict[str, list[tuple[str, bool, str | None]]] = {}
    for path, party, has_replied, why in connection.execute(query, (run,)):
        found.setdefault(path, []).append((party, bool(has_replied), why))
    for path, asked in found.items():
        yield AskedStep(
            path,
            tuple(party for party, has_replied, _ in asked if has_replied),
            tuple(party for party, has_replied, why in asked if not has_replied and why is None),
            {party: why for party, has_replied, why in asked if not has_replied and why is not None},
            path in decided,
        )
