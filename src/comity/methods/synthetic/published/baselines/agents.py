"""Agents of the paper's experiments, without wire and ledgers: what each releases, and the errors of Table 2.

    records = encode_records(schema, frame)                         encoded once, split by the caller
    published_errors(schema, train, test, epsilon=1.0)              one cell of Table 2, with its comparisons

The mechanisms are those of the protocol. Names of the paper:

    PFDS       shared records labelled by the vote of all trees     `labelling="vote"`
    PFDS(s)    labelled by the sharer's own tree                    `labelling="own"`
    PFDS−      leaf sizes without least squares                     `agent_release(..., consistency=False)`
    DiffGen    records along a taxonomy                             `diffgen_release`
    DP-Pred    private predictors that vote, or their mean          `train_private_predictors`
    NP-Agt     an agent's own records alone, without privacy
    NP-Pred    all records in one place, without privacy
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
from comity.methods.synthetic.published.baselines.diffgen.budget import DiffGenBudget
from comity.methods.synthetic.published.baselines.diffgen.specialising import draw_generalised, generalise
from comity.methods.synthetic.published.baselines.diffgen.taxonomy import Taxonomy
from comity.methods.synthetic.published.baselines.private_predictors import (
    Noise,
    by_committee,
    by_majority,
    functional_mechanism,
    objective_perturbation,
)
from comity.methods.synthetic.published.constants import PAPER
from comity.methods.synthetic.published.method import Budget
from comity.methods.synthetic.published.predictor import (
    Learner,
    choose_learner,
    constant_error,
    measure_error,
    scale_target,
    train_model,
)
from comity.methods.synthetic.published.synthesis import (
    clip_leaf_masses,
    draw_records,
    round_masses,
    solve_leaf_masses,
    vote,
)
from comity.methods.synthetic.published.tree import (
    Attributes,
    Tree,
    count_levels,
    draw_shape,
    draw_targets,
    grow_tree,
)
from comity.privacy import Neighbours, NoiseSource, SeededNoise, simulated_permit

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Chance = Callable[[str], Stream]

DEPTH, LEVELS, CANDIDATES, LEAVES, L2 = (PAPER[key].value for key in ("depth", "levels", "candidates", "leaves", "l2"))
PRIVATE_L2 = 1e-2
"""The penalty of objective perturbation. The paper prints none; its noise needs more of one than noise-free fits do."""


# What one agent releases.


@dataclass(frozen=True, eq=False)
class AgentRelease:
    """What one agent makes of its records: its tree, the sizes of its leaves, and records without labels; in seconds of
    CPU."""

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
    consistency: bool = True,
) -> AgentRelease:
    """Algorithms 2, 3 and 5 of one agent, with the noise of `budget`; `chance` names the public streams of shape, sizes
    and records. Without `consistency` sizes are those of PFDS−."""
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
    if consistency:
        exact = count_levels(shape, tree.path(values), budget.levels - 1)
        counts = budget.counts.run(noise, exact, permit=simulated_permit("counts"))
        masses = solve_leaf_masses(tree, counts, budget.levels - 1)
    else:
        masses = clip_leaf_masses(tree)
    sizes = round_masses(masses, chance("sizes"))
    return AgentRelease(tree, sizes, draw_records(tree, sizes, chance("records")), process_time() - started)


def diffgen_release(
    attributes: Attributes,
    own: Records,
    budget: DiffGenBudget,
    taxonomy: Taxonomy,
    noise: NoiseSource,
    stream: Stream,
    *,
    candidates: int = CANDIDATES,
    leaves: int = LEAVES,
) -> tuple[Floats, Integers]:
    """Records of one agent and their labels, by the specialisations of `budget` along a taxonomy."""
    found = generalise(
        taxonomy,
        attributes.values(own.features),
        attributes.labels(np.asarray(own.labels)),
        attributes.classes,
        specialisations=budget.specialisations,
        candidates=candidates,
        leaves=leaves,
        stream=stream,
        choose=lambda rows: budget.choice.run(noise, rows, permit=simulated_permit("choice")),
        noise=lambda counts: budget.leaves.run(noise, counts, permit=simulated_permit("leaves")),
    )
    return draw_generalised(found, stream)


def train_private_predictors(
    attributes: Attributes,
    kind: Learner,
    agents: Sequence[Records],
    epsilon: float,
    source: NoiseSource,
    *,
    noise: Noise = "printed",
) -> list[Floats]:
    """DP-Pred of each agent: by objective perturbation, or of a number by the functional mechanism. Two classes."""
    target, length = attributes.schema.target, attributes.encoding.bounds.l2
    if isinstance(target, Bounded):
        return [
            functional_mechanism(
                own.features,
                scale_target(target, np.asarray(own.labels)),
                epsilon=epsilon,
                source=source,
                permit=simulated_permit("polynomial", at),
            )
            for at, own in enumerate(agents)
        ]
    return [
        objective_perturbation(
            own.features / length,
            np.asarray(own.labels),
            model=kind,
            epsilon=epsilon,
            l2=PRIVATE_L2,
            source=source,
            permit=simulated_permit("predictor", at),
            noise=noise,
        )
        for at, own in enumerate(agents)
    ]


def private_error(attributes: Attributes, predictors: Sequence[Floats], test: Records) -> float:
    """The error of the vote of all predictors, or of their mean."""
    target = attributes.schema.target
    assert target is not None and test.labels is not None
    if isinstance(target, Bounded):
        return float(np.mean((by_committee(predictors, test.features) - scale_target(target, test.labels)) ** 2))
    return float(np.mean(by_majority(predictors, test.features / attributes.encoding.bounds.l2) != test.labels))


# Errors of all agents.


@dataclass(frozen=True)
class PublishedErrors:
    """Errors on test records: shares that are predicted wrongly, or mean squared errors of a target on [−1, 1].

    `pfds` and `own_labels` (PFDS(s)) are means over agents' own models, of all that is shared and of their raw records;
    `shared` is of a model of the shared records alone. `private` is DP-Pred, None where there are more than two
    classes. `own` (NP-Agt) is the mean of agents by themselves, `pooled` is NP-Pred. `rows` were shared, in `seconds`
    of CPU of all agents together.
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


