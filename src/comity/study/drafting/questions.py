"""What a draft can't know about single columns, and asks: a column that gives the target away, and numbers that may be
codes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from comity.data import Bounded, Numeric, Schema
from comity.data.schemas.reading import read_numbers
from comity.study.drafting.own_files import MAX_CODES, kind_of
from comity.study.drafting.proposals import Decisions

if TYPE_CHECKING:
    import pandas as pd

_UNTOLD = 0.01
"""A column gives the target away if it leaves at most this share of what the most frequent class leaves untold."""
_CORRELATION = 0.99
"""The correlation with a numeric target from which a column gives it away."""
_FEWEST = 20
"""With fewer records than these outside of the most frequent class, chance may order them."""
_RECORDS_A_VALUE = 50
"""With fewer records of each value on average, values are compared in their order, and not one by one."""
_FEW_NUMBERS = 6
"""Columns with at most as many different whole numbers may hold codes. No figure here was tuned on data."""


def ask_about_target(frame: pd.DataFrame, schema: Schema, decisions: Decisions) -> None:
    """Ask about columns that alone tell the target in nearly all records. Most of them are written down after what is
    to be predicted, and a model with one learns nothing else."""
    if schema.target is None:
        return
    target = schema.target.name
    for name in schema.names:
        if isinstance(schema.target, Bounded):
            told = _follows(frame[name], frame[target])
        else:
            told = _tells(frame[name], _places(frame[target]))
        if told:
            decisions.checks.append(
                f"{name} alone tells {target} in nearly all records; if it is known only after {target}, leave it out, "
                f"because a model would learn nothing else: --leave-out {name}"
            )


def ask_about_codes(frame: pd.DataFrame, schema: Schema, decisions: Decisions) -> None:
    """Ask about columns of few whole numbers, which are drafted as amounts."""
    few = [
        column.name
        for column in schema.columns
        if isinstance(column, Numeric) and column.integer and frame[column.name].nunique() <= _FEW_NUMBERS
    ]
    if few:
        several = len(few) > 1
        decisions.checks.append(
            f"{', '.join(few)}: {'these columns hold' if several else 'this column holds'} at most {_FEW_NUMBERS} "
            f"different whole numbers and {'are' if several else 'is'} drafted as amounts; if numbers are codes, such "
            f"as 1 for left and 2 for right, say so: {' '.join(f'--codes {name}' for name in few)}"
        )


def _tells(series: pd.Series, classes: NDArray[np.int64]) -> bool:
    """Whether the best guess of the class from the column's value is nearly always right."""
    counts = np.bincount(classes)
    untold = len(classes) - int(counts.max())
    if untold < _FEWEST:
        return False
    values = _places(series) if kind_of(series) != "number" else _numbered(series)
    # Of each value, the class of most of its records is told, and the others are wrong.
    pairs, counts_of = np.unique(values * len(counts) + classes, return_counts=True)
    most = np.zeros(int(values.max()) + 1, np.int64)
    np.maximum.at(most, pairs // len(counts), counts_of)
    wrong = float(len(classes) - most.sum())
    if len(most) > max(MAX_CODES, len(values) // _RECORDS_A_VALUE):
        if kind_of(series) != "number":
            return False
        # Single values tell their own records. In their order, a wrong record among many of one class makes two
        # changes.
        likeliest = np.zeros(len(most), np.int64)
        order = np.argsort(counts_of, kind="stable")
        likeliest[pairs[order] // len(counts)] = pairs[order] % len(counts)
        changes = int(np.count_nonzero(np.diff(likeliest)))
        wrong += max(0, changes - (len(counts) - 1)) / 2
    return wrong <= _UNTOLD * untold


def _follows(series: pd.Series, target: pd.Series) -> bool:
    if kind_of(series) != "number":
        return False
    pair = np.array([read_numbers(series).values, read_numbers(target).values])
    pair = pair[:, np.isfinite(pair).all(axis=0)]
    if pair.shape[1] < _FEWEST or (np.ptp(pair, axis=1) == 0).any():
        return False
    return abs(float(np.corrcoef(pair)[0, 1])) >= _CORRELATION


def _places(series: pd.Series) -> NDArray[np.int64]:
    """The place of each value among the different ones; a missing value is one of them."""
    import pandas as pd

    return pd.factorize(series, use_na_sentinel=False)[0].astype(np.int64)


def _numbered(series: pd.Series) -> NDArray[np.int64]:
    """The rank of each number among the different ones; missing values are the lowest."""
    values = np.nan_to_num(read_numbers(series).values, nan=-np.inf)
    return np.unique(values, return_inverse=True)[1].astype(np.int64)
