"""Accuracies behind Figures 2, 3 and 4 of Hamm, Cao and Belkin (2016), by method, number of parties and epsilon.

`published` is the method with the constants of the paper (`variant="published"` as it is), `tight` the same with the
derived sensitivity, and `wrong radius` the printed density with a radius of Gamma(1) instead of Gamma(d), which is what
the curves of the paper fit and whose loss is infinite. The paper's classifiers have no constant feature. Models are
computed once per trial and perturbed many times by the noise that the protocol declares.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from comity import SoftLabel
from comity.entropy import Stream
from comity.learn import fit_logistic, hard_votes, linear_weights
from comity.methods.softlabel import PublishedSoftLabel
from comity.methods.softlabel.published import LearnsFrom
from comity.privacy import SeededNoise
from comity.protocol import perturb
from experiments.papers.exhibit import Measured
from experiments.papers.softlabel import har, kdd
from experiments.papers.softlabel.default import case_of as default_case
from experiments.papers.softlabel.default import released
from experiments.papers.softlabel.kdd import CLASSES, L2, Trial
from experiments.papers.softlabel.release import DELTA, make_consortium

Floats = NDArray[np.float64]
Kind = Literal["exact", "published", "tight", "wrong radius", "default", "default with delta"]
METHODS: Final[tuple[LearnsFrom, ...]] = ("vote", "soft", "avg")
_STACK = 250


@dataclass(frozen=True)
class Point:
    """`method` is one of vote, soft, avg, batch, indiv, or default; `epsilon` is infinite without noise."""

    method: str
    parties: int
    epsilon: float = inf
    kind: Kind = "exact"


@dataclass(frozen=True)
class Scores:
    """Test accuracies by point, and of the most frequent training class."""

    values: dict[Point, list[float]] = field(default_factory=dict)
    constants: list[float] = field(default_factory=list)

    def add(self, point: Point, value: float) -> None:
        self.values.setdefault(point, []).append(value)

    def get(self, method: str, parties: int, epsilon: float = inf, kind: Kind = "exact") -> Measured | None:
        found = self.values.get(Point(method, parties, epsilon, "exact" if epsilon == inf else kind))
        return None if found is None else Measured.of(found)

    def mean(self, method: str, parties: int, epsilon: float = inf, kind: Kind = "exact") -> float:
        found = self.get(method, parties, epsilon, kind)
        assert found is not None, (method, parties, epsilon, kind)
        return found.mean

    @property
    def constant(self) -> float:
        return float(np.mean(self.constants))


def measure_activities(data: har.Activities, size: har.Size, delta_draws: int) -> Scores:
    """Figure 2: the trials of `har`, with the default at the same pure epsilon and with a delta."""
    scores, parties = Scores(), size.parties
    kinds: dict[str, Kind] = {"tight": "tight", "paper": "published", "wrong radius": "wrong radius"}
    for number in range(size.splits):
        split = har.split_of(data, size, number)
        scores.constants.append(split.constant)
        exact = har.exact_models(split)
        for case, value in har.without_noise(split, exact):
            method = case.partition(" ")[0]
            scores.add(Point(method, parties if method in METHODS else 0), value)
        points = {
            har.case_of(method, word, epsilon): Point(method, parties, epsilon, kind)
            for method in METHODS
            for word, kind in kinds.items()
            for epsilon in har.EPSILONS
        }
        for case, value in har.with_noise(split, exact, size, number):
            scores.add(points[case], value)
        layout = har.layout_of(data, size, number)
        for delta in (0.0, DELTA):
            ours: Kind = "default with delta" if delta else "default"
            named = {default_case("auto", epsilon, delta): epsilon for epsilon in har.EPSILONS}
            for case, value in released(layout, "softlabel exhibits", number, delta_draws, ("auto",), delta):
                scores.add(Point("default", parties, named[case], ours), value)
    return scores


@dataclass(frozen=True)
class Effort:
    """How much is done for one trial of two classes. `pooled` limits the records of batch, `sampled` the parties whose
    classifiers are scored for indiv; the default runs at each of `deltas`."""

    draws: int
    default_draws: int
    pooled: int
    sampled: int
    deltas: tuple[float, ...] = (0.0, DELTA)


def without_constant(one: Trial) -> Trial:
    """The rows as the paper has them: of unit length at most, with no constant beside them."""
    shrunk = np.sqrt(2.0)
    return replace(
        one,
        features=one.features[..., :-1] * shrunk,
        auxiliary=one.auxiliary[:, :-1] * shrunk,
        distinct=one.distinct[:, :-1] * shrunk,
        test=one.test[:, :-1] * np.float32(shrunk),
    )


def measure_two_classes(
    one: Trial,
    parties: Sequence[int],
    epsilons: Sequence[float],
    effort: Effort,
    name: str,
    number: int,
    scores: Scores,
) -> None:
    """One trial of a figure with two classes: every method, both radii, and the default, for each number of parties."""
    rows = without_constant(one)
    scores.constants.append(float(np.mean(one.truth == np.bincount(one.labels.ravel()).argmax())))
    flat = rows.features.reshape(-1, rows.features.shape[-1])[: effort.pooled]
    pooled = fit_logistic(flat, rows.labels.ravel()[: len(flat)].astype(np.float64), L2, tol=1e-8).weights
    scores.add(Point("batch", 0), rows.accuracy(pooled))
    filled = np.ones((effort.sampled, rows.labels.shape[1]), np.bool_)
    local, _ = linear_weights(rows.features[: effort.sampled], rows.labels[: effort.sampled], filled, 2, L2)
    scores.add(Point("indiv", 0), float(np.mean([rows.accuracy(weights[0]) for weights in local])))
    for count, shares, mean in votes_and_means(rows, parties):
        for method in METHODS:
            exact = mean[None] if method == "avg" else published(rows, method).fit(shares)
            scores.add(Point(method, count), rows.accuracy(exact[0]))
            for epsilon in epsilons:
                for point, value in _with_noise(rows, method, exact, count, epsilon, effort.draws, (name, number)):
                    scores.add(point, value)
    size = kdd.Size(parties=tuple(parties), records=one.labels.shape[1], auxiliary=len(one.auxiliary))
    protocol = SoftLabel.over_rows(auxiliary=one.auxiliary, classes=CLASSES, sizes=size.records)
    for count, shares in kdd.vote_shares(one, size):
        for epsilon in epsilons:
            for delta in effort.deltas:
                kind: Kind = "default with delta" if delta else "default"
                for _, value in kdd.draw_default(
                    one, protocol, shares, count, epsilon, delta, number, effort.default_draws
                ):
                    scores.add(Point("default", count, epsilon, kind), value)


def published(rows: Trial, method: LearnsFrom, sensitivity: Literal["paper", "tight"] = "paper") -> PublishedSoftLabel:
    return SoftLabel.published_over_rows(
        auxiliary=rows.auxiliary, classes=CLASSES, method=method, sensitivity=sensitivity
    )


def votes_and_means(rows: Trial, parties: Sequence[int]) -> Iterator[tuple[int, Floats, Floats]]:
    """Shares of votes (N, 2) and the mean model (d,) of the first parties, for each number of them, the smallest
    first. A party whose fit failed votes for both classes alike and has a zero model."""
    for_second, total, done = np.zeros(len(rows.distinct)), np.zeros(rows.features.shape[-1]), 0
    for count in sorted(parties):
        while done < count:
            upto = min(done + _STACK, count)
            labels = rows.labels[done:upto]
            weights, usable = linear_weights(rows.features[done:upto], labels, np.ones(labels.shape, np.bool_), 2, L2)
            kept = weights[usable, 0]
            for_second += hard_votes(kept, rows.distinct).sum(axis=0) + np.count_nonzero(~usable) / 2
            total += kept.sum(axis=0)
            done = upto
        share = for_second[rows.place] / count
        yield count, np.stack([1 - share, share], axis=1), total / count


def _with_noise(
    rows: Trial, method: LearnsFrom, exact: Floats, parties: int, epsilon: float, draws: int, label: tuple[str, int]
) -> Iterator[tuple[Point, float]]:
    consortium = make_consortium(parties, epsilon, 0.0)
    kinds: tuple[tuple[Kind, Literal["paper", "tight"]], ...] = (("published", "paper"), ("tight", "tight"))
    for kind, sensitivity in kinds:
        release = published(rows, method, sensitivity).declare(consortium)["model"]
        source = SeededNoise(int(Stream.public(*label, method, parties, f"{epsilon:g}", kind).words(1)[0]))
        noisy = [perturb(release, 0, exact, consortium, source, lambda _, make: make())[0] for _ in range(draws)]
        yield from ((Point(method, parties, epsilon, kind), value) for value in score_all(rows, noisy))
    scale = published(rows, method).sensitivity(parties) / epsilon
    stream = Stream.public(*label, method, parties, f"{epsilon:g}", "wrong radius")
    wrong = [exact[0] + har.wrong_radius(scale, exact[0].shape, stream) for _ in range(draws)]
    yield from ((Point(method, parties, epsilon, "wrong radius"), value) for value in score_all(rows, wrong))


def score_all(rows: Trial, models: Sequence[Floats]) -> list[float]:
    """The accuracy of each model, all in one product: test rows are many."""
    favour = rows.test @ np.stack(models, axis=1).astype(np.float32) > 0
    return [float(one) for one in np.mean(favour == rows.truth[:, None].astype(np.bool_), axis=0)]
