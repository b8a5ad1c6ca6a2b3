"""What memory another process has taken."""

from __future__ import annotations

from pathlib import Path


def peak(pid: int) -> float | None:
    """Megabytes that a process has taken at most, where the system says so."""
    try:
        text = Path(f"/proc/{pid}/status").read_text("ascii")
    except OSError:
        return None
    kilobytes = next((line.split()[1] for line in text.splitlines() if line.startswith("VmHWM")), None)
    return None if kilobytes is None else int(kilobytes) / 1000
