"""Tasks under covariate shift, after the experiments of Sarpatwar et al. (2019), on data at hand.

Owners hold records of one kind and some of the target's; the consumer has a few of the target's, without labels, and
others of them are for testing. As in the paper 70 % of the target lie with the owners, a quarter of the rest is the
consumer's and three quarters are tested. 150 public seed records set the width of the kernel, and the published method
begins with them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from comity.data import Encoding, Records, Schema, dataset
from comity.entropy import Stream
from comity.methods.summary import gamma_of_records
from experiments.data.adult import adult, adult_schema

Floats = NDArray[np.float64]
Layout = Literal["one owner", "classes split", "spread evenly"]

OWNERS, SEEDS = 4, 150
HELD, WISHED = 0.7, 0.25


@dataclass(frozen=True, eq=False)
class Source:
    """Rows and labels of all records, and which of them are the owners' kind, the target's, and public."""

    rows: Floats
    labels: NDArray[np.int64]
    owned: NDArray[np.bool_]
    target: NDArray[np.bool_]
    public: NDArray[np.bool_]
    counts: tuple[int, int]


@dataclass(frozen=True, eq=False)
class Task:
    owners: dict[str, Records]
    consumer: Records
    test: Records
    gamma: float
    seeds: Floats


def task(source: Source, number: int, layout: Layout, label: str) -> Task:
    """Split `number` of a source: a public shuffle of its own."""
    stream = Stream.public("reproduce summary", label, number)

    def some(which: NDArray[np.bool_], count: int | None = None) -> NDArray[np.int64]:
        places = np.flatnonzero(which)
        return places[stream.permutation(len(places))][:count]

    owned, target = some(source.owned, source.counts[0]), some(source.target, source.counts[1])
    used = np.zeros(len(source.rows), bool)
    used[owned], used[target] = True, True
    seeds = some(source.public & ~used, SEEDS)
    cut = int(HELD * len(target))
    held, rest = target[:cut], target[cut:]
    wished = int(WISHED * len(rest))
    parts = [list(part) for part in np.array_split(owned, OWNERS)]
    if layout == "one owner":
        parts[0] += list(held)
    elif layout == "spread evenly":
        for part, more in zip(parts, np.array_split(held, OWNERS)):
            part += list(more)
    else:
        for place, kind in enumerate(np.unique(source.labels[held])):
            parts[place % OWNERS] += list(held[source.labels[held] == kind])

    def records(places: Any) -> Records:
        return Records(source.rows[places], source.labels[places])

    return Task(
        {f"owner-{place}": records(np.array(part)) for place, part in enumerate(parts)},
        records(rest[:wished]),
        records(rest[wished:]),
        gamma_of_records(source.rows[seeds]),
        source.rows[seeds],
    )


@cache
def mnist() -> Source:
    """14 x 14 means of pixels: odd digits at the owners, even ones wanted."""
    frame = dataset("mnist")
    pixels = frame.drop(columns=["label", "split"]).to_numpy(np.float32) / 255
    rows = pixels.reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4)).reshape(-1, 196).astype(np.float64)
    labels = frame["label"].to_numpy(np.int64)
    return Source(rows, labels, labels % 2 == 1, labels % 2 == 0, np.ones(len(rows), bool), (10_000, 5_000))


_NOT_CPS = ("state", "year", "filing_status", "wage_income", "wage_income_head", "wage_income_spouse", "weight_x100")


@cache
def cps() -> Source:
    """Tax units: Florida at the owners, Connecticut wanted; columns as ranks among public Ohio, wages above 40,000."""
    frame = dataset("cps_taxunits_by_state")
    ohio = frame[frame["state"] == "OH"]
    columns = [name for name in frame.columns if name not in _NOT_CPS]
    rows = np.stack([_ranks(ohio[name], frame[name]) for name in columns], axis=1)
    state = frame["state"].astype(str).to_numpy()
    labels = (frame["wage_income"] > 40_000).to_numpy().astype(np.int64)
    return Source(rows, labels, state == "FL", state == "CT", state == "OH", (12_000, 5_269))


def _ranks(among: pd.Series, values: pd.Series) -> Floats:
    """The share of `among` below each value, half of those that are equal."""
    known, found = np.sort(among.to_numpy()), values.to_numpy()
    both = np.searchsorted(known, found, "left") + np.searchsorted(known, found, "right")
    return np.asarray(both / 2 / len(known), np.float64)


@cache
def adult_by_education() -> Source:
    """Adult without its education: up to some college at the owners, degrees wanted; the label is income."""
    frame = adult()
    whole = adult_schema()
    kept = tuple(column for column in whole.columns if not column.name.startswith("education"))
    encoded = Encoding(Schema(kept, whole.target), scaling="unit").encode(frame, where="adult").records
    years = frame["education_num"].to_numpy()
    assert encoded.labels is not None
    public = (years > 10) & (years < 13)
    return Source(
        encoded.features, np.asarray(encoded.labels, np.int64), years <= 10, years >= 13, public, (10_000, 5_000)
    )


SOURCES: dict[str, Callable[[], Source]] = {"mnist": mnist, "cps": cps, "adult": adult_by_education}
