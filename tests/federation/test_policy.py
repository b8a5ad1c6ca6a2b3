"""An owner's terms hold to the last run, the last record and the last digit."""

from __future__ import annotations

from decimal import Decimal

import pytest

from comity.errors import Refused
from comity.federation.consortium import COORDINATOR, EVERY_PARTY
from comity.federation.declaration import Declaration, Release
from comity.federation.forms import Array, Count
from comity.federation.policy import Policy
from comity.federation.protection import Disclosed

from .toy import STUDY, Rounds, consortium

WHO = consortium()


def checked(policy, *, runs=0, declaration=None):
    """The key that a policy refuses by, or "ok"."""
    try:
        policy.check(
            study=STUDY,
            runs=runs,
            protocol="rounds",
            declaration=declaration or Rounds().declare(WHO),
            party="ash",
            who=WHO,
        )
    except Refused as refused:
        return refused.key or refused.code
    return "ok"


@pytest.mark.parametrize("allowed", [1, 3])
def test_as_many_runs_as_approved_and_not_one_more(allowed):
    policy = Policy(approved={STUDY: allowed})
    assert [checked(policy, runs=runs) for runs in range(allowed + 2)] == ["ok"] * allowed + ["approval"] * 2


def test_a_ceiling_holds_to_the_last_digit_and_counts_every_run():
    def ceiling(epsilon):
        return Policy(epsilon_per_study=epsilon, delta_per_study=Decimal("1e-6"), approved={STUDY: 9})

    def least(runs):
        """The smallest of many ceilings that the runs pass."""
        low, high = Decimal(0), Decimal(100)
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (low, middle) if checked(ceiling(middle), runs=runs) == "ok" else (middle, high)
        return high

    one, two = least(0), least(1)
    # Three releases of rho 0.05 are a Gaussian of mu sqrt(0.3): exactly 2.492 at delta 1e-6, and 2.673 by way of zCDP.
    assert 2.4919 < float(one) < 2.6731 and 1.3 < two / one < 2
    assert checked(ceiling(one * Decimal("0.98"))) == "epsilon_per_study"


def disclosing(protection):
    release = Release(name="scores", source=EVERY_PARTY, to=COORDINATOR, protection=protection, form=Array((2,)))
    return Declaration((release,), adversary="nobody")


def test_as_many_joint_predictions_as_allowed_and_not_one_more():
    allowed = Policy(joint_predictions=10, approved={STUDY: 1})
    for most, wanted in ((9, "ok"), (10, "ok"), (11, "joint_predictions"), (0, "joint_predictions")):
        declared = disclosing(Disclosed("scores", "joint_predictions", most))
        assert checked(allowed, declaration=declared) == wanted, most


def test_what_leaves_exactly_needs_its_own_word():
    declared = disclosing(Disclosed("sizes", "sizes_may_leave"))
    assert checked(Policy(approved={STUDY: 1}), declaration=declared) == "sizes_may_leave"
    other = Policy(disclosures=frozenset({"records_may_leave"}), approved={STUDY: 1})
    assert checked(other, declaration=declared) == "sizes_may_leave"
    word = Policy(disclosures=frozenset({"sizes_may_leave"}), approved={STUDY: 1})
    assert checked(word, declaration=declared) == "ok"
    of_coordinator = Release(
        name="size", source=COORDINATOR, to=EVERY_PARTY, protection=Disclosed("sizes", "sizes_may_leave"), form=Count(9)
    )
    # What another participant discloses is its own affair.
    assert checked(Policy(approved={STUDY: 1}), declaration=Declaration((of_coordinator,), adversary="nobody")) == "ok"
