"""Constants of synthetic data, on training rows of Adult and credit defaults and on half of the tax units.

Every table has a schema with edges of round figures, by which datasets are compared, and one without any edges, from
which datasets are made. The utility is the mean three-way total variation in the former's cells, below zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from math import sqrt

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from comity.data import Categorical, Cells, Column, Numeric, Schema, dataset
from comity.entropy import Stream
from comity.methods.synthetic import edges
from comity.methods.synthetic.artefact import NoisyCounts
from comity.methods.synthetic.counts import BINS, Counting
from comity.methods.synthetic.edges import MeasuredNumbers, Measuring
from comity.privacy.accounting import gaussian_budget
from comity.privacy.loss import Approx
from experiments.accuracy.tables import table
from experiments.choose.leaving_out import Choice, Utilities, replace_constants

EPSILON, DELTA = 1.0, 1e-6
_TRIPLES = 200

_ROUND: Mapping[str, tuple[float, ...]] = {
    "age": (22, 27, 32, 37, 42, 48, 55, 65),
    "hours_per_week": (20, 35, 40, 41, 50, 60),
    "capital_gain": (1, 3000, 5000, 7500, 15_000),
    "capital_loss": (1, 1500, 1800, 2000),
    "fnlwgt": (60_000, 110_000, 150_000, 180_000, 210_000, 270_000, 350_000),
    "education_num": (8, 9, 10, 11, 13, 14),
    "limit_bal": (50_000, 100_000, 150_000, 200_000, 300_000),
    **{f"bill_amt{k}": (1, 1000, 5000, 20_000, 50_000, 100_000) for k in range(1, 7)},
    **{f"pay_amt{k}": (1, 1000, 2000, 5000, 10_000) for k in range(1, 7)},
}
_MONEY = (1, 1000, 5000, 15_000, 30_000, 60_000, 120_000)
# Columns of tax units that are compared: a limit of time.
_MOST_COLUMNS = 16


@dataclass(frozen=True, eq=False)
class Compared:
    """Records, the schema with edges that compares, and the one without."""

    divided: Schema
    bare: Schema
    frame: pd.DataFrame


def _compared(columns: list[Column], frame: pd.DataFrame, target: Schema | None = None) -> Compared:
    divided = Schema(tuple(columns), None if target is None else target.target)
    bare = tuple(replace(one, edges=None, bins=None) if isinstance(one, Numeric) else one for one in columns)
    return Compared(divided, replace(divided, columns=bare), frame)


@lru_cache(maxsize=3)
def load(name: str) -> Compared:
    if name == "tax units":
        return _tax_units()
    known = table({"Adult": "adult", "credit defaults": "credit"}[name])
    columns: list[Column] = []
    for column in known.schema.columns:
        cuts = _ROUND.get(column.name)
        if isinstance(column, Numeric):
            inside = tuple(cut for cut in cuts or () if column.low < cut < column.high)
            column = replace(column, edges=inside or None, bins=None if inside else 8, scale="linear")
        columns.append(column)
    return _compared(columns, known.train, known.schema)


def _tax_units() -> Compared:
    frame = dataset("cps_taxunits_by_state")
    frame = frame.iloc[np.sort(Stream.public("choose", "tax units").permutation(len(frame))[: len(frame) // 6])]
    columns: list[Column] = []
    for name in [name for name in frame.columns if "x100" not in name][:_MOST_COLUMNS]:
        values = frame[name]
        if values.dtype.kind not in "fiu" or values.nunique() <= 12:
            columns.append(Categorical(name, tuple(sorted(set(values.astype(str))))))
        else:
            high = 10.0 ** np.ceil(np.log10(float(values.max())))
            low = -high if values.min() < 0 else 0.0
            cuts = tuple(cut for cut in (0.0, *_MONEY) if low < cut < high)
            columns.append(Numeric(name, low, high, edges=cuts, integer=bool((values == values.round()).all())))
    return _compared(columns, frame.reset_index(drop=True))


def make_dataset(found: Compared, seed: int) -> pd.DataFrame:
    """A dataset of the schema without edges, with the noise of one trusted sum."""
    mu, stream = sqrt(float(gaussian_budget(Approx(EPSILON, DELTA)).square)), Stream.public("choose synthetic", seed)
    measuring = Measuring(found.bare, BINS[0], edges.MEASURED_BINS)
    share = float(edges.MEASURING_SHARE)
    codes = measuring.narrow.locate(found.frame).astype(np.float64)
    width = sqrt(len(measuring.names)) / (mu * sqrt(share))
    narrow = measuring.count(codes) + width * stream.normal((measuring.layout.counts,))
    measured = MeasuredNumbers(measuring, narrow, width)
    counting = Counting(measured.schema, BINS[0])
    layout = counting.layout
    deviation = sqrt(sum(weight**2 for weight in layout.weights)) / (mu * sqrt(1 - share))
    values = layout.count(measuring.merge(codes, counting.cells)) + deviation * stream.normal((layout.counts,))
    return NoisyCounts(counting, "mixture", values, deviation, None, 1, None, measured).frame()


def three_way(cells: Cells, one: NDArray[np.int64], other: NDArray[np.int64]) -> float:
    triples = list(combinations(range(len(cells.sizes)), 3))
    chosen = Stream.public("choose synthetic", "triples").permutation(len(triples))[:_TRIPLES]

    def shares(codes: NDArray[np.int64], key: tuple[int, ...]) -> NDArray[np.float64]:
        sizes = tuple(cells.sizes[k] for k in key)
        place = np.ravel_multi_index(tuple(codes[:, k] for k in key), sizes)
        return np.bincount(place, minlength=int(np.prod(sizes))) / len(codes)

    return float(np.mean([np.abs(shares(one, triples[k]) - shares(other, triples[k])).sum() / 2 for k in chosen]))


def _measure(constant: str) -> Callable[[object], Utilities]:
    def tried(value: object) -> Utilities:
        out = {}
        with replace_constants({f"synthetic.edges.{constant}": value}):
            for name in ("Adult", "credit defaults", "tax units"):
                found = load(name)
                cells = Cells(found.divided)
                near = three_way(cells, cells.locate(make_dataset(found, 0)), cells.locate(found.frame))
                out[name] = {f"{name}, epsilon {EPSILON:g}": -near}
        return out

    return tried


def choices() -> Iterator[Choice]:
    yield Choice("MEASURED_BINS", (8, 9, 10), _measure("MEASURED_BINS"), edges.MEASURED_BINS)
    yield Choice("ROUNDNESS", (0.0, 0.1, 0.15, 0.2), _measure("ROUNDNESS"), edges.ROUNDNESS)
    yield Choice("NARROW", (64, 128), _measure("NARROW"), edges.NARROW)
    yield Choice("_STEP_PRICE", (0.5, 1.0, 2.0), _measure("_STEP_PRICE"), edges._STEP_PRICE)
    shares = tuple(type(edges.MEASURING_SHARE)(one) for one in ("0.05", "0.1", "0.2"))
    yield Choice("MEASURING_SHARE", shares, _measure("MEASURING_SHARE"), edges.MEASURING_SHARE)
