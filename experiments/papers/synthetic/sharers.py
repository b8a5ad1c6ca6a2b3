"""Figure 4 of Fioretto and Van Hentenryck (2019): the error of an agent's own model, by how many agents share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.entropy import Stream
from comity.methods.synthetic.published import Budget, Learner, draw_targets, vote
from comity.methods.synthetic.published.baselines import (
    DEPTH,
    LEVELS,
    AgentRelease,
    agent_release,
    fit_and_measure,
    private_error,
    train_private_predictors,
)
from comity.privacy import Neighbours, SeededNoise
from experiments.papers.synthetic.agents import EPSILON, Agents, Size

Floats = NDArray[np.float64]

KINDS = ("PFDS", "PFDS(s)", "DP-Pred")
"""What is drawn against the number of sharers."""


def released(agents: Agents) -> dict[int, AgentRelease]:
    """Of every agent that has records, at the depth that the paper takes."""
    budget = Budget(Decimal(EPSILON), DEPTH, LEVELS, Neighbours.ADD_REMOVE)
    return {
        place: agent_release(
            agents.attributes,
            agents.own[place],
            budget,
            SeededNoise(1000 * DEPTH + place),
            partial(Stream.public, "reproduce synthetic-fidelity", DEPTH, place),
        )
        for place in agents.filled
    }


def by_sharers(agents: Agents, kind: Learner, size: Size, made: dict[int, AgentRelease]) -> Iterator[tuple[str, float]]:
    """Errors of models of an agent's own records and of all that is shared, by their cases."""
    attributes, test, filled = agents.attributes, agents.test, agents.filled
    target = attributes.schema.target
    assert target is not None
    own = {place: np.asarray(agents.own[place].labels) for place in filled}
    private = dict(
        zip(
            filled,
            train_private_predictors(
                attributes, kind, [agents.own[place] for place in filled], float(EPSILON), SeededNoise(0)
            ),
        )
    )

    def scored(rows: Sequence[Floats], labels: Sequence[NDArray[Any]]) -> float:
        return fit_and_measure(kind, target, rows, labels, test)

    for place in filled[: size.looked_at]:
        yield f"{kind}, NP-Agt", scored([agents.own[place].features], [own[place]])
    for count in size.sharers:
        sharers = filled[:count]
        trees = [made[place].tree for place in sharers]
        rows = [attributes.rows(made[place].values) for place in sharers]
        labelled = {
            "PFDS": [vote(trees, made[place].values, attributes.classes) for place in sharers],
            "PFDS(s)": [made[place].tree.predict(made[place].values) for place in sharers],
        }
        for name, labels in labelled.items():
            targets = [
                draw_targets(target, told, Stream.public("reproduce synthetic-fidelity", "targets", place))
                for place, told in zip(sharers, labels)
            ]
            for place in filled[: max(1, size.looked_at // 4)]:
                found = scored([*rows, agents.own[place].features], [*targets, own[place]])
                yield f"{kind}, {name} n={count}", found
        yield f"{kind}, DP-Pred n={count}", private_error(attributes, [private[place] for place in sharers], test)