def encode_records(schema: Schema, frame: pd.DataFrame, where: str = "the data") -> Records:
    """Records as `published_errors` takes them; the caller splits rows of `features` and `labels`."""
    return Attributes(schema).encoding.encode(frame, where=where).records


def deal_records(attributes: Attributes, train: Records, agents: int, stream: Stream) -> list[Records]:
    """Records of each agent, as in section 4: an agent has an anchor on the first number of the schema, and a record
    goes to it with probability inversely proportional to its distance from there."""
    numbers = [one.place for one in attributes.all if one.numeric]
    by = train.features[:, numbers[0]] if numbers else np.zeros(len(train))
    labels = np.asarray(train.labels)
    dealt = split_by_anchors(by, agents, stream, low=0.0, high=1.0)
    return [Records(train.features[part], labels[part]) for part in dealt]


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
    """One run of the method as published, on one split into training and test records (of `encode_records`).

    Training records go to `owners` by anchors on the first number of the schema; the first `sharers` of those that have
    records share (all, if left out). `learner` is logistic, svm or linear, by the target if left out. Errors of agents'
    own models are averaged over `asked` of them, chosen by chance: each is a fit to everything that is shared. Without
    `compared`, DP-Pred, PFDS(s) and NP-Agt are NaN, and it takes half the time.

    Noise is as printed for `epsilon`, from `noise` or, if left out, from the fast source with a fresh seed: the exact
    one has the same distribution, and takes thirty times as long for the 4,000,000 leaves of 100 owners. `seed` names
    shapes, anchors and records, which are public randomness, new for each run if left out.
    """
    target = schema.target
    assert target is not None
    kind = choose_learner(learner, target)
    found = errors_by_learner(
        schema,
        train,
        test,
        epsilon=epsilon,
        learners=(kind,),
        owners=owners,
        sharers=sharers,
        asked=asked,
        noise=noise,
        seed=seed,
        compared=compared,
    )
    return found[kind]


