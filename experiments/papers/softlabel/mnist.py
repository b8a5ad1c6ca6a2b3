"""Handwritten digits by 1,000 parties with 6 or with 50 records each: the default rule beside whitened votes.

Not in the paper of Hamm, Cao and Belkin (2016); it shows the rule on ten classes that do not fall into clusters as well
as activities do. 784 pixels are mapped to 50 by PCA of the 10,000 public auxiliary rows, which are training rows of the
dataset that no party holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from comity.data import dataset
from comity.entropy import Stream
from comity.learn import fit_pca
from comity.methods.softlabel import StatisticName
from experiments.papers.plot import Curve, Level, Panel, draw
from experiments.papers.softlabel.default import EPSILONS, Layout, case_of, reproduced

STATISTICS: tuple[StatisticName, ...] = ("auto", "votes")
# Printed beside ours: what the recipe reached when it was designed, by records per party and epsilon.
REFERENCE = {
    6: {10.0: 0.771, 1.0: 0.688, 0.1: 0.438},
    50: {10.0: 0.78, 1.0: 0.72, 0.1: 0.55},
}


@dataclass(frozen=True)
class Size:
    parties: int = 1000
    records: tuple[int, ...] = (50, 6)
    auxiliary: int = 10_000
    dimensions: int = 50
    splits: int = 2
    draws: int = 4


FULL = Size()
QUICK = Size(records=(6,), auxiliary=5_000, splits=1, draws=2)


@dataclass(frozen=True, eq=False)
class Digits:
    pixels: NDArray[np.uint8]
    labels: NDArray[np.int64]
    training: NDArray[np.bool_]


def run(*, quick: bool, out: Path | None) -> list[dict[str, Any]]:
    """Rows for both numbers of records; with `out` also softlabel-mnist.svg and .png. COMITY_DATA names the folder."""
    with threadpool_limits(1, user_api="blas"):
        return scored(digits(), QUICK if quick else FULL, out, quick=quick)


def digits() -> Digits:
    frame = dataset("mnist")
    return Digits(
        frame.drop(columns=["label", "split"]).to_numpy(np.uint8),
        frame["label"].to_numpy(np.int64),
        (frame["split"] == "train").to_numpy(bool),
    )


def scored(data: Digits, size: Size, out: Path | None, *, quick: bool = False) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for records in size.records:
        reference = {case_of("auto", epsilon): value for epsilon, value in REFERENCE.get(records, {}).items()}
        rows += reproduced(
            layouts(data, size, records),
            "softlabel-mnist",
            draws=size.draws,
            statistics=STATISTICS,
            prefix=_prefix(records),
            reference=reference,
            remark="quick: fewer repeats than the full reproduction" if quick else "",
        )
    if out is not None:
        _plot(out / "softlabel-mnist", rows, size, quick)
    return rows


def layouts(data: Digits, size: Size, records: int) -> Iterator[Layout]:
    """Trials: training rows in random order, the first of them to the parties, then the auxiliary ones."""
    rows, test = np.flatnonzero(data.training), np.flatnonzero(~data.training)
    for number in range(size.splits):
        order = rows[Stream.public("reproduce softlabel-mnist", records, number).permutation(len(rows))]
        private = size.parties * records
        own, public = order[:private], order[private : private + size.auxiliary]
        auxiliary = data.pixels[public] / 255.0
        mapped = fit_pca(auxiliary, size.dimensions)
        yield Layout(
            mapped(data.pixels[own] / 255.0).reshape(size.parties, records, -1),
            data.labels[own].reshape(size.parties, records),
            mapped(auxiliary),
            mapped(data.pixels[test] / 255.0),
            data.labels[test],
            tuple(map(str, range(10))),
        )


def _prefix(records: int) -> str:
    return f"n={records} "


def _plot(stem: Path, rows: list[dict[str, Any]], size: Size, quick: bool) -> None:
    by_case = {row["case"]: row for row in rows}

    def curve(records: int, statistic: str, label: str, style: int) -> Curve:
        found = [by_case[_prefix(records) + case_of(statistic, epsilon)] for epsilon in EPSILONS]
        means, spreads = (tuple(row[key] for row in found) for key in ("ours", "spread"))
        return Curve(label, tuple(1 / epsilon for epsilon in EPSILONS), means, spreads, style)

    panels = []
    for records in size.records:
        any_row = by_case[_prefix(records) + case_of("auto", EPSILONS[0])]
        levels = (Level("batch", any_row["non_private"]), Level("constant", any_row["constant"]))
        curves = (curve(records, "auto", "default", 0), curve(records, "votes", "votes", 1))
        panels.append(Panel(f"{records} records each", curves, levels))
    repeats = f"{size.splits} splits, {size.draws} draws each{', quick' if quick else ''}; bars: one standard deviation"
    draw(
        stem,
        panels,
        title=f"Handwritten digits, {size.parties:,} parties",
        x="1/ε  (δ = 1e-6, a whole party replaced)",
        y="test accuracy",
        caption=f"All maps are fitted on public rows. {repeats}.",
    )
