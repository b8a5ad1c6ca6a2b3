"""Local fits and votes of 20,000 small parties, against a loop over scikit-learn.

The records are like those of network connections: most features are one-hot, a few are numbers that are
often zero, all divided by the public bound on their norm. Some parties hold one class only, many are
separable. The anchor is brought to the same objective and tolerance: C = 1/(l2·n), no intercept. Its row
`fit` has the fastest general solver (scikit-learn's default among them) that reaches the gradient norm, its
row `fit liblinear` the compiled solver for two classes. A party with one class costs the anchor nothing,
since it refuses to fit one.

The rows `fit`, `vote` and `study` are wall-clock times, and `study` is the published vote of simulated stacks of
parties, which have no masks, messages or ledgers of their own. The rows `CPU` are processor time of the same work and
of the default method. The rows `hosts` are whole runs in which every party is a host with keys, masks, signatures and a
ledger, all parties and the coordinator counted, beside the same loop.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter, process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from comity import Ledger
from comity.data import Records
from comity.entropy import Stream
from comity.learn import fit_logistic, hard_votes
from comity.methods.softlabel import SoftLabel
from comity.privacy import Neighbours, Pure, SeededNoise, Unit
from comity.protocol import Block, Cohort, Consortium, NumberedParties, RunOptions, simulate
from experiments.bench.growth import growth_row

L2 = 1e-4
GRADIENT_NORM = 1e-9
_ANCHOR_PARTIES = 300
_HOSTS = (25, 50, 100, 200)
_QUICK_HOSTS = (5, 10)
_TRIED_PARTIES = 40
_VOTING_BLOCK = 500
# Each solver with a tolerance at which it stops below GRADIENT_NORM, or as near as it comes.
_SOLVERS = {"lbfgs": 1e-10, "newton-cholesky": 1e-9, "newton-cg": 1e-10, "liblinear": 1e-11}
_GENERAL = ("lbfgs", "newton-cholesky", "newton-cg")

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Connections:
    """Features (parties, records, d) of norm at most 1, labels (parties, records), public records (N, d)."""

    features: Floats
    labels: Floats
    auxiliary: Floats


def measure(
    *,
    parties: int = 20_000,
    records: int = 22,
    features: int = 119,
    auxiliary: int = 2_000,
    quick: bool = False,
) -> list[dict[str, Any]]:
    """Rows `fit`, `fit liblinear`, `vote`: seconds of ours and of the anchor for all parties, ratio anchor/ours."""
    if quick:
        parties, auxiliary = min(parties, 4_000), min(auxiliary, 500)
    data = connections(parties, records, features, auxiliary)
    several = np.flatnonzero((data.labels != data.labels[:, :1]).any(1))
    chosen = (_fastest_general(data, several[:_TRIED_PARTIES]), "liblinear")
    sample = several[:_ANCHOR_PARTIES]
    fits, votes, predictions = [], [], []
    anchors: dict[str, list[float]] = {solver: [] for solver in chosen}
    worst = dict.fromkeys(chosen, 0.0)
    # Ours and the anchors take turns, so that a busy moment of the machine falls on all.
    for part in np.array_split(sample, 3):
        seconds, fit = _timed(lambda: fit_logistic(data.features, data.labels, L2))
        fits.append(seconds)
        for solver in chosen:
            seconds, models = _timed(lambda solver=solver, part=part: _loop(data, part, solver))
            anchors[solver].append(seconds / len(part) * len(several))
            worst[solver] = max(worst[solver], _worst(data, part, models))
        votes.append(_timed(lambda fit=fit: _vote(fit.weights, data.auxiliary))[0])
        seconds, _ = _timed(lambda models=models: [model.predict(data.auxiliary) for model in models])
        predictions.append(seconds / len(part) * parties)
    rows = [
        _row(case, fits, anchors[solver], _fit_note(solver, worst[solver], len(sample), len(several), parties))
        | {"gradient_norm": float(fit.gradient_norm.max())}
        for case, solver in zip(("fit", "fit liblinear"), chosen)
    ]
    voted = f"anchor: predict on {auxiliary} records, timed on {len(sample)} parties and scaled to {parties}"
    looped = [fitted + predicted for fitted, predicted in zip(anchors[chosen[0]], predictions)]
    studied = [_timed(lambda: _study(data))[0] for _ in range(1 if quick else 3)]
    whole = "the simulated study: ledger, local fits, votes, global fit, noise; anchor: the loop's fits and predictions"
    return [
        *rows,
        _row("vote", votes, predictions, voted),
        _row("study", studied, looped, whole),
        *_processor_rows(data, sample, several, chosen[0], hosts=_QUICK_HOSTS if quick else _HOSTS),
    ]


def _processor_rows(
    data: Connections, sample: NDArray[np.intp], several: NDArray[np.intp], solver: str, *, hosts: Sequence[int]
) -> list[dict[str, Any]]:
    """Processor seconds of studies of all parties in stacks, and of few of them as hosts, beside the anchor's loop."""
    parties = len(data.features)
    fitted, models = _cpu(lambda: _loop(data, sample, solver))
    predicted, _ = _cpu(lambda: [model.predict(data.auxiliary) for model in models])
    looped = fitted / len(sample) * len(several) + predicted / len(sample) * parties
    rows = []
    for name, published in (("study, CPU", True), ("study default, CPU", False)):
        wall, (cpu, _) = _timed(lambda published=published: _cpu(lambda: _study(data, published=published)))
        note = "processor seconds of all parties, in stacks without masks; anchor: the loop's fits and predictions"
        rows.append(_row(name, [cpu], [looped], note) | {"wall": wall})
    costs = []
    _run_hosts(data, hosts[0])
    for count in hosts:
        wall, (cpu, _) = _timed(lambda count=count: _cpu(lambda: _run_hosts(data, count)))
        costs.append(cpu)
        note = (
            "processor seconds of all hosts and the coordinator, default method; anchor: the loop for as many parties"
        )
        rows.append(_row(f"hosts {count} default, CPU", [cpu], [looped / parties * count], note) | {"wall": wall})
    return [*rows, growth_row("hosts, default", list(hosts), costs, "whole runs, all hosts and the coordinator")]


