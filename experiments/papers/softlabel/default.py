"""What a study runs by default, scored on parties of a few records each: the rule's choice beside statistics by name.

Every map is fitted on the public auxiliary rows. The noise is what the protocol declares for the parties, of whom one
may collude: lattice noise. Sums are computed once and perturbed many times; `over_hosts` is a whole run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity import SoftLabel
from comity.data import Records
from comity.entropy import Stream
from comity.learn import fit_softmax, linear_votes
from comity.methods.softlabel import SoftLabelProtocol, Statistic, StatisticName
from comity.privacy import SeededNoise
from comity.protocol import NumberedParties, RunOptions, Terms, simulate
from experiments.papers.softlabel.release import DELTA, make_consortium, noisy_means, opened, total

Floats = NDArray[np.float64]

EPSILONS = (10.0, 1.0, 0.1)
STATISTICS: tuple[StatisticName, ...] = ("auto", "votes", "class-sums", "cells", "models")
L2 = 1e-4
_STACK = 250


@dataclass(frozen=True, eq=False)
class Layout:
    """One trial: features (M, n, d) and labels (M, n) of the parties, public rows, test rows."""

    features: Floats
    labels: NDArray[np.int64]
    auxiliary: Floats
    test: Floats
    truth: NDArray[np.int64]
    classes: tuple[str, ...]

    @property
    def parties(self) -> int:
        return len(self.labels)

    def accuracy(self, mapped: Floats, weights: Floats) -> float:
        return float(np.mean((mapped @ weights.T).argmax(axis=1) == self.truth))

    def protocol(self, statistic: StatisticName) -> SoftLabelProtocol:
        return SoftLabel.over_rows(
            auxiliary=self.auxiliary,
            classes=self.classes,
            statistic=statistic,
            sizes=self.labels.shape[1],
            local_l2=L2,
        )


def reproduced(
    layouts: Iterable[Layout],
    name: str,
    *,
    draws: int,
    statistics: tuple[StatisticName, ...] = STATISTICS,
    prefix: str = "",
    reference: Mapping[str, float] | None = None,
    remark: str = "",
) -> list[dict[str, Any]]:
    """Rows of every statistic at every epsilon over the trials; `reference` has what the recipe reached, by case."""
    values: dict[str, list[float]] = {}
    pooled, constants, reasons = [], [], {}
    for number, layout in enumerate(layouts):
        pooled.append(batch(layout))
        constants.append(float(np.mean(layout.truth == np.bincount(layout.labels.ravel()).argmax())))
        reasons = choices(layout)
        for case, value in released(layout, f"{name} {prefix}", number, draws, statistics):
            values.setdefault(case, []).append(value)
    out = []
    for case, found in values.items():
        said = [
            reasons.get(case, "asked for"),
            "maps from public rows, no trusted coordinator",
            f"least {min(found):.3f}",
        ]
        out.append(
            {
                "case": prefix + case,
                "ours": float(np.mean(found)),
                "spread": float(np.std(found)),
                "repeats": len(found),
                "unit": "accuracy",
                "paper": None,
                "reference": (reference or {}).get(case),
                "constant": float(np.mean(constants)),
                "non_private": float(np.mean(pooled)),
                "note": "; ".join([*said, remark] if remark else said),
            }
        )
    return out


def batch(layout: Layout) -> float:
    """All private records in one place, no privacy: a softmax fit in the whitened coordinates of the public map."""
    found = layout.protocol("class-sums").choice(make_consortium(layout.parties, 1.0, DELTA)).statistic.map
    rows = found(layout.features.reshape(-1, layout.features.shape[-1]))
    weights = fit_softmax(rows, layout.labels.ravel(), 1e-2, classes=len(layout.classes), tol=1e-6).weights
    return layout.accuracy(found(layout.test), weights)


def released(
    layout: Layout,
    name: str,
    number: int,
    draws: int,
    statistics: tuple[StatisticName, ...] = STATISTICS,
    delta: float = DELTA,
) -> Iterator[tuple[str, float]]:
    """Every statistic at every epsilon; `name` and the number of the trial seed its noise."""
    votes: Floats | None = None
    for asked in statistics:
        protocol = layout.protocol(asked)
        for epsilon in EPSILONS:
            consortium = make_consortium(layout.parties, epsilon, delta)
            statistic, release = opened(protocol, consortium)
            if statistic.needs == "votes" and votes is None:
                votes = mean_votes(layout)
            units = total(release, contributions(layout, statistic, votes), consortium)
            mapped, case = statistic.map(layout.test), case_of(asked, epsilon, delta)
            source = SeededNoise(int(Stream.public("reproduce", name, case, number).words(1)[0]))
            for mean in noisy_means(release, units, consortium, source, draws):
                yield case, layout.accuracy(mapped, statistic.model(mean, protocol.deviation(consortium)))


def over_hosts(layout: Layout, epsilon: float, *, seed: int, delta: float = DELTA) -> float:
    """Accuracy of one whole run of the default: a host for each party, ledgers, messages, the secure sum."""
    parties = {
        party: Records(features, labels)
        for party, features, labels in zip(NumberedParties(layout.parties), layout.features, layout.labels)
    }
    outcome = simulate(
        layout.protocol("auto"),
        parties=parties,
        epsilon=epsilon,
        delta=delta,
        seed=seed,
        test=Records(layout.test, layout.truth),
        terms=Terms(name="softlabel default"),
        options=RunOptions(baselines=False),
    )
    assert outcome.error is not None
    return 1.0 - outcome.error


def row_over_hosts(layout: Layout, epsilon: float, fast: Mapping[str, Any], *, seed: int) -> dict[str, Any]:
    """One run over real hosts, and how far it is from `fast`, the row of the draws around sums computed once."""
    found = over_hosts(layout, epsilon, seed=seed)
    apart = f"{found - fast['ours']:+.4f} from the mean of {fast['repeats']} draws of deviation {fast['spread']:.4f}"
    return {
        **fast,
        "case": f"{fast['case']} over hosts",
        "ours": found,
        "spread": 0.0,
        "repeats": 1,
        "note": f"one run over {layout.parties} real hosts with the secure sum: {apart}",
    }


def mean_votes(layout: Layout) -> Floats:
    """Shares of the parties' votes on the auxiliary rows (N, C), a stack of parties at a time."""
    shares = np.zeros((len(layout.auxiliary), len(layout.classes)))
    for start in range(0, layout.parties, _STACK):
        features, labels = layout.features[start : start + _STACK], layout.labels[start : start + _STACK]
        filled = np.ones(labels.shape, np.bool_)
        shares += linear_votes(features, labels, filled, layout.auxiliary, len(layout.classes), L2).sum(axis=0)
    return shares / layout.parties


def contributions(layout: Layout, statistic: Statistic, votes: Floats | None) -> Iterator[Floats]:
    """What the parties contribute, a stack of them at a time, before it is bounded."""
    if statistic.needs == "votes":
        # What a party contributes is affine in its votes: equal parties with the mean vote have the same sum.
        filled = np.ones(layout.labels.shape[1], np.bool_)
        one = statistic.contribution(layout.features[0], layout.labels[0], filled, votes)
        yield np.broadcast_to(one, (layout.parties, *one.shape))
        return
    for start in range(0, layout.parties, _STACK):
        labels = layout.labels[start : start + _STACK]
        yield statistic.contribution(layout.features[start : start + _STACK], labels, np.ones(labels.shape, np.bool_))


def case_of(statistic: str, epsilon: float, delta: float = DELTA) -> str:
    named = "default" if statistic == "auto" else statistic
    return f"{named} eps={epsilon:g} delta={delta:g}"


def choices(layout: Layout, delta: float = DELTA) -> dict[str, str]:
    """Why the default is what it is, by case."""
    protocol = layout.protocol("auto")
    return {
        case_of("auto", epsilon, delta): protocol.choice(make_consortium(layout.parties, epsilon, delta)).why
        for epsilon in EPSILONS
    }
