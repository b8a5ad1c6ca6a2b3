"""What a command costs before it does anything: processor time of `comity --version` and of `comity plan`.

Each runs in a separate process, whose user and system time is counted, with compiled Python files present, as pip
leaves them: they are written to a temporary folder, whatever the environment says. The anchor is a process that imports
numpy.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median
from typing import Any


def measure(*, repeats: int = 5) -> list[dict[str, Any]]:
    """Rows: processor seconds of each command."""
    with tempfile.TemporaryDirectory() as folder:
        study = Path(folder) / "study"
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(Path(folder) / "compiled")}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        _seconds(environment, "-m", "comity", "new", str(study), "--protocol", "averaging")
        commands = {
            "comity --version": ("-m", "comity", "--version"),
            "comity plan": ("-m", "comity", "plan", str(study / "study.toml")),
        }
        # The first of each writes compiled files.
        found = {
            name: [_seconds(environment, *words) for _ in range(repeats + 1)][1:] for name, words in commands.items()
        }
        anchor = [_seconds(environment, "-c", "import numpy") for _ in range(repeats + 1)][1:]
    return [
        {
            "case": name,
            "ours": median(seconds),
            "anchor": median(anchor),
            "ratio": median(seconds) / median(anchor),
            "spread": max(seconds) - min(seconds),
            "unit": "s of processor time",
            "note": "a whole process; anchor: one that imports numpy",
            "repeats": repeats,
        }
        for name, seconds in found.items()
    ]


def _seconds(environment: Mapping[str, str], *words: str) -> float:
    before = getrusage(RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL, env=environment)
    after = getrusage(RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