def _run_hosts(data: Connections, count: int) -> Any:
    """The default method between this many hosts."""
    held = {f"p{place}": Records(data.features[place], data.labels[place].astype(np.int64)) for place in range(count)}
    return simulate(
        SoftLabel.over_rows(auxiliary=data.auxiliary),
        parties=held,
        epsilon=1.0,
        options=RunOptions(baselines=False, results=False),
    )


def _study(data: Connections, *, published: bool = True) -> Any:
    """The published soft vote, or the default, of all parties as a simulated cohort, from encoded records to the
    released model."""
    parties = len(data.features)
    consortium = Consortium(
        parties=NumberedParties(parties), loss=Pure(1), unit=Unit.PARTY, neighbours=Neighbours.REPLACE
    )
    protocol: Any = (
        SoftLabel.published_over_rows(auxiliary=data.auxiliary, l2=L2, sensitivity="tight")
        if published
        else SoftLabel.over_rows(auxiliary=data.auxiliary)
    )

    def blocks(most: int) -> Iterator[Block]:
        for start in range(0, parties, most):
            features = data.features[start : start + most]
            labels = data.labels[start : start + most].astype(np.int64)
            yield features, labels, np.ones(labels.shape, bool)

    ledger = Ledger.in_memory(unit=consortium.unit, neighbours=consortium.neighbours)
    cohort = Cohort(
        protocol, consortium, blocks=blocks, noise=SeededNoise(7), ledger=ledger, study="bench", run="softlabel-parties"
    )
    return protocol.present(cohort.execute(), consortium)


def _fit_note(solver: str, worst: float, sample: int, several: int, parties: int) -> str:
    return (
        f"anchor: LogisticRegression(solver={solver!r}), timed on {sample} parties and scaled to the {several} of "
        f"{parties} that hold two classes; its gradient norms are up to {worst:.1e}"
    )


