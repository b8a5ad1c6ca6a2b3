"""Soft labels on the tables of the comparison: parties of 20 records each, one of which may collude; a whole party is
replaced.

Public rows are training records that no party holds, without their labels. Sums are computed once for each epsilon and
perturbed by the noise that the protocol declares; the model of each is scored. `own` and `pooled` are a party's local
classifier and a logistic regression of all parties' records.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from comity import SoftLabel
from comity.data import Classes, Encoding, Records
from comity.entropy import Stream
from comity.methods.softlabel import SoftLabelProtocol, fit_baselines
from comity.privacy import SeededNoise
from comity.protocol import log_loss
from experiments.accuracy.reachable import reachable_constant
from experiments.accuracy.rows import REACHABLE, Beside, Case, Fitted, Scores, row, scores
from experiments.accuracy.tables import Table, table
from experiments.papers.softlabel.default import Layout, contributions, mean_votes
from experiments.papers.softlabel.release import DELTA, make_consortium, noisy_means, opened, total

EPSILONS = (0.1, 1.0, 10.0)
RECORDS = 20


@dataclass(frozen=True)
class Size:
    """Parties by table; HAR, thinned, has records for no more."""

    parties: dict[str, tuple[int, ...]]
    epsilons: tuple[float, ...]
    repeats: int
    auxiliary: int = 2000


_MANY = (24, 100, 500)
FULL = Size({"adult-20": _MANY, "adult-200": _MANY, "credit": _MANY, "kdd": _MANY, "har": (24, 100)}, EPSILONS, 20)
QUICK = Size({"adult-20": (500,), "credit": (500,)}, (1.0,), 5)


def rows(*, quick: bool) -> Iterator[dict[str, Any]]:
    size = QUICK if quick else FULL
    for name, several in size.parties.items():
        for parties in several:
            yield from of_table(table(name), parties, size, quick=quick)


def of_table(data: Table, parties: int, size: Size, *, quick: bool) -> Iterator[dict[str, Any]]:
    held, protocol = dealt(data, parties, size.auxiliary)
    own = [Records(x, y) for x, y in zip(held.features, held.labels)]
    test = Records(held.test, held.truth)
    known = {one.name: one for one in fit_baselines(own, test, held.classes)}
    everything = Records(held.features.reshape(-1, held.test.shape[1]), held.labels.ravel())
    pooled = known["pooled"]
    fitted = Fitted(everything, test)
    for epsilon in size.epsilons:
        private, why = fitted.private(epsilon)
        beside = Beside(
            pooled=Scores(1 - pooled.error, pooled.log_loss, pooled.auc),
            constant=1 - known["constant"].error,
            own=1 - known["own data"].error,
            sklearn=fitted.plain,
            diffprivlib=private,
            without=why,
        )
        case = Case("softlabel", data.name, parties, 1, epsilon)
        found, taken = runs(held, protocol, epsilon, size.repeats, str(case))
        named = reachable_constant(_shares(held), parties, epsilon, DELTA)
        yield row(
            case,
            found,
            beside,
            features=held.test.shape[1],
            statistic=taken,
            note=_note(quick),
            **{REACHABLE: named, "constant_log_loss": _constant_log_loss(held)},
        )


def dealt(data: Table, parties: int, auxiliary: int, records: int = RECORDS) -> tuple[Layout, SoftLabelProtocol]:
    """Training records in a public random order, the first of them to the parties, then the public rows."""
    encoding = Encoding(data.schema, scaling="symmetric", rows="scaled", intercept=True)
    train, test = (encoding.encode(frame, where=data.name).records for frame in (data.train, data.test))
    target = data.schema.target
    assert isinstance(target, Classes) and train.labels is not None and test.labels is not None
    order = Stream.public("generalisation softlabel", data.name).permutation(len(train))
    private = parties * records
    places, public = order[:private].reshape(parties, records), order[private : private + auxiliary]
    held = Layout(
        train.features[places],
        np.asarray(train.labels, np.int64)[places],
        train.features[public],
        test.features,
        np.asarray(test.labels, np.int64),
        target.values,
    )
    return held, SoftLabel.over_rows(auxiliary=held.auxiliary, classes=held.classes, sizes=records, encoding=encoding)


def runs(
    held: Layout, protocol: SoftLabelProtocol, epsilon: float, repeats: int, name: str
) -> tuple[list[Scores], str]:
    """Scores of models from sums with fresh noise, and the statistic that the rule took."""
    consortium = make_consortium(held.parties, epsilon, DELTA)
    statistic, release = opened(protocol, consortium)
    votes = mean_votes(held) if statistic.needs == "votes" else None
    units = total(release, contributions(held, statistic, votes), consortium)
    source = SeededNoise(int(Stream.public("generalisation", name).words(1)[0]))
    found = []
    for mean in noisy_means(release, units, consortium, source, repeats):
        model = protocol.present({"model": statistic.model(mean, protocol.deviation(consortium))}, consortium)
        found.append(scores(np.asarray(model.predict_proba(held.test)), held.truth))
    return found, statistic.name


def _shares(held: Layout) -> list[float]:
    """Of the classes in test records."""
    counts = np.bincount(held.truth, minlength=len(held.classes))
    return [float(count) for count in counts / counts.sum()]


def _constant_log_loss(held: Layout) -> float:
    """Of the class frequencies of all parties' records, said of every test record."""
    shares = np.bincount(held.labels.ravel(), minlength=len(held.classes)) / held.labels.size
    return log_loss(np.tile(shares, (len(held.truth), 1)), held.truth)


def _note(quick: bool) -> str:
    said = f"softlabel: parties of {RECORDS} records, a whole party replaced, delta {DELTA:g}, the method's defaults"
    return said + ("; quick: fewer repeats and tables than the full comparison" if quick else "")
