"""Adult at equal ε: two parties that keep their columns, against diffprivlib's logistic regression on pooled data."""

from __future__ import annotations

from importlib import import_module
from math import sqrt
from time import perf_counter
from typing import Any

import numpy as np

from comity.data import Records
from comity.entropy import Stream
from comity.methods.vertical import Vertical
from comity.protocol import RunOptions, Terms, simulate
from experiments.data.adult import adult, adult_columns, adult_schema

DELTA = 1e-5
ABSENT = "diffprivlib: absent; make bench-vertical installs it, in an environment of its own"


def beside(epsilons: tuple[float, ...], repeats: int = 5) -> list[dict[str, Any]]:
    """One split, `repeats` draws of either side's noise; medians of the seconds."""
    frame = adult()
    order = Stream.public("bench", "vertical", "adult").permutation(len(frame))
    cut = round(0.8 * len(frame))
    train, test = frame.iloc[order[:cut]], frame.iloc[order[cut:]]
    protocol = Vertical.over_columns(
        solver="quadratic", schema=adult_schema(), columns=adult_columns(2), products="rlwe", max_rows=1 << 16
    )
    tested = protocol.encoding.encode(test).records
    pooled = protocol.encoding.encode(train).records
    own = {party: protocol.encoding_of(party).encode(train).records for party in protocol.columns}
    rows = []
    for epsilon in epsilons:
        reached, seconds = [], []
        for _ in range(repeats):
            started = perf_counter()
            found = simulate(
                protocol,
                parties=own,
                epsilon=epsilon,
                delta=DELTA,
                unit="record",
                test=tested,
                terms=Terms(schema=protocol.schema),
                options=RunOptions(baselines=False),
            )
            seconds.append(perf_counter() - started)
            assert found.error is not None
            reached.append(1 - found.error)
        groups = len(protocol.encoding.bounds.groups)
        theirs = [one for _ in range(repeats) if (one := _diffprivlib(pooled, tested, epsilon, groups)) is not None]
        note = f"two parties, t=1, delta={DELTA:g}, {np.median(seconds):.2f} s"
        if theirs:
            note += f"; diffprivlib on pooled data, delta=0, {np.median([one[1] for one in theirs]):.2f} s"
        else:
            note += f"; {ABSENT}"
        ours = float(np.mean(reached))
        anchor = float(np.mean([one[0] for one in theirs])) if theirs else None
        rows.append(
            {
                "case": f"accuracy on Adult at eps={epsilon:g}",
                "ours": ours,
                "anchor": anchor,
                "ratio": None if anchor is None else ours / anchor,
                "unit": "accuracy",
                "repeats": repeats,
                "spread": float(np.std(reached)),
                "better": "higher",
                "note": note,
            }
        )
    return rows


def _diffprivlib(train: Records, test: Records, epsilon: float, groups: int) -> tuple[float, float] | None:
    try:
        models = import_module("diffprivlib.models")
    except ImportError:
        return None
    started = perf_counter()
    # The bound on a row's norm that the schema gives; it adds its own intercept.
    model = models.LogisticRegression(epsilon=epsilon, data_norm=sqrt(groups - 1), max_iter=1000)
    model.fit(train.features[:, :-1], train.labels)
    predicted = model.predict(test.features[:, :-1])
    return float(np.mean(predicted == test.labels)), perf_counter() - started
