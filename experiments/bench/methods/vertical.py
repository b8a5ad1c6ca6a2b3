"""A whole vertical regression, from aligned columns to the released model, beside numpy in one place.

Ours is everything that a run does in the local runtime: hosts, ledgers, sealed and signed messages, products, noise,
the secure sum. Seconds are those of the wall and of the CPU; the anchor is the Gram matrix of the same columns and its
solution in clear, in the same run. Accuracy is compared with diffprivlib, which a user with pooled data would pick,
where it is installed: it needs scikit-learn 1.5, so that `make bench-vertical` makes an environment of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.data import Records
from comity.errors import DataError
from experiments.bench.methods.vertical_adult import ABSENT, beside
from experiments.bench.methods.vertical_growth import draw, generated, measured, pooled, protocol_of, simulated, sizes

Floats = NDArray[np.float64]


def measure(*, quick: bool = False, out: Path | None = None) -> list[dict[str, Any]]:
    """Rows for the sizes of the bars, along rows, features and parties, and for diffprivlib at equal ε. A folder `out`
    gets a plot of the growth."""
    shrink = 10 if quick else 1
    rows = []
    for size in sizes():
        # The largest takes a minute.
        repeats = 1 if quick or size.rows * size.features > 5e7 else 3
        rows.append(measured(size.shrunk(shrink) if quick else size, repeats))
    if out is not None:
        draw(out, rows, shrink)
    return rows + _beside_diffprivlib(quick) + _adult(quick)


def _beside_diffprivlib(quick: bool) -> list[dict[str, Any]]:
    """Mean squared error and time on pooled data at ε = 1: ours with δ = 1e-6, theirs pure, as it comes."""
    rows, features = (20_000, 14) if quick else (100_000, 14)
    parties, cut = generated(2, rows, features), rows // 2
    columns, labels = pooled(parties, slice(None))
    first = {
        name: Records(one.features[:cut], None if one.labels is None else one.labels[:cut])
        for name, one in parties.items()
    }
    protocol = protocol_of(2, features, "rlwe")
    reached, anchors, seconds, waited = [], [], [], []
    theirs = _diffprivlib(columns[:cut], labels[:cut])
    repeats = 1 if quick else 5
    for _ in range(repeats):
        started = perf_counter()
        model = np.asarray(simulated(protocol, first).released["model"], np.float64)
        seconds.append(perf_counter() - started)
        reached.append(float(np.mean((columns[cut:] @ model[:-1] + model[-1] - labels[cut:]) ** 2)))
        if theirs is not None:
            started = perf_counter()
            predict = theirs()
            waited.append(perf_counter() - started)
            anchors.append(float(np.mean((predict(columns[cut:]) - labels[cut:]) ** 2)))
    ours, anchor, note = float(np.mean(reached)), None, ABSENT
    if anchors:
        anchor = float(np.mean(anchors))
        note = f"ours {np.median(seconds):.2f} s over two parties, diffprivlib {np.median(waited):.2f} s pooled"
    zero = float(np.mean(labels[cut:] ** 2))
    return [
        {
            "case": f"error at eps=1, {cut}x{features}",
            "ours": ours,
            "anchor": anchor,
            "ratio": None if anchor is None else ours / anchor,
            "unit": "mean squared error",
            "repeats": repeats,
            "spread": float(np.std(reached)),
            "better": "lower",
            "note": f"{note}; predicting zero: {zero:.4f}",
        }
    ]


def _diffprivlib(columns: Floats, labels: Floats) -> Callable[[], Callable[[Floats], Floats]] | None:
    try:
        models = import_module("diffprivlib.models")
    except ImportError:
        return None

    def fit() -> Callable[[Floats], Floats]:
        model = models.LinearRegression(epsilon=1.0, bounds_X=(-1, 1), bounds_y=(-1, 1))
        model.fit(columns, labels)
        return lambda rows: np.asarray(model.predict(rows), np.float64).reshape(-1)

    return fit


def _adult(quick: bool) -> list[dict[str, Any]]:
    """Accuracy of logistic regression on Adult at equal ε, two parties against pooled data; needs COMITY_DATA."""
    try:
        return beside(epsilons=(1.0,), repeats=1) if quick else beside(epsilons=(0.1, 1.0, 10.0))
    except DataError:
        return []
