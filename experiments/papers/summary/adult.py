"""Adult without its education: up to some college at four owners, degrees wanted. Not in the paper."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments.papers.summary.rows import reproduced


def run(*, quick: bool, out: Path | None) -> list[dict[str, Any]]:
    return reproduced("adult", quick=quick, out=out)
