"""Figure 2 of Pathak, Rane and Raj (2010): averaged classifiers of five parties on Adult, and the default beside it.

Private rows are runs of the protocol itself, over hosts, ledgers and secure sums, with noise for one colluder: the mean
test error of seeded runs. Rows `literal` and `spherical` are the published average by plain functions, without its
cryptography: local models, their mean, noise scaled by 2/(n₁ ε λ) for the smallest party, λ by the rule of the default
for noise of that length. `literal` draws i.i.d. Laplace coordinates as printed, which does not keep ε
(`comity/methods/averaging/published/proof.md`).

The paper takes λ = 1. Rows `published` are that on the mean of the losses, with literal noise on 123 features and no
constant one; they predict the majority class. The paper's figure fits the *sum* of the losses, for which its noise is
far too small. Rows `paper` draw that, and protect nobody. `corrected` is the same model with noise for the true
sensitivity 2/(K λ) of the mean of sum-loss models, and is of no use to anybody. Rows `pooled` are the paper's second
reference, w* + η: all records in one place, with noise for their number.

Two things here were not paid for by any ε. The edges of the bins were read off the training rows, as in the paper. And
the constants of the default's rule (`comity/methods/averaging`) were tried out on this table, test rows included,
and on credit defaults. `reference` are earlier measurements of ours with a separate implementation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from comity.data import Records, split_by_sizes, split_evenly
from comity.entropy import Stream
from comity.learn import fit_logistic
from comity.methods.averaging import Averaging, AveragingProtocol, penalty_for
from comity.protocol import RunOptions, Terms, simulate
from experiments.data.adult_bins import A9A, Adult, adult
from experiments.papers.plot import Curve, Level, Panel, draw

Floats = NDArray[np.float64]

PARTIES = 5
EPSILONS = (0.1, 0.5, 1.0)
CURVE = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
# The noise of the paper's figure vanishes beside its models at any larger ε.
PAPER_CURVE = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 1.0)
PAPER_PENALTY = float(Averaging.paper["l2"].value)
DELTA = 1e-5
# The records of the five parties in the paper; the smallest has 20 %, 15 % and 10 % of them.
SPLITS: Mapping[str, tuple[int, ...] | None] = {
    "even": None,
    "15 %": (4884, 6512, 6512, 6512, 8141),
    "10 %": (3256, 6512, 6512, 6512, 9769),
}
HARDEST = "10 %"
# Test errors of an earlier, separate implementation of ours in this setting, by ε; and what has to be reached.
REFERENCE = {
    "default": (0.171, 0.153, 0.150),
    "default, average": (0.184, 0.160, 0.156),
    "pure": (0.209, 0.177, 0.169),
    "literal": (0.239, 0.190, 0.173),
    "spherical": (0.256, 0.238, 0.221),
}
BARS = {"default": (0.175, 0.156, 0.153), "pure": (0.219, 0.184, 0.175)}
_TOLERANCE = 1e-8


@dataclass(frozen=True)
class Size:
    """How much of it is done: runs of the protocol on the hardest split and on the others, draws of plain noise."""

    runs: int = 20
    runs_elsewhere: int = 5
    draws: int = int(Averaging.paper["executions"].value)
    a9a: bool = True


FULL = Size()
QUICK = Size(runs=1, runs_elsewhere=0, draws=10, a9a=False)


@dataclass(frozen=True, eq=False)
class Split:
    """One way of dealing the training rows to the parties."""

    name: str
    parties: tuple[Records, ...]
    test: Records

    @property
    def sizes(self) -> dict[str, int]:
        return {f"p{place}": len(own) for place, own in enumerate(self.parties)}

    def error(self, weights: Floats) -> float:
        return float(np.mean((self.test.features @ weights > 0) != (labels_of(self.test) > 0)))


def run(*, quick: bool, out: Path | None) -> list[dict[str, Any]]:
    """The rows of the table; with `out` also averaging-adult.svg and .png. COMITY_DATA names the folder of the data."""
    with threadpool_limits(1, user_api="blas"):
        return reproduced(adult(), QUICK if quick else FULL, out, quick=quick)


def reproduced(data: Adult, size: Size, out: Path | None, *, quick: bool = False) -> list[dict[str, Any]]:
    values: dict[str, list[float]] = {}
    bare = without_constant(data)
    for name in SPLITS:
        split = split_of(data, name)
        runs = size.runs if name == HARDEST else size.runs_elsewhere
        for case, value in (
            *by_protocol(split, data.features, runs),
            *by_plain_functions(split, size.draws),
            *as_published(split_of(bare, name), size.draws),
        ):
            values.setdefault(f"{case} split={name}", []).append(value)
    if size.a9a:
        strict = adult(A9A)
        values["pooled without noise, bins of a9a"] = [pooled(strict)]
        for case, value in by_protocol(split_of(strict, HARDEST), strict.features, size.runs):
            values.setdefault(f"{case} split={HARDEST}, bins of a9a", []).append(value)
    values["pooled without noise"] = [pooled(data)]
    values["pooled without noise, l2 = 1"] = [pooled(bare, PAPER_PENALTY)]
    if out is not None:
        _plot(out / "averaging-adult", values, size, constant_of(data), quick)
    return [
        _row(case, found, constant_of(data), values["pooled without noise"][0], quick) for case, found in values.items()
    ]


def split_of(data: Adult, name: str) -> Split:
    stream, sizes = Stream.public("reproduce averaging-adult", name), SPLITS[name]
    count = len(data.train)
    # On fewer rows than the paper's, the same shares of them.
    whole = None if sizes is None else sizes if sum(sizes) == count else [size / sum(sizes) for size in sizes]
    dealt = split_evenly(count, PARTIES, stream) if whole is None else split_by_sizes(count, whole, stream)
    owned = tuple(Records(data.train.features[rows], labels_of(data.train)[rows]) for rows in dealt)
    return Split(name, owned, data.test)


def by_protocol(split: Split, features: int, runs: int) -> Iterator[tuple[str, float]]:
    """The default with and without δ, and the average with δ, as their hosts run them."""
    auto = Averaging.over_rows(features=features, sizes=split.sizes)
    average = Averaging.over_rows(features=features, sizes=split.sizes, solver="average")
    svm = Averaging.over_rows(features=features, sizes=split.sizes, model="svm")
    cases = (
        ("default", auto, DELTA),
        ("default, average", average, DELTA),
        ("pure", auto, 0.0),
        ("pure, svm", svm, 0.0),
    )
    for epsilon in EPSILONS:
        for case, protocol, delta in cases:
            for number in range(runs):
                yield f"{case} eps={epsilon:g}", released(protocol, split, epsilon, delta, number)


def released(protocol: AveragingProtocol, split: Split, epsilon: float, delta: float, seed: int) -> float:
    outcome = simulate(
        protocol,
        parties=dict(zip(split.sizes, split.parties)),
        epsilon=epsilon,
        delta=delta,
        unit="record",
        seed=seed,
        test=split.test,
        terms=Terms(colluders=1, name="averaging-adult"),
        options=RunOptions(baselines=False),
    )
    assert outcome.error is not None
    return outcome.error


def by_plain_functions(split: Split, draws: int) -> Iterator[tuple[str, float]]:
    """The published average: its noise as printed and in the shape that keeps ε, on the mean loss and on the sum."""
    smallest = min(split.sizes.values())
    width = split.test.features.shape[1]
    for epsilon in CURVE:
        scale = 2.0 / (smallest * epsilon)
        for kind, length in (("literal", sqrt(2 * width) * scale), ("spherical", width * scale)):
            l2 = penalty_for(length, initial_residual=0.5)
            mean = _mean(split.parties, l2)
            for noise in noises(kind, scale / l2, width, draws, split.name, epsilon):
                yield f"{kind} eps={epsilon:g}", split.error(mean + noise)
    together = pool(split.parties)
    alone = fit_weights(together, 1.0 / len(together))
    mean = np.mean([fit_weights(own, 1.0 / len(own)) for own in split.parties], axis=0)
    for epsilon in PAPER_CURVE:
        for noise in noises("literal", 2.0 / (len(together) * epsilon), width, draws, "pooled", epsilon):
            yield f"paper pooled eps={epsilon:g}", split.error(alone + noise)
        for noise in noises("literal", 2.0 / (smallest * epsilon), width, draws, f"paper {split.name}", epsilon):
            yield f"paper eps={epsilon:g}", split.error(mean + noise)
        for noise in noises("spherical", 2.0 / (PARTIES * epsilon), width, draws, f"true {split.name}", epsilon):
            yield f"corrected eps={epsilon:g}", split.error(mean + noise)


def as_published(split: Split, draws: int) -> Iterator[tuple[str, float]]:
    """What `variant="published"` releases, and w* + η: literal noise and λ = 1 on the mean loss."""
    width, together = split.test.features.shape[1], pool(split.parties)
    for case, weights, records in (
        ("published", _mean(split.parties, PAPER_PENALTY), min(split.sizes.values())),
        ("published pooled", fit_weights(together, PAPER_PENALTY), len(together)),
    ):
        for epsilon in PAPER_CURVE:
            scale = 2.0 / (records * epsilon * PAPER_PENALTY)
            for noise in noises("literal", scale, width, draws, f"{case} {split.name}", epsilon):
                yield f"{case} eps={epsilon:g}", split.error(weights + noise)


def without_constant(data: Adult) -> Adult:
    """The 123 features of the paper: rows of norm 1 without the last feature, which is the same in all."""

    def bare(records: Records) -> Records:
        rows = records.features[:, :-1]
        lengths = np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300) * (1 + 2.0**-40)
        return Records(rows / lengths, labels_of(records))

    return Adult(bare(data.train), bare(data.test))


def pool(parties: Sequence[Records]) -> Records:
    return Records(
        np.concatenate([own.features for own in parties]), np.concatenate([labels_of(own) for own in parties])
    )


def noises(kind: str, scale: float, width: int, draws: int, *label: str | float) -> Iterator[Floats]:
    """i.i.d. Laplace coordinates of a scale, or a uniform direction with radius Gamma(d, scale)."""
    stream = Stream.public("reproduce averaging-adult", kind, *map(str, label))
    for _ in range(draws):
        if kind == "literal":
            centred = stream.uniform(width) - 0.5
            yield -scale * np.sign(centred) * np.log1p(-2 * np.abs(centred))
        else:
            direction = stream.normal(width)
            radius = -scale * np.log1p(-stream.uniform(width)).sum()
            yield radius * direction / np.linalg.norm(direction)


def pooled(data: Adult, l2: float | None = None) -> float:
    """The error of w*, by default with the penalty of the sum of the losses."""
    weights = fit_weights(data.train, 1.0 / len(data.train) if l2 is None else l2)
    return float(np.mean((data.test.features @ weights > 0) != (labels_of(data.test) > 0)))


def constant_of(data: Adult) -> float:
    return float(np.mean(labels_of(data.test) != np.bincount(labels_of(data.train)).argmax()))


def fit_weights(records: Records, l2: float) -> Floats:
    return fit_logistic(records.features, labels_of(records).astype(np.float64), l2, tol=_TOLERANCE).weights


def _mean(parties: Sequence[Records], l2: float) -> Floats:
    return np.asarray(np.mean([fit_weights(own, l2) for own in parties], axis=0), np.float64)


def labels_of(records: Records) -> NDArray[np.int64]:
    return np.asarray(records.labels, np.int64)


def _row(case: str, found: list[float], constant: float, non_private: float, quick: bool) -> dict[str, Any]:
    kind, _, rest = case.partition(" eps=")
    epsilon = float(rest.split()[0]) if rest else None
    place = EPSILONS.index(epsilon) if epsilon in EPSILONS and case.endswith(HARDEST) else None
    reference, bar = REFERENCE.get(kind), BARS.get(kind)
    return {
        "case": case,
        "ours": float(np.mean(found)),
        "spread": float(np.std(found)),
        "repeats": len(found),
        "unit": "test error",
        "paper": None,
        "reference": None if place is None or reference is None else reference[place],
        "bar": None if place is None or bar is None else bar[place],
        "constant": constant,
        "non_private": non_private,
        "note": _note(kind, quick),
    }


def _note(kind: str, quick: bool) -> str:
    said = {
        "default": f"(eps, {DELTA:g}) per record; whole runs of five hosts, noise for one colluder, 20 rounds",
        "default, average": f"(eps, {DELTA:g}) per record; size-weighted average, Gaussian noise for one colluder",
        "pure": "eps per record; size-weighted average, divisible spherical noise for one colluder",
        "pure, svm": "as pure, with the smoothed hinge instead of the logistic loss",
        "literal": "NOT PRIVATE AS CLAIMED: i.i.d. Laplace of scale 2/(n1 eps l2), l2 by the default's rule",
        "spherical": "eps per record; mean of models, radius Gamma(d, 2/(n1 eps l2)), l2 by the default's rule",
        "published": "NOT PRIVATE AS CLAIMED: published variant, i.i.d. Laplace of scale 2/(n1 eps), l2 = 1, mean loss",
        "published pooled": "NOT PRIVATE AS CLAIMED: w* + noise of scale 2/(n eps), l2 = 1, mean loss",
        "paper": "NOT PRIVATE AS CLAIMED: sum loss with l2 = 1 and noise for the mean loss; the paper plots it only",
        "paper pooled": "NOT PRIVATE AS CLAIMED: w* + noise of the paper's figure, sum loss",
        "corrected": "the paper's sum-loss model with the noise that its eps takes",
    }.get(kind, "no noise, all records in one place")
    if kind in ("default", "default, average", "pure", "pure, svm", "spherical"):
        said += "; bin edges from the training rows, rule tried on this table: not charged"
    return said + ("; quick: fewer repeats than the full reproduction" if quick else "")


def _plot(stem: Path, values: Mapping[str, list[float]], size: Size, constant: float, quick: bool) -> None:
    def curve(kind: str, split: str, label: str, style: int) -> Curve | None:
        found = {
            e: values[case]
            for e in sorted({*CURVE, *PAPER_CURVE})
            if (case := f"{kind} eps={e:g} split={split}") in values
        }
        if not found:
            return None
        mean, spread = (tuple(float(f(one)) for one in found.values()) for f in (np.mean, np.std))
        return Curve(label, tuple(found), mean, spread, style)

    levels = (Level("no noise", values["pooled without noise"][0]), Level("constant", constant))
    drawn = {
        "as the paper draws it: sum loss, λ = 1\nNOT PRIVATE AS CLAIMED": [
            ("paper pooled", HARDEST, "w* + η", 1),
            *(("paper", split, f"average, {split}", 0) for split in SPLITS),
            ("corrected", HARDEST, "average, the noise that ε takes", 3),
        ],
        f"the same noise on the mean loss, {HARDEST} split\n(literal: NOT PRIVATE AS CLAIMED)": [
            ("literal", HARDEST, "literal: i.i.d. Laplace", 2),
            ("spherical", HARDEST, "spherical, 2/(n₁ε λ)", 1),
        ],
        f"what we ship, {HARDEST} split, one colluder": [
            ("default", HARDEST, f"gradients, δ = {DELTA:g}", 0),
            ("default, average", HARDEST, f"average, δ = {DELTA:g}", 1),
            ("pure", HARDEST, "average, δ = 0", 2),
        ],
    }
    panels = [
        Panel(title, tuple(one for line in lines if (one := curve(*line)) is not None), levels)
        for title, lines in drawn.items()
    ]
    repeats = f"{size.runs} runs or {size.draws} draws{', quick' if quick else ''}; bars: one standard deviation"
    draw(
        stem,
        panels,
        title="Averaged classifiers of five parties on Adult (Pathak, Rane, Raj 2010, Figure 2)",
        x="ε  (a record replaced)",
        y="test error",
        caption=f"Bin edges were read off the training rows and are not paid for. {repeats}.",
        y_range=(0.1, 0.55),
    )
