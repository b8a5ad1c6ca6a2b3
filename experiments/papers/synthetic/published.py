"""Private datasets as Fioretto and Van Hentenryck (2019) published them, for tables and figures: what each agent
releases, and the error of what is learned from it. The mechanisms are those of the protocol; wire and ledgers are left
out.

    records_of(schema, frame)                              encoded once, split by whoever calls
    published_errors(schema, train, test, epsilon=…)       the errors of one cell of Table 2, with its comparisons
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from time import process_time
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from comity.data import Bounded, Classes, Records, Schema, Target, split_by_anchors
from comity.entropy import Stream, fresh_seed
from comity.errors import DataError
from comity.methods.synthetic.published import (
    Attributes,
    Budget,
    Learner,
    Tree,
    choose_learner,
    constant_error,
    count_levels,
    draw_records,
    draw_shape,
    draw_targets,
    grow_tree,
    measure_error,
    round_masses,
    scale_target,
    solve_leaf_masses,
    train_model,
    vote,
)
from comity.privacy import Neighbours, NoiseSource, SeededNoise, simulated_permit
from experiments.papers.synthetic.private_predictors import (
    by_committee,
    by_majority,
    functional,
    objective_perturbation,
)

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Chance = Callable[[str], Stream]

DEPTH, LEVELS, CANDIDATES, LEAVES, L2 = 8, 4, 10, 20_000, 1e-4
# Objective perturbation takes more of a penalty than the noise-free fits: agents have some hundred records.
_PRIVATE_L2 = 1e-2


@dataclass(frozen=True, eq=False)
class AgentRelease:
    """What one agent makes of its records: its tree, the sizes of its leaves, and records without labels."""

    tree: Tree
    sizes: Integers
    values: Floats
    seconds: float


def agent_release(
    attributes: Attributes,
    own: Records,
    budget: Budget,
    noise: NoiseSource,
    chance: Chance,
    *,
    candidates: int = CANDIDATES,
    leaves: int = LEAVES,
) -> AgentRelease:
    """Tree, counts of its upper levels, consistent sizes and records, with the noise of `budget`; `chance` names the
    public streams of shape, sizes and records. Seconds are of CPU."""
    started = process_time()
    values, labels = attributes.values(own.features), attributes.labels(np.asarray(own.labels))
    shape = draw_shape(attributes.all, depth=budget.depth, candidates=candidates, leaves=leaves, stream=chance("shape"))
    tree = grow_tree(
        shape,
        values,
        labels,
        attributes.classes,
        choose=lambda number, rows: budget.choice.run(noise, rows, permit=simulated_permit("split", number)),
        noise=lambda counts: budget.leaves.run(noise, counts, permit=simulated_permit("leaves")),
    )
    exact = count_levels(shape, tree.path(values), budget.levels - 1)
    counts = budget.counts.run(noise, exact, permit=simulated_permit("counts"))
    sizes = round_masses(solve_leaf_masses(tree, counts, budget.levels - 1), chance("sizes"))
    return AgentRelease(tree, sizes, draw_records(tree, sizes, chance("records")), process_time() - started)


@dataclass(frozen=True)
class PublishedErrors:
    """Errors on test records: shares that are predicted wrongly, or mean squared errors of a target on [−1, 1].

    `pfds` and `own_labels` (PFDS(s): labels by the sharer's own tree) are means over agents' own models, of all that is
    shared and of their raw records; `shared` is of a model of the shared records alone. `private` is DP-Pred, None
    where there are more than two classes. `own` (NP-Agt) is the mean of agents by themselves. `rows` were shared, in
    `seconds` of CPU of all agents together.
    """

    pfds: float
    own_labels: float
    shared: float
    private: float | None
    own: float
    constant: float
    pooled: float
    rows: int
    seconds: float


def records_of(schema: Schema, frame: pd.DataFrame, where: str = "the data") -> Records:
    """Records as `published_errors` takes them; rows of `features` and `labels` may be taken apart as one likes."""
    return Attributes(schema).encoding.encode(frame, where=where).records


def published_errors(
    schema: Schema,
    train: Records,
    test: Records,
    *,
    epsilon: float,
    owners: int = 100,
    sharers: int | None = None,
    learner: str | None = None,
    asked: int = 2,
    noise: NoiseSource | None = None,
    seed: bytes | None = None,
    compared: bool = True,
) -> PublishedErrors:
    """One run of the method as published, on one split into training and test records (of `records_of`).

    Training records go to `owners` by anchors on the first number of the schema; the first `sharers` of those that have
    records share (all, if left out). `learner` is logistic, svm or linear, by the target if left out. Errors of agents'
    own models are averaged over `asked` of them, chosen by chance: each is a fit to everything that is shared. Without
    `compared`, DP-Pred, PFDS(s) and NP-Agt are NaN, and it takes half the time.

    Noise is as printed for `epsilon`, from `noise` or, if left out, from the fast source with a fresh seed: the exact
    one has the same distribution, and takes thirty times as long for the 4,000,000 leaves of 100 owners. `seed` names
    shapes, anchors and records, which are public chance, new for each run if left out.
    """
    attributes = Attributes(schema)
    target = schema.target
    assert target is not None
    if train.labels is None or test.labels is None or not len(train) or not len(test):
        raise DataError("expected training and test records with labels, found none; use records_of(schema, frame)")
    kind, name = choose_learner(learner, target), seed or fresh_seed()
    source = noise or SeededNoise(int.from_bytes(fresh_seed()[:8], "little"))

    def chance(*of: str | int) -> Stream:
        return Stream.public("published errors", name.hex(), *of)

    with threadpool_limits(1, user_api="blas"):
        held = [own for own in _dealt(attributes, train, owners, chance("anchors")) if len(own)]
        sharing = held[: len(held) if sharers is None else max(1, sharers)]
        budget = Budget(Decimal(str(epsilon)), DEPTH, LEVELS, Neighbours.ADD_REMOVE)
        made = [
            agent_release(attributes, own, budget, source, lambda what, at=at: chance(at, what))  # type: ignore[misc]
            for at, own in enumerate(sharing)
        ]
        rows = attributes.rows(np.concatenate([one.values for one in made]))
        picked = [held[at] for at in chance("asked").permutation(len(held))[:asked]]

        def learned(labels: Integers, more: Sequence[Records], of: str) -> float:
            targets = draw_targets(target, labels, chance(of))
            found = [
                fitted(kind, target, [rows, *(one.features for one in some)], [targets, *_labels(some)], test)
                for some in ([[one] for one in more] or [[]])
            ]
            return float(np.mean(found))

        every, trees = [one.values for one in made], [one.tree for one in made]
        votes = vote(trees, np.concatenate(every), attributes.classes)
        alone = np.concatenate([one.tree.predict(one.values) for one in made])
        private: float | None = float("nan")
        if compared:
            several = isinstance(target, Classes) and len(target.values) > 2
            found = [] if several else private_predictors(attributes, kind, sharing, epsilon, source)
            private = private_error(attributes, found, test) if found else None
        return PublishedErrors(
            pfds=learned(votes, picked, "vote"),
            own_labels=learned(alone, picked, "own") if compared else float("nan"),
            shared=learned(votes, [], "vote"),
            private=private,
            own=_alone(kind, target, held[: 10 * asked], test) if compared else float("nan"),
            constant=constant_error(target, np.asarray(train.labels), test),
            pooled=fitted(kind, target, [train.features], [np.asarray(train.labels)], test),
            rows=len(rows),
            seconds=sum(one.seconds for one in made),
        )


def fitted(kind: Learner, target: Target, rows: Sequence[Floats], labels: Sequence[Any], test: Records) -> float:
    """The error of one model of all these rows."""
    weights = train_model(kind, target, np.concatenate(rows), np.concatenate(labels), L2)
    return measure_error(target, weights, test.features, np.asarray(test.labels))


def private_predictors(
    attributes: Attributes, kind: Learner, agents: Sequence[Records], epsilon: float, noise: NoiseSource
) -> list[Floats]:
    """DP-Pred of each agent: by objective perturbation, or of a number by the functional mechanism. Two classes."""
    target, length = attributes.schema.target, attributes.encoding.bounds.l2
    if isinstance(target, Bounded):
        return [
            functional(own.features, scale_target(target, np.asarray(own.labels)), epsilon=epsilon, source=noise)
            for own in agents
        ]
    return [
        objective_perturbation(
            own.features / length,
            np.asarray(own.labels),
            model=kind,
            epsilon=epsilon,
            l2=_PRIVATE_L2,
            source=noise,
            permit=simulated_permit("predictor", at),
        )
        for at, own in enumerate(agents)
    ]


def private_error(attributes: Attributes, predictors: Sequence[Floats], test: Records) -> float:
    """Of the vote of all predictors, or of their mean."""
    target = attributes.schema.target
    assert target is not None and test.labels is not None
    if isinstance(target, Bounded):
        return float(np.mean((by_committee(predictors, test.features) - scale_target(target, test.labels)) ** 2))
    return float(np.mean(by_majority(predictors, test.features / attributes.encoding.bounds.l2) != test.labels))


def _alone(kind: Learner, target: Target, agents: Sequence[Records], test: Records) -> float:
    return float(np.mean([fitted(kind, target, [own.features], _labels([own]), test) for own in agents]))


def _dealt(attributes: Attributes, train: Records, owners: int, stream: Stream) -> list[Records]:
    numbers = [one.place for one in attributes.all if one.numeric]
    by = train.features[:, numbers[0]] if numbers else np.zeros(len(train))
    labels = np.asarray(train.labels)
    dealt = split_by_anchors(by, owners, stream, low=0.0, high=1.0)
    return [Records(train.features[part], labels[part]) for part in dealt]


def _labels(of: Sequence[Records]) -> list[NDArray[Any]]:
    return [np.asarray(one.labels) for one in of]
