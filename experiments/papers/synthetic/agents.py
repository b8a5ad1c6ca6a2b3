"""Agents of the figures of Fioretto and Van Hentenryck (2019): records dealt by anchors, a tenth kept for testing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from comity.data import Records, Schema, split_by_anchors
from comity.entropy import Stream
from comity.methods.synthetic.published import Attributes, Learner, constant_error
from comity.methods.synthetic.published.baselines import fit_and_measure

EPSILON = 1


@dataclass(frozen=True)
class Size:
    """How much is run: agents in all, those that figures are averaged over, depths, numbers of sharers, partitions."""

    agents: int
    looked_at: int
    depths: tuple[int, ...]
    sharers: tuple[int, ...]
    partitions: int


@dataclass(frozen=True, eq=False)
class Agents:
    """Every agent's records, and test records; features are encoded rows. `trained` are the places of all agents'
    records in the table."""

    attributes: Attributes
    own: tuple[Records, ...]
    test: Records
    trained: NDArray[np.int64]

    @classmethod
    def of(cls, frame: pd.DataFrame, schema: Schema, agents: int) -> Agents:
        """Agents differ in the first number of the schema."""
        attributes = Attributes(schema)
        encoded = attributes.encoding.encode(frame).records
        assert encoded.labels is not None
        order = Stream.public("reproduce synthetic-fidelity", "folds").permutation(len(encoded))
        test, train = np.split(order, [len(order) // 10])
        rows: NDArray[np.float64] = encoded.features
        labels: NDArray[Any] = np.asarray(encoded.labels)
        by = next(one.place for one in attributes.all if one.numeric)
        anchors = Stream.public("reproduce synthetic-fidelity", "anchors")
        dealt = split_by_anchors(rows[train], agents, anchors, column=by, low=0.0, high=1.0)
        own = tuple(Records(rows[train[part]], labels[train[part]]) for part in dealt)
        return cls(attributes, own, Records(rows[test], labels[test]), train)

    @property
    def filled(self) -> list[int]:
        """Who has records."""
        return [place for place, own in enumerate(self.own) if len(own)]

    def levels(self, kind: Learner) -> tuple[float, float]:
        """The errors of a constant, and of all records in one place without noise."""
        target = self.attributes.schema.target
        assert target is not None
        rows = np.concatenate([own.features for own in self.own])
        labels = np.concatenate([np.asarray(own.labels) for own in self.own])
        return constant_error(target, labels, self.test), fit_and_measure(kind, target, [rows], [labels], self.test)
