"""Consistent counts of a tree, beside the general solvers OSQP and Clarabel on the same programme in the same run.

The programme is the published one: four levels, each node's count with its own noise, parents equal to the sums of
their children, nothing negative. The solvers get it as it is, sparse, with all nodes as variables, at their own default
tolerances and limits, without their output; building their matrices is not counted. Times are CPU seconds, the median
of the turns. A second row of each size compares objectives after repairing a solver's answer: its leaves are cut at
zero, and everything above is their sum, which is what anybody would do with an answer that is within a tolerance.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import median, stdev
from time import process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.entropy import Stream
from comity.methods.synthetic.published import fit_masses, objective

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_LEAVES = (30_000, 200_000)
_RECORDS = 500
_TURNS = 3


def measure(*, quick: bool = False) -> list[dict[str, Any]]:
    """Time and objective for each number of leaves and each solver."""
    sizes = (2_000,) if quick else _LEAVES
    return [row for leaves in sizes for row in _rows(leaves, 1 if quick else _TURNS)]


def levels(leaves: int, stream: Stream) -> tuple[list[Floats], list[Integers]]:
    """Noisy counts of 500 records in four levels, with the noise of ε = 1 at a depth of eight; each node's parent."""
    widths = [1, 6, 60, leaves]
    parents = [np.sort(stream.integers(above, below)) for above, below in pairwise(widths)]
    # Every node has a child.
    for above, found in zip(widths, parents):
        found[:above] = np.arange(above)
        found.sort()
    exact: list[Floats] = [np.bincount(stream.integers(leaves, _RECORDS), minlength=leaves).astype(np.float64)]
    for above, found in zip(reversed(widths[:-1]), reversed(parents)):
        exact.insert(0, np.bincount(found, exact[0], minlength=above).astype(np.float64))
    scales = [6.0, 6.0, 6.0, 16.0]
    return [counts + scale * _laplace(len(counts), stream) for counts, scale in zip(exact, scales)], parents


def _laplace(count: int, stream: Stream) -> Floats:
    return np.asarray(np.log(1 - stream.uniform(count)) - np.log(1 - stream.uniform(count)), np.float64)


def _rows(leaves: int, turns: int) -> list[dict[str, Any]]:
    counts, parents = levels(leaves, Stream.public("bench", "consistency", leaves))
    solved = fit_masses(counts, parents)
    seconds = [_seconds(lambda: fit_masses(counts, parents)) for _ in range(max(turns, 5))]
    best = objective(counts, solved)
    return [
        row
        for name, solver in (("OSQP", _osqp), ("Clarabel", _clarabel))
        for row in _compared(name, solver, counts, parents, seconds, best, turns)
    ]


def _compared(
    name: str,
    prepare: Callable[..., Callable[[], Floats]],
    counts: list[Floats],
    parents: list[Integers],
    seconds: list[float],
    best: float,
    turns: int,
) -> list[dict[str, Any]]:
    case = f"{len(counts[-1]):,} leaves"
    common = {"anchor_name": name, "repeats": turns, "better": "higher"}
    ours = {"ours": median(seconds), "unit": "s", "spread": stdev(seconds)}
    try:
        solve = prepare(counts, parents)
    except ImportError:
        note = f"{name} is not installed: the `bench` extra brings it"
        return [{"case": f"{case}, time", **ours, "anchor": None, "ratio": None, **common, "note": note}]
    theirs, found = [], np.zeros(0)
    for _ in range(turns):
        started = process_time()
        found = solve()
        theirs.append(process_time() - started)
    reached = objective(counts, _repaired(found, counts, parents))
    return [
        {
            "case": f"{case}, time",
            **ours,
            "anchor": median(theirs),
            "ratio": median(theirs) / median(seconds),
            **common,
            "note": "CPU seconds",
        },
        {
            "case": f"{case}, objective",
            "ours": best,
            "anchor": reached,
            "ratio": reached / best,
            "unit": "",
            "spread": 0.0,
            **common,
            "note": "least squares of the feasible answers; ours is exact",
        },
    ]


def _repaired(found: Floats, counts: Sequence[Floats], parents: Sequence[Integers]) -> list[Floats]:
    masses = [np.maximum(0.0, found[-len(counts[-1]) :])]
    for level, above in zip(reversed(counts[:-1]), reversed(parents)):
        masses.insert(0, np.bincount(above, masses[0], minlength=len(level)))
    return masses


def _programme(counts: list[Floats], parents: list[Integers]) -> tuple[Any, Floats, Any]:
    """½·xᵀPx + qᵀx over all nodes, and the rows of Ax = 0."""
    from scipy import sparse

    weights = np.concatenate([np.full(len(level), 1.0 / len(level)) for level in counts])
    first = np.cumsum([0, *map(len, counts)])
    rows = np.concatenate([np.arange(first[-2]), *(above + first[k] for k, above in enumerate(parents))])
    columns = np.concatenate([np.arange(first[-2]), np.arange(first[1], first[-1])])
    values = np.concatenate([np.ones(first[-2]), -np.ones(first[-1] - first[1])])
    equal = sparse.csc_matrix((values, (rows, columns)), shape=(first[-2], first[-1]))
    return sparse.diags(2 * weights, format="csc"), -2 * weights * np.concatenate(counts), equal


def _osqp(counts: list[Floats], parents: list[Integers]) -> Callable[[], Floats]:
    from scipy import sparse

    osqp: Any = importlib.import_module("osqp")
    quadratic, linear, equal = _programme(counts, parents)
    rows = sparse.vstack([equal, sparse.identity(len(linear))], format="csc")
    low = np.zeros(rows.shape[0])
    high = np.concatenate([np.zeros(equal.shape[0]), np.full(len(linear), np.inf)])

    def solve() -> Floats:
        problem = osqp.OSQP()
        problem.setup(quadratic, linear, rows, low, high, verbose=False)
        return np.asarray(problem.solve().x, np.float64)

    return solve


def _clarabel(counts: list[Floats], parents: list[Integers]) -> Callable[[], Floats]:
    from scipy import sparse

    clarabel: Any = importlib.import_module("clarabel")
    quadratic, linear, equal = _programme(counts, parents)
    rows = sparse.vstack([equal, -sparse.identity(len(linear))], format="csc")
    cones = [clarabel.ZeroConeT(equal.shape[0]), clarabel.NonnegativeConeT(len(linear))]
    settings = clarabel.DefaultSettings()
    settings.verbose = False

    def solve() -> Floats:
        solver = clarabel.DefaultSolver(quadratic, linear, rows, np.zeros(rows.shape[0]), cones, settings)
        return np.asarray(solver.solve().x, np.float64)

    return solve


def _seconds(call: Callable[[], object]) -> float:
    started = process_time()
    call()
    return process_time() - started
