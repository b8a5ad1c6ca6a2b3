"""Averaged models on every table of the comparison: five parties of even shares, one of which may collude."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.data import Bounded, Classes, Encoding, Records, split_evenly
from comity.entropy import Stream
from comity.methods.averaging import Averaging, AveragingProtocol, Kind
from comity.protocol import Assessment, RunOptions, Terms, simulate
from experiments.accuracy.rows import Beside, Case, Fitted, Scores, row
from experiments.accuracy.tables import Table, constant_log_loss, table

PARTIES, COLLUDERS = 5, 1
DELTA = 1e-6
EPSILONS = (0.1, 1.0, 10.0)
TABLES = ("adult-20", "adult-200", "adult-600", "credit", "kdd", "har", "cps")


@dataclass(frozen=True)
class Size:
    tables: tuple[str, ...]
    epsilons: tuple[float, ...]
    repeats: int
    without_pure: tuple[str, ...] = ()
    """Tables whose local fits take minutes each."""


PURE_REPEATS = 5
FULL = Size(TABLES, EPSILONS, 10, without_pure=("adult-600", "har"))
QUICK = Size(("adult-20", "credit"), (1.0,), 3)


@dataclass(frozen=True, eq=False)
class Consortium:
    """A table dealt to parties, as the method encodes it."""

    table: Table
    protocol: AveragingProtocol
    parties: dict[str, Records]
    test: Records


def rows(*, quick: bool) -> Iterator[dict[str, Any]]:
    size = QUICK if quick else FULL
    for name in size.tables:
        yield from of_table(make_consortium(table(name)), size, quick=quick)


def make_consortium(data: Table) -> Consortium:
    """Even shares of the training records, encoded by the method's defaults."""
    encoding = Encoding(data.schema, scaling="symmetric", rows="scaled", intercept=True, bins=True)
    train, test = (encoding.encode(frame, where=data.name).records for frame in (data.train, data.test))
    assert train.labels is not None
    stream = Stream.public("generalisation averaging", data.name)
    parties = {
        f"p{place}": Records(train.features[own], train.labels[own])
        for place, own in enumerate(split_evenly(len(train), PARTIES, stream))
    }
    target = data.schema.target
    kind: Kind = "linear"
    if isinstance(target, Classes):
        kind = "logistic" if len(target.values) == 2 else "softmax"
    protocol = Averaging.over_rows(
        features=encoding.width,
        model=kind,
        classes=target.values if isinstance(target, Classes) else (),
        low=target.low if isinstance(target, Bounded) else -1.0,
        high=target.high if isinstance(target, Bounded) else 1.0,
        sizes={party: len(own) for party, own in parties.items()},
        encoding=encoding,
    )
    return Consortium(data, protocol, parties, test)


def of_table(held: Consortium, size: Size, *, quick: bool) -> Iterator[dict[str, Any]]:
    everything = Records(
        np.concatenate([own.features for own in held.parties.values()]),
        np.concatenate([_labels(own) for own in held.parties.values()]),
    )
    target = held.table.schema.target
    numbers = isinstance(target, Bounded)
    variance = float(np.var(held.protocol.scale_targets(_labels(held.test)))) if numbers else None
    # What does not depend on the noise is computed once.
    known = {baseline.name: baseline for baseline in held.protocol.compare(list(held.parties.values()), held.test)}
    pooled = known["pooled"]
    constant = constant_log_loss(held.table)
    fitted = Fitted(everything, held.test, None if not isinstance(target, Bounded) else (target.low, target.high))
    for epsilon in size.epsilons:
        private, why = fitted.private(epsilon)
        beside = Beside(
            pooled=_scores(pooled.error, variance, pooled.log_loss, pooled.auc),
            constant=_scores(known["constant"].error, variance).accuracy,
            own=_scores(known["own data"].error, variance).accuracy,
            sklearn=fitted.plain,
            diffprivlib=private,
            without=why,
        )
        for method, delta in (("averaging", DELTA), ("averaging-pure", 0.0)):
            if not delta and held.table.name in size.without_pure:
                continue
            # Without a delta local fits repeat with hosts, each over its own records.
            found = _run(held, epsilon, delta, size.repeats if delta else min(size.repeats, PURE_REPEATS))
            case = Case(method, held.table.name, PARTIES, COLLUDERS, epsilon)
            runs = _scores_of(found, variance)
            more = {"features": held.protocol.features, "constant_log_loss": constant}
            yield row(case, runs, beside, note=_note(quick), **more)


def _run(held: Consortium, epsilon: float, delta: float, repeats: int) -> Assessment:
    """A run and its repeats: the same contributions and noise as with hosts, where the method runs on stacks."""
    return simulate(
        held.protocol,
        parties=held.parties,
        epsilon=epsilon,
        delta=delta,
        unit="record",
        seed=0,
        test=held.test,
        terms=Terms(colluders=COLLUDERS, name="generalisation"),
        options=RunOptions(baselines=False, hosts=False if delta else held.protocol.model != "linear", repeats=repeats),
    ).assessment


def _scores_of(found: Assessment, variance: float | None) -> list[Scores]:
    assert found.repeats is not None
    values = found.repeats.values
    errors = values["error"]
    nothing = (None,) * len(errors)
    losses, curves = values.get("log loss", nothing), values.get("AUC", nothing)
    return [_scores(error, variance, loss, curve) for error, loss, curve in zip(errors, losses, curves)]


def _scores(error: float, variance: float | None, log_loss: float | None = None, auc: float | None = None) -> Scores:
    """Of a class, the share that is right; of a number of a variance R², errors being mean squares on [−1, 1]."""
    return Scores(1 - error if variance is None else 1 - error / variance, log_loss, auc)


def _labels(records: Records) -> NDArray[Any]:
    assert records.labels is not None
    return records.labels


def _note(quick: bool) -> str:
    said = (
        f"averaging: five parties with equal shares, delta {DELTA:g} (averaging-pure: 0), the method's defaults. Their "
        "constants were chosen on training rows of these tables, the penalty without a delta after a look at test rows "
        "too"
    )
    return said + ("; quick: fewer repeats and tables than the full comparison" if quick else "")
