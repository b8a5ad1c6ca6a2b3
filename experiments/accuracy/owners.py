"""Owners that differ: each owner's own score alone, with the joint model, and with the joint model adapted to it.

Records of an owner are split again for each split: seven of ten to learn from, the others to measure on. The joint
model is averaging's default; `alone` is scikit-learn's logistic regression or ridge on the owner's standardised
columns, which shares nothing with what adapts the joint model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from comity.data import Bounded, Categorical, Classes, Encoding, Numeric, Records, Schema, dataset
from comity.entropy import Stream
from comity.methods.averaging import Averaging, AveragingProtocol, Kind
from comity.protocol import RunOptions, Terms, simulate
from experiments.accuracy.tables import table

DELTA = 1e-6
EPSILONS = (1.0, 3.0)
SPLITS = 20
_LEARNED = 0.7
_FEWEST, _MOST_OWNERS = 50, 8


@dataclass(frozen=True, eq=False)
class Owners:
    """Encoded records by owner, and the protocol over them."""

    name: str
    schema: Schema
    encoding: Encoding
    records: Mapping[str, Records]


@dataclass(frozen=True)
class OwnScores:
    """Of one owner's test records: accuracies, or R² of a number."""

    alone: float
    joint: float
    adapted: float


def hospitals() -> Owners:
    """Heart disease at four hospitals."""
    return _owners("hospitals", *hospital_records(), "hospital")


def hospital_records() -> tuple[Schema, pd.DataFrame]:
    """Bounds are those of the measurements, missing values a category or a filled middle."""
    frame = dataset("heart_disease_4hospitals").drop(columns=["num"])
    frame["chol"] = frame["chol"].where(frame["chol"] > 0)
    named = ("sex", "cp", "fbs", "restecg", "exang", "slope", "ca", "thal")
    bounds = {"age": (20, 90), "trestbps": (80, 200), "chol": (100, 400), "thalach": (60, 210), "oldpeak": (-3, 7)}
    columns: list[Any] = []
    for name in frame.columns.drop(["hospital", "disease"]):
        if name in named:
            values = frame[name].map(lambda one: f"{one:g}", na_action="ignore")
            frame[name] = values
            columns.append(Categorical(str(name), tuple(sorted(values.dropna().unique())), missing="cell"))
        else:
            low, high = bounds[str(name)]
            columns.append(Numeric(str(name), low, high, missing="fill", fill=(low + high) / 2))
    frame["disease"] = frame["disease"].astype(str)
    return Schema(tuple(columns), Classes("disease", ("0", "1"))), frame


def _of_table(name: str, by: str, most: int) -> Callable[[], Owners]:
    """Training rows of a table of the comparison, by the values of a column."""

    def make() -> Owners:
        whole = table(name)
        return _owners(f"{name} by {by}", whole.schema, whole.train, by, most)

    return make


OWNERS: Mapping[str, Callable[[], Owners]] = {
    "hospitals": hospitals,
    "occupations": _of_table("adult-20", "occupation", 400),
    "educations": _of_table("credit", "education", 400),
    "states": _of_table("cps", "state", 150),
}


@lru_cache(maxsize=4)
def owners(name: str) -> Owners:
    """A set of owners by its name in `OWNERS`. COMITY_DATA names the folder of the data."""
    return OWNERS[name]()


def _owners(name: str, schema: Schema, frame: pd.DataFrame, by: str, most: int | None = None) -> Owners:
    encoding = Encoding(schema, scaling="symmetric", rows="scaled", intercept=True, bins=True)
    records: dict[str, Records] = {}
    stream = Stream.public("owners", name)
    for owner in sorted(frame[by].astype(str).unique()):
        own = frame[(frame[by].astype(str) == owner).to_numpy(bool)]
        own = own.iloc[np.sort(stream.permutation(len(own))[:most])]
        if len(own) >= _FEWEST and len(records) < _MOST_OWNERS:
            # A party's name has letters and digits.
            party = "".join(one if one.isalnum() else "-" for one in owner.lower()).strip("-") or "unknown"
            records[party] = encoding.encode(own, where=owner).records
    return Owners(name, schema, encoding, records)


