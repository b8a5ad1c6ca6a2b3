"""Public tables on which neither a forecast nor most defaults were settled: news, retinas and hired bicycles.

Bounds follow from what a column means. Train and test rows are drawn by public randomness that is named by the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

import numpy as np
import pandas as pd

from comity.data import Bounded, Categorical, Classes, Column, Numeric, Schema, Target, dataset
from comity.entropy import Stream
from experiments.accuracy.tables import Table

_POPULAR = 1400
"""Shares from which the table's publishers call an article popular."""
_COUNTED = ("n_tokens_content", "num_", "kw_", "self_reference")
_SIGNED = ("polarity",)


def news() -> Table:
    """Articles of a random sample, popular or not, by what is known when they appear."""
    frame = dataset("online_news_popularity_subset")
    frame = frame[frame["in_random_sample"].astype(bool).to_numpy()].reset_index(drop=True)
    columns: list[Column] = []
    for name in frame.columns.drop(["url", "timedelta", "shares", "in_random_sample"]):
        if str(name) in ("n_tokens_title", "average_token_length", "num_keywords"):
            columns.append(Numeric(str(name), 0, 30))
        elif str(name).startswith(_COUNTED):
            # A few keyword columns mark a missing value by -1.
            frame[name] = frame[name].clip(lower=0)
            columns.append(Numeric(str(name), 0, 1_000_000, scale="log"))
        else:
            columns.append(Numeric(str(name), -1 if any(part in str(name) for part in _SIGNED) else 0, 1))
    popular = np.where(frame["shares"] >= _POPULAR, "yes", "no")
    return _split("news", columns, Classes("popular", ("no", "yes")), frame.assign(popular=popular))


def retinas() -> Table:
    """Images of 1,151 retinas, with signs of the disease or without."""
    frame = dataset("diabetic_retinopathy")
    columns: list[Column] = [Numeric(name, 0, 1) for name in ("quality", "prescreening", "am_fm_class")]
    columns += [Numeric(f"ma_alpha_{level:02d}", 0, 200) for level in range(5, 11)]
    columns += [Numeric(f"exudate_{level}", 0, 1000, scale="log") for level in range(1, 9)]
    columns += [Numeric(name, 0, 1) for name in ("macula_opticdisc_distance", "opticdisc_diameter")]
    return _split("retinas", columns, Classes("label", ("0", "1")), frame.assign(label=frame["label"].astype(str)))


def bicycles() -> Table:
    """How many bicycles were hired in an hour, by season, hour, day and weather: a target that is a number."""
    frame = dataset("bike_hour")
    named = ("season", "mnth", "hr", "weekday", "workingday", "weathersit")
    frame = frame.assign(**{name: frame[name].astype(int).astype(str) for name in named})
    columns: list[Column] = [Categorical(name, tuple(sorted(set(frame[name])))) for name in named]
    columns += [Numeric(name, 0, 1) for name in ("yr", "temp", "atemp", "hum", "windspeed")]
    return _split("bicycles", columns, Bounded("cnt", 0, 1000), frame)


TABLES: Mapping[str, Callable[[], Table]] = {"news": news, "retinas": retinas, "bicycles": bicycles}


@lru_cache(maxsize=4)
def other_table(name: str) -> Table:
    """A table by its name in `TABLES`. COMITY_DATA names the folder of the data."""
    return TABLES[name]()


def _split(name: str, columns: list[Column], target: Target, frame: pd.DataFrame) -> Table:
    """Two thirds to train on."""
    order = Stream.public("other tables", name).permutation(len(frame))
    first = 2 * len(frame) // 3
    train, test = (frame.iloc[np.sort(rows)].reset_index(drop=True) for rows in (order[:first], order[first:]))
    return Table(name, Schema(tuple(columns), target), train, test)
