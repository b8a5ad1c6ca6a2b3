"""Intervals of linear models on real columns with rare levels: rows drawn anew from a table, and fresh noise."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from comity.data import Bounded, Categorical, Numeric, Schema
from comity.federation.declaring.consortium import Consortium
from comity.privacy.loss import Approx
from comity.privacy.randomness import SeededNoise
from comity.privacy.unit import Neighbours, Unit
from comity.protocols.vertical import VerticalRegression
from comity.protocols.vertical.fit import fitted
from comity.protocols.vertical.in_one_place import noised

REAL = pytest.mark.skipif(not os.environ.get("COMITY_DATA"), reason="COMITY_DATA names no folder of the data")
ROWS, FITS = 40_000, 300


def taxed() -> Any:
    """Wages by filing status and by 51 states, of which the smallest have half a percent."""
    from comity.data.public.datasets import dataset
    from comity.reproduce.vertical.cps import BOUNDS, TARGET

    frame = dataset("cps_taxunits_by_state")
    named = [Categorical(name, tuple(sorted(frame[name].unique()))) for name in ("filing_status", "state")]
    return frame, Schema((*(Numeric(name, *ends) for name, ends in BOUNDS.items()), *named), TARGET)


def employed() -> Any:
    """Hours a week by occupation and work class, whose rarest levels have 14 and 21 of 45,000 people."""
    from comity.data.public.adult import adult, adult_schema

    known = {column.name: column for column in adult_schema().columns}
    names = ("age", "education_num", "workclass", "occupation", "race", "sex")
    return adult(), Schema(tuple(known[name] for name in names), Bounded("hours_per_week", 1, 99))


def coverage(frame: Any, schema: Any, epsilon: Any) -> Any:
    """How often the interval of 95 % of each coefficient holds that of the whole table."""
    names = [column.name for column in schema.columns]
    held = {"p0": (*names[::2], schema.target.name), "p1": tuple(names[1::2])}
    tried = VerticalRegression(schema=schema, columns=held, products="dealer", most=1 << 19)
    who = Consortium(
        parties=tuple(held),
        loss=Approx(epsilon, 1e-5),
        unit=Unit.RECORD,
        neighbours=Neighbours.REPLACE,
        colluders=1,
    )
    layout, generator = tried.layout, np.random.default_rng(0)
    rows = np.hstack(
        [layout.matrix(layout.encoding_of(p).encode(frame[list(own)]).records, p) for p, own in held.items()]
    )
    truth = fitted(tried.dissection, tried.dissection.exact(rows), len(rows), 0.0).coef
    hits = []
    for fit in range(FITS):
        drawn = rows[generator.integers(0, len(rows), ROWS)]
        found = tried.fit(noised(tried, tried.dissection.exact(drawn), who, SeededNoise(fit)), ROWS, who)
        hits.append(np.abs(found.coef - truth) <= 1.959964 * found.errors)
    return np.mean(hits, axis=0)


@REAL
@pytest.mark.long
@pytest.mark.parametrize("table", [taxed, employed])
@pytest.mark.parametrize("epsilon", [1.0, 10.0])
def test_every_coefficient_of_real_columns_is_covered(table: Any, epsilon: float) -> None:
    frame, schema = table()
    held = coverage(frame, schema, epsilon)
    assert held.mean() >= 0.95 and held.min() >= 0.93
