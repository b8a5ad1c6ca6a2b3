"""What memory and processor time other processes have taken, where the system says so."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def peak(pid: int) -> float | None:
    """Megabytes that a process has taken at most."""
    try:
        text = Path(f"/proc/{pid}/status").read_text("ascii")
    except OSError:
        return None
    kilobytes = next((line.split()[1] for line in text.splitlines() if line.startswith("VmHWM")), None)
    return None if kilobytes is None else int(kilobytes) / 1000


def processor_time(pids: Iterable[int]) -> float | None:
    """Seconds of these processes and of those that they started and that run still."""
    ticks = 0
    try:
        for pid in pids:
            # The name of the program, which may hold anything, ends with the last bracket.
            fields = Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
            for thread in Path(f"/proc/{pid}/task").iterdir():
                started = [int(child) for child in (thread / "children").read_text("ascii").split()]
                within = processor_time(started)
                if within is None:
                    return None
                ticks += round(within * os.sysconf("SC_CLK_TCK"))
    except (OSError, IndexError, ValueError):
        return None
    return ticks / os.sysconf("SC_CLK_TCK")
