"""Averaged models on every table of the comparison: five parties of even shares, one of which may collude."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.data import Bounded, Classes, Encoding, Records, even
from comity.entropy import Stream
from comity.federation.assessment import Assessment
from comity.protocols.averaging import Averaging
from comity.protocols.averaging.losses import Kind
from comity.reproduce.generalisation_rows import Beside, Case, Scores, classifiers, regressors, row
from comity.reproduce.generalisation_tables import Table, table
from comity.runtime.simulate import simulate

PARTIES, COLLUDERS = 5, 1
DELTA = 1e-6
EPSILONS = (0.1, 1.0, 10.0)
TABLES = ("adult-20", "adult-200", "adult-600", "credit", "kdd", "har", "cps")


@dataclass(frozen=True)
class Size:
    tables: tuple[str, ...]
    epsilons: tuple[float, ...]
    repeats: int


FULL = Size(TABLES, EPSILONS, 20)
QUICK = Size(("adult-20", "credit"), (1.0,), 3)


@dataclass(frozen=True, eq=False)
class Consortium:
    """A table dealt to parties, as the method encodes it."""

    table: Table
    protocol: Averaging
    parties: dict[str, Records]
    test: Records


def rows(*, quick: bool) -> Iterator[dict[str, Any]]:
    size = QUICK if quick else FULL
    for name in size.tables:
        yield from of_table(consortium(table(name)), size, quick=quick)


def consortium(data: Table) -> Consortium:
    """Even shares of the training records, encoded by the method's defaults."""
    encoding = Encoding(data.schema, scaling="symmetric", rows="scaled", intercept=True, bins=True)
    train, test = (encoding.encode(frame, where=data.name).records for frame in (data.train, data.test))
    assert train.labels is not None
    stream = Stream.public("generalisation averaging", data.name)
    parties = {
        f"p{place}": Records(train.features[own], train.labels[own])
        for place, own in enumerate(even(len(train), PARTIES, stream))
    }
    target = data.schema.target
    kind: Kind = "linear"
    if isinstance(target, Classes):
        kind = "logistic" if len(target.values) == 2 else "softmax"
    protocol = Averaging(
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
    variance = float(np.var(held.protocol.targets(_labels(held.test)))) if numbers else None
    for epsilon in size.epsilons:
        if isinstance(target, Bounded):
            plain, private, why = regressors(everything, held.test, epsilon, low=target.low, high=target.high)
        else:
            plain, private, why = classifiers(everything, held.test, epsilon)
        for method, delta in (("averaging", DELTA), ("averaging-pure", 0.0)):
            found = [_run(held, epsilon, delta, seed, baselines=not seed) for seed in range(size.repeats)]
            known = {baseline.name: baseline for baseline in found[0].baselines}
            beside = Beside(
                pooled=_scores(known["pooled"].error, variance, known["pooled"].log_loss, known["pooled"].auc),
                constant=_scores(known["constant"].error, variance).accuracy,
                own=_scores(known["own data"].error, variance).accuracy,
                sklearn=plain,
                diffprivlib=private,
                without=why,
            )
            case = Case(method, held.table.name, PARTIES, COLLUDERS, epsilon)
            runs = [_of(one, variance) for one in found]
            yield row(case, runs, beside, features=held.protocol.features, note=_note(quick))


def _run(held: Consortium, epsilon: float, delta: float, seed: int, *, baselines: bool) -> Assessment:
    """One run; the same contributions and noise as with hosts."""
    return simulate(
        held.protocol,
        parties=held.parties,
        epsilon=epsilon,
        delta=delta,
        unit="record",
        colluders=COLLUDERS,
        seed=seed,
        test=held.test,
        baselines=baselines,
        study="generalisation",
        hosts=not delta,
    ).assessment


def _of(found: Assessment, variance: float | None) -> Scores:
    assert found.error is not None
    figures = {figure.name: figure.value for figure in found.figures}
    return _scores(found.error, variance, figures.get("log loss"), figures.get("AUC"))


def _scores(error: float, variance: float | None, log_loss: float | None = None, auc: float | None = None) -> Scores:
    """Of a class, the share that is right; of a number of a variance R², errors being mean squares on [−1, 1]."""
    return Scores(1 - error if variance is None else 1 - error / variance, log_loss, auc)


def _labels(records: Records) -> NDArray[Any]:
    assert records.labels is not None
    return records.labels


def _note(quick: bool) -> str:
    said = f"averaging: five parties of even shares, delta {DELTA:g} (averaging-pure: 0), the method's own defaults"
    return said + ("; quick: fewer repeats and tables than the full comparison" if quick else "")
