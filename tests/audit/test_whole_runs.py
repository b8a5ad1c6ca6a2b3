"""A protocol of a user whose mechanism has no known likelihood: attacked by whole runs, and caught if it is broken."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from comity.audit.capture import numbers_in
from comity.audit.cases import method_cases
from comity.audit.whole_runs import attack_runs, has_likelihood
from comity.data import Records
from comity.federation.agreement import Agreement
from comity.federation.coordinator.parties import Parties
from comity.federation.declare.consortium import COORDINATOR, EVERY_PARTY, Consortium
from comity.federation.declare.declaration import Declaration, Release
from comity.federation.declare.protection import Computed
from comity.federation.declare.release import Array
from comity.federation.owner.site import Site
from comity.federation.protocol import Protocol, step
from comity.privacy.loss import Pure
from comity.privacy.mechanisms import NoisyMax
from tests.support.consortia import make_consortium

EPSILON = 1.0
PARTIES = ("ash", "birch")


@dataclass(frozen=True)
class LongestColumn(Protocol):
    """Each party tells which of its columns sums to most. `sensitivity` is 1 where entries lie in [0, 1]."""

    name = "longest-column"
    sensitivity: float = 1.0

    def declare(self, consortium: Consortium) -> Declaration:
        mechanism = NoisyMax(loss=Pure(EPSILON), sensitivity=self.sensitivity)
        chosen = Release(
            name="chosen",
            source=EVERY_PARTY,
            to=COORDINATOR,
            protection=Computed(mechanism),
            form=Array((1,), "<i8"),
        )
        return Declaration((chosen,), adversary="a curious coordinator")

    def coordinate(self, parties: Parties) -> dict[str, object]:
        parties.ask(self.choose)
        return {}

    @step(sends="chosen")
    def choose(self, site: Site) -> None:
        site.compute(site.features.sum(axis=0)[None])


def agree(protocol: Protocol) -> Agreement:
    return Agreement("longest", protocol, make_consortium(PARTIES, loss=Pure(EPSILON), dropouts=0))


def test_additive_noise_of_one_kind_has_a_likelihood() -> None:
    assert not has_likelihood(agree(LongestColumn()), "ash")
    for case in method_cases():
        assert has_likelihood(case.study.agreement, case.party), case.name


@pytest.mark.long
def test_whole_runs_hold_a_private_choice_and_catch_a_broken_one() -> None:
    rows = np.full((4, 2), 0.5)
    neighbours = []
    for record in ((1.0, 0.0), (0.0, 1.0)):
        own = rows.copy()
        own[0] = record
        neighbours.append({"ash": Records(own), "birch": Records(rows)})
    found = {}
    for sensitivity in (1.0, 0.15):
        agreement = agree(LongestColumn(sensitivity=sensitivity))
        found[sensitivity] = attack_runs(
            "longest column",
            agreement,
            "ash",
            (neighbours[0], neighbours[1]),
            delta=0.0,
            runs=400,
            confidence=0.99,
            pair="one record",
        )
    assert found[1.0].held and found[1.0].claimed == EPSILON
    assert [control.caught for control in found[1.0].controls] == [True]
    assert not found[0.15].held


def test_numbers_are_taken_in_a_fixed_order() -> None:
    value = {"b": np.array([[1, 2], [3, 4]]), "a": [1.5, "text"], "c": b"xy", "d": True, "e": None}
    assert list(numbers_in(value)) == [2.0, 1.5, 4.0, 1.0, 2.0, 3.0, 4.0, 2.0, 1.0]
