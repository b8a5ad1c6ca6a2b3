"""What a site refused, and why, for its owner: the sentences that do not cross.

Anybody who reaches the site can make it refuse, so that the file has an end: two halves of at most a megabyte, of which
the older one goes.
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

from comity.errors import ComityError
from comity.federation.coordinator.replies import plain

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
