"""Figure 3 of Hamm, Cao and Belkin (2016): network intrusions by votes of up to 20,000 parties with 22 records each.

Records of the dataset's own training split go to the parties and to 43,000 auxiliary rows; its own test split, with
attacks that no training row has, is what is scored. Categories are one-hot; counts are taken as log(1 + x) and divided
by their largest auxiliary value, so that nothing is fitted on private rows; rows are brought to unit length.

What the rule chooses is drawn with the noise that the protocol declares, one colluder among the parties: whitened
votes at pure ε, by spherical parts; class sums at (ε, 1e-6), by Gaussian parts, or by spherical ones where these are
quieter. The published soft labels, whose coordinator is trusted, stand beside them. Trials are independent, and each
has a process of its own.

The constants of the votes (prior, penalty, least directions, weight of repeated rows) were settled on training rows,
but the test rows had been looked at before; those of class sums by leaving out one of four tables, of which this is
one. These figures are no clean holdout. `reference` are earlier measurements of ours with a separate implementation.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from comity import SoftLabel
from comity.data import dataset
from comity.entropy import Stream
from comity.learn import FeatureMap, fit_logistic, hard_votes, linear_weights
from comity.methods.softlabel import SoftLabelProtocol, Statistic
from comity.privacy import SeededNoise
from comity.protocol import perturb
from experiments.papers.plot import Curve, Level, Panel, draw
from experiments.papers.softlabel.release import DELTA, make_consortium, noisy_means, opened, total

Floats = NDArray[np.float64]

EPSILONS = (10.0, 1.0, 0.1, 0.01)
CLASSES = ("normal", "attack")
L2 = 1e-4
NO_PAPER = "the paper gives Figure 3 as plotted points only, no figure in its text"
_CATEGORIES = ("protocol_type", "service", "flag")
_TARGET, _SPLIT, _KIND = "is_attack", "split", "label"
_STACK = 250
_STRETCH = 20_000


def case_of(method: str, parties: int, epsilon: float, delta: float) -> str:
    return f"{method} M={parties} eps={epsilon:g} delta={delta:g}"


# Printed beside ours: what both methods reached when whitened votes were designed.
REFERENCE = {
    "batch": 0.918,
    **{
        case_of(method, parties, epsilon, delta): value
        for method, parties, delta, values in (
            ("default", 20_000, 0.0, {10.0: 0.920, 1.0: 0.920, 0.1: 0.919, 0.01: 0.914}),
            ("published soft", 20_000, 0.0, {10.0: 0.903, 1.0: 0.526, 0.1: 0.586, 0.01: 0.508}),
            ("default", 5_000, 0.0, {0.01: 0.767}),
            ("default", 5_000, DELTA, {10.0: 0.908, 0.1: 0.908, 0.01: 0.902}),
        )
        for epsilon, value in values.items()
    },
}


@dataclass(frozen=True)
class Size:
    """How much of it is done. Gaussian parts are quick to draw: with fewer parties, whose figures vary more, as many
    more draws are taken as there are fewer of them."""

    parties: tuple[int, ...] = (20_000, 10_000, 5_000)
    records: int = 22
    auxiliary: int = 43_000
    splits: int = 2
    draws: int = 4
    sampled: int = 50


FULL = Size()
QUICK = Size(parties=(5_000,), auxiliary=20_000, splits=1, draws=3, sampled=50)


@dataclass(frozen=True, eq=False)
class Connections:
    """Counts and rates, one-hot categories, labels, and which rows the dataset itself calls training rows."""

    counts: NDArray[np.float32]
    categories: NDArray[np.uint8]
    labels: NDArray[np.int64]
    training: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Trial:
    """Features (M, n, d) and labels (M, n) of the parties, public rows and the distinct ones among them, test rows.

    Test rows are single precision: they are scored hundreds of times, and nothing is learnt from them.
    """

    features: Floats
    labels: NDArray[np.int64]
    auxiliary: Floats
    distinct: Floats
    place: NDArray[np.int64]
    test: NDArray[np.float32]
    truth: NDArray[np.int64]

    def accuracy(self, weights: Floats, intercept: float = 0.0) -> float:
        """Of weights (d,) in favour of an attack."""
        return float(np.mean((self.test @ weights.astype(np.float32) > -intercept) == self.truth))


def run(*, quick: bool, out: Path | None) -> list[dict[str, Any]]:
    """The rows of the figure; with `out` also softlabel-kdd.svg and .png. COMITY_DATA names the folder of the data."""
    with threadpool_limits(1, user_api="blas"):
        return reproduced(connections(), QUICK if quick else FULL, out, quick=quick)


def connections() -> Connections:
    frame = dataset("kddcup99")
    counted = frame.drop(columns=[*_CATEGORIES, _TARGET, _SPLIT, _KIND])
    categories = []
    for name in _CATEGORIES:
        found, index = np.unique(frame[name].astype(str).to_numpy(), return_inverse=True)
        categories.append(np.eye(len(found), dtype=np.uint8)[index])
    return Connections(
        np.log1p(counted.to_numpy(np.float32)),
        np.concatenate(categories, axis=1),
        frame[_TARGET].to_numpy(np.int64),
        (frame[_SPLIT] == "train").to_numpy(bool),
    )


def trial(data: Connections, size: Size, number: int) -> Trial:
    rows = np.flatnonzero(data.training)
    order = rows[Stream.public("reproduce softlabel-kdd", number).permutation(len(rows))]
    most = max(size.parties)
    private = most * size.records
    own, public, test = order[:private], order[private : private + size.auxiliary], np.flatnonzero(~data.training)
    largest = data.counts[public].max(axis=0)
    largest = np.where(largest > 0, largest, 1.0)

    def encoded(chosen: NDArray[np.int64]) -> Floats:
        counts = np.clip(data.counts[chosen] / largest, 0.0, 1.0)
        joined = np.concatenate([counts, data.categories[chosen]], axis=1, dtype=np.float64)
        joined /= np.linalg.norm(joined, axis=1, keepdims=True)
        # The constant is the local classifiers' intercept.
        return np.asarray(np.concatenate([joined, np.ones((len(joined), 1))], axis=1) / np.sqrt(2), np.float64)

    auxiliary = encoded(public)
    # Connections repeat: a classifier is asked once for each distinct row.
    distinct, place = np.unique(auxiliary, axis=0, return_inverse=True)
    return Trial(
        encoded(own).reshape(most, size.records, -1),
        data.labels[own].reshape(most, size.records),
        auxiliary,
        distinct,
        place.ravel().astype(np.int64),
        encoded(test).astype(np.float32),
        data.labels[test],
    )


def reproduced(data: Connections, size: Size, out: Path | None, *, quick: bool = False) -> list[dict[str, Any]]:
    values: dict[str, list[float]] = {}
    constants: list[float] = []
    for constant, found in each_trial(data, size):
        constants.append(constant)
        for case, value in found:
            values.setdefault(case, []).append(value)
    if out is not None:
        _plot(out / "softlabel-kdd", values, float(np.mean(constants)), size, quick)
    return [
        {
            "case": case,
            "ours": float(np.mean(found)),
            "spread": float(np.std(found)),
            "repeats": len(found),
            "unit": "accuracy",
            "paper": None,
            "reference": REFERENCE.get(case),
            "constant": float(np.mean(constants)),
            "non_private": float(np.mean(values["batch"])),
            "note": _note(case, quick),
        }
        for case, found in sorted(values.items(), key=lambda item: "eps=" in item[0])
    ]


Scored = tuple[float, list[tuple[str, float]]]
# What a forked process has of its parent's memory: arguments would be copied through a pipe.
_shared: dict[str, Connections] = {}


def each_trial(data: Connections, size: Size) -> Iterator[Scored]:
    """Trials in their order, as many at a time as there are cores, if processes can share the data by forking."""
    workers = min(size.splits, os.cpu_count() or 1)
    if workers < 2 or "fork" not in multiprocessing.get_all_start_methods():
        yield from (scored(data, size, number) for number in range(size.splits))
        return
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(workers, context, initializer=_shared.update, initargs=({"data": data},)) as pool:
        yield from pool.map(partial(_scored, size), range(size.splits))


def _scored(size: Size, number: int) -> Scored:
    return scored(_shared["data"], size, number)


def scored(data: Connections, size: Size, number: int) -> Scored:
    """Accuracy of the constant that is most frequent in training, and every case's values, of one trial."""
    one = trial(data, size, number)
    constant = float(np.mean(one.truth == np.bincount(one.labels.ravel()).argmax()))
    return constant, [*without_noise(one, size), *with_noise(one, size, number)]