Deal = tuple[dict[str, Records], dict[str, Records]]


def deal(held: Owners, split: int) -> Deal:
    """Each owner's records to learn from, and to measure on."""
    stream = Stream.public("owners", held.name, str(split))
    parts: Deal = ({}, {})
    for owner, own in held.records.items():
        order, edge = stream.permutation(len(own)), round(_LEARNED * len(own))
        for part, rows in zip(parts, (np.sort(order[:edge]), np.sort(order[edge:]))):
            part[owner] = Records(own.features[rows], labels_of(own)[rows])
    return parts


def make_protocol(held: Owners, train: Mapping[str, Records]) -> AveragingProtocol:
    target = held.schema.target
    kind: Kind = "linear"
    if isinstance(target, Classes):
        kind = "logistic" if len(target.values) == 2 else "softmax"
    return Averaging.over_rows(
        features=held.encoding.width,
        model=kind,
        classes=target.values if isinstance(target, Classes) else (),
        low=target.low if isinstance(target, Bounded) else -1.0,
        high=target.high if isinstance(target, Bounded) else 1.0,
        sizes={owner: len(own) for owner, own in train.items()},
        encoding=held.encoding,
    )


def fit_joint(protocol: AveragingProtocol, train: Mapping[str, Records], epsilon: float, seed: int) -> Any:
    """The released model of one simulated run."""
    return simulate(
        protocol,
        parties=train,
        epsilon=epsilon,
        delta=DELTA,
        unit="record",
        seed=seed,
        terms=Terms(colluders=1, name="owners"),
        options=RunOptions(baselines=False, hosts=False),
    ).model


def score_owners(name: str, epsilon: float, split: int) -> dict[str, OwnScores]:
    """Every owner's three scores in one split."""
    held = owners(name)
    train, test = deal(held, split)
    protocol = make_protocol(held, train)
    joint = fit_joint(protocol, train, epsilon, split)
    numbers = isinstance(held.schema.target, Bounded)
    found = {}
    for owner, own in train.items():
        adapted = protocol.adapt_own(joint, own, owner)
        model = joint if adapted is None else adapted.model
        found[owner] = OwnScores(
            alone=_fit_alone(own, test[owner], numbers=numbers),
            joint=_score(joint, test[owner], numbers=numbers),
            adapted=_score(model, test[owner], numbers=numbers),
        )
    return found


def run(*, quick: bool, out: Path | None = None) -> list[dict[str, Any]]:
    """Four hospitals: accuracies on their own test records, means over splits, the owner that gains least first."""
    return list(rows(quick=quick))


def rows(*, quick: bool) -> Iterator[dict[str, Any]]:
    for epsilon in EPSILONS:
        runs = [score_owners("hospitals", epsilon, split) for split in range(3 if quick else SPLITS)]
        means = {
            owner: {key: float(np.mean([getattr(run[owner], key) for run in runs])) for key in _KEYS}
            for owner in runs[0]
        }
        for owner, one in sorted(means.items(), key=lambda pair: pair[1]["adapted"] - pair[1]["alone"]):
            yield {"case": f"hospitals {owner} eps={epsilon:g}", **one, "splits": len(runs)}


_KEYS = ("alone", "joint", "adapted")


def _fit_alone(train: Records, test: Records, *, numbers: bool) -> float:
    from sklearn.linear_model import LogisticRegression, RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    labels = labels_of(train)
    if not numbers and len(set(labels.tolist())) < 2:
        return float(np.mean(labels_of(test) == labels[0]))
    model = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-1, 4, 11)) if numbers else LogisticRegression())
    return float(model.fit(train.features, labels).score(test.features, labels_of(test)))


def _score(model: Any, test: Records, *, numbers: bool) -> float:
    predicted, truth = model.predict(test.features), labels_of(test)
    if numbers:
        return 1 - float(np.mean((predicted - truth) ** 2) / np.var(truth))
    return float(np.mean(predicted == model.classes_[truth.astype(np.int64)]))


def labels_of(records: Records) -> NDArray[Any]:
    assert records.labels is not None
    return records.labels
