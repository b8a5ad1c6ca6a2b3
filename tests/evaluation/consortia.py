"""Simulated studies with an evaluation, and what their models are really worth on records that nobody has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit
from scipy.stats import rankdata

from comity.data import Records, Schema
from comity.methods.averaging import Averaging, AveragingProtocol
from comity.methods.softlabel import SoftLabel
from comity.methods.vertical import Vertical, VerticalRegression
from comity.methods.vertical.evaluation import ErrorParts
from comity.study.results.result import Result
from comity.study.simulation.simulate import Terms, simulate
from tests.support.vertical import HELD, make_people, make_schema

Truth = dict[str, float]
_FRESH = 20_000


def drawn(rows: int, generator: np.random.Generator, kind: str = "logistic") -> Records:
    """Records whose target follows a linear rule with noise, rows in the unit ball."""
    x = generator.normal(size=(rows, 4))
    x[:, -1] = 0.5
    x /= np.maximum(1.0, np.linalg.norm(x, axis=1, keepdims=True))
    score = 5 * x[:, 0] - 4 * x[:, 1] + 1
    if kind == "linear":
        return Records(x, np.clip(score / 3 + 0.3 * generator.normal(size=rows), -2, 2))
    if kind == "softmax":
        scores = np.stack([score, 0 * score, -score], 1) + generator.gumbel(size=(rows, 3))
        return Records(x, scores.argmax(1))
    return Records(x, (generator.uniform(size=rows) < expit(score)).astype(np.int64))


def averaging(kind: str = "logistic", size: int = 600) -> AveragingProtocol:
    classes = {"softmax": ("a", "b", "c"), "linear": ()}.get(kind, ("0", "1"))
    return Averaging.over_rows(features=4, model=kind, classes=classes, low=-2.0, high=2.0, sizes=size, rounds=4)  # type: ignore[arg-type]


def of_averaging(
    seed: int, kind: str = "logistic", *, neighbours: str = "replace", delta: float = 1e-6, parties: int = 3
) -> tuple[Result, Truth]:
    generator = np.random.default_rng(seed)
    records = {f"p{number}": drawn(600, generator, kind) for number in range(parties)}
    made = simulate(
        averaging(kind),
        parties=records,
        epsilon=2.0,
        delta=delta,
        unit="record",
        seed=seed,
        terms=Terms(neighbours=neighbours, grant=2.0, evaluation={}),
    )
    return made, truth_of(made, drawn(_FRESH, generator, kind), kind)


def of_soft_labels(seed: int, *, parties: int = 16) -> tuple[Result, Truth]:
    generator = np.random.default_rng(seed)
    records = {f"p{number}": drawn(30, generator) for number in range(parties)}
    made = simulate(
        SoftLabel.over_rows(auxiliary=drawn(60, generator).features, sizes=30, statistic="votes"),
        parties=records,
        epsilon=8.0,
        delta=1e-6,
        seed=seed,
        terms=Terms(grant=8.0, evaluation={"budget": 0.4, "share": 0.3}),
    )
    return made, truth_of(made, drawn(_FRESH, generator), "logistic")


def of_vertical(seed: int, *, linear: bool = True, delta: float = 1e-6, aligned: bool = False) -> tuple[Result, Truth]:
    agreed, frame = make_schema(linear=linear, identifier=aligned), make_people(2000, seed=seed, linear=linear)
    frame = frame if aligned else frame.drop(columns="person")
    made = simulate(
        Vertical.over_columns(
            solver="quadratic",
            schema=agreed,
            columns=HELD[2],
            pure=not delta,
            products="dealer",
            alignment="keyed" if aligned else "none",
        ),
        parties=dict.fromkeys(HELD[2], frame),
        epsilon=4.0,
        delta=delta,
        unit="record",
        seed=seed,
        terms=Terms(schema=agreed, grant=4.0, evaluation={}),
    )
    fresh = make_people(_FRESH, seed=10_000 + seed, linear=linear)
    if linear:
        y, guess, named = fresh["sick"].to_numpy(), made.model.predict(fresh), "mean squared error"
    else:
        y = (fresh["sick"] == "yes").to_numpy().astype(np.float64)
        guess, named = (y - _counted_errors(made, agreed, fresh) / 2), "squared error"
        return made, {
            "accuracy": float(((guess > 0.5) == (y > 0.5)).mean()),
            named: float(((y - guess) ** 2).mean()),
            "R²": explained(y, guess)["R²"],
        }
    return made, {named: float(((y - guess) ** 2).mean()), **explained(y, guess)}


def _counted_errors(made: Result, agreed: Schema, fresh: pd.DataFrame) -> np.ndarray:
    """t − (2p − 1) of each record, for t = ±1 and the probability p as an evaluation counts it: in parts within their
    limits."""
    method = Vertical.over_columns(solver="quadratic", schema=agreed, columns=HELD[2], products="dealer")
    assert isinstance(method, VerticalRegression)
    parts = ErrorParts(method.design, np.asarray(made.model.weights[0], np.float64))
    total = np.zeros(len(fresh))
    for party, own in HELD[2].items():
        records = method.design.encoding_of(party).encode(fresh[list(own)]).records
        total += parts.scale * parts.matrix(records, party)[:, 0]
    return total


def explained(y: np.ndarray, guess: np.ndarray) -> Truth:
    wrong = float(((y - guess) ** 2).mean())
    return {"R²": 1 - wrong / float(y.var()), "slope": float(np.cov(y, guess)[0, 1] / guess.var())}


def truth_of(made: Result, fresh: Records, kind: str) -> Truth:
    assert fresh.labels is not None
    if kind == "linear":
        y, guess = fresh.labels, np.clip(made.model.predict(fresh.features), -2, 2)
        return {"mean squared error": float(((y - guess) ** 2).mean()), **explained(y, guess)}
    shares, labels = made.model.predict_proba(fresh.features), np.asarray(fresh.labels, np.int64)
    own = np.clip(shares[np.arange(len(labels)), labels], expit(-4), expit(4))
    out = {
        "accuracy": float((shares.argmax(1) == labels).mean()),
        "log loss": float(-np.log(own).mean()),
        "squared error": float(((shares - np.eye(shares.shape[1])[labels]) ** 2).sum(1).mean() / 2),
    }
    if shares.shape[1] == 2:
        ranks, positive = rankdata(shares[:, 1]), labels == 1
        wins = ranks[positive].sum() - positive.sum() * (positive.sum() + 1) / 2
        out["AUC"] = float(wins / positive.sum() / (~positive).sum())
    return out


def coverage(make: Callable[[int], tuple[Result, Truth]], seeds: range) -> dict[str, float]:
    """In which share of the runs each figure's interval holds the true value."""
    held: dict[str, list[bool]] = {}
    for seed in seeds:
        made, truth = make(seed)
        assert made.evaluation is not None
        for name, value in truth.items():
            figure: Any = made.evaluation[name]
            held.setdefault(name, []).append(figure.low <= value <= figure.high)
    return {name: float(np.mean(found)) for name, found in held.items()}
