"""How the delivery of a study went, in the folder of its run: `delivery.json`, for the coordinator's own eyes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from comity.files import write_atomically
from comity.untrusted.pages import validate

NAME = "delivery.json"


@dataclass(frozen=True)
class Delivery:
    """What each party said to the study, in words; the command that resumes the run; and why it stopped last, empty
    while it runs and after it ended."""

    when: str = ""
    parties: Mapping[str, str] | None = None
    resume: str = ""
    problem: str = ""


def read_delivery(folder: Path) -> Delivery:
    """Empty where there is no such file, or none that can be read."""
    try:
        found: Delivery = validate(Delivery, json.loads((folder / NAME).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError):
        return Delivery()
    return found


def write_delivery(folder: Path, parties: Mapping[str, str], resume: str) -> None:
    when = datetime.now(UTC).isoformat(timespec="seconds")
    _write(folder, Delivery(when, dict(parties), resume))


def note_problem(folder: Path, problem: str) -> None:
    """Note why the run stopped; empty to clear it."""
    known = read_delivery(folder)
    if known.problem != problem:
        _write(folder, replace(known, problem=problem))


def _write(folder: Path, delivery: Delivery) -> None:
    write_atomically(folder / NAME, json.dumps(asdict(delivery), indent=1) + "\n")
