"""How a vertical regression grows in rows, features and parties: seconds, bytes, memory, beside numpy in one place."""

from __future__ import annotations

import resource
from collections.abc import Sequence
from dataclasses import dataclass
from gc import collect
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, get_args

import numpy as np
from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from comity.data import Bounded, Numeric, Records, Schema
from comity.entropy import Stream
from comity.errors import ComityError
from comity.methods.vertical import ProductMethod, Vertical, VerticalRegression
from comity.protocol import Result, Terms, simulate

Floats = NDArray[np.float64]

_ANCHOR_ROWS = 1 << 16
_WARM = 300


@dataclass(frozen=True)
class Size:
    """`seconds` and `gigabytes` are bars, where there are any."""

    parties: int
    rows: int
    features: int
    products: ProductMethod
    seconds: float | None = None
    gigabytes: float | None = None

    def shrunk(self, by: int) -> Size:
        return Size(self.parties, self.rows // by, self.features, self.products)

    def __str__(self) -> str:
        return f"{self.products} K={self.parties} {self.rows}x{self.features}"


BARS = (
    Size(2, 370_000, 14, "rlwe", seconds=3.0),
    Size(2, 370_000, 14, "dealer", seconds=1.5),
    Size(8, 1_000_000, 100, "dealer", seconds=90.0, gigabytes=6.0),
)
MIDDLE = (2, 92_500, 14)
GROWTH = {
    "rows": tuple((2, rows, 14) for rows in (23_125, 92_500, 370_000)),
    "features": tuple((2, 92_500, features) for features in (14, 28, 56, 112)),
    "parties": tuple((parties, 92_500, 14) for parties in (2, 4, 7)),
}


def sizes() -> list[Size]:
    """Those of the bars and those along each axis, each once; in rising order, because peak memory never falls."""
    along = [size for axis in GROWTH.values() for size in axis]
    grown = [Size(*size, products) for size in dict.fromkeys(along) for products in get_args(ProductMethod)]
    barred = {str(size) for size in BARS}
    every = [*BARS, *(size for size in grown if str(size) not in barred)]
    return sorted(every, key=lambda size: size.rows * size.features)


def protocol_of(parties: int, features: int, products: ProductMethod) -> VerticalRegression:
    """Linear regression over numbers in [−1, 1], dealt to the parties in turn; the first has the label."""
    names = [f"x{place}" for place in range(features)]
    held = {f"p{party}": (*names[party::parties], *(("y",) * (party == 0))) for party in range(parties)}
    schema = Schema(tuple(Numeric(name, -1, 1) for name in names), Bounded("y", -1, 1))
    return Vertical.over_columns(solver="quadratic", schema=schema, columns=held, products=products)


def generated(parties: int, rows: int, features: int) -> dict[str, Records]:
    """Every party's columns, made one at a time: what they hold is then all that there is of them in memory."""
    weights = Stream.public("bench", "vertical", features).normal(features) / features
    labels = 0.05 * Stream.public("bench", "vertical", rows, "label").normal(rows)
    held = {}
    for party in range(parties):
        places = range(features)[party::parties]
        held[party] = np.empty((rows, len(places)))
        for at, place in enumerate(places):
            column = Stream.public("bench", "vertical", rows, "column", place).uniform(rows)
            held[party][:, at] = 2 * column - 1
            labels += weights[place] * held[party][:, at]
    np.clip(labels, -1, 1, out=labels)
    return {f"p{party}": Records(columns, None if party else labels) for party, columns in held.items()}


def simulated(protocol: VerticalRegression, parties: dict[str, Records]) -> Result:
    return simulate(
        protocol, parties=parties, epsilon=1.0, delta=1e-6, unit="record", terms=Terms(schema=protocol.schema)
    )


def pooled(parties: dict[str, Records], which: slice) -> tuple[Floats, Floats]:
    """These rows of all columns and of the label, in one place."""
    labels = parties["p0"].labels
    assert labels is not None
    chosen = np.asarray(labels[which], np.float64)
    columns = np.empty((len(chosen), sum(one.features.shape[1] for one in parties.values())))
    for party, records in enumerate(parties.values()):
        columns[:, party :: len(parties)] = records.features[which]
    return columns, chosen


def in_clear(parties: dict[str, Records], features: int) -> tuple[Floats, float]:
    """The exact solution from pooled columns, and the seconds that numpy takes for it once they are in one place."""
    gram, moment, seconds = np.zeros((features, features)), np.zeros(features), 0.0
    for start in range(0, len(parties["p0"]), _ANCHOR_ROWS):
        columns, labels = pooled(parties, slice(start, start + _ANCHOR_ROWS))
        begun = perf_counter()
        gram += columns.T @ columns
        moment += columns.T @ labels
        seconds += perf_counter() - begun
    begun = perf_counter()
    solution = np.linalg.solve(gram, moment)
    return np.asarray(solution, np.float64), seconds + perf_counter() - begun


def measured(size: Size, repeats: int) -> dict[str, Any]:
    """One row. Peak memory is that of the process until then, the generated columns included."""
    protocol = protocol_of(size.parties, size.features, size.products)
    # Compilation comes before the clock starts.
    simulated(protocol, generated(size.parties, _WARM, size.features))
    parties = generated(size.parties, size.rows, size.features)
    walls, cpus, anchors = [], [], []
    for _ in range(repeats):
        collect()
        wall, cpu = perf_counter(), process_time()
        found = simulated(protocol, parties)
        walls.append(perf_counter() - wall)
        cpus.append(process_time() - cpu)
        exact, seconds = in_clear(parties, size.features)
        anchors.append(seconds)
    if float(np.abs(np.asarray(found.released["model"])[:-1] - exact).max()) > 1.0:
        raise ComityError(f"{size}: the released model is far from the exact one")
    ours, anchor = float(np.median(walls)), float(np.median(anchors))
    said = "" if size.seconds is None else f"; {size}: bar {size.seconds:g} s"
    said += "" if size.gigabytes is None else f" and {size.gigabytes:g} GB"
    return {
        "case": str(size),
        "ours": ours,
        "anchor": anchor,
        "ratio": ours / anchor,
        "unit": "s",
        "repeats": repeats,
        "spread": float(np.std(walls)),
        "better": "lower",
        "cpu": float(np.median(cpus)),
        "megabytes": found.transcript.bytes / 1e6,
        "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
        "note": f"anchor: Gram matrix and solution in clear, columns in one place{said}",
    }


def draw(folder: Path, rows: Sequence[dict[str, Any]], shrunk: int = 1) -> Path:
    """Seconds along each axis, ours and the anchor's, as `vertical-growth.svg`."""
    by_case = {row["case"]: row for row in rows}
    path = folder / "vertical-growth.svg"
    with rc_context({"svg.hashsalt": path.stem, "font.size": 9}):
        figure = Figure(figsize=(4.2 * len(GROWTH), 4.0), layout="constrained")
        FigureCanvasAgg(figure)
        panels = figure.subplots(1, len(GROWTH), sharey=True)
        for place, (panel, (axis, along)) in enumerate(zip(panels, GROWTH.items())):
            x = [(size[1] // shrunk, size[2], size[0])[place] for size in along]
            for products, style in zip(get_args(ProductMethod), ("-", "--")):
                found = [by_case[str(Size(*size, products).shrunk(shrunk))] for size in along]
                panel.plot(x, [row["ours"] for row in found], f"o{style}", label=f"ours, {products}")
            panel.plot(x, [row["anchor"] for row in found], "s:", color="0.5", label="numpy in one place")
            panel.set(xscale="log", yscale="log", xlabel=axis)
            panel.set_xticks(x, [f"{one:,}" for one in x], minor=False)
            panel.minorticks_off()
            panel.spines[["top", "right"]].set_visible(False)
        panels[0].set_ylabel("seconds")
        panels[0].legend(fontsize=7.5, frameon=False)
        others = f"otherwise {MIDDLE[0]} parties, {MIDDLE[1] // shrunk:,} rows, {MIDDLE[2]} features"
        figure.suptitle(f"Vertical regression, from aligned columns to the released model ({others})", fontsize=10)
        figure.savefig(path, metadata={"Date": None})
    return path
