"""Every table and figure of the five papers, on one page: `make papers`.

Each computation runs in a process by itself, as many at once as there are cores, with one thread for linear algebra, so
that its CPU time is its own. The page says how long each took.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from comity.errors import BadInput
from experiments.papers.exhibit import Exhibit, Line, Measured
from experiments.papers.exhibit_page import write_html, write_markdown
from experiments.papers.publications import PUBLICATIONS, Publication


@dataclass(frozen=True)
class Computed:
    """What one computation gave: its exhibits, and the CPU seconds that it took."""

    name: str
    exhibits: tuple[Exhibit, ...]
    seconds: float


@dataclass(frozen=True)
class Chapter:
    """One paper on the page."""

    publication: Publication
    computed: tuple[Computed, ...]

    @property
    def exhibits(self) -> tuple[Exhibit, ...]:
        return tuple(exhibit for one in self.computed for exhibit in one.exhibits)


def write_pages(
    *, quick: bool, out: Path, workers: int | None = None, publications: Iterable[Publication] = PUBLICATIONS
) -> tuple[Chapter, ...]:
    """Compute everything and write papers.md, papers.html and the pictures into a folder.

    COMITY_DATA names the folder of the datasets."""
    if not os.environ.get("COMITY_DATA"):
        raise BadInput("COMITY_DATA is not set; set it to the folder that has the datasets, as in COMITY_DATA=data")
    chapters = tuple(_compute_all(tuple(publications), quick=quick, out=out, workers=workers or os.cpu_count() or 1))
    write_markdown(out / "papers.md", chapters, quick=quick)
    write_html(out / "papers.html", chapters, quick=quick)
    return chapters


def as_rows(chapters: Iterable[Chapter]) -> list[dict[str, Any]]:
    """Every line of every exhibit, for --json."""
    return [
        {"method": chapter.publication.method, "exhibit": exhibit.name, "unit": exhibit.unit, **_row(line)}
        for chapter in chapters
        for exhibit in chapter.exhibits
        for line in exhibit.lines
    ]


def as_verdicts(chapters: Iterable[Chapter]) -> list[dict[str, Any]]:
    """Every verdict, for the terminal and for --json."""
    return [
        {
            "method": chapter.publication.method,
            "exhibit": exhibit.name,
            "verdict": trend.verdict,
            "claim": trend.claim,
            "evidence": trend.evidence,
            "why": trend.why,
        }
        for chapter in chapters
        for exhibit in chapter.exhibits
        for trend in exhibit.trends
    ]


def _row(line: Line) -> dict[str, Any]:
    row: dict[str, Any] = {"case": line.case, "paper": line.paper, "source": line.source}
    for name in ("published", "default"):
        found: Measured | None = getattr(line, name)
        row[name] = None if found is None else found.mean
        row[f"{name} spread"] = None if found is None else found.spread
        row[f"{name} repeats"] = None if found is None else found.repeats
    return {**row, "constant": line.constant, "non_private": line.non_private, "note": line.why}


def _compute_all(publications: tuple[Publication, ...], *, quick: bool, out: Path, workers: int) -> Iterable[Chapter]:
    work = [(one, place) for one in publications for place in range(len(one.computations()))]
    found: dict[tuple[str, int], Computed] = {}
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        running = {pool.submit(_compute, one, place, quick, out): (one.method, place) for one, place in work}
        try:
            for future in as_completed(running):
                computed = found[running[future]] = future.result()
                done = f"{running[future][0]} {computed.name}, {computed.seconds:.0f} s of CPU"
                print(f"{len(found)} of {len(work)}: {done}", file=sys.stderr, flush=True)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    for one in publications:
        yield Chapter(one, tuple(found[one.method, place] for place in range(len(one.computations()))))


def _compute(publication: Publication, place: int, quick: bool, out: Path) -> Computed:
    compute = publication.computations()[place]
    with threadpool_limits(1):
        started = time.process_time()
        exhibits = compute(quick=quick, out=out)
        return Computed(compute.__name__, exhibits, time.process_time() - started)
