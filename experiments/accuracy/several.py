"""Tables of several classes that are in no comparison: attacks by kind, states of marriage, rentals by number.

They are made of training rows alone, or of tables that nothing else reports, so that constants for several classes rest
on more than HAR and MNIST.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

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


TABLES: Mapping[str, Callable[[], Table]] = {"attacks": attacks, "marriage": marriage, "rentals": rentals}