def errors_by_learner(
    schema: Schema,
    train: Records,
    test: Records,
    *,
    epsilon: float,
    learners: Sequence[Learner],
    owners: int = 100,
    sharers: int | None = None,
    asked: int = 2,
    noise: NoiseSource | None = None,
    seed: bytes | None = None,
    compared: bool = True,
) -> dict[Learner, PublishedErrors]:
    """`published_errors` of several learners on the same releases."""
    attributes, target = Attributes(schema), schema.target
    assert target is not None
    if train.labels is None or test.labels is None or not len(train) or not len(test):
        raise DataError("expected training and test records with labels, found none; use encode_records(schema, frame)")
    name = seed or fresh_seed()
    source = noise or SeededNoise(int.from_bytes(fresh_seed()[:8], "little"))

    def chance(*of: str | int) -> Stream:
        return Stream.public("published errors", name.hex(), *of)

    with threadpool_limits(1, user_api="blas"):
        held = [own for own in deal_records(attributes, train, owners, chance("anchors")) if len(own)]
        sharing = held[: len(held) if sharers is None else max(1, sharers)]
        budget = Budget(Decimal(str(epsilon)), DEPTH, LEVELS, Neighbours.ADD_REMOVE)
        made = [
            agent_release(attributes, own, budget, source, lambda what, at=at: chance(at, what))  # type: ignore[misc]
            for at, own in enumerate(sharing)
        ]
        picked = [held[at] for at in chance("asked").permutation(len(held))[:asked]]
        values = np.concatenate([one.values for one in made])
        rows = attributes.rows(values)
        by_vote = draw_targets(target, vote([one.tree for one in made], values, attributes.classes), chance("vote"))
        by_own = draw_targets(target, np.concatenate([one.tree.predict(one.values) for one in made]), chance("own"))

        def own_models(kind: Learner, targets: NDArray[Any]) -> float:
            found = [
                fit_and_measure(kind, target, [rows, own.features], [targets, np.asarray(own.labels)], test)
                for own in picked
            ]
            return float(np.mean(found))

        def private(kind: Learner) -> float | None:
            if isinstance(target, Classes) and len(target.values) > 2:
                return None
            return private_error(attributes, train_private_predictors(attributes, kind, sharing, epsilon, source), test)

        def alone(kind: Learner) -> float:
            found = [
                fit_and_measure(kind, target, [own.features], [np.asarray(own.labels)], test)
                for own in held[: 10 * asked]
            ]
            return float(np.mean(found))

        return {
            kind: PublishedErrors(
                pfds=own_models(kind, by_vote),
                own_labels=own_models(kind, by_own) if compared else float("nan"),
                shared=fit_and_measure(kind, target, [rows], [by_vote], test),
                private=private(kind) if compared else float("nan"),
                own=alone(kind) if compared else float("nan"),
                constant=constant_error(target, np.asarray(train.labels), test),
                pooled=fit_and_measure(kind, target, [train.features], [np.asarray(train.labels)], test),
                rows=len(rows),
                seconds=sum(one.seconds for one in made),
            )
            for kind in learners
        }


def fit_and_measure(
    kind: Learner, target: Target, rows: Sequence[Floats], labels: Sequence[Any], test: Records
) -> float:
    """The error of one model of all these rows."""
    weights = train_model(kind, target, np.concatenate(rows), np.concatenate(labels), L2)
    return measure_error(target, weights, test.features, np.asarray(test.labels))
