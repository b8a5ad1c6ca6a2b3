"""Lists of a secure sum: survivors are members, as many as the study opens a sum for, each once."""

from __future__ import annotations

from typing import Any

import pytest

from comity.federation.declare.consortium import Consortium

from .test_sum_attacks import VICTIM, Alone, many, without


@pytest.fixture(scope="module")
def consortium() -> Consortium:
    return many(41, dropouts=4)


def test_survivors_that_were_no_members_are_not_agreed_to(consortium: Any) -> None:
    """A party that did not mask has no mask to be opened: whoever stands for it would be counted twice."""
    alone = Alone(consortium)
    alone.until_met()
    outsider = next(party for party in consortium.parties if party != VICTIM)
    members = without(consortium, [outsider])
    assert "ok" in alone.ask("sum.enlist[0]", members=members)
    assert "ok" in alone.ask("sum.seat[0]", roll=alone.roll(members))
    assert "ok" in alone.ask("average[0]")
    for survivors in ([*members, outsider], [*members[:-1], outsider]):
        assert alone.ask("sum.agree[mean/0]", survivors=survivors)["refused"] == "sum"
    few = [VICTIM, *[party for party in members if party != VICTIM][: consortium.survivors - 2]]
    assert len(few) == consortium.survivors - 1
    assert alone.ask("sum.agree[mean/0]", survivors=few)["refused"] == "sum"
    assert alone.ask("sum.agree[mean/0]", survivors=[*members, members[0]])["refused"] == "form"
    assert "ok" in alone.ask("sum.agree[mean/0]", survivors=members)
