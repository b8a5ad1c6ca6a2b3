"""Tax units of Florida at four owners, Connecticut wanted: the CPS in place of the paper's Allstate extract."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments.papers.summary.rows import reproduced


def run(*, quick: bool, out: Path | None) -> list[dict[str, Any]]:
    return reproduced("cps", quick=quick, out=out)
