"""A whole vertical regression, from aligned columns to the released model, beside numpy in one place.

Ours is everything that a run does in the local runtime: hosts, ledgers, sealed and signed messages, products, noise,
the secure sum. Seconds are those of the wall and of the CPU; the anchor is the Gram matrix of the same columns and its
solution in clear, in the same run. Accuracy is compared with diffprivlib, which a user with pooled data would pick,
where it is installed: it needs scikit-learn 1.5, so an environment of its own.
"""

from __future__ import annotations

import resource
from collections.abc import Callable
from importlib import import_module
from time import perf_counter, process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.bench.vertical_adult import beside
from comity.data import Bounded, Numeric, Records, Schema
from comity.entropy import Stream
from comity.errors import ComityError, DataError
from comity.protocols.vertical.protocol import VerticalRegression
from comity.runtime.simulate import simulate

# Parties, rows, features, products, and the bar in seconds, if there is one.
SIZES: tuple[tuple[int, int, int, str, float | None], ...] = (
    (2, 370_000, 14, "rlwe", 3.0),
    (2, 370_000, 14, "dealer", 1.5),
    (2, 92_500, 14, "rlwe", None),
    (2, 92_500, 14, "dealer", None),
    (2, 92_500, 56, "rlwe", None),
    (2, 92_500, 56, "dealer", None),
    (4, 92_500, 14, "rlwe", None),
    (4, 92_500, 14, "dealer", None),
)

Floats = NDArray[np.float64]


def measure(*, quick: bool = False) -> list[dict[str, Any]]:
    """Rows for the sizes of the bars and around them, and for diffprivlib at equal ε."""
    shrink, repeats = (10, 1) if quick else (1, 3)
    rows = [_measure(k, n // shrink, d, method, bar, repeats) for k, n, d, method, bar in SIZES]
    return rows + _beside_diffprivlib(quick) + _adult(quick)


def generated(rows: int, features: int) -> tuple[Floats, Floats]:
    stream = Stream.public("bench", "vertical", rows, features)
    columns = 2 * stream.uniform((rows, features)) - 1
    weights = stream.normal(features) / features
    return columns, np.clip(columns @ weights + 0.05 * stream.normal(rows), -1, 1)


def protocol_of(parties: int, features: int, method: str) -> VerticalRegression:
    names = [f"x{place}" for place in range(features)]
    held = {f"p{party}": (*names[party::parties], *(("y",) * (party == 0))) for party in range(parties)}
    schema = Schema(tuple(Numeric(name, -1, 1) for name in names), Bounded("y", -1, 1))
    return VerticalRegression(schema=schema, columns=held, products=method)


def released(protocol: VerticalRegression, columns: Floats, labels: Floats) -> Floats:
    count = len(protocol.columns)
    parties = {
        party: Records(np.ascontiguousarray(columns[:, place::count]), labels if place == 0 else None)
        for place, party in enumerate(protocol.columns)
    }
    found = simulate(protocol, parties=parties, epsilon=1.0, delta=1e-6, unit="record", schema=protocol.schema)
    return np.asarray(found.released["model"], np.float64)


def _measure(parties: int, rows: int, features: int, method: str, bar: float | None, repeats: int) -> dict[str, Any]:
    protocol = protocol_of(parties, features, method)
    columns, labels = generated(rows, features)
    # Compilation comes before the clock starts.
    released(protocol, columns[:200], labels[:200])
    walls, cpus, anchors = [], [], []
    for _ in range(repeats):
        wall, cpu = perf_counter(), process_time()
        found = released(protocol, columns, labels)
        walls.append(perf_counter() - wall)
        cpus.append(process_time() - cpu)
        wall = perf_counter()
        exact = np.linalg.solve(columns.T @ columns, columns.T @ labels)
        anchors.append(perf_counter() - wall)
    if float(np.abs(found[:-1] - exact).max()) > 1.0:
        raise ComityError("the released model is far from the exact one")
    ours, anchor = float(np.median(walls)), float(np.median(anchors))
    said = "" if bar is None else f"; bar {bar} s"
    return {
        "case": f"{method} K={parties} {rows}x{features}",
        "ours": ours,
        "anchor": anchor,
        "ratio": ours / anchor,
        "unit": "s",
        "repeats": repeats,
        "spread": float(np.std(walls)),
        "better": "lower",
        "cpu": float(np.median(cpus)),
        "note": f"CPU {np.median(cpus):.2f} s; anchor: Gram matrix and solution in clear; "
        f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB{said}",
    }


def _beside_diffprivlib(quick: bool) -> list[dict[str, Any]]:
    """Mean squared error and time on pooled data at ε = 1: ours with δ = 1e-6, theirs pure, as it comes."""
    rows, features = (20_000, 14) if quick else (100_000, 14)
    columns, labels = generated(rows, features)
    cut = rows // 2
    protocol = protocol_of(2, features, "rlwe")
    started = perf_counter()
    model = released(protocol, columns[:cut], labels[:cut])
    seconds = perf_counter() - started
    ours = float(np.mean((columns[cut:] @ model[:-1] + model[-1] - labels[cut:]) ** 2))
    theirs = _diffprivlib(columns[:cut], labels[:cut])
    anchor, note = None, "diffprivlib is not installed here: it needs scikit-learn 1.5, in an environment of its own"
    if theirs is not None:
        started = perf_counter()
        predict = theirs()
        note = f"ours {seconds:.2f} s over two parties, diffprivlib {perf_counter() - started:.2f} s pooled"
        anchor = float(np.mean((predict(columns[cut:]) - labels[cut:]) ** 2))
    zero = float(np.mean(labels[cut:] ** 2))
    return [
        {
            "case": f"error at eps=1, {cut}x{features}",
            "ours": ours,
            "anchor": anchor,
            "ratio": None if anchor is None else ours / anchor,
            "unit": "mean squared error",
            "repeats": 1,
            "spread": 0.0,
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
        return beside(epsilons=(1.0,) if quick else (0.1, 1.0, 10.0))
    except DataError:
        return []
