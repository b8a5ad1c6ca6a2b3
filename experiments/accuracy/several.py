"""Tables of several classes that are in no comparison: attacks by kind, Adult by state of marriage, occupation and
education, rentals by number, digits, activities, two that are generated, and a sparse one of two classes.

They are made of training rows alone, or of tables that nothing else reports, so that constants for several classes rest
on more than HAR and MNIST.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd

from comity.data import Categorical, Classes, Column, Numeric, Schema, dataset
from comity.entropy import Stream
from experiments.accuracy.tables import Table, table

_KINDS = {
    "normal": 9600,
    "smurf": 4800,
    "neptune": 3600,
    "satan": 1920,
    "back": 1920,
    "ipsweep": 1200,
    "portsweep": 960,
}
_STATES = ("Married-civ-spouse", "Never-married", "Divorced", "Widowed", "Separated")
# Of rentals an hour: shares of 38, 25, 20, 12 and 5 %.
_QUANTILES = (0.38, 0.63, 0.83, 0.95)


def attacks() -> Table:
    """KDD-99 by seven kinds of connection, of its training part."""
    frame = dataset("kddcup99")
    frame = frame[(frame["split"] == "train").to_numpy(bool)].reset_index(drop=True)
    kind, stream = frame["label"].astype(str).str.strip(".").to_numpy(object), Stream.public("choose", "attacks")
    kept = []
    for name, most in _KINDS.items():
        rows = np.flatnonzero(kind == name)
        kept.append(rows[stream.permutation(len(rows))][:most])
    rows = np.sort(np.concatenate(kept))
    schema = Schema(table("kdd").schema.columns, Classes("kind", tuple(_KINDS)))
    found = frame.iloc[rows].reset_index(drop=True).assign(kind=kind[rows])
    return Table("attacks", schema, found, found.iloc[:0])


def marriage() -> Table:
    """Adult by five states of marriage, of its training part."""
    whole = table("adult")
    columns = tuple(column for column in whole.schema.columns if column.name != "marital_status")
    frame = whole.train.assign(marital_status=whole.train["marital_status"].astype(str))
    frame = frame[frame["marital_status"].isin(_STATES).to_numpy(bool)].reset_index(drop=True)
    return Table("marriage", Schema(columns, Classes("marital_status", _STATES)), frame, frame.iloc[:0])


def rentals() -> Table:
    """Hours by how many bicycles were rented, in five classes."""
    frame = dataset("bike_hour")
    edges = np.quantile(frame["cnt"], _QUANTILES)
    names = ("season", "hr", "weekday", "workingday", "weathersit", "mnth")
    frame = frame.assign(
        rented=np.searchsorted(edges, frame["cnt"]).astype(str), **{name: frame[name].astype(str) for name in names}
    )
    columns: list[Column] = [Categorical(name, tuple(sorted(set(frame[name])))) for name in names]
    columns += [Numeric(name, 0, 1) for name in ("temp", "hum", "windspeed")]
    return Table("rentals", Schema(tuple(columns), Classes("rented", tuple("01234"))), frame, frame.iloc[:0])


def adult_by(name: str, dropped: tuple[str, ...] = ()) -> Table:
    """Adult by a column, of its training part, without classes of fewer than 20 records."""
    whole = table("adult")
    (column,) = (one for one in whole.schema.columns if one.name == name)
    assert isinstance(column, Categorical)
    columns = tuple(one for one in whole.schema.columns if one.name not in (name, *dropped))
    frame = whole.train.assign(**{name: whole.train[name].astype(str)})
    classes = tuple(str(value) for value in column.values if (frame[name] == str(value)).sum() >= 20)
    frame = frame[frame[name].isin(classes).to_numpy(bool)].reset_index(drop=True)
    return Table(name, Schema(columns, Classes(name, classes)), frame, frame.iloc[:0])


def digits() -> Table:
    """MNIST, of its training part, four pixels joined into one."""
    frame = dataset("mnist")
    frame = frame[(frame["split"].astype(str) == "train").to_numpy(bool)]
    pixels = frame[[name for name in frame.columns if str(name).startswith("p")]].to_numpy(np.float32)
    joined = pixels.reshape(-1, 14, 2, 14, 2).mean((2, 4)).reshape(-1, 196)
    names = [f"q{place}" for place in range(196)]
    found = pd.DataFrame(joined, columns=names).assign(label=frame["label"].astype(int).astype(str).to_numpy(object))
    schema = Schema(tuple(Numeric(name, 0, 255) for name in names), Classes("label", tuple("0123456789")))
    return Table("digits", schema, found, found.iloc[:0])


def activities() -> Table:
    """All records of HAR's training people, six activities."""
    frame = dataset("har_smartphone_rederived")
    frame = frame[(frame["split"] == "train").to_numpy(bool)].reset_index(drop=True)
    frame = frame.assign(activity=frame["activity"].astype(str))
    numbers = [str(name) for name in frame.columns if name not in ("activity", "split", "subject")]
    classes = tuple(sorted(set(frame["activity"])))
    schema = Schema(tuple(Numeric(name, -1, 1) for name in numbers), Classes("activity", classes))
    return Table("activities", schema, frame, frame.iloc[:0])


