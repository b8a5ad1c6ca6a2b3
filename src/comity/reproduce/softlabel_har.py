"""Figure 2 of Hamm, Cao and Belkin (2016): activity recognition by votes of 1,000 parties with six records each.

As in the paper, 561 features are mapped to 50 by PCA (not centred, fitted on the training rows) and divided by the
largest norm. That map and that norm are made from private rows and no noise pays for them, so no row here is a private
release, whatever its ε says about the noise. Training and test rows are the dataset's own, by subject: these are the
paper's 7K and 3K. Rows `random-split` mix the subjects, which is easier and not what the paper's figures fit.

The models come from the protocol itself. Its exact minimiser is computed once per split and perturbed many times by
the noise that it declares; the first draw of some cases is a whole run over 1,000 hosts. The paper's private curves
fit a noise whose radius is Gamma(1) instead of Gamma(d): rows `wrong-radius` draw it, and nobody is protected by it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import log
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.data import Records
from comity.data.datasets import dataset
from comity.entropy import Stream
from comity.federation.consortium import Consortium
from comity.federation.parties import perturbed
from comity.learn.softmax import softmax
from comity.learn.voting import hard_votes, one_hot
from comity.privacy.ledger import Ledger
from comity.privacy.loss import Pure
from comity.privacy.randomness import SeededNoise
from comity.privacy.unit import Neighbours, Unit
from comity.protocols.softlabel.published import METHODS, TOLERANCE, PublishedSoftLabel, error
from comity.reproduce.plot import Curve, Level, Panel, draw
from comity.runtime.local.cohort import Cohort, Numbered
from comity.runtime.simulate import simulate, stacks

L2 = 1e-4
EPSILONS = (10.0, 1.0, 0.1)
PAPER = {
    "batch": 0.90,
    "indiv": 0.47,
    "vote non-private": 0.79,
    "soft non-private": 0.76,
    "avg non-private": 0.67,
}
NOT_PRIVATE = "not private: map fitted on private rows"
_TARGET, _SPLIT, _SUBJECT = "activity", "split", "subject"
# The noise of a real run is seeded by this, so that the command prints the same figures each time.
_SEED = 2016

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Size:
    """How much of it is done. `hosts` names the methods of which one repeat is a run over real hosts."""

    parties: int = 1000
    records: int = 6
    auxiliary: int = 1000
    dimensions: int = 50
    splits: int = 10
    draws: int = 10
    random_splits: int = 10
    hosts: tuple[str, ...] = METHODS


FULL = Size()
QUICK = Size(splits=2, draws=3, random_splits=0, hosts=("soft",))


@dataclass(frozen=True, eq=False)
class Activities:
    """Raw features, class indices, and which rows the dataset itself calls training rows."""

    features: Floats
    labels: NDArray[np.int64]
    classes: tuple[str, ...]
    training: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Split:
    """One trial's records, mapped into the unit ball."""

    parties: tuple[Records, ...]
    auxiliary: Floats
    train: Records
    test: Records
    classes: tuple[str, ...]

    @property
    def constant(self) -> float:
        """Accuracy of the most frequent training class."""
        return float(np.mean(_labels(self.test) == np.bincount(_labels(self.train)).argmax()))

    def accuracy(self, coef: Floats) -> float:
        return 1.0 - error(coef, self.test)


@dataclass(frozen=True)
class Series:
    """Accuracies of one case over splits and draws."""

    case: str
    values: tuple[float, ...]
    note: str

    @property
    def mean(self) -> float:
        return float(np.mean(self.values))

    @property
    def spread(self) -> float:
        return float(np.std(self.values))


def run(*, quick: bool, out: Path | None) -> list[dict[str, Any]]:
    """The rows of the figure; with `out` also softlabel-har.svg and .png. COMITY_DATA names the folder of the data."""
    return reproduced(activities(), QUICK if quick else FULL, out, quick=quick)


def activities() -> Activities:
    frame = dataset("har_smartphone_rederived")
    classes, labels = np.unique(frame[_TARGET].astype(str).to_numpy(), return_inverse=True)
    return Activities(
        frame.drop(columns=[_TARGET, _SPLIT, _SUBJECT]).to_numpy(np.float64),
        labels.astype(np.int64),
        tuple(map(str, classes)),
        (frame[_SPLIT] == "train").to_numpy(bool),
    )


def reproduced(data: Activities, size: Size, out: Path | None, *, quick: bool = False) -> list[dict[str, Any]]:
    splits = [split_of(data, size, number) for number in range(size.splits)]
    exact: dict[str, list[float]] = {case: [] for case in PAPER}
    private: dict[str, list[float]] = {}
    for number, split in enumerate(splits):
        minimisers = {method: minimiser(protocol_of(split, method)) for method in ()} or exact_models(split)
        for case, value in without_noise(split, minimisers).items():
            exact[case].append(value)
        for case, value in with_noise(split, minimisers, size, number):
            private.setdefault(case, []).append(value)
    mixed: dict[str, list[float]] = {case: [] for case in PAPER if size.random_splits}
    for number in range(size.random_splits):
        split = split_of(data, size, number, by_subject=False)
        for case, value in without_noise(split, exact_models(split)).items():
            mixed[case].append(value)
    raise NotImplementedError