def without_noise(one: Trial, size: Size) -> Iterator[tuple[str, float]]:
    flat = one.features.reshape(-1, one.features.shape[-1])[: size.auxiliary]
    pooled = fit_logistic(flat, one.labels.ravel()[: len(flat)].astype(np.float64), L2, tol=1e-8).weights
    yield "batch", one.accuracy(pooled)
    filled = np.ones((size.sampled, size.records), np.bool_)
    local, _ = linear_weights(one.features[: size.sampled], one.labels[: size.sampled], filled, 2, L2)
    yield "indiv", float(np.mean([one.accuracy(weights[0]) for weights in local]))


def with_noise(one: Trial, size: Size, number: int) -> Iterator[tuple[str, float]]:
    for parties, shares in vote_shares(one, size):
        published = SoftLabel.published_over_rows(auxiliary=one.auxiliary, classes=CLASSES, l2=L2, sensitivity="tight")
        exact = published.fit(shares)
        yield f"soft non-private M={parties}", one.accuracy(exact[0])
        protocol = SoftLabel.over_rows(auxiliary=one.auxiliary, classes=CLASSES, sizes=size.records)
        for epsilon in EPSILONS:
            for delta in (0.0, DELTA):
                draws = size.draws * (max(size.parties) // parties if delta else 1)
                yield from draw_default(one, protocol, shares, parties, epsilon, delta, number, draws)
            consortium, case = make_consortium(parties, epsilon, 0.0), case_of("published soft", parties, epsilon, 0.0)
            release, source = published.declare(consortium)["model"], SeededNoise(_seed(case, number))
            for _ in range(size.draws):
                noisy = perturb(release, 0, exact, consortium, source, lambda _, make: make())
                yield case, one.accuracy(noisy[0])


def draw_default(
    one: Trial,
    protocol: SoftLabelProtocol,
    shares: Floats,
    parties: int,
    epsilon: float,
    delta: float,
    number: int,
    draws: int,
) -> Iterator[tuple[str, float]]:
    """What the default releases, scored: the sum is computed once and perturbed `draws` times."""
    consortium, case = make_consortium(parties, epsilon, delta), case_of("default", parties, epsilon, delta)
    statistic, release = opened(protocol, consortium)
    units = total(release, _contributions(one, statistic, shares, parties), consortium)
    source = SeededNoise(_seed(case, number))
    # Votes have a linear map, which is undone in the weights; the map of class sums is not linear.
    linear = statistic.needs == "votes"
    mapped = None if linear else _mapped(statistic.map, one.test)
    for mean in noisy_means(release, units, consortium, source, draws):
        weights = statistic.model(mean, protocol.deviation(consortium))
        towards = weights[1] - weights[0]
        if mapped is None:
            yield case, one.accuracy(*unmapped(statistic.map, towards))
        else:
            yield case, float(np.mean((mapped @ towards.astype(np.float32) > 0) == one.truth))


def _contributions(one: Trial, statistic: Statistic, shares: Floats, parties: int) -> Iterator[Floats]:
    if statistic.needs == "votes":
        # A contribution is affine in the votes: as many parties with the mean vote have the same sum.
        own = (one.features[0], one.labels[0], np.ones(one.labels.shape[1], np.bool_))
        mean_party = statistic.contribution(*own, shares)
        yield np.broadcast_to(mean_party, (parties, *mean_party.shape))
        return
    for start in range(0, parties, _STACK):
        upto = min(start + _STACK, parties)
        labels = one.labels[start:upto]
        yield statistic.contribution(one.features[start:upto], labels, np.ones(labels.shape, np.bool_))


def _mapped(found: FeatureMap, rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows after a map, a stretch at a time: they are many."""
    out = np.empty((len(rows), found.dimensions), np.float32)
    for start in range(0, len(rows), _STRETCH):
        out[start : start + _STRETCH] = found(rows[start : start + _STRETCH].astype(np.float64))
    return out


def unmapped(found: FeatureMap, weights: Floats) -> tuple[Floats, float]:
    """A linear map's weights as weights of the rows before it, and an intercept: test rows need not be mapped."""
    if found.phase is not None or found.normalise or found.whitening is not None or not found.constant:
        raise ValueError("only a linear map with a constant can be undone")
    before = found.matrix @ weights[:-1]
    return before, float(weights[-1] - found.mean @ before)


def vote_shares(one: Trial, size: Size) -> Iterator[tuple[int, Floats]]:
    """Shares (N, 2) of the votes of the first parties, for each number of them, the smallest first."""
    attacks, done = np.zeros(len(one.distinct)), 0
    filled = np.ones((_STACK, size.records), np.bool_)
    for parties in sorted(size.parties):
        while done < parties:
            upto = min(done + _STACK, parties)
            stack = one.features[done:upto], one.labels[done:upto], filled[: upto - done]
            weights, usable = linear_weights(*stack, 2, L2)
            # Whole votes are counted; a party whose fit failed votes for both classes alike.
            attacks += hard_votes(weights[usable, 0], one.distinct).sum(axis=0) + np.count_nonzero(~usable) / 2
            done = upto
        share = attacks[one.place] / parties
        yield parties, np.stack([1 - share, share], axis=1)


def _seed(case: str, number: int) -> int:
    return int(Stream.public("reproduce softlabel-kdd", case, number).words(1)[0])


def _note(case: str, quick: bool) -> str:
    said = []
    if case.startswith("default"):
        said.append(f"{'class sums' if 'delta=1e' in case else 'whitened votes'}, chosen by the rule")
        said.append("maps from public rows; no trusted coordinator")
    elif case.startswith("published"):
        said.append("trusted coordinator; radius Gamma(d), sensitivity as derived in proof.md")
    said.append(NO_PAPER)
    if quick:
        said.append("quick: fewer parties and repeats than the full reproduction")
    return "; ".join(said)


def _plot(stem: Path, values: dict[str, list[float]], constant: float, size: Size, quick: bool) -> None:
    def curve(method: str, parties: int, delta: float, label: str, style: int) -> Curve:
        found = [values[case_of(method, parties, epsilon, delta)] for epsilon in EPSILONS]
        means, spreads = (tuple(float(of(one)) for one in found) for of in (np.mean, np.std))
        return Curve(label, tuple(1 / epsilon for epsilon in EPSILONS), means, spreads, style)

    levels = (Level("batch", float(np.mean(values["batch"]))), Level("constant", constant))
    panels = [
        Panel(
            f"M = {parties:,}",
            (
                curve("default", parties, 0.0, "whitened votes, pure ε", 0),
                curve("default", parties, DELTA, f"class sums, δ = {DELTA:g}", 1),
                curve("published soft", parties, 0.0, "as published, pure ε", 2),
            ),
            levels,
        )
        for parties in size.parties
    ]
    repeats = f"{size.splits} splits, {size.draws} draws each{', quick' if quick else ''}; bars: one standard deviation"
    draw(
        stem,
        panels,
        title="Soft labels on network intrusions (Hamm, Cao, Belkin 2016, Figure 3)",
        x="1/ε  (a whole party replaced)",
        y="test accuracy",
        caption=f"All maps are fitted on public rows. {repeats}.",
    )
