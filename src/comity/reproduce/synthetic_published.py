"""The published method on the datasets of Table 2: every agent shares a dataset of its own and learns from all of them.

Agents differ in the first number of the schema, by anchors as published. The error is that of a model that an agent
fits to all shared records and to its own, in the mean over a few agents.
"""

from __future__ import annotations

from statistics import fmean

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from comity.data import Bounded, Records, Schema, by_anchors
from comity.entropy import Stream
from comity.protocols.synthetic.published.attributes import BUCKETS, Attributes
from comity.protocols.synthetic.published.predictor import Learner, error, trained
from comity.protocols.synthetic.published.synthesis import voted
from comity.reproduce.synthetic_fidelity import DEPTH, L2, Agents, shared

Floats = NDArray[np.float64]

# Agents whose own models are scored: those of the others differ by their own records alone.
_ASKED = 3


def dealt(schema: Schema, frame: pd.DataFrame, tested: NDArray[np.int64], agents: int) -> Agents:
    """Agents with the records of a frame but those that are for testing."""
    attributes = Attributes(schema)
    encoded = attributes.encoding.encode(frame).records
    assert encoded.labels is not None
    rows, labels = encoded.features, encoded.labels
    train = np.setdiff1d(np.arange(len(rows)), tested)
    number = next(one.place for one in attributes.all if one.numeric)
    anchors = by_anchors(rows[train], agents, Stream.public("table 2", "anchors"), column=number, low=0.0, high=1.0)
    own = tuple(Records(rows[train[part]], labels[train[part]]) for part in anchors)
    return Agents(attributes, own, Records(rows[tested], labels[tested]))


def published_error(agents: Agents, epsilon: float, number: int) -> float:
    """Of one draw of all agents' noise; the noise is that of the paper for its ε."""
    attributes, test, target = agents.attributes, agents.test, agents.attributes.schema.target
    assert target is not None and test.labels is not None
    filled = [place for place, own in enumerate(agents.own) if len(own)]
    made = [shared(agents, place, DEPTH, epsilon=epsilon, number=number) for place in filled]
    values = np.concatenate([one.consistent for one in made])
    labels: NDArray[np.int64] | Floats = voted([one.tree for one in made], values, attributes.classes)
    learner: Learner = "logistic"
    if isinstance(target, Bounded):
        learner = "linear"
        within = Stream.public("table 2", "buckets", number).uniform(len(labels))
        labels = target.low + (labels + within) / BUCKETS * (target.high - target.low)
    rows = attributes.rows(values)
    errors = []
    for place in filled[:_ASKED]:
        own = agents.own[place]
        both = np.concatenate([rows, own.features]), np.concatenate([labels, np.asarray(own.labels)])
        errors.append(error(target, trained(learner, target, *both, L2), test.features, test.labels))
    return fmean(errors)
