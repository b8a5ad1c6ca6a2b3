"""Public tables on which the defaults of several methods are compared: 20 to 600 features, even and skewed classes.

Bounds, categories and edges are written down by hand or follow from what a column means; none is fitted. A table comes
as frames with its schema, so that a method encodes it as its study would. Sizes, splits and what is thinned are drawn
by public randomness that is named by the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from comity.data import Bounded, Categorical, Classes, Column, Numeric, Schema, dataset
from comity.entropy import Stream
from experiments.data.adult import census_schema
from experiments.data.adult_bins import CATEGORIES

_UNKNOWN = "?"
# Columns of Adult that are joined into one of all their pairs, to make a table wide: 200 features, then 600.
_CROSSED_200 = (("marital_status", "sex"), ("race", "sex"), ("relationship", "race"), ("workclass", "sex"))
_CROSSED_600 = (
    *_CROSSED_200,
    ("education", "occupation"),
    ("workclass", "marital_status"),
    ("education", "sex"),
    ("workclass", "race"),
)
_NARROW = ("age", "education_num", "capital_gain", "capital_loss", "hours_per_week")
# Of each class of HAR, what is kept: the largest has 38 % of the rest, the smallest 5 %.
_KEPT = (1.0, 0.62, 0.5, 0.37, 0.26, 0.17)
_ATTACKS = 0.05


@dataclass(frozen=True, eq=False)
class Table:
    """Training and test records with their schema."""

    name: str
    schema: Schema
    train: pd.DataFrame
    test: pd.DataFrame


def constant_log_loss(data: Table) -> float | None:
    """Of the class frequencies of the training records, said of every test record; None of a number."""
    target = data.schema.target
    if not isinstance(target, Classes):
        return None
    seen, asked = (part[target.name].astype(str).value_counts(normalize=True) for part in (data.train, data.test))
    return -sum(float(share) * float(np.log(seen.get(name, 0.0))) for name, share in asked.items())


def table(name: str) -> Table:
    """A table by its name in `TABLES`. COMITY_DATA names the folder of the data."""
    return _made(name)


@lru_cache(maxsize=4)
def _made(name: str) -> Table:
    return TABLES[name]()


def adult_narrow() -> Table:
    """Numbers as they are, and three columns of few categories."""
    frame, known = _census()
    known |= {
        "age": Numeric("age", 17, 90),
        "education_num": Numeric("education_num", 1, 16),
        "capital_gain": Numeric("capital_gain", 0, 100_000, scale="log", bins=2),
        "capital_loss": Numeric("capital_loss", 0, 5_000, scale="log", bins=2),
        "hours_per_week": Numeric("hours_per_week", 1, 99),
    }
    names = (*_NARROW, "marital_status", "sex", "race")
    return _adult("adult-20", frame, [known[name] for name in names])


def adult_whole() -> Table:
    """All columns as the census has them."""
    frame, known = _census()
    return _adult("adult", frame, list(known.values()))


def adult_wide(name: str, crossed: Sequence[tuple[str, str]]) -> Table:
    """All columns in cells, and pairs of columns crossed."""
    frame, known = _census()
    for first, second in crossed:
        joined = f"{first} x {second}"
        pairs = [f"{one} {other}" for one in _values(known[first]) for other in _values(known[second])]
        frame = frame.assign(**{joined: frame[first].astype(str) + " " + frame[second].astype(str)})
        known[joined] = Categorical(joined, tuple(pairs))
    return _adult(name, frame, list(known.values()))


def credit() -> Table:
    """Default of payments, 22 % of 30,000: states of payment as categories, amounts in cells on a logarithmic scale."""
    frame = dataset("credit_default")
    target = "default_payment_next_month"
    columns: list[Column] = [
        Numeric("limit_bal", 0, 1_000_000, bins=8),
        Categorical("sex", ("1", "2")),
        Categorical("education", tuple(map(str, range(7)))),
        Categorical("marriage", tuple(map(str, range(4)))),
        Numeric("age", 18, 90, bins=8),
    ]
    columns += [Categorical(f"pay_{month}", tuple(map(str, range(-2, 9)))) for month in (0, 2, 3, 4, 5, 6)]
    columns += [Numeric(f"bill_amt{month}", 0, 1_000_000, bins=8, scale="log") for month in range(1, 7)]
    columns += [Numeric(f"pay_amt{month}", 0, 1_000_000, bins=8, scale="log") for month in range(1, 7)]
    named = {column.name for column in columns if isinstance(column, Categorical)}
    frame = frame.assign(**{name: frame[name].astype(int).astype(str) for name in (*named, target)})
    return _split("credit", Schema(tuple(columns), Classes(target, ("0", "1"))), frame)


def kdd() -> Table:
    """Connections, 5 % of them attacks, from the training part of KDD-99: its own test part has other attacks."""
    frame = dataset("kddcup99")
    frame = frame[(frame["split"] == "train").to_numpy(bool)].reset_index(drop=True)
    attack, stream = frame["is_attack"].to_numpy(bool), Stream.public("generalisation", "kdd")
    normal, others = (np.flatnonzero(one)[stream.permutation(int(one.sum()))] for one in (~attack, attack))
    count = 60_000
    kept = np.concatenate([normal[: round(count * (1 - _ATTACKS))], others[: round(count * _ATTACKS)]])
    frame = frame.iloc[np.sort(kept)].reset_index(drop=True)
    named = ("protocol_type", "service", "flag")
    columns: list[Column] = []
    for name in frame.columns.drop(["is_attack", "split", "attack_type"], errors="ignore"):
        if name in named:
            values = sorted(set(dataset("kddcup99")[name].astype(str)))
            columns.append(Categorical(name, tuple(values)))
        elif frame[name].dtype.kind in "iufb":
            rate = str(name).endswith("_rate")
            counted = Numeric(str(name), 0, 1_000_000_000 if "bytes" in name else 100_000, scale="log", bins=8)
            columns.append(Numeric(str(name), 0, 1) if rate else counted)
    frame = frame.assign(is_attack=frame["is_attack"].astype(int).astype(str))
    return _split("kdd", Schema(tuple(columns), Classes("is_attack", ("0", "1"))), frame)


def har() -> Table:
    """Six activities thinned to 38 … 5 % of the records, 561 features on their own scale, split by people."""
    frame = dataset("har_smartphone_rederived")
    classes = tuple(sorted(set(frame["activity"].astype(str))))
    numbers = [str(name) for name in frame.columns if name not in ("activity", "split", "subject")]
    stream, activity = Stream.public("generalisation", "har"), frame["activity"].astype(str).to_numpy(object)
    kept: list[NDArray[np.int64]] = []
    for share, label in zip(_KEPT, classes):
        rows = np.flatnonzero(activity == label)
        kept.append(rows[stream.permutation(len(rows))][: round(share * len(rows))])
    frame = frame.iloc[np.sort(np.concatenate(kept))].assign(activity=lambda rows: rows["activity"].astype(str))
    schema = Schema(tuple(Numeric(name, -1, 1) for name in numbers), Classes("activity", classes))
    first = (frame["split"] == "train").to_numpy(bool)
    return Table("har", schema, frame[first].reset_index(drop=True), frame[~first].reset_index(drop=True))


def har_of_two() -> Table:
    """The same records of two classes, of which the moving ones are a quarter."""
    whole = har()
    schema = Schema(whole.schema.columns, Classes("activity", ("still", "moving")))

    def joined(part: pd.DataFrame) -> pd.DataFrame:
        moving = part["activity"].str.lower().str.startswith("walking")
        return part.assign(activity=np.where(moving, "moving", "still"))

    return Table("har-2", schema, joined(whole.train), joined(whole.test))


def cps() -> Table:
    """Wages of 60,000 tax units, up to 200,000 a year, from what else is known of them: a target that is a number."""
    frame = dataset("cps_taxunits_by_state")
    frame = frame.iloc[np.sort(Stream.public("generalisation", "cps").permutation(len(frame))[:60_000])]
    columns: list[Column] = [
        Numeric("n_persons", 1, 14),
        Numeric("age_head", 0, 85, bins=8),
        Numeric("age_spouse", 0, 85, bins=4),
        Numeric("n_eic_children", 0, 3),
        Numeric("n_under_18", 0, 12),
        Numeric("n_21_plus", 0, 6),
        Numeric("is_dependent", 0, 1),
    ]
    amounts = ("pensions", "social_security", "property_tax", "mortgage_interest", "medicaid_benefit", "snap_benefit")
    columns += [Numeric(name, 0, 100_000, scale="log", bins=4) for name in amounts]
    return _split("cps", Schema(tuple(columns), Bounded("wage_income", 0, 200_000)), frame.reset_index(drop=True))


TABLES: Mapping[str, Callable[[], Table]] = {
    "adult-20": adult_narrow,
    "adult": adult_whole,
    "adult-200": lambda: adult_wide("adult-200", _CROSSED_200),
    "adult-600": lambda: adult_wide("adult-600", _CROSSED_600),
    "credit": credit,
    "kdd": kdd,
    "har": har,
    "har-2": har_of_two,
    "cps": cps,
}


def _census() -> tuple[pd.DataFrame, dict[str, Column]]:
    """Adult and its columns by name, unknown categories as one of their own."""
    frame = dataset("adult")
    known = {column.name: column for column in census_schema().columns}
    for name, values in CATEGORIES.items():
        known[name] = Categorical(name, (*values, _UNKNOWN) if (frame[name] == _UNKNOWN).any() else values)
    return frame, known


def _values(column: Column) -> tuple[str, ...]:
    assert isinstance(column, Categorical)
    return tuple(map(str, column.values))


def _adult(name: str, frame: pd.DataFrame, columns: Sequence[Column]) -> Table:
    schema = Schema(tuple(columns), Classes("income", ("<=50K", ">50K")))
    first = (frame["split"].astype(str) == "train").to_numpy(bool)
    return Table(name, schema, frame[first].reset_index(drop=True), frame[~first].reset_index(drop=True))


def _split(name: str, schema: Schema, frame: pd.DataFrame) -> Table:
    """Two thirds to train on."""
    order = Stream.public("generalisation", name, "split").permutation(len(frame))
    first = 2 * len(frame) // 3
    train, test = (frame.iloc[np.sort(rows)].reset_index(drop=True) for rows in (order[:first], order[first:]))
    return Table(name, schema, train, test)
