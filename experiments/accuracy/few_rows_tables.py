"""Tables of which few rows are taken: training rows of the comparison's tables, hospitals, and a generated one."""

from __future__ import annotations

import numpy as np
import pandas as pd

from comity.data import Classes, Numeric, Schema
from comity.entropy import Stream
from comity.special import expit
from experiments.accuracy.other_tables import other_table
from experiments.accuracy.owners import hospital_records
from experiments.accuracy.tables import Table, table

_MOST = 24_000


def load_table(name: str) -> Table:
    """At most 24,000 training rows."""
    if name == "heart":
        schema, frame = hospital_records()
    elif name == "generated":
        schema, frame = _generate()
    elif name == "rentals":
        held = other_table("bicycles")
        many = np.where(held.train["cnt"] > np.quantile(held.train["cnt"], 0.85), "yes", "no")
        schema, frame = Schema(held.schema.columns, Classes("many", ("no", "yes"))), held.train.assign(many=many)
    else:
        held = other_table(name) if name in ("news", "retinas") else table(name)
        schema, frame = held.schema, held.train
    order = Stream.public("few rows", name).permutation(len(frame))[:_MOST]
    frame = frame.iloc[order].reset_index(drop=True)
    return Table(name, schema, frame, frame.iloc[:0])


def _generate() -> tuple[Schema, pd.DataFrame]:
    """Twelve numbers that depend on each other, of which four say much."""
    stream, rows, width = Stream.public("few rows", "generated"), 20_000, 12
    mixed = 0.3 * (stream.normal((width, width)) / np.sqrt(width) + 0.7 * np.eye(width))
    numbers = np.clip(stream.normal((rows, width)) @ mixed, -1, 1)
    weights = stream.normal(width) * np.where(np.arange(width) < 4, 1.0, 0.3)
    labels = stream.uniform(rows) < expit(2.5 * numbers @ weights - 1.2)
    names = [f"x{place}" for place in range(width)]
    frame = pd.DataFrame(numbers, columns=names).assign(y=np.where(labels, "yes", "no"))
    return Schema(tuple(Numeric(name, -1, 1) for name in names), Classes("y", ("no", "yes"))), frame
