"""Who did what in a console: `console/access.jsonl`, one JSON object a line.

Promise    Every line is appended in one write; no line is changed or removed by this program. The file is its owner's
           alone. A line holds a time, a person, an address, an action and the beginning of a study's hash or the id of
           a run: no password, no link, no value of a record, and nothing that somebody typed who was not signed in.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from comity.console.people import FOLDER
from comity.errors import Stopped
from comity.files import make_folder, open_private
from comity.untrusted.text import encode_json, shorten

NAME = "access.jsonl"


class AccessLog:
    def __init__(self, home: Path, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self.path = home / FOLDER / NAME
        self._clock = clock

    def write(self, *, who: str, address: str, action: str, about: str = "", outcome: str = "done") -> None:
        """Append a line. What can't be logged is not done: this raises, and the action is not carried out."""
        page = {
            "time": self._clock().astimezone(UTC).isoformat(timespec="milliseconds"),
            "who": who,
            "from": address,
            "action": action,
            "about": shorten(about),
            "outcome": outcome,
        }
        try:
            make_folder(self.path.parent)
            descriptor = open_private(self.path, os.O_WRONLY | os.O_APPEND)
            try:
                os.write(descriptor, (encode_json(page) + "\n").encode())
            finally:
                os.close(descriptor)
        except OSError as error:
            raise Stopped(f"{self.path}: can't be written ({error.strerror}); free some space or restore it") from error
