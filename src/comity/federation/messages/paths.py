"""The path of an ask: `mount.step[label]`. A step has one path per label and no other way to write it, or it could be
asked for again under a second key."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from comity.errors import Malformed

MOST = 400
_WRITTEN = re.compile(r"(?:([A-Za-z]\w*)\.)?([A-Za-z]\w*)\[([\w/-]+)\]", re.ASCII)


@dataclass(frozen=True)
class StepPath:
    """`mount` is empty for a step of the study's own protocol."""

    mount: str
    step: str
    label: str

    def __str__(self) -> str:
        name = f"{self.mount}.{self.step}" if self.mount else self.step
        return f"{name}[{self.label}]"

    @staticmethod
    def parse(text: str) -> StepPath:
        """The path that is written like this; anything but its one form is refused."""
        return _parsed(text)


@lru_cache(maxsize=256)
def _parsed(text: str) -> StepPath:
    found = _WRITTEN.fullmatch(text) if len(text) <= MOST else None
    path = None if found is None else StepPath(found[1] or "", found[2], found[3])
    if path is None or str(path) != text:
        raise Malformed(f"{text[:80]!r} is not a path", code="no-step")
    return path


READY = StepPath("run", "ready", "0")
BEGIN = StepPath("run", "begin", "0")
MEET = StepPath("run", "meet", "0")
END = StepPath("run", "end", "0")
ABANDON = StepPath("run", "abandon", "0")
