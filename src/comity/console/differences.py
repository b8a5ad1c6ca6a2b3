"""What differs between a study and an earlier one of the same name: the keys of their files, old and new."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from comity.site.inbox import Arrival
from comity.untrusted.toml import BadToml, read_tables

MAX_SHOWN = 60
_MAX_TEXT = 200


@dataclass(frozen=True)
class Difference:
    """A key with its old and its new value; empty where it is missing."""

    key: str
    old: str
    new: str


def find_earlier(arrivals: list[Arrival], arrival: Arrival) -> Arrival | None:
    """The newest other study of the same name that arrived before."""
    before = [one for one in arrivals if one.name == arrival.name and one.arrived < arrival.arrived]
    return max(before, key=lambda one: one.arrived, default=None)


def compare_studies(old: Path, new: Path) -> list[Difference]:
    """Compare the TOML files of two study folders, key by key; other files by their content."""
    before, after = _values(old), _values(new)
    keys = [*after, *(key for key in before if key not in after)]
    return [
        Difference(key, before.get(key, ""), after.get(key, ""))
        for key in keys
        if before.get(key, "") != after.get(key, "")
    ]


def _values(folder: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        name = path.relative_to(folder).as_posix()
        try:
            tables = read_tables(path.read_text(encoding="utf-8")) if path.suffix == ".toml" else None
        except (OSError, UnicodeDecodeError, BadToml):
            tables = None
        prefix = "" if name == "study.toml" else f"{name}: "
        if tables is None:
            found[name] = f"{path.stat().st_size:,} bytes, {_short_digest(path)}"
        else:
            found |= {prefix + key: value for key, value in _flat(tables)}
    return found


def _flat(tables: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for key, value in tables.items():
        name = f"{before}{key}"
        if isinstance(value, Mapping):
            yield from _flat(value, f"{name}.")
        else:
            text = str(value)
            yield name, text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 1]}…"


def _short_digest(path: Path) -> str:
    import hashlib

    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]