def connections(parties: int, records: int, features: int, auxiliary: int) -> Connections:
    """Generated records: three one-hot groups and up to 38 numbers, driven by one hidden severity."""
    stream = Stream.public("bench", "softlabel-parties")
    rows, labels = _draw(stream, parties * records, features)
    y = labels.reshape(parties, records)
    y[:: max(2, parties // 200)] = 1.0
    public, _ = _draw(stream, auxiliary, features)
    return Connections(rows.reshape(parties, records, features), y, public)


def _draw(stream: Stream, count: int, features: int) -> tuple[Floats, Floats]:
    numeric = min(38, features // 3)
    groups = np.array_split(np.arange(numeric, features), 3)
    severity = stream.normal(count)
    rows = np.zeros((count, features))
    sign = np.where(np.arange(numeric) % 2, 1.0, -1.0)
    for column in range(numeric):
        present = stream.uniform(count) < 0.35
        value = 0.5 + 0.25 * sign[column] * severity + 0.2 * stream.normal(count)
        rows[:, column] = present * np.clip(value, 0.0, 1.0)
    for group in groups:
        place = np.abs(stream.normal(count) * len(group) / 6 + severity)
        rows[np.arange(count), group[0] + np.minimum(place, len(group) - 1).astype(np.int64)] = 1.0
    labels = (severity + 0.5 * stream.normal(count) > -0.8).astype(np.float64)
    return rows / np.sqrt(numeric + len(groups)), labels


def _fastest_general(data: Connections, tried: NDArray[np.intp]) -> str:
    """The one of scikit-learn's general solvers that is fastest among those that reach the gradient norm."""
    seconds = {}
    for solver in _GENERAL:
        took, models = _timed(lambda solver=solver: _loop(data, tried, solver))
        if _worst(data, tried, models) <= GRADIENT_NORM:
            seconds[solver] = took
    return min(seconds, key=lambda solver: seconds[solver]) if seconds else "newton-cholesky"


def _loop(data: Connections, chosen: NDArray[np.intp], solver: str) -> list[Any]:
    penalty = 1 / (L2 * data.features.shape[1])
    settings = {"C": penalty, "fit_intercept": False, "tol": _SOLVERS[solver], "max_iter": 10_000}
    # Threads only slow down linear algebra of this size.
    with warnings.catch_warnings(), threadpool_limits(1):
        # A solver that stops for lack of progress is judged by its gradient, like the others.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return [
            LogisticRegression(solver=solver, **settings).fit(data.features[party], data.labels[party])
            for party in chosen
        ]


def _worst(data: Connections, chosen: NDArray[np.intp], models: list[Any]) -> float:
    def norm(party: int, w: Floats) -> float:
        x, y = data.features[party], data.labels[party]
        return float(np.linalg.norm(x.T @ (expit(x @ w) - y) / len(y) + L2 * w))

    return max(norm(party, model.coef_[0]) for party, model in zip(chosen, models))


def _vote(weights: Floats, auxiliary: Floats) -> Floats:
    """Share of parties that vote for the second class, record by record."""
    total = np.zeros(len(auxiliary))
    for start in range(0, len(weights), _VOTING_BLOCK):
        total += hard_votes(weights[start : start + _VOTING_BLOCK], auxiliary).sum(0)
    return total / len(weights)


def _timed(work: Any) -> tuple[float, Any]:
    start = perf_counter()
    result = work()
    return perf_counter() - start, result


def _cpu(work: Any) -> tuple[float, Any]:
    start = process_time()
    result = work()
    return process_time() - start, result


def _row(case: str, seconds: list[float], anchors: list[float], note: str) -> dict[str, Any]:
    ours, anchor = median(seconds), median(anchors)
    return {
        "case": case,
        "ours": ours,
        "anchor": anchor,
        "ratio": anchor / ours,
        "unit": "s",
        "repeats": len(seconds),
        "spread": max(seconds) - min(seconds),
        "better": "higher",
        "note": note,
    }
