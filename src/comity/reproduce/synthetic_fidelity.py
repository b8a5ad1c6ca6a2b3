"""Figures 3 and 4 of Fioretto and Van Hentenryck (2019): private datasets from trees, on Census (Adult), ε = 1.

    sizes         Figure 3a: how far the number of shared records is from that of an agent's own, by the depth of trees
    wasserstein   Figure 3b: distance of the histograms that random partitions of the domain give, shared against own
    seconds       Figure 3c: CPU of one agent's release, drawing of noise included (seeded, which is fast)
    sharers       Figure 4, left: error of an agent's own logistic model, by how many agents share

Agents differ in age, by anchors as published. Noise is that of the paper; what it truly costs is in the notes. The
figures of the paper are plots: there is nothing to put beside ours but what it says of them. DiffGen, which the paper
draws too, is not here. The private predictors of Figure 4 are by objective perturbation with the corrected noise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import wasserstein_distance
from threadpoolctl import threadpool_limits

from comity.data import Records, Schema, by_anchors
from comity.data.adult import adult, adult_schema
from comity.entropy import Stream
from comity.privacy.permit import Permit
from comity.privacy.randomness import SeededNoise
from comity.privacy.unit import Neighbours
from comity.protocols.synthetic.published.attributes import Attributes
from comity.protocols.synthetic.published.budget import Budget
from comity.protocols.synthetic.published.growing import grown
from comity.protocols.synthetic.published.predictor import error, trained
from comity.protocols.synthetic.published.private_predictors import by_majority, objective_perturbation
from comity.protocols.synthetic.published.shape import drawn
from comity.protocols.synthetic.published.synthesis import noisy_masses, records, voted, whole
from comity.protocols.synthetic.published.tree import Tree
from comity.reproduce.plot import Curve, Level, Panel, draw
from comity.reproduce.synthetic_published import DEPTH, L2, LEVELS, agent_release

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

EPSILON = 1
_CLASSES = 2
# Records without least squares are up to hundreds of thousands; a histogram takes no more than so many.
_SAMPLED = 5000


@dataclass(frozen=True)
class Size:
    """How much is run: agents in all, those that figures are averaged over, depths, numbers of sharers, partitions."""

    agents: int
    looked_at: int
    depths: tuple[int, ...]
    sharers: tuple[int, ...]
    partitions: int


FULL = Size(100, 20, (4, 5, 6, 7, 8, 9, 10), (10, 25, 50, 75, 100), 50)
QUICK = Size(100, 4, (4, 8), (10, 100), 10)


@dataclass(frozen=True, eq=False)
class Agents:
    """Every agent's records, and test records; features are encoded rows."""

    attributes: Attributes
    own: tuple[Records, ...]
    test: Records

    @classmethod
    def of(cls, frame: pd.DataFrame, schema: Schema, agents: int) -> Agents:
        attributes = Attributes(schema)
        encoded = attributes.encoding.encode(frame).records
        assert encoded.labels is not None
        order = Stream.public("reproduce synthetic-fidelity", "folds").permutation(len(encoded))
        test, train = np.split(order, [len(order) // 10])
        rows, labels = encoded.features, np.asarray(encoded.labels, np.int64)
        dealt = by_anchors(
            rows[train], agents, Stream.public("reproduce synthetic-fidelity", "anchors"), low=0.0, high=1.0
        )
        own = tuple(Records(rows[train[part]], labels[train[part]]) for part in dealt)
        return cls(attributes, own, Records(rows[test], labels[test]))


@dataclass(frozen=True, eq=False)
class Shared:
    """What one agent makes of its records: its tree, unlabelled records with least squares, and without them how many
    there would be (`cut`) and a sample of these."""

    tree: Tree
    consistent: Floats
    cut: int
    sample: Floats
    seconds: float


def shared(agents: Agents, agent: int, depth: int) -> Shared:
    budget = Budget(Decimal(EPSILON), depth, LEVELS, Neighbours.ADD_REMOVE)
    chance = partial(Stream.public, "reproduce synthetic-fidelity", depth, agent)
    made = agent_release(agents.attributes, agents.own[agent], budget, SeededNoise(1000 * depth + agent), chance)
    cut = noisy_masses(made.tree)
    sample = whole(cut * min(1.0, _SAMPLED / max(1.0, float(cut.sum()))), chance("sample sizes"))
    return Shared(made.tree, made.values, int(cut.sum()), records(made.tree, sample, chance("sample")), made.seconds)


def run(*, quick: bool, out: Path | None) -> list[dict[str, Any]]:
    """The rows of the table; with `out` also four plots. COMITY_DATA names the folder of the data."""
    size = QUICK if quick else FULL
    with threadpool_limits(1, user_api="blas"):
        return reproduced(Agents.of(adult(), adult_schema(), size.agents), size, out, quick=quick)


def reproduced(agents: Agents, size: Size, out: Path | None, *, quick: bool = False) -> list[dict[str, Any]]:
    constant, pooled = _levels(agents)
    values: dict[str, list[float]] = {}
    for case, value in (*by_depth(agents, size), *by_sharers(agents, size)):
        values.setdefault(case, []).append(value)
    if out is not None:
        _plots(out, values, size, constant, pooled, quick)
    return [_row(case, found, constant, pooled, quick) for case, found in values.items()]


def by_depth(agents: Agents, size: Size) -> Iterator[tuple[str, float]]:
    """Figure 3, for the agents that have records."""
    places = [place for place, own in enumerate(agents.own) if len(own)][: size.looked_at]
    # What is compiled at the first call is in nobody's time.
    shared(agents, places[0], size.depths[0])
    for depth in size.depths:
        for place in places:
            made, count = shared(agents, place, depth), len(agents.own[place])
            yield f"sizes, PFDS h={depth}", float(abs(len(made.consistent) - count))
            yield f"sizes, PFDS- h={depth}", float(abs(made.cut - count))
            yield f"seconds, PFDS h={depth}", made.seconds
            real = agents.attributes.values(agents.own[place].features)
            for kind, of in (("PFDS", made.consistent), ("PFDS-", made.sample)):
                for distance in distances(agents.attributes, real, of, size.partitions):
                    yield f"wasserstein, {kind} h={depth}", distance


def distances(attributes: Attributes, real: Floats, made: Floats, partitions: int) -> Iterator[float]:
    """Of the histograms over the cells of random partitions, cells being one apart and the distance a share of all."""
    for number in range(partitions):
        stream = Stream.public("reproduce synthetic-fidelity", "partition", number)
        shape = drawn(attributes.all, depth=4, candidates=1, leaves=200, stream=stream)
        cut = grown(
            shape,
            np.zeros((0, len(attributes.all))),
            np.zeros(0, np.int64),
            1,
            choose=lambda _, rows: np.zeros(len(rows), np.int64),
            noise=lambda counts: counts,
        )
        if not len(made) or shape.leaves < 2:
            continue
        cells = np.arange(shape.leaves)
        first, second = (np.bincount(cut.path(of)[-1], minlength=shape.leaves) for of in (real, made))
        yield float(wasserstein_distance(cells, cells, first, second)) / (shape.leaves - 1)


def by_sharers(agents: Agents, size: Size) -> Iterator[tuple[str, float]]:
    """Figure 4: an agent's model of its own records and of all that is shared."""
    attributes, test, target = agents.attributes, agents.test, agents.attributes.schema.target
    assert target is not None and test.labels is not None
    filled = [place for place, own in enumerate(agents.own) if len(own)]
    made = {place: shared(agents, place, DEPTH) for place in filled}
    length = attributes.encoding.bounds.l2
    private = {place: _private(agents.own[place], place, length) for place in filled}
    asked = filled[: max(1, size.looked_at // 4)]

    def scored(rows: Sequence[Floats], labels: Sequence[Integers]) -> float:
        weights = trained("logistic", target, np.concatenate(rows), np.concatenate(labels), L2)
        return error(target, weights, test.features, np.asarray(test.labels))

    for place in filled[: size.looked_at]:
        own = agents.own[place]
        yield "sharers, NP-Agt", scored([own.features], [np.asarray(own.labels)])
    for count in size.sharers:
        sharers = filled[:count]
        trees = [made[place].tree for place in sharers]
        rows = [attributes.rows(made[place].consistent) for place in sharers]
        votes = [voted(trees, made[place].consistent, _CLASSES) for place in sharers]
        alone = [made[place].tree.predict(made[place].consistent) for place in sharers]
        for place in asked:
            own = agents.own[place]
            yield f"sharers, PFDS n={count}", scored([*rows, own.features], [*votes, np.asarray(own.labels)])
            yield f"sharers, PFDS(s) n={count}", scored([*rows, own.features], [*alone, np.asarray(own.labels)])
        chosen = by_majority([private[place] for place in sharers], test.features / length)
        yield f"sharers, DP-Pred n={count}", float(np.mean(chosen != test.labels))


def _private(own: Records, place: int, length: float) -> Floats:
    return objective_perturbation(
        own.features / length,
        np.asarray(own.labels),
        epsilon=float(EPSILON),
        l2=1e-2,
        source=SeededNoise(place),
        permit=Permit("predictor", place),
    )


def _levels(agents: Agents) -> tuple[float, float]:
    """The errors of a constant, and of all records in one place without noise."""
    target, test = agents.attributes.schema.target, agents.test
    assert target is not None and test.labels is not None
    rows = np.concatenate([own.features for own in agents.own])
    labels = np.concatenate([np.asarray(own.labels) for own in agents.own])
    constant = float(np.mean(np.asarray(test.labels) != np.bincount(labels).argmax()))
    return constant, error(target, trained("logistic", target, rows, labels, L2), test.features, test.labels)


def _row(case: str, found: list[float], constant: float, pooled: float, quick: bool) -> dict[str, Any]:
    panel = case.partition(",")[0]
    errors = panel == "sharers"
    unit = {"sizes": "records", "seconds": "s", "wasserstein": "share of cells", "sharers": "test error"}[panel]
    return {
        "case": case,
        "ours": float(np.mean(found)),
        "spread": float(np.std(found)),
        "repeats": len(found),
        "unit": unit,
        "paper": None,
        "reference": None,
        "constant": constant if errors else None,
        "non_private": pooled if errors else None,
        "note": _note(case) + ("; quick: fewer repeats than the full reproduction" if quick else ""),
    }


def _note(case: str) -> str:
    if "DP-Pred" in case:
        return "eps 1 for a replaced record; objective perturbation, vote of all that share"
    if "NP-Agt" in case:
        return "each agent by itself, no privacy needed: nothing is shared"
    return "noise as printed for eps 1, which costs 0.78 of it at h = 8 for a record that comes or goes"


def _plots(out: Path, values: dict[str, list[float]], size: Size, constant: float, pooled: float, quick: bool) -> None:
    said = f"ε = 1, {size.agents} agents by anchors on age{', quick' if quick else ''}; bars: one standard deviation."

    def curve(kind: str, at: Sequence[int], mark: str, style: int, *, log: bool = False) -> Curve:
        found = [np.asarray(values[f"{kind} {mark}={one}"]) for one in at]
        shown = [np.log10(np.maximum(one, 1e-9 if "seconds" in kind else 1.0)) if log else one for one in found]
        y, spread = (tuple(float(f(one)) for one in shown) for f in (np.mean, np.std))
        return Curve(kind.partition(", ")[2], tuple(map(float, at)), y, spread, style)

    def plot(stem: str, curves: Sequence[Curve], x: str, y: str, levels: tuple[Level, ...] = ()) -> None:
        points = [*(value for one in curves for value in one.y), *(level.y for level in levels)]
        room = 0.1 * (max(points) - min(points)) + 1e-3
        draw(
            out / stem,
            [Panel("Census", tuple(curves), levels)],
            title="Fioretto, Van Hentenryck 2019",
            x=x,
            y=y,
            caption=said,
            y_range=(min(points) - room, max(points) + room),
        )

    depth = partial(curve, at=size.depths, mark="h")
    plot(
        "synthetic-sizes",
        [depth("sizes, PFDS", style=0, log=True), depth("sizes, PFDS-", style=1, log=True)],
        "depth of trees",
        "log₁₀ of the error in the number of records",
    )
    plot(
        "synthetic-wasserstein",
        [depth("wasserstein, PFDS", style=0), depth("wasserstein, PFDS-", style=1)],
        "depth of trees",
        "Wasserstein distance",
    )
    plot("synthetic-seconds", [depth("seconds, PFDS", style=0, log=True)], "depth of trees", "log₁₀ of CPU seconds")
    kinds = ("PFDS", "PFDS(s)", "DP-Pred")
    plot(
        "synthetic-sharers",
        [curve(f"sharers, {kind}", size.sharers, "n", style) for style, kind in enumerate(kinds)],
        "agents that share",
        "test error",
        (Level("constant", constant), Level("no noise, pooled", pooled)),
    )
