"""A lie that public figures allow makes a result worse than a constant: other owners see it on their own records."""

from __future__ import annotations

from typing import Any

import pytest

from comity.federation.coordinator.lifecycle import run
from comity.federation.evaluation.own_score import OwnScore
from tests.support import vertical
from tests.synthetic import by_columns

from .influence import METHODS
from .liar import host_all, multiply_contributions
from .studies import case


def scores(method: str, factor: float | None) -> list[OwnScore]:
    """What each honest owner finds; without a factor nobody lies."""
    study = case(method, 5)
    records, liars = dict(study.records), {}
    if factor is not None:
        records[study.liar] = study.flipped
        liars = {study.liar: multiply_contributions(study.protocol, study.consortium, factor)}
    parties, _ = host_all(study.protocol, study.consortium, records, liars=liars)
    presented = study.protocol.present(run(parties), study.consortium)
    found = [study.protocol.score_own(presented, study.records[name], name) for name in study.consortium.parties[:-1]]
    return [one for one in found if one is not None]


@pytest.mark.parametrize("method", METHODS)
def test_every_honest_owner_finds_a_spoiled_result_worse_than_a_constant(method: str) -> None:
    honest, spoiled = scores(method, None), scores(method, 10.0)
    assert len(honest) == len(spoiled) == 4
    assert not any(one.is_worse for one in honest)
    assert all(one.is_worse for one in spoiled)


def test_owners_of_columns_score_what_they_can() -> None:
    """A dataset by the owner's own columns; a model over columns of all of them by nobody."""
    tried = by_columns.build_columns(target=None)
    consortium = by_columns.make_consortium_of(tried)
    held = vertical.encode_parts(tried, by_columns.make_people(400, target=None))
    presented = tried.present({"tables": by_columns.run_hosts(tried, consortium, held)}, consortium)
    for party, own in held.items():
        found = tried.score_own(presented, own, party)
        assert found is not None and found.records == 400 and found.error < found.constant
    other: Any = vertical.build_regression()
    assert other.score_own(object(), next(iter(held.values())), "ash") is None