def generated(classes: int, rows: int, numbers: int, length: float) -> Table:
    """Classes drawn from a softmax of numbers and of two columns of six categories."""
    stream = Stream.public("choose", "generated", classes)
    x, codes = 2 * stream.uniform((rows, numbers)) - 1, stream.integers(6, (rows, 2))
    scores = 1.7 * length * x @ stream.normal((numbers, classes)) + stream.normal(classes) / 2
    for column in range(2):
        scores += 0.6 * length * stream.normal((6, classes))[codes[:, column]]
    labels = (scores - np.log(-np.log(stream.uniform((rows, classes)) + 1e-300))).argmax(axis=1)
    frame = pd.DataFrame(x, columns=[f"x{place}" for place in range(numbers)])
    frame = frame.assign(code=codes[:, 0].astype(str), kind=codes[:, 1].astype(str), y=labels.astype(str))
    columns: list[Column] = [Numeric(f"x{place}", -1, 1) for place in range(numbers)]
    columns += [Categorical(name, tuple("012345")) for name in ("code", "kind")]
    schema = Schema(tuple(columns), Classes("y", tuple(map(str, range(classes)))))
    return Table(f"generated-{classes}", schema, frame, frame.iloc[:0])


def sparse(rows: int) -> Table:
    """Two classes, and 513 features of eight columns of 64 categories, most of them rare."""
    stream = Stream.public("choose", "sparse", rows)
    shares, values = 1 / np.arange(1, 65), tuple(map(str, range(64)))
    codes = stream.choice(shares / shares.sum(), (rows, 8))
    scores = 0.8 * stream.normal((8, 64))[np.arange(8), codes].sum(axis=1) - 1
    uniform = stream.uniform(rows) + 1e-300
    frame = pd.DataFrame(codes.astype(str), columns=[f"k{place}" for place in range(8)])
    frame = frame.assign(y=(scores + np.log(uniform / (1 - uniform)) > 0).astype(int).astype(str))
    columns = tuple(Categorical(f"k{place}", values) for place in range(8))
    return Table("sparse", Schema(columns, Classes("y", ("0", "1"))), frame, frame.iloc[:0])


TABLES: Mapping[str, Callable[[], Table]] = {
    "attacks": attacks,
    "marriage": marriage,
    "rentals": rentals,
    "occupation": lambda: adult_by("occupation"),
    "education": lambda: adult_by("education", ("education_num",)),
    "digits": digits,
    "activities": activities,
    "generated-8": lambda: generated(8, 8_000, 20, 1.1),
    "generated-20": lambda: generated(20, 20_000, 12, 0.6),
    "sparse": lambda: sparse(12_000),
}
