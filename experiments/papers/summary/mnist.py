"""Odd digits at four owners, even ones wanted: MNIST as in the appendix of Sarpatwar et al. (2019)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments.papers.summary.rows import reproduced


def run(*, quick: bool, out: Path | None) -> list[dict[str, Any]]:
    return reproduced("mnist", quick=quick, out=out)
