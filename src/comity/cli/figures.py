"""Measured figures as a table, and the machine that they were measured on. No host name, no paths."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from comity.cli.output import table

# Long sentences are for the JSON form; a table has room for figures.
_NOT_IN_TABLE = ("note",)


def as_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Every field that some row has, in the order in which they first appear; notes follow below."""
    heads = list(dict.fromkeys(key for row in rows for key in row if key not in _NOT_IN_TABLE))
    if not heads:
        return "  nothing was measured"
    lines = [table(heads, [[figure(row.get(head)) for head in heads] for row in rows])]
    notes = dict.fromkeys(str(row["note"]) for row in rows if row.get("note"))
    return "\n".join([*lines, *(f"  note: {note}" for note in notes)])


def figure(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def machine() -> dict[str, Any]:
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0
    return {
        "cpu": _processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(pages / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
    }


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
